#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Ranks whose standard input, output or error is closed, as launchers, cron and daemons start them."""

import os
import subprocess
import unittest

import harness

# argv: the descriptors that are closed. The result goes to a file, since no stream may be
# there.
CODE = """
    import os, sys
    for fd in sys.argv[2:]:
        os.close(int(fd))
    import numpy, reduction
    with reduction.Communicator() as comm:
        x = numpy.ones(1 << 20, "float32")
        comm.all_reduce(x)
        for fd in range(3):
            held = os.readlink(f"/proc/self/fd/{fd}")
            assert str(fd) not in sys.argv[2:] or held == "/dev/null", (fd, held)
    open(sys.argv[1] + str(comm.rank), "w").write(str(x.sum()))
"""
CLOSED = (["0"], ["1"], ["2"], ["0", "1", "2"])


class ClosedStandard(unittest.TestCase):
    def check(self, mode, agents=0):
        with harness.Cluster(reducers=2, agents=agents) as c:
            for closed in CLOSED:
                with self.subTest(mode=mode, closed=closed):
                    name = os.path.join(c.dir, "sum")
                    env = None if agents else {"REDUCTION_MODE": mode}
                    procs = c.start_workers(2, [*harness.python(CODE), name, *closed], env=env)
                    self.assertEqual(c.wait_all(procs), [0, 0], "".join(p.report() for p in procs))
                    for rank in range(2):
                        with open(name + str(rank), encoding="ascii") as f:
                            self.assertEqual(float(f.read()), 2.0 * (1 << 20))

    def test_direct(self):
        self.check("direct")

    def test_node(self):
        self.check("node")

    def test_agent(self):
        self.check("agent", agents=1)

    def test_the_bench(self):
        """Its parts inherit what is closed."""
        bench = harness.binary("reduction-bench")
        command = f"exec {bench} --ranks 2 --local-reducers 1 -b 64K -e 64K -n 3 0<&- 1>&- 2>&-"
        ended = subprocess.run(["sh", "-c", command], check=False, timeout=60 * harness.SCALE)
        self.assertEqual(ended.returncode, 0)


if __name__ == "__main__":
    harness.main()
