"""Every part that Node owns is in its list of parts, once, and every step of staging in that of the steps: one that is not would compile
and never be told anything."""
import re
import unittest

import tree

CLASS = re.compile(r"\bclass (\w+) final : public (Part|StagingStep)\b")
MEMBER = re.compile(r"^  (\w+) (\w+);", re.M)


def complaints(headers, impl):
    """`headers`: the texts that define parts; `impl`: that of Node::Impl."""
    base = {name: of for text in headers for name, of in CLASS.findall(text)}
    lists = {"Part": re.search(r"parts\{([^}]*)\}", impl), "StagingStep": re.search(r"staging\.use\(\{([^}]*)\}", impl)}
    found = {of: re.findall(r"&(\w+)", match.group(1)) for of, match in lists.items()}
    said = []
    for name, member in MEMBER.findall(impl):
        for of in ["Part"] + (["StagingStep"] if base.get(name) == "StagingStep" else []):
            if name in base and found[of].count(member) != 1:
                said.append("%s is %d times in the list of %s" % (member, found[of].count(member), of))
    return said


class Parts(tree.Tidy):
    def test_tree(self):
        headers = [tree.read(path) for path in tree.files(".h", under="common/node")]
        self.assertGreater(sum(len(CLASS.findall(text)) for text in headers), 20)
        self.assertEqual(complaints(headers, tree.read("common/node/node_impl.h")), [])

    def test_rule_bites(self):
        headers = ["class A final : public Part {", "class B final : public StagingStep {"]
        impl = "    staging.use({&b});\n  A a;\n  B b;\n  C c;\n  const std::vector<Part*> parts{&a, &b};\n"
        self.assertEqual(complaints(headers, impl), [])
        self.assertEqual(len(complaints(headers, impl.replace("parts{&a, &b}", "parts{&b}"))), 1)
        self.assertEqual(len(complaints(headers, impl.replace("use({&b})", "use({})"))), 1)
        self.assertEqual(len(complaints(headers, impl.replace("parts{&a, &b}", "parts{&a, &a, &b}"))), 1)


if __name__ == "__main__":
    unittest.main()
