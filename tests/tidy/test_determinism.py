"""common/ decides and touches nothing: no clock, randomness, environment, thread, file, socket, mutable global; no
iteration order that differs between runs; no floating point in decisions. What it needs is handed in."""
import re
import unittest

import tree

# Reasoned exceptions: {path: (word, ...)}
EXCEPTIONS = {
    "common/base/base.cpp": ("std::fprintf(",),             # CHECK prints its line and aborts
}

HEADERS = re.compile(
    r"^\s*#\s*include\s*(<(?:thread|mutex|shared_mutex|atomic|condition_variable|future|stop_token|semaphore|latch|barrier|"
    r"fstream|iostream|filesystem|random|ctime|time\.h|unistd\.h|fcntl\.h|poll\.h|"
    r"dirent\.h|netdb\.h|pwd\.h|grp\.h|sched\.h|pthread\.h|spawn\.h|dlfcn\.h|unordered_map|unordered_set|sys/[^>]*|"
    r"linux/[^>]*|arpa/[^>]*|netinet/[^>]*|zmq[^>]*|sqlite3[^>]*|hwloc[^>]*|systemd/[^>]*)>)", re.M)
WORDS = (
    (r"::now\s*\(", "reads a clock"),
    (r"(?<![\w.>:])(?:std::)?(?:time|clock|clock_gettime|gettimeofday|localtime|gmtime)(?:_r)?\s*\(\s*"
     r"(?:nullptr|NULL|0|&|CLOCK_)", "reads a clock"),
    (r"\brandom_device\b|(?<![\w.>])(?:std::)?s?rand\s*\(|\bmt19937", "makes its own randomness; there is one seeded Rng"),
    (r"\b(?:secure_)?getenv\s*\(|\bsetenv\s*\(|\benviron\b", "reads the environment"),
    (r"\bstd::(?:jthread|thread|async|mutex|shared_mutex|recursive_mutex|atomic\w*|condition_variable\w*|lock_guard|unique_lock|"
     r"call_once|future|promise)\b|\bpthread_\w+", "knows threads"),
    (r"\bthread_local\b", "hides state"),
    (r"\bstd::(?:[io]?fstream|filesystem|cout|cerr|clog|cin)\b|(?<![\w.>:])(?:std::)?(?:fopen|printf|fprintf|puts|fputs)\s*\(",
     "touches files"),
    (r"(?<![\w.>:])(?:::)?(?:fork|execve|execvp|system|popen|socket|usleep|nanosleep|sleep)\s*\(", "calls the system"),
    (r"\bstd::(?:this_thread|unordered_\w+)\b", "differs between runs"),
    (r"\b(?:map|set|multimap|multiset)<\s*(?:const\s+)?[\w:]+(?:\s+const)?\s*\*", "orders by pointer: differs between runs"),
    (r"\b(?:float|double)\b", "uses floating point"),
)
STATIC = re.compile(r"^\s*static\s+(?!const\b|constexpr\b|inline\s+const|consteval\b)[^;{}()=]*[\w>\]]\s*(?:=[^=].*|\{.*|;)", re.M)


def touches(path, text):
    allowed, code = EXCEPTIONS.get(path, ()), tree.bare(text)
    complaints = [(m.start(1), "%s has no place in common/" % m.group(1)) for m in HEADERS.finditer(code)
                  if m.group(1) not in allowed]
    for pattern, reason in WORDS:
        complaints += [(m.start(), "'%s' %s" % (m.group().strip(), reason)) for m in re.finditer(pattern, code)
                       if m.group().strip() not in allowed]
    complaints += [(m.start(), "a static variable that can change") for m in STATIC.finditer(code)]
    return ["line %d: %s" % (tree.line_of(code, position), what) for position, what in sorted(complaints)]


OPERATOR = re.compile(r"operator\s*=+|[<>!=]=")
HARMLESS = re.compile(r"^\s*(?:__extension__\s+)?(?:using|typedef|template|class|struct|enum|union|friend|static_assert|namespace)\b"
                      r"|\b(?:constexpr|const)\b")


