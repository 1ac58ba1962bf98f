#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""A process that gets no more threads (shim_threads.c, or the limit of an ordinary user), little memory or few files
(ulimit -v, -n): a daemon says so and does not start, or serves jobs; a training process gets an error, or works. None
of them hangs or is ended by a signal.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

import harness

SHIM = harness.BUILD / "tests" / "e2e" / "shim_threads.so"
STUCK = harness.BUILD / "tests" / "e2e" / "shim_stuck.so"
MOST = 16  # threads that each of the programs needs at most

# Opens a communicator while 0, 1, 2, ... more threads can be started, until that is
# enough.
RANK = harness.python(f"""
    import ctypes, numpy, reduction, worker
    limit = ctypes.CDLL(None).shim_threads_limit
    for n in range({MOST}):
        limit(n)
        try:
            with reduction.Communicator(mode=worker.listen(), generation=n) as comm:
                comm.all_reduce(numpy.ones(10, dtype="float32"))
                comm.all_reduce(numpy.ones(1000000, dtype="float32"))
            worker.say("tried", n=n, error=None)
        except (reduction.ReductionError, RuntimeError) as exc:  # RuntimeError: of Python, which starts one too
            worker.say("tried", n=n, error=str(exc))
        limit(-1)
    """)


@unittest.skipIf(harness.SAN, "sanitizers start threads of their own")
class Threads(unittest.TestCase):
    def daemon(self, program, argv, listening, most=MOST):
        """Starts it with more threads each time, until it listens. Returns that process."""
        for n in range(most):
            p = subprocess.Popen([harness.binary(program), *argv], stderr=subprocess.PIPE, text=True,
                                 env={"LD_PRELOAD": str(SHIM), "REDUCTION_THREADS": str(n)})  # fmt: skip
            said = ""
            hung = threading.Timer(30 * harness.SCALE, p.kill)
            hung.start()
            for line in p.stderr:
                said += line
                if listening in line:
                    hung.cancel()
                    self.addCleanup(self.end, p)
                    return n, p, line
            p.stderr.close()
            self.assertEqual(p.wait(), 1, f"{n} threads: {said}")
            hung.cancel()
            self.assertRegex(said, r"thread.*(Resource temporarily unavailable|cannot)|cannot.*thread", n)
        self.fail(f"{program} does not listen with {most} threads")

    def test_a_reducer_with_grpc(self):
        """gRPC starts threads of its own, and hangs if one is missing."""
        if not harness.HAS_GRPC:
            self.skipTest("this build has no gRPC")
        argv = ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--lanes", "1"]
        self.daemon("reduction-server", argv, " listening ", most=64 + os.cpu_count())

    def test_an_end_for_which_grpc_waits_forever(self):
        """As if gRPC lacked one of its threads. The jobs have ended by then, so the daemon exits without it."""
        if not harness.HAS_GRPC:
            self.skipTest("this build has no gRPC")
        folder = tempfile.TemporaryDirectory(prefix="reduction-")
        self.addCleanup(folder.cleanup)
        config = f"{folder.name}/job.yaml"
        pathlib.Path(config).write_text("reducers: [{id: r0, address: '127.0.0.1:1'}]\nlogging: {format: json}\n")
        argvs = {"reduction-server": ["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--lanes", "1"],
                 "reduction-agent": ["--socket", f"{folder.name}/agent.sock", "--grpc", "127.0.0.1:0"]}  # fmt: skip
        for program, argv in argvs.items():
            with self.subTest(program):
                p = subprocess.Popen([harness.binary(program), "--config", config, *argv], stderr=subprocess.PIPE,
                                     text=True, env={"LD_PRELOAD": str(STUCK)})  # fmt: skip
                hung = threading.Timer(30 * harness.SCALE, p.kill)
                hung.start()
                for line in p.stderr:
                    if json.loads(line)["event"] == "listening":
                        break
                p.terminate()
                lines = [json.loads(line) for line in p.stderr]
                p.stderr.close()
                self.assertEqual(p.wait(), 0, lines)
                hung.cancel()
                self.assertEqual((lines[-1]["event"], lines[-1]["level"]), ("grpc-stuck", "warn"))

    def end(self, p):
        p.terminate()
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)

    def test_a_reducer(self):
        n, _, line = self.daemon("reduction-server", ["--listen", "127.0.0.1:0", "--lanes", "1"], " listening ")
        self.assertGreater(n, 1)
        address = line.split("address=")[1].split()[0]
        with harness.Cluster(reducers=0, config={"reducers": [{"id": "r0", "address": address}]}) as c:
            c.run(2, harness.python("""
                import numpy, reduction
                with reduction.Communicator() as comm:
                    assert comm.all_reduce(numpy.ones(1000, dtype="float32"))[0] == 2
                """))

    def test_a_training_process(self):
        """With the node's agent inside, and without."""
        for mode in "node", "direct":
            with self.subTest(mode), harness.Cluster() as c:
                w = c.start_worker(0, 1, RANK, env={"LD_PRELOAD": str(SHIM), "OPENBLAS_NUM_THREADS": "1"})
                for _ in range(MOST):
                    w.tell(mode)
                self.assertEqual(c.wait_all([w]), [0])
                errors = [said["error"] for said in w.objects() if said["what"] == "tried"]
                self.assertEqual(len(errors), MOST)
                self.assertIn("thread", errors[0])
                self.assertIsNone(errors[-1])


