"""Prints what a ctest JUnit report says: '<passed> <failed>', then one a line the name of each failed test with which of its cases
failed and where, behind 'skipped: ' of each that said itself that it cannot run on this machine, and behind 'slow: ' the seconds
and the names of those that took longest.

A test that was disabled or not run has not passed: it counts as failed.
"""
import re
import sys
import xml.etree.ElementTree


def cannot_run_here(case):
    skipped = case.find("skipped")
    return skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE")


# The names of failed cases and the places of failed checks, as GoogleTest and unittest print them.
SAYS_WHAT_FAILED = re.compile(r"^(?:\[  FAILED  \] ([^\s,]+)|(?:FAIL|ERROR): (\S+)|(?:\S*/)?(\S+\.cpp:\d+): Failure|"
                              r"  File \"(?:\S*/)?(test_\S+\", line \d+))", re.M)
MOST_SAID = 12
SLOWEST, SLOW_S = 8, 10.0


def what_failed(case):
    said = case.findtext("system-out") or ""
    found = ["".join(groups).replace('", line ', ":") for groups in SAYS_WHAT_FAILED.findall(said)]
    return ", ".join(list(dict.fromkeys(found))[:MOST_SAID])


def main(path):
    try:
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print("could not read %s: %s" % (path, error), file=sys.stderr)
        return 1
    skipped = [case.get("name") for case in cases if cannot_run_here(case)]
    bad = [case for case in cases
           if not cannot_run_here(case) and (case.get("status") != "run" or case.find("failure") is not None)]
    print(len(cases) - len(bad) - len(skipped), len(bad))
    for case in bad:
        what = what_failed(case)
        print(case.get("name") + (" (%s)" % what if what else ""))
    for name in skipped:
        print("skipped: " + name)
    for case in sorted(cases, key=lambda case: -float(case.get("time") or 0))[:SLOWEST]:
        if float(case.get("time") or 0) >= SLOW_S:
            print("slow:    %8.0f s  %s" % (float(case.get("time")), case.get("name")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
