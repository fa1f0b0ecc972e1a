"""Nothing in common/ and agent/ decides by the text of a message or of a reason: what is done next hangs on a state or a code that is
said beside the text. Texts that are formats of their own (files of /proc, job files, protocols) are no messages, nor are the words by
which dtrainctl is told of states."""
import re
import unittest

import tree
from test_tables import uncommented

# What is called so is a text for people.
TEXT = (r"\b(?:\w*(?:\.|->|_))?(?:reason|message|cause|why|problem|errors|said|detail|note|finding|complaint|unfit|unhealthy|fate)_?"
        r"(?:\(\))?")
LITERAL = r'"(?:\\.|[^"\\\n])*"'
CONSTANT = re.compile(r"(?:const char\*|std::string_view|const std::string)\s+(?:const\s+)?(k[A-Z]\w*)")
# Where a text must be looked into, since nothing else says what it says: {path: {what is found: why}}
ALLOWED = {
    "agent/proc/stage_work.cpp": {
        "done->errors.find(std::strerror": "tar says in no other way that a quota is used up, which the file system does not show"},
    "common/gossip/accusations.cpp": {
        "rumour.reason == kSilentHost": "a word of the agents' protocol, whose rumours have no other field for it in any version"},
}


def constants():
    """The names of all constants that are texts."""
    sources = [path for top in ("common", "agent") for path in tree.files(*tree.CODE, under=top)]
    return {name for path in sources for name in CONSTANT.findall(tree.read(path))}


def rules(known):
    some = r"(?:%s|(?:\w+::)?(?:%s)\b)" % (LITERAL, "|".join(sorted(known)) or "$")
    looks = r"(?:\.|->)(?:find|rfind|starts_with|ends_with|contains|compare)\("
    return [re.compile(pattern) for pattern in (
        TEXT + r"\s*[=!]=\s*" + some, some + r"\s*[=!]=\s*" + TEXT + r"(?!\w|\.|->|\()",
        TEXT + looks + r"(?:std::string(?:_view)?\()?(?:%s|(?:std)?::strerror)" % some,
        # A state that was made a text to compare it.
        r"\bto_string\([^()]*\)\s*[=!]=\s*" + LITERAL, r"[=!]=\s*(?:wire|gossip|raft|cluster|job|task)::to_string\(")]


STATE = re.compile(r"\bstate\s*[=!]=\s*" + LITERAL)


def decides(path, text, patterns):
    code = uncommented(text)
    patterns = patterns + ([] if path.startswith("agent/dtrainctl/") else [STATE])
    found = sorted({(m.start(), m.group().strip()) for pattern in patterns for m in pattern.finditer(code)})
    return ["line %d decides by a text: %s: make it a state or a code" % (tree.line_of(code, at), what)
            for at, what in found if what not in ALLOWED.get(path, {})]


class Decisions(tree.Tidy):
    def setUp(self):
        self.patterns = rules(constants())

    def test_tree(self):
        sources = [path for top in ("common", "agent") for path in tree.files(*tree.CODE, under=top)]
        self.assertTrue(sources)
        self.holds(tree.check(lambda path, text: decides(path, text, self.patterns), sources))

    def test_exceptions_are_needed(self):
        for path, allowed in ALLOWED.items():
            code = uncommented(tree.read(path))
            for what in allowed:
                self.assertIn(what, code, path)
                self.assertTrue(any(m.group().strip() == what for pattern in self.patterns for m in pattern.finditer(code)), what)

    def test_rules_bite(self):
        patterns = rules({"kHookTimeLimit"})
        for bad in ('if (cause == kHookTimeLimit)', 'if (node::kHookTimeLimit != exit.cause) f();', 'exit.cause == "host went down"',
                    'if (trial.error->message.find("by dtraind (pid ") != npos)', 'error.message.starts_with("could not")',
                    'if ("x" == job.reason) return;', 'other.state == wire::to_string(State::alive)', 'to_string(m.state) == "alive"',
                    'state == "down"', 'why_.rfind(kHookTimeLimit, 0)', 'terms.unfit == node::kHookTimeLimit'):
            self.assertEqual(len(decides("common/x/a.cpp", bad + "\n", patterns)), 1, bad)
        for good in ('// cause == "host went down"', 'fail("cause == x")', "if (cause == Cause::time_limit)", 'cause = "could not be run"',
                     "if (reason == said_) return;", 'words.find("x")', 'text.starts_with("pid=")', "if (reason.empty())",
                     "reasons.find(id)", "unfit_ == kUnfitNamed", 'std::to_string(number) != digits', "found->second.cause"):
            self.assertEqual(decides("common/x/a.cpp", good + "\n", patterns), [], good)
        self.assertEqual(decides("agent/dtrainctl/a.cpp", 'state == "Succeeded"\n', patterns), [])


if __name__ == "__main__":
    unittest.main()
