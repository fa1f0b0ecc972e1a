"""Manual pages and completion scripts say everything that the programs take: every verb, option and key of the configuration."""
import os
import re
import subprocess
import unittest

from harness import BIN, SOURCE, main

OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
SHELLS = ("bash", "zsh", "fish")


def output(program, *arguments):
    return subprocess.run([os.path.join(BIN, program), *arguments], check=True, capture_output=True, text=True).stdout


def verbs_of(text):
    """Of `dtrainctl --help`: the words before the help of each subcommand, one of them with a second name."""
    section = text.split("Subcommands:\n")[1]
    return [word for line in section.splitlines() if line.strip() for word in re.match(r"  ([\w, -]+?)  ", line).group(1).split(", ")]


def options_of(text):
    """Of a help text: what begins the lines below "Options:"."""
    section = re.split(r"\n(?=\S)", text.split("Options:\n")[1])[0] if "Options:\n" in text else ""
    starts = [line.split()[0] for line in section.splitlines() if line.startswith("  -")]
    return [name for start in starts for name in start.split(",")]


def keys_of(text):
    """Paths of every key in config/dtraind.yaml, also of those that stand there as comments: `# expect: 3`."""
    keys, above = [], []
    for line in text.splitlines():
        found = re.match(r"( *)(?:# )?([A-Za-z]\w*): ?(.*)$", line)
        if not found or re.match(r"# ", line):      # prose at the left edge
            continue
        depth = len(found.group(1)) // 2
        above = above[:depth] + [found.group(2)]
        value = re.sub(r"\s+#.*", "", found.group(3)).strip()
        inner = re.findall(r"(\w+):", value) if value.startswith("{") else []
        path = ".".join(above)
        keys += [path + "." + key for key in inner] or ([path] if value else [])
    return keys


def manual(name):
    """Its text as a reader sees it: without fonts, a dash for a dash."""
    with open(os.path.join(SOURCE, "docs", "man", name)) as file:
        text = file.read()
    return re.sub(r"\\f[BIRP]", "", text).replace("\\-", "-").replace('" "', "").replace('"', "")


def words(text):
    return set(re.findall(r"[\w.-]+", text))


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        top = output("dtrainctl", "--help")
        cls.verbs = verbs_of(top)
        cls.options = {verb: options_of(output("dtrainctl", verb, "--help")) for verb in cls.verbs}
        cls.top = options_of(top)

    def test_the_client_is_read_whole(self):
        self.assertGreater(len(self.verbs), 30)
        self.assertTrue({"run", "apply", "forget-node", "version"} <= set(self.verbs))
        self.assertEqual(self.options["restart"], ["-h", "--help", "--package", "--from-scratch"])
        self.assertIn("--output", self.top)

    def test_manual_of_the_client(self):
        said = words(manual("dtrainctl.1"))
        wanted = set(self.verbs) | set(self.top) | {option for options in self.options.values() for option in options}
        self.assertEqual(sorted(wanted - said), [])

    def test_manual_of_the_client_says_no_more(self):
        known = set(self.top) | {option for options in self.options.values() for option in options} | {"--ps_hosts"}
        self.assertEqual(sorted(set(OPTION.findall(manual("dtrainctl.1"))) - known), [])

    def test_completion(self):
        for shell in SHELLS:
            script = output("dtrainctl", "completion", shell)
            for verb in self.verbs:
                self.assertIn(verb, words(script), shell)
            # In fish: complete -n '... verb' -l long -s s
            spelled = (lambda name: ("-l " if name.startswith("--") else "-s ") + name.lstrip("-")) if shell == "fish" else str
            for verb in self.verbs:
                part = self.part_of(shell, script, verb)
                for option in self.options[verb] + self.top:
                    self.assertRegex(part, r"(?<![\w-])%s(?![\w-])" % re.escape(spelled(option)), "%s: %s %s" % (shell, verb, option))
            for option in self.top:
                self.assertRegex(self.part_of(shell, script, None), r"(?<![\w-])%s(?![\w-])" % re.escape(spelled(option)), shell)

    @staticmethod
    def part_of(shell, script, verb):
        """What the script offers behind the verb; None: before one."""
        if shell == "fish":
            mine = "__fish_seen_subcommand_from %s[';]" % verb
            always = [line for line in script.splitlines() if "__fish_seen" not in line]
            return "\n".join(always + [line for line in script.splitlines() if verb and re.search(mine, line) and "not " not in line])
        if verb is None:
            return script.split("if [[ -z $verb ]]; then\n")[-1].split("case $verb")[0]
        return script.split("\n    %s)\n" % verb)[1].split(";;")[0]

    def test_bash_completes(self):
        script = output("dtrainctl", "completion", "bash")
        ask = script + '\nCOMP_WORDS=(dtrainctl %s); COMP_CWORD=%d; _dtrainctl; printf "%%s\\n" "${COMPREPLY[@]}"'
        for typed, wanted in (("forg", "forget-node"), ("drain --dead", "--deadline"), ("--vers", "--version"),
                              ("wait j --for Fin", "Finished")):
            done = subprocess.run(["bash", "-c", ask % (typed, len(typed.split()))], capture_output=True, text=True)
            self.assertEqual(done.stdout.split(), [wanted], typed + done.stderr)

    def test_manual_of_the_agent(self):
        text = manual("dtraind.8")
        options = {"--" + name for name in re.findall(r"^  --([\w-]+)", output("dtraind", "--help"), re.M)}
        self.assertGreater(len(options), 15)
        self.assertEqual(sorted(options - set(OPTION.findall(text))), [])

    def test_manual_of_the_configuration(self):
        with open(os.path.join(SOURCE, "config", "dtraind.yaml")) as file:
            keys = keys_of(file.read())
        self.assertTrue({"cluster.expect", "resources.reserve.memory", "tasks.ulimits.core", "http", "node.labels"} <= set(keys), keys)
        heads = "\n".join(line for line in manual("dtraind.yaml.5").splitlines() if re.match(r"\.BR? ", line))
        self.assertEqual([key for key in keys if key not in words(heads)], [])
        more = [word for word in re.findall(r"\b[a-z]\w*\.[a-z][\w.]*\w", heads) if word not in keys]
        self.assertEqual([word for word in more if "/" + word not in heads], [])

    def test_manual_of_job_files(self):
        with open(os.path.join(SOURCE, "docs", "job-file.md")) as file:
            keys = re.findall(r"^\| `(\w+)` \|", file.read(), re.M)
        self.assertGreater(len(keys), 40)
        self.assertEqual([key for key in keys if key not in words(manual("dtrain-job.5"))], [])

    def test_the_rules_bite(self):
        self.assertEqual(keys_of("a:\n  b: 1   # c: no\n  # d: 2\n  e: {f: 1, g: {}}\nh: {}\n# i: prose\n"),
                         ["a.b", "a.d", "a.e.f", "a.e.g", "h"])
        self.assertEqual(options_of("Options:\n  -x,--long TEXT  what --not this\n      --nor this\n\nOther:\n  --no\n"), ["-x", "--long"])


if __name__ == "__main__":
    main()
