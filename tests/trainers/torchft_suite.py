# SPDX-License-Identifier: Apache-2.0
"""torchft's own tests of a process group, of its Manager, of DDP, of LocalSGD and of (Streaming) DiLoCo, which are in
its wheel, with the group of BACKEND in the place of ProcessGroupGloo. Arguments are parts of names of tests; without
them all run. Prints a line of JSON for each test.

FIXTURES=FOLDER: a folder of torchft's source with test_fixtures, which the wheel lacks; without it their test is left
out.
"""

import functools
import importlib
import json
import os
import re
import sys
import time
import unittest

import common
import reduction.torchft
import torchft

MODULES = {
    "checkpointing.pg_transport_test": ("PGTransportTest",),  # before others make the default group
    "process_group_test": ("ProcessGroupTest", "NormalGlooMultiPgTest"),
    "manager_integ_test": ("ManagerIntegTest",),
    "local_sgd_integ_test": ("LocalSGDIntegTest",),
    "diloco_regression_test": ("DiLoCoMockedUpdateTest",) if "FIXTURES" in os.environ else (),
    "lighthouse_test": ("TestLighthouse",),
    "parameter_server_test": ("TestParameterServer",),
}
# torchft's test of a lost rank lists what gloo and NCCL say
LISTED = "Connection closed by peer"
OURS = "closed the communicator"
# groups of other kinds, GPUs, and what needs packages that PyPI does not have
LEFT_OUT = re.compile(r"baby|nccl|cuda|torchcomms|wrapper|dummy|managed_process_group")


def listed(method):
    @functools.wraps(method)
    def call(self, kind, regex, *args, **kwargs):
        return method(self, kind, f"{regex}|{OURS}" if LISTED in regex else regex, *args, **kwargs)

    return call


class Result(unittest.TestResult):
    """Prints each result."""

    def startTest(self, test):
        super().startTest(test)
        self.began, self.said = time.monotonic(), {"result": "passed"}

    def addError(self, test, err):
        super().addError(test, err)
        self.said = {"result": "failed", "reason": f"{err[0].__name__}: {err[1]}"[-600:]}

    addFailure = addError

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.said = {"result": "skipped", "reason": reason}

    def stopTest(self, test):
        super().stopTest(test)
        seconds = round(time.monotonic() - self.began, 2)
        print("\n" + json.dumps({"test": test.id().partition(".")[2], **self.said, "seconds": seconds}), flush=True)


def main():
    if common.BACKEND == "reduction":
        torchft.process_group.ProcessGroupGloo = torchft.ProcessGroupGloo = reduction.torchft.ProcessGroupReduction
        unittest.TestCase.assertRaisesRegex = listed(unittest.TestCase.assertRaisesRegex)
    suite = unittest.TestSuite()
    for name, classes in MODULES.items():
        module = importlib.import_module(f"torchft.{name}")
        if name == "diloco_regression_test" and classes:
            module.__file__ = os.path.join(os.environ["FIXTURES"], "torchft", "test.py")
        for found in classes:
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(module, found)):
                wanted = not sys.argv[1:] or any(part in test.id() for part in sys.argv[1:])
                if wanted and not LEFT_OUT.search(test.id().rpartition(".")[2]):
                    suite.addTest(test)
    result = Result()
    suite.run(result)
    sys.stdout.flush()
    os._exit(0 if result.wasSuccessful() else 1)  # torchft's threads do not end


main()
