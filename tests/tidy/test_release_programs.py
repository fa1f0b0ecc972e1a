"""Programs that people run have no switch that breaks a rule: they link common/base/rules_kept.cpp, the simulator links
tests/support/breaks_rules.cpp in its place, which holds a marker."""
import os
import unittest

BIN = os.environ["DTRAIN_BIN"]
MARKER = b"dtrain: rules can be broken here"


class ReleasePrograms(unittest.TestCase):
    def breaks_rules(self, program):
        with open(os.path.join(BIN, program), "rb") as file:
            return MARKER in file.read()

    def test_none_can_break_a_rule(self):
        for program in ("dtraind", "dtrainctl", "dtrain-shim", "dtrain-discover", "dtrain-rsh"):
            self.assertFalse(self.breaks_rules(program), program)

    def test_the_simulator_can(self):
        self.assertTrue(self.breaks_rules("dtrain-sim"))


if __name__ == "__main__":
    unittest.main()
