# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""PyTorch's own tests of a backend, with the backend `reduction`."""

import importlib.metadata
import importlib.util
import unittest

import harness

WORKER = harness.ROOT / "tests/e2e/worker_torch_suite.py"
# What is left out, and why. Those of the first three lines fail with gloo too, in the
# same way.
LEFT_OUT = (
    "-*all_to_all*",  # gloo has none for lists of tensors
    "-test_batch_isend_irecv_*_err", "-*nccl*", "-*cuda*", "-*gpu*",  # need GPUs
    "-test_barrier_timeout_global",  # starts by a URL
    "-test_barrier_timeout_group",  # waits for 5 s, and is like that for a full group
    "-test_monitored_barrier*",  # torch allows it for gloo only
    "-test_get_backend",  # expects gloo, as these tests are told
    "-test_SyncBatchNorm_process_group",  # needs torchvision
)  # fmt: skip


def torch_version():
    """Returns torch's version without importing it here; "" without torch."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def results(backend, *names):
    """Runs torch's own tests on three ranks; tests/versions.py uses this. Returns their names by result: a test has
    failed if it did on one rank, or did not end."""
    found = {}
    with harness.Cluster(reducers=2) as c:
        procs = c.start_workers(3, [harness.PYTHON, WORKER, backend, *names, *LEFT_OUT])
        for p in procs:
            p.wait(1500)
        for p in procs:
            for line in p.objects():
                found.setdefault(line["test"], []).append(line["result"])
    by_result = {"passed": [], "failed": [], "skipped": []}
    for name, each in found.items():
        whole = "failed" if "failed" in each or len(each) < 3 else "skipped" if "skipped" in each else "passed"
        by_result[whole].append(name)
    return by_result


@unittest.skipIf(not torch_version().startswith("1."), "the list of what is left out is that of torch 1.13")
@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Suite(unittest.TestCase):
    def test_everything(self):
        """Three ranks: fewer have no group of some of them."""
        with harness.Cluster(reducers=2) as c:
            procs = c.run(3, [harness.PYTHON, WORKER, "reduction", "test_*", *LEFT_OUT], timeout=180)
        results = {}
        for p in procs:
            for found in p.objects():
                self.assertNotEqual(found["result"], "failed", f"{p.name}: {found['test']}: {found['reason']}")
                results.setdefault(found["test"], set()).add(found["result"])
        passed = [name for name, result in results.items() if result == {"passed"}]
        self.assertGreater(len(passed), 80, results)


if __name__ == "__main__":
    harness.main()