@unittest.skipIf(harness.SAN, "sanitizers need terabytes of addresses and threads of their own")
class Limits(unittest.TestCase):
    """Real limits: the kernel's error comes at other places than that of a shim."""

    MEMORY = [*range(16000, 72000, 4000), 100000, 180000, 280000, 400000]  # KiB
    PROCESSES = range(0, 16)
    DESCRIPTORS = [*range(4, 16), 20, 24]

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="reduction-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.dir.chmod(0o777)

    def limits(self):
        """Commands that run a program under each limit, with their names."""
        found = [(f"{n} KiB", ["bash", "-c", f'ulimit -v {n}; exec "$@"', "bash"]) for n in self.MEMORY]
        found += [(f"{n} files", ["bash", "-c", f'ulimit -n {n}; exec "$@"', "bash"]) for n in self.DESCRIPTORS]
        if os.geteuid() == 0:  # root has no such limit, and nobody can have it
            nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            found += [(f"{n} processes", [*nobody, "prlimit", f"--nproc={n}"]) for n in self.PROCESSES]
        return found

    def summed(self, argv, config, **env):
        """Runs a training process. Returns whether it has summed; otherwise it has said why not."""
        argv = [*argv, harness.binary("reduction-bench"), "-b", "64K", "-e", "1M", "-f", "16", "-n", "1", "-w", "0"]
        env = {"PATH": os.environ["PATH"], "REDUCTION_CONFIG": config, **env}
        p = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60 * harness.SCALE)
        self.assertIn(p.returncode, (0, 1, 127), p.stderr)  # 127: of ld.so
        self.assertTrue(p.returncode == 0 or p.stderr, "it fails without a word")
        return p.returncode == 0

    def serves(self, limit, argv, job):
        """Starts a daemon under a limit; if it listens, runs a job with it. Returns what the job returns."""
        p = subprocess.Popen([*limit, *argv], stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
        hung = threading.Timer(30 * harness.SCALE, p.kill)
        hung.start()
        said = ""
        for line in p.stderr:
            said += line
            if " listening " in line:
                break
        result = " listening " in said and job(said)
        alive = p.poll() is None
        p.terminate()
        said += p.stderr.read()
        p.stderr.close()
        code = p.wait()
        hung.cancel()
        self.assertIn(code, (0,) if alive and " listening " in said else (1, 127), said)
        self.assertTrue(said)
        return result

    def config(self, address):
        path = self.dir / "job.yaml"
        path.write_text(f"reducers: [{{id: r0, address: '{address}'}}]\ntimeouts: {{connect: 1s}}\n")
        return str(path)

    def test_a_reducer(self):
        def job(said):
            address = re.search(r" listening .*address=(\S+)", said)[1]
            return self.summed([], self.config(address), RANK="0", WORLD_SIZE="1", REDUCTION_MODE="direct")

        for grpc in [[], ["--grpc", "127.0.0.1:0"]] if harness.HAS_GRPC else [[]]:
            argv = [harness.binary("reduction-server"), "--listen", "127.0.0.1:0", "--lanes", "1", *grpc]
            for name, limit in [*self.limits(), ("no limit", [])]:
                with self.subTest(name, grpc=bool(grpc)):
                    last = self.serves(limit, argv, job)
            self.assertTrue(last)

    def test_an_agent(self):
        with harness.Cluster() as c:
            config, path = self.config(c.address(0)), self.dir / "agent.sock"

            def job(_):
                place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
                return self.summed([], config, REDUCTION_AGENT=str(path), **place)

            argv = [harness.binary("reduction-agent"), "--config", config, "--socket", str(path)]
            for name, limit in [*self.limits(), ("no limit", [])]:
                with self.subTest(name):
                    last = self.serves(limit, argv, job)
            self.assertTrue(last)

    def test_a_training_process(self):
        with harness.Cluster() as c:
            config = self.config(c.address(0))
            place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            for mode in "node", "direct":
                for name, limit in [*self.limits(), ("no limit", [])]:
                    with self.subTest(name, mode=mode):
                        last = self.summed(limit, config, REDUCTION_MODE=mode, **place)
                self.assertTrue(last)


if __name__ == "__main__":
    harness.main()
