#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""Nodes of several processes without a daemon: the process of local rank 0 serves the others, if the launcher tells the
place of every rank. Processes that are lost, late or leave early, and names that are taken.
"""

import os
import re
import signal
import socket
import unittest

import harness
import test_allreduce
from test_agent_faults import AT_ONCE, WORKER
from test_allreduce import CHUNK, FEW, SIZES, matrix


def place(rank, sizes, **more):
    """Returns torchrun's environment of a rank, for nodes of so many processes."""
    node, first = 0, 0
    while rank >= first + sizes[node]:
        first += sizes[node]
        node += 1
    return {**harness.reach(""), "LOCAL_RANK": rank - first, "LOCAL_WORLD_SIZE": sizes[node], "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": len(sizes), **more}  # fmt: skip


class NodeAgent(unittest.TestCase):
    def cluster(self, reducers=2, timeouts=None, **config):
        timeouts = {"drain": "20s", **(timeouts or {})}
        return harness.Cluster(reducers=reducers, lanes=2, config={"timeouts": timeouts, **config})

    def check(self, sizes, cases, **config):
        with self.cluster(sharding={"chunk_bytes": CHUNK}, **config) as c:
            run = c.run
            c.run = lambda world_size, argv, timeout: run(world_size, argv, timeout, env=lambda r: place(r, sizes))
            test_allreduce.AllReduce.check(self, c, sum(sizes), cases, partials=True)
            # to the reducers each node is one worker
            c.reducers[0].wait_text(rf"job-started .*world_size={len(sizes)}\b")

    def open(self, c, sizes, ranks=None, **more):
        ranks = range(sum(sizes)) if ranks is None else ranks
        return [c.start_worker(r, sum(sizes), WORKER, env=place(r, sizes, **more)) for r in ranks]

    def test_one_node(self):
        self.check([3], matrix(FEW if harness.SLOW else SIZES, ["exact", "random"]))

    def test_two_nodes(self):
        self.check([2, 2], matrix(FEW, ["exact", "random"]))

    def test_nodes_of_different_size(self):
        """A single process also acts as a node if other nodes have several."""
        self.check([3, 1], matrix(FEW, ["exact"]), job={"deterministic": True})

    def shard(self, sizes, function):
        program = [harness.PYTHON, harness.ROOT / "tests/e2e/worker_sharded.py", function]
        with self.cluster() as c:
            for p in c.run(sum(sizes), program, 120, env=lambda r: place(r, sizes)):
                p.said("right")

    def test_sharded(self):
        self.shard([2, 2], "table")

    def test_sharded_with_nodes_of_different_size(self):
        """No rank can shard, not even those of a node that looks right by itself."""
        self.shard([2, 1, 3], "refused")
        self.shard([3, 1], "refused")

    def test_one_process_on_each_node(self):
        """There is nothing to share: each connects to the reducers itself."""
        with self.cluster() as c:
            workers = self.open(c, [1, 1])
            for w in workers:
                w.said("open")
                self.assertNotIn("@reduction", unix_names(w.pid))
                w.tell()
            self.assertEqual(c.wait_all(workers), [0, 0])

    def test_unknown_nodes(self):
        """mpirun may deal ranks out to nodes in turn, and gives no nodes: then each process is alone."""
        with self.cluster() as c:
            workers = []
            for rank in range(4):
                mpi = {"RANK": "", "WORLD_SIZE": "", "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 4,
                       "OMPI_COMM_WORLD_LOCAL_RANK": rank // 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2}  # fmt: skip
                none = dict.fromkeys(("LOCAL_RANK", "LOCAL_WORLD_SIZE"), "")
                workers.append(c.start_worker(rank, 4, WORKER, env={**harness.reach(""), **none, **mpi}))
            for w in workers:
                w.said("open")
                w.tell()
            self.assertEqual(c.wait_all(workers), [0] * 4)
            self.assertRegex(c.reducers[0].err, r"job-started .*world_size=4\b")

    def test_bytes_once_per_node(self):
        with self.cluster() as c:
            workers = [
                c.start_worker(r, 3, harness.python("""
                    import numpy, reduction, worker
                    with reduction.Communicator() as comm:
                        comm.all_reduce(numpy.ones(100000, "float32"))
                        comm.barrier()
                        worker.say("stats", tx=comm.stats().tx_bytes)
                """), env=place(r, [3]))
                for r in range(3)
            ]  # fmt: skip
            for w in workers:
                self.assertLess(w.said("stats")["tx"], 440_000)
            self.assertEqual(c.wait_all(workers), [0] * 3)

    def test_the_serving_process_is_killed(self):
        with self.cluster() as c:
            workers = self.open(c, [2, 2])
            for w in workers:
                w.said("open")
            for w in workers[1:]:
                w.tell("10 float32 sum")
            workers[0].signal(signal.SIGKILL)
            said = [w.said("answer 0") for w in workers[1:]]
            self.assertRegex(said[0]["message"], r"the agent at @reduction/local-rank-0/test/\w+ was lost")
            for of in said[1:]:
                self.assertRegex(of["message"], r"rank 0 \(processes? 0-1 on|rank 0 .*pid")
            for of in said:
                self.assertEqual(of["code"], -6, of)
                self.assertLess(of["seconds"], AT_ONCE)

    def test_the_serving_process_never_starts(self):
        with self.cluster(timeouts={"connect": "1s"}) as c:
            said = self.open(c, [2], [1])[0].said("closed")
            self.assertRegex(said["message"], "local rank 0, whose process serves this node .*no agent is listening")
            self.assertEqual(said["code"], -7)

    def test_another_process_never_starts(self):
        # long enough for two processes under a sanitizer to start
        with self.cluster(timeouts={"connect": "5s"}) as c:
            said = self.open(c, [3], [0, 2])[0].said("closed")
            self.assertRegex(said["message"], "1 of 3 local ranks of job test did not connect.*: local rank 1")
            self.assertEqual(said["code"], -7)

    def test_the_name_is_taken(self):
        with self.cluster(timeouts={"connect": "5s"}) as c:
            said = self.open(c, [2], [1])[0].said("closed")
            name = re.search(r"@reduction/local-rank-0/test/\w+", said["message"])[0]
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.bind("\0" + name[1:])
                said = self.open(c, [2], [0])[0].said("closed")
                self.assertEqual(said["message"],
                                 f"this process cannot serve its node: another process is serving {name}")
            workers = self.open(c, [2])
            for w in workers:
                w.said("open")
                w.tell()
            self.assertEqual(c.wait_all(workers), [0, 0])

    def test_the_serving_process_leaves_first(self):
        """Its close returns when the others have left, which have all their results by then."""
        with self.cluster() as c:
            first, second = self.open(c, [2])
            for w in (first, second):
                w.said("open")
                w.tell("100000 float32 sum")
            for w in (first, second):
                self.assertEqual(w.said("answer 0")["value"], 2)
            first.tell()
            second.tell("10 float32 sum")  # an error, since a rank has left, but no crash and no wait for ever
            self.assertLess(second.said("answer 1")["code"], 0)
            second.tell()
            self.assertEqual(c.wait_all([first, second]), [0, 0])

    def test_all_end_with_the_last_result(self):
        """Without a close: the serving process must not take the results of the others with it."""
        with self.cluster() as c:
            for i in range(2 if harness.SLOW else 5):
                workers = [
                    c.start_worker(r, 4, harness.python("""
                        import numpy, os, reduction, sys, worker
                        comm = reduction.Communicator()
                        x, y = numpy.ones(3_000_000, "float32"), numpy.ones(100, "float32")
                        comm.all_reduce(x)
                        comm.all_reduce(y)
                        worker.say("sums", x=float(x.min()), y=float(y.min()))
                        os._exit(0)
                    """), env=place(r, [4], REDUCTION_JOB=f"run{i}"))
                    for r in range(4)
                ]  # fmt: skip
                for w in workers:
                    said = w.said("sums")
                    self.assertEqual((said["x"], said["y"]), (4, 4))
                self.assertEqual(c.wait_all(workers), [0] * 4)

    def test_the_others_do_not_leave(self):
        with self.cluster(timeouts={"drain": "500ms"}) as c:
            first, second = self.open(c, [2])
            for w in (first, second):
                w.said("open")
            first.tell()
            self.assertEqual(first.wait(), 0, first.report())
            second.tell("10 float32 sum")
            self.assertRegex(second.said("answer 0")["message"], "stopped|lost|left")
            second.tell()
            self.assertEqual(second.wait(), 0)

    def test_again_while_a_forked_process_lives(self):
        """As the workers of a data loader do, which have all descriptors of their parent."""
        with self.cluster() as c:
            workers = [
                c.start_worker(r, 2, harness.python("""
                    import numpy, os, reduction, signal, worker
                    children = []
                    for _ in range(20):
                        with reduction.Communicator() as comm:
                            child = os.fork()
                            if child == 0:
                                signal.pause()
                            children.append(child)
                            x = numpy.ones(10, "float32")
                            comm.all_reduce(x)
                            assert (x == 2).all()
                    for child in children:
                        os.kill(child, signal.SIGKILL)
                    worker.say("good")
                """), env=place(r, [2]))
                for r in range(2)
            ]  # fmt: skip
            for w in workers:
                w.said("good")
            self.assertEqual(c.wait_all(workers), [0, 0])

    @unittest.skipIf(os.geteuid(), "needs root, to be somebody else")
    def test_another_user_has_taken_the_name(self):
        name = f"@reduction-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            pid = os.fork()
            if pid == 0:
                os.setuid(65534)
                s.bind("\0" + name[1:])
                s.listen()
                os._exit(0)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            with self.cluster() as c:
                said = c.start_worker(0, 2, WORKER, env=place(0, [2], REDUCTION_AGENT=name)).said("closed")
                self.assertEqual(said["message"], f"another user's process listens on {name}")


def unix_names(pid):
    """Returns the names of the abstract sockets that a process holds in its network namespace."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}")))
        except FileNotFoundError:
            pass
    with open(f"/proc/{pid}/net/unix", encoding="utf-8") as f:
        lines = [line.split() for line in f]
    return " ".join(of[7] for of in lines if len(of) > 7 and of[6] in inodes)


if __name__ == "__main__":
    harness.main()
