"""Prints what a ctest JUnit report says: '<passed> <failed>', then the name of each failed test, one a line.

A test that was skipped, disabled or not run has not passed: it counts as failed.
"""
import sys
import xml.etree.ElementTree


def main(path):
    try:
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        print("could not read %s: %s" % (path, error), file=sys.stderr)
        return 1
    bad = [case.get("name") for case in cases if case.get("status") != "run" or case.find("failure") is not None]
    print(len(cases) - len(bad), len(bad))
    for name in bad:
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
