"""What the programs are linked of. Those that people run have no switch that breaks a rule: they link common/base/rules_kept.cpp, the
simulator links tests/support/breaks_rules.cpp in its place, which holds a marker."""
import os
import subprocess
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

    def test_what_people_start_loads_no_network(self):
        """agent/dtrainctl/zmq_on_demand.cpp has all that is used of ZeroMQ: with one function less the linker takes the library."""
        def needed(program):
            return subprocess.run(["objdump", "-p", os.path.join(BIN, program)], capture_output=True, text=True, check=True).stdout
        for program in ("dtrainctl", "dtrain-rsh"):
            self.assertNotIn("libzmq", needed(program), program)
        self.assertIn("libzmq", needed("dtraind"))


if __name__ == "__main__":
    unittest.main()
