"""Prints what a ctest JUnit report says: '<passed> <failed>', then one a line the name of each failed test, and behind 'skipped: '
of each that said itself that it cannot run on this machine.

A test that was disabled or not run has not passed: it counts as failed.
"""
import sys
import xml.etree.ElementTree


def cannot_run_here(case):
    skipped = case.find("skipped")
    return skipped is not None and skipped.get("message", "").startswith("SKIP_RETURN_CODE")


def main(path):
    try:
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print("could not read %s: %s" % (path, error), file=sys.stderr)
        return 1
    skipped = [case.get("name") for case in cases if cannot_run_here(case)]
    bad = [case.get("name") for case in cases
           if not cannot_run_here(case) and (case.get("status") != "run" or case.find("failure") is not None)]
    print(len(cases) - len(bad) - len(skipped), len(bad))
    for name in bad:
        print(name)
    for name in skipped:
        print("skipped: " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
