#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""The process group `reduction`: Ctrl-C in an operation, and ranks that come late to the first one."""

import importlib.util
import signal
import unittest

import harness

INIT = """
    import datetime, os, time
    import torch, torch.distributed as dist
    import reduction, reduction.torch, worker
    from reduction import _request
    rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "reduction", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=n,
        timeout=datetime.timedelta(seconds=120),
    )
"""
# rank 0 is interrupted in its second operation, and calls again; rank 1 calls when it is
# told to
INTERRUPTED = """
    x = torch.ones(1000000)
    dist.all_reduce(x)
    x.fill_(1 + rank)
    if rank == 1:
        worker.say("ready")
        worker.listen()
        worker.say("first", **worker.attempt(dist.all_reduce, x), values=x.unique().tolist())
    else:
        slice_of = _request.Request._wait_slice
        def said(request, milliseconds):
            if request._handle is not None:
                _request.Request._wait_slice = slice_of
                os.write(1, b'{"what": "waiting"}\\n')
            return slice_of(request, milliseconds)
        _request.Request._wait_slice = said
        try:
            dist.all_reduce(x)
        except KeyboardInterrupt:
            worker.say("interrupted")
        x.fill_(100)
        worker.say("second", **worker.attempt(dist.all_reduce, x), values=x.unique().tolist())
    dist.destroy_process_group()
"""
# longer than timeouts.connect, and shorter than the group's timeout
LATE = """
    group = dist.new_group(list(range(n)), timeout=datetime.timedelta(seconds=120))
    for g in (None, group):
        if rank == 1:
            time.sleep(2.5)
        x = torch.ones(3)
        dist.all_reduce(x, group=g)
        assert x.tolist() == [2, 2, 2], x
    dist.destroy_process_group()
"""


# the same with a State of the hook, beside gloo
HOOK = """
    if rank == 1:
        time.sleep(2.5)
    with reduction.torch.State() as state:
        x = torch.ones(3)
        state.submit(x, 0, True).wait()
        assert x.tolist() == [1, 1, 1], x
    dist.destroy_process_group()
"""


def program(code):
    head, body = harness.python(INIT), harness.python(code)
    return head[:-1] + ["\n".join([head[-1], body[-1]])]


@unittest.skipIf(importlib.util.find_spec("torch") is None or harness.SAN, "no torch, or too slow with it")
class Late(unittest.TestCase):
    def test_interrupt(self):
        with harness.Cluster(reducers=2) as c:
            ranks = c.start_workers(2, program(INTERRUPTED))
            ranks[1].said("ready")
            ranks[0].said("waiting")
            ranks[0].signal(signal.SIGINT)
            ranks[0].said("interrupted")
            said = [ranks[0].said("second")]
            ranks[1].tell()
            said.append(ranks[1].said("first"))
            for found in said:
                self.assertEqual(found["error"], "AbortedError", found)
                self.assertIn("KeyboardInterrupt interrupted all_reduce", found["message"])
            self.assertEqual([found["values"] for found in said], [[100.0], [2.0]])
            self.assertEqual(c.wait_all(ranks), [0, 0])

    def test_first_operation(self):
        for agents in (0, 1):
            with self.subTest(agents=agents), harness.Cluster(agents=agents) as c:
                c.run(2, program(LATE), config={"timeouts": {"connect": "1s"}})

    def test_first_bucket(self):
        with harness.Cluster() as c:
            head, *code = program(HOOK)
            beside_gloo = [part.replace('"reduction", init_method', '"gloo", init_method') for part in code]
            c.run(2, [head, *beside_gloo], config={"timeouts": {"connect": "1s"}})


if __name__ == "__main__":
    harness.main()
