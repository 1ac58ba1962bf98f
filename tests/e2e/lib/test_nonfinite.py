#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: alone
"""job.detect_nonfinite: which rank first sent NaN or infinity, in which operation, which element, with and without
agents."""

import re
import textwrap
import unittest

import harness

LINE = re.compile(r'nonfinite job=test generation=0 rank=\d+ found="(.*)"$', re.M)
SUPPRESSED = re.compile(r"suppressed event=nonfinite lines=(\d+)$", re.M)


def found(procs):
    """The sentences that any of these logged."""
    return [sentence for p in procs for sentence in LINE.findall(p.err)]


HEAD = """\
import numpy as np, os, reduction, time, worker
rank = int(os.environ["RANK"])
with reduction.Communicator() as comm:
"""


def program(body):
    return harness.python(HEAD + textwrap.indent(body, "    "))


# 1,100,000 elements: rings where there is an agent. No node has more than the three lines
# that a second may have.
ONE_BAD = """
for number, (bad, value, op, dtype) in enumerate([
    (1, np.nan, "sum", "float32"), (2, np.inf, "avg", "float16"), (0, -np.inf, "max", "float64"),
    (3, -np.inf, "prod", "float32"), (3, np.nan, "min", "float64"),
]):
    x = np.ones(1100000, dtype)
    if rank == bad:
        x[1050000 + number] = value
    comm.all_reduce(x, op, name=f"layer{number}.weight")
comm.all_reduce(np.full(5, 2**31 - 1, "int32"))
root = np.full(1000, np.inf if rank == 0 else np.nan, "float32")
comm.broadcast(root, 0)
assert np.isinf(root).all()
"""
SAID = [
    (1, "NaN: element 1050000 of all-reduce 0 (layer0.weight)"),
    (2, "infinity: element 1050001 of all-reduce 1 (layer1.weight)"),
    (0, "-infinity: element 1050002 of all-reduce 2 (layer2.weight)"),
    (3, "-infinity: element 1050003 of all-reduce 3 (layer3.weight)"),
    (3, "NaN: element 1050004 of all-reduce 4 (layer4.weight)"),
    (0, "infinity: element 0 of broadcast 6"),
]

# A rank that is behind hears of it in the operation whose results it still waits for.
FAILS = """
def step():
    for _ in range(3):
        comm.all_reduce(np.ones(1000, "float32"), name="good")
    x = np.ones({count}, "float32")
    x[17] = np.nan if rank == 3 else 1
    comm.all_reduce(x, name="layer1.weight")
for what in (step, comm.barrier):   # and ever after
    try:
        what()
    except reduction.NonFiniteError as exc:
        worker.say("failed", code=exc.code, message=str(exc), arithmetic=isinstance(exc, FloatingPointError))
    else:
        worker.say("done")
"""


class NonFinite(unittest.TestCase):
    def test_log(self):
        for agents in (0, 2):
            with self.subTest(agents=agents), harness.Cluster(reducers=2, agents=agents) as c:
                workers = c.run(4, program(ONE_BAD), config={"timeouts": {"op": "20s"}})
                said = found(c.agents or workers)
                want = sorted(f"rank {rank} (pid {workers[rank].pid} on HOST) sent {what}" for rank, what in SAID)
                self.assertEqual(sorted(re.sub(r" on \S+\)", " on HOST)", s) for s in said), want)
                heard = set(found(c.reducers))  # the first of each rank and kind
                self.assertTrue(heard and heard <= set(said), heard)

    def test_fail(self):
        config = {"job": {"detect_nonfinite": "fail"}}
        for agents in (0, 1, 2):
            for count in (18, 500000):
                with self.subTest(agents=agents, count=count), harness.Cluster(2, agents, config=config) as c:
                    workers = c.run(4, program(FAILS.format(count=count)))
                    for w in workers:
                        says = w.objects()
                        self.assertEqual([s["what"] for s in says], ["failed", "failed"], w.name)
                        for s in says:
                            self.assertEqual(s["code"], -14)
                            self.assertTrue(s["arithmetic"])
                            self.assertRegex(
                                s["message"],
                                rf"^rank 3 \(pid {workers[3].pid} on \S+\) sent NaN: "
                                r"element 17 of all-reduce 3 \(layer1.weight\)$",
                            )
                    self.assertEqual(found([*workers, *c.agents]), [])

    def test_off(self):
        for agents in (0, 1):
            config = {"job": {"detect_nonfinite": "off"}}
            with self.subTest(agents=agents), harness.Cluster(agents=agents, config=config) as c:
                workers = c.run(2, program('comm.all_reduce(np.full(1000, np.nan, "float32"))'))
                self.assertEqual(found([*workers, *c.agents]), [])

    def test_ranks_may_differ(self):
        """One rank looks, the others do not; it is no part of what they must agree on."""
        code = program("""
comm.all_reduce(np.full(1000, np.nan, "float32"), name="loss")
""")
        with harness.Cluster(config={"job": {"detect_nonfinite": "off"}}) as c:
            log = {"job": {"detect_nonfinite": "log"}}
            workers = [c.start_worker(0, 2, code), c.start_worker(1, 2, code, config=log)]
            self.assertEqual([w.wait() for w in workers], [0, 0])
            self.assertEqual(found(workers[:1]), [])
            self.assertRegex(found(workers[1:])[0], r"^rank 1 \(.*\) sent NaN: element 0 of all-reduce 0 \(loss\)$")

    def test_a_diverged_run_does_not_flood_the_log(self):
        """All is said or counted: 200 operations are a few lines, and how many were left out."""
        steps = 200
        for agents in (0, 1):
            with self.subTest(agents=agents), harness.Cluster(agents=agents) as c:
                workers = c.run(
                    2,
                    program(f"""
start = time.monotonic()
for step in range({steps}):
    comm.all_reduce(np.full(1000, np.nan, "float32"))
worker.say("took", s=time.monotonic() - start)
"""),
                )
                for p in c.agents or workers:
                    if agents:
                        p.wait_text(r"job-ended")
                    lines = len(LINE.findall(p.err))
                    seconds = workers[0].said("took")["s"]
                    self.assertEqual(lines + sum(map(int, SUPPRESSED.findall(p.err))), steps)
                    self.assertLessEqual(lines, 3 * (int(seconds) + 2))
                    self.assertIn(" warn ", p.err)

    def test_logged_once_although_a_reducer_is_lost(self):
        """What is sent again to another reducer is not said again."""
        steps = 40
        code = program(f"""
pending = []
for step in range({steps}):
    pending.append(comm.all_reduce(np.full(300000, np.nan, "float32"), async_op=True))
    if step == 4:
        worker.say("going")
    if len(pending) > 3:
        pending.pop(0).wait()
    if step == 10:
        worker.listen()
for request in pending:
    request.wait()
""")
        with harness.Cluster(reducers=2) as c:
            workers = c.start_workers(2, code)
            workers[0].said("going")
            c.reducers[1].kill()
            for w in workers:
                w.wait_text("reducer-lost")
                w.tell()
            for w in workers:
                self.assertEqual(w.wait(), 0, w.report())
                self.assertEqual(len(LINE.findall(w.err)) + sum(map(int, SUPPRESSED.findall(w.err))), steps)


if __name__ == "__main__":
    harness.main()