def mutable_globals(path, text):
    """Variables at namespace scope that are not constant."""
    code = re.sub(r"^\s*#.*(?:\\\n.*)*", "", tree.bare(text), flags=re.M)
    stack, statement, complaints = [], "", []
    for position, character in enumerate(code):
        inside = bool(stack) and stack[-1] != "namespace"
        if character == "{":
            opens_namespace = re.search(r"\bnamespace\b[^;=()]*$|\bextern\s*\"\"\s*$", statement)
            stack.append("namespace" if not inside and opens_namespace else "other")
            if stack[-1] == "namespace":
                statement = ""
        elif character == "}":
            kind = stack.pop() if stack else "namespace"
            outside = not stack or stack[-1] == "namespace"
            if kind == "namespace" or (outside and not _waits_for_semicolon(statement)):
                statement = ""
        elif inside:
            continue
        elif character == ";":
            head = OPERATOR.sub("", statement).split("=")[0]
            if head.strip() and not HARMLESS.search(statement) and "(" not in head:
                complaints.append("line %d: a variable that can change: %s" %
                                  (tree.line_of(code, position), " ".join(statement.split())))
            statement = ""
        else:
            statement += character
    return complaints


def _waits_for_semicolon(statement):
    """A braced initialiser or a type needs ';' behind its '}'; a function does not."""
    head = OPERATOR.sub("", statement)
    return "=" in head or "(" not in head


class Determinism(tree.Tidy):
    def test_tree(self):
        sources = tree.files(*tree.CODE, under="common")
        self.assertTrue(sources)
        self.holds(tree.check(touches, sources) + tree.check(mutable_globals, sources))

    def test_exceptions_are_needed(self):
        for path, words in EXCEPTIONS.items():
            code = tree.bare(tree.read(path))
            self.assertEqual([word for word in words if word not in code], [], path)

    def test_rules_bite(self):
        for bad in ("auto t = std::chrono::steady_clock::now();", "time_t t = time(nullptr);", "std::random_device d;",
                    "int r = rand();", 'auto p = std::getenv("HOME");', "std::thread worker;", "std::mutex m;",
                    "std::atomic<int> n;", "std::ifstream in(path);", 'FILE* f = fopen("x", "r");', "pid_t p = fork();",
                    "std::unordered_map<int, int> m;", "std::map<Job*, int> by_job;", "double share = 0.5;",
                    "  static int calls = 0;", "  static std::vector<int> cache;", "thread_local int x;",
                    "#include <unistd.h>", "#include <sys/socket.h>", "#include <fstream>", "#include <unordered_set>"):
            self.assertTrue(touches("common/x/a.cpp", bad + "\n"), bad)
        for good in ("// std::mutex is not used here", 'fail("could not fopen(x)");', "static Result<Log> open(int x);",
                     "static constexpr int kLimit = 3;", "void step(Instant now);", "view.time(3);", "Duration time() const;",
                     "std::map<std::string, int*> m;"):
            self.assertEqual(touches("common/x/a.cpp", good + "\n"), [], good)
        for bad in ("namespace a {\nint count = 0;\n}", "std::map<int, int> table;",
                    "namespace {\nstd::vector<int> v = {1, 2};\n}", "int f() { return 1; }\nint g = 2;"):
            self.assertEqual(len(mutable_globals("a.cpp", bad)), 1, bad)
        for good in ("namespace a {\nconstexpr int kX = 0;\nint f(int x);\nstruct S { int x = 0; };\n}",
                     "int f() { int x = 0; return x; }", "const std::map<int, int> kTable = {{1, 2}};",
                     "inline tl::unexpected<Error> fail(Error e) { return {}; }",
                     "enum class A : char { b, c };", "A& A::operator=(A&&) noexcept = default;",
                     "class A {\n int x_ = 0;\n};\nbool operator==(const A& a, const A& b) { return true; }"):
            self.assertEqual(mutable_globals("a.cpp", good), [], good)


if __name__ == "__main__":
    unittest.main()
