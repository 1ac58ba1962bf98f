#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""Reducers that come and go while a job runs: slots of the configuration are filled and emptied in any order, with the
results that NumPy gives, bit for bit."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import urllib.request

import harness

RANKS = 4
SLOTS = {"job": {"min_reducers": 2, "deterministic": True}, "timeouts": {"detect": "2s"}}
GRPC = {"server": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}}

# Sums until it reads a line, and compares each result with NumPy's: the sums of the nodes, in the order of ranks.
STEADY = harness.python("""
    import os, select, sys
    import numpy, reduction, worker
    def part(rank, step):
        x = numpy.random.default_rng([rank, step]).standard_normal(60_000 + 997 * (step % 7))
        return (x * 10.0 ** (step % 5)).astype(numpy.float32)
    def run():
        with reduction.Communicator() as comm:
            worker.say("open")
            going, step, wrong = numpy.ones(1, numpy.int32), 0, 0
            while going[0]:
                parts = [part(rank, step) for rank in range(comm.world_size)]
                x, each = parts[comm.rank].copy(), int(os.environ["LOCAL_WORLD_SIZE"])
                want = sum(sum(parts[i + 1 : i + each], parts[i]) for i in range(0, len(parts), each))
                comm.all_reduce(x)
                wrong += not numpy.array_equal(x.view(numpy.uint32), want.view(numpy.uint32))
                step += 1
                going[0] = not select.select([sys.stdin], [], [], 0)[0]
                comm.all_reduce(going, op="min")
            worker.say("end", steps=step, wrong=wrong)
    worker.say("left", **worker.attempt(run))
    """)


def ctl(*args, env=None):
    argv = [harness.binary("reductionctl"), *args]
    env = os.environ | harness.sanitizer_env(argv) | (env or {})
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    return done.returncode, done.stdout, done.stderr


class Slots(unittest.TestCase):
    def reducer_job(self, c, i):
        """The status of the job at reducer i."""
        address = c.reducers[i].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
        status, out, err = ctl("status", "--json", address)
        self.assertEqual(status, 0, err)
        return next(iter(json.loads(out)["jobs"]), None)

    def http(self, p, path):
        address = p.wait_text(r"\bhttp-ready\b.*?address=(\S+)").group(1)
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return answer.read().decode()

    def empty_slots(self, p):
        """What the metrics of an agent or a reducer say."""
        text = self.http(p, "/metrics")
        return int(re.search(r"^reduction_(agent_)?job_empty_slots\{.*\} (\d+)", text, re.MULTILINE).group(2))

    def agent_tells(self, agent):
        """The status, the page and the events of the agent of rank 0, while r0 and r3 have no reducer."""
        self.assertEqual(self.empty_slots(agent), 2)
        job = json.loads(self.http(agent, "/status"))["agent"]["jobs"][0]
        self.assertEqual((job["reducers_alive"], job["reducers_empty"], job["share_changes"]), (2, 2, 0))
        self.assertEqual([r["id"] for r in job["reducers"] if r["state"] == "EMPTY" and "refused" in r["why"]],
                         ["r0", "r3"])  # fmt: skip
        self.assertIn("Slots with a reducer", self.http(agent, "/"))
        address = agent.wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
        status, out, err = ctl("status", address)
        self.assertIn("  slots: 2 of 4 have a reducer, r0 and r3 are empty\n", out, err)
        status, out, err = ctl("events", "--past", address)
        for i in (0, 3):
            self.assertRegex(out, rf"slot-empty +reducer=r{i} .*reason=.*refused", err)

    def until_used(self, c, i):
        """Waits until reducer i sums for the job."""
        deadline = time.monotonic() + 20 * harness.SCALE
        while not (job := self.reducer_job(c, i)) or job["operations"] < 4 or not job["traffic"]["bytes_in"]:
            self.assertLess(time.monotonic(), deadline, job)

    def end(self, c, ranks):
        for w in ranks:
            w.tell()
        self.assertEqual(c.wait_all(ranks), [0] * RANKS)
        for w in ranks:
            self.assertEqual((w.said("left")["message"], w.said("end")["wrong"]), ("", 0))
        self.assertEqual(len({w.said("end")["steps"] for w in ranks}), 1)
        return ranks[0].said("end")["steps"]

    def come_and_go(self, agents, transport):
        with harness.Cluster(reducers=4, agents=0, config=SLOTS, start=False, transport=transport,
                             server_config=GRPC if transport == "tcp" else None) as c:
            c.agents = [None] * agents
            for i in (1, 2):
                c.start_reducer(i)
            for i in range(agents):
                c.start_agent(i, config={"agent": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}})
            local = {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            ranks = c.start_workers(RANKS, STEADY, env=None if agents else local)
            rank0 = c.agents[0] if agents else ranks[0]
            rank0.wait_text(r"slot-empty reducer=r0 .* reason=.*refused")
            rank0.wait_text(r"slot-empty reducer=r3 ")
            for w in ranks:
                w.said("open", timeout=40)
            self.assertEqual([(r["index"], r.get("empty")) for r in self.reducer_job(c, 1)["lost"]],
                             [(0, True), (3, True)])  # fmt: skip
            at = c.reducers[1].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
            status, out, err = ctl("status", at)
            self.assertIn("  slots: 2 of 4 have a reducer\n", out)
            self.assertNotIn("degraded", out)
            if transport == "tcp":
                self.assertEqual(self.empty_slots(c.reducers[1]), 2)
                self.assertIn("Slots with a reducer", self.http(c.reducers[1], "/"))
            if agents:
                self.agent_tells(c.agents[0])
            for i in (3, 0):  # in another order than the list's
                c.start_reducer(i)
                rank0.wait_text(rf"slot-taken reducer=r{i} ")
                self.until_used(c, i)
            c.reducers[1].stop()  # drains
            rank0.wait_text(r"slot-empty reducer=r1 .* reason=.*shutting down")
            c.reducers[2].kill()
            rank0.wait_text(r"reducer-lost reducer=r2 ")
            for i in (1, 2):
                c.start_reducer(i)
            rank0.wait_text(r"slot-taken reducer=r1 ")
            rank0.wait_text(r"reducer-back reducer=r2 ")
            for i in range(4):
                self.until_used(c, i)
            self.assertEqual(self.reducer_job(c, 0)["lost"], [])
            if agents:
                self.assertEqual(self.empty_slots(c.agents[0]), 0)
                address = c.agents[0].wait_text(r"\bgrpc-ready\b.*?address=(\S+)").group(1)
                status, out, err = ctl("events", "--past", address)
                self.assertRegex(out, r"slot-empty +reducer=r1 .*reason=.*shutting down", err)
                self.assertRegex(out, r"slot-taken +reducer=r1 .*reason=.*has come", err)
            self.assertGreater(self.end(c, ranks), 10)
            for w in ranks + c.agents:
                self.assertNotIn(" degraded ", w.err)
                self.assertNotRegex(w.err, r"(waiting|error) .*r0 at")

    def test_come_and_go(self):
        self.come_and_go(0, "tcp")

    def test_come_and_go_with_agents(self):
        self.come_and_go(2, "tcp")

    def test_come_and_go_over_grpc(self):
        self.come_and_go(0, "grpc")

    def change_the_file(self, agents, transport):
        with harness.Cluster(reducers=3, config=SLOTS, start=False, transport=transport) as c:
            c.agents = [None] * agents
            for i in (0, 1):
                c.start_reducer(i)
            reducers = [{"id": f"r{i}", "address": c.address(i)} for i in range(2)] + [{"id": "r2"}]
            file = c.write_config("job.yaml", {"reducers": reducers[:2] + [{"id": "r2", "address": c.address(2)}]})
            tree = json.loads((c.dir / "job.yaml").read_text())

            def write(*addresses):
                key = "grpc" if transport == "grpc" else "address"
                tree["reducers"] = [{"id": f"r{i}", "address": a, key: a} if a else {"id": f"r{i}"}
                                    for i, a in enumerate(addresses)]  # fmt: skip
                harness.write_whole(c.dir / "job.yaml", json.dumps(tree))

            write(c.address(0), c.address(1), None)
            for i in range(agents):
                c.start_agent(i, path=file)
            local = {} if agents else {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            ranks = c.start_workers(RANKS, STEADY, env={"REDUCTION_CONFIG": file, **local})
            rank0 = c.agents[0] if agents else ranks[0]
            rank0.wait_text(r"slot-empty reducer=r2 .* reason=.*no address")
            for w in ranks:
                w.said("open", timeout=40)
            c.start_reducer(2)
            write(c.address(0), c.address(1), c.address(2))
            rank0.wait_text(rf"reducer-address reducer=r2 from=\"\" to={c.address(2)} ")
            rank0.wait_text(r"slot-taken reducer=r2 ")
            old, c.dead = c.address(1), c.reducers[1]
            c.dead.kill()
            harness.write_whole(c.dir / "job.yaml", "reducers: [")  # the hook is not ready
            rank0.wait_text(r"reducer-address result=\"kept the previous addresses\" ")
            c._addresses[1] = c.reducers[1] = None
            c.start_reducer(1)  # another machine
            self.assertNotEqual(c.address(1), old)
            write(c.address(0), c.address(1), c.address(2))
            rank0.wait_text(rf"reducer-address reducer=r1 from={old} to={c.address(1)} ")
            rank0.wait_text(rf"reducer-back reducer=r1 address={c.address(1)} ")
            self.end(c, ranks)
            self.assertEqual(rank0.err.count("kept the previous"), 1)

    def test_the_file_changes(self):
        self.change_the_file(0, "tcp")

    def test_the_file_changes_with_agents(self):
        self.change_the_file(2, "tcp")

    def test_the_file_changes_over_grpc(self):
        self.change_the_file(0, "grpc")

    @unittest.skipIf(harness.SAN, "a preloaded library answers for names, in the default build")
    def test_names_are_looked_up_again(self):
        """As of the pods of a StatefulSet: a name appears, and has another address later."""
        with harness.Cluster(reducers=3, config=SLOTS, start=False) as c:
            ports = [c.address(i).rsplit(":", 1)[1] for i in range(3)]
            names = [{"id": f"r{i}", "address": f"reducer-{i}.test:{port}"} for i, port in enumerate(ports)]
            env = {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_names.so"), "LOCAL_RANK": 0,
                   "LOCAL_WORLD_SIZE": 1, "REDUCTION_NAMES": str(c.dir / "names")}  # fmt: skip

            def write(**addresses):
                lines = [f"reducer-{name[1:]}.test {address}" for name, address in addresses.items()]
                harness.write_whole(c.dir / "names", "\n".join(lines) + "\n")

            write(r0="127.0.0.1", r1="127.0.0.1")
            for i in (0, 1):
                c.start_reducer(i)
            ranks = c.start_workers(RANKS, STEADY, env=env, config={"reducers": names})
            ranks[0].wait_text(r"slot-empty reducer=r2 .* reason=.*name does not exist")
            for w in ranks:
                w.said("open", timeout=40)
            c.start_reducer(2)
            write(r0="127.0.0.1", r1="127.0.0.1", r2="127.0.0.1")
            ranks[0].wait_text(r"slot-taken reducer=r2 ")
            c.reducers[1].stop()
            ranks[0].wait_text(r"slot-empty reducer=r1 .*shutting down")
            c._addresses[1] = f"127.0.0.3:{ports[1]}"
            c.start_reducer(1)
            write(r0="127.0.0.1", r1="127.0.0.3", r2="127.0.0.1")
            ranks[0].wait_text(r"slot-taken reducer=r1 ")
            self.end(c, ranks)

    def one_name(self, agents, transport, most=None, lanes=1):
        """Four slots have one name, whose addresses are the reducers. Each rank looks it up for itself."""
        config = {**SLOTS, "job": {**SLOTS["job"], "min_reducers": 2}}
        with harness.Cluster(reducers=5, config=config, start=False, transport=transport, lanes=lanes) as c:
            c.agents = [None] * agents
            port = c.address(0).rsplit(":", 1)[1]
            c._addresses = [f"127.0.0.{9 - i}:{port}" for i in range(5)]  # not in the order in which they come
            key = "grpc" if transport == "grpc" else "address"
            names = [{"id": f"r{i}", "address": "reducers.test:7600", key: f"reducers.test:{port}", "lanes": lanes}
                     for i in range(4)]  # fmt: skip
            env = {"LD_PRELOAD": str(harness.BUILD / "tests" / "e2e" / "shim_names.so"),
                   "REDUCTION_NAMES": str(c.dir / "names")}  # fmt: skip
            if most:
                env["REDUCTION_NAMES_MOST"] = str(most)

            def write(*reducers):
                harness.write_whole(c.dir / "names", "".join(
                    f"reducers.test {c.address(i).rsplit(':', 1)[0]}\n" for i in reducers))  # fmt: skip

            write(0, 1)
            for i in (0, 1):
                c.start_reducer(i)
            file = c.write_config("job.yaml", {"reducers": names})
            for i in range(agents):
                argv = [harness.binary("reduction-agent"), "--config", file, "--socket", c.socket_path(i)]
                c.agents[i] = c.start(f"agent {i}", argv, env=env)
                c.agents[i].wait_text(r"\blistening\b")
            local = {} if agents else {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
            ranks = c.start_workers(RANKS, STEADY, env={**env, **local, "REDUCTION_CONFIG": file})
            rank0 = c.agents[0] if agents else ranks[0]
            for w in ranks:
                w.said("open", timeout=60)
            self.assertEqual(len(re.findall(r"slot-empty reducer=r\d .*(all addresses|failed|looked)", rank0.err)), 2,
                             rank0.err)  # fmt: skip
            status, out, err = ctl("check", "--connect", file, env=env | {"REDUCTION_NAMES_MOST": "9"})
            self.assertEqual(status, 0, err)
            for i in (0, 1):
                self.assertRegex(out, rf"reducer r\d \({c.address(i)}\): reduction .* answered in")
            self.assertEqual((out + err).count("its slot is empty: its name has 2 addresses"), 2, out + err)
            for i in (2, 3):  # two more machines
                c.start_reducer(i)
                write(*range(i + 1))
                rank0.wait_text(rf"slot-taken reducer=r\d address={c.address(i)} ", timeout=40)
            c.reducers[1].stop()  # drains, and its name server forgets it; another machine comes
            slot = rank0.wait_text(rf"slot-empty reducer=(r\d) address={c.address(1)} .*shutting down").group(1)
            c.start_reducer(4)
            write(0, 2, 3, 4)
            rank0.wait_text(rf"slot-taken reducer={slot} address={c.address(4)} ", timeout=40)
            self.assertGreater(self.end(c, ranks), 10)
            # all ranks agree, so no reducer was of two slots
            for i in (0, 2, 3, 4):
                self.assertEqual(len(re.findall(r"\bjob-started ", c.reducers[i].err)), 1, c.reducers[i].err)

    @unittest.skipIf(harness.SAN, "a preloaded library answers for names, in the default build")
    def test_one_name(self):
        self.one_name(0, "tcp", lanes=2)

    @unittest.skipIf(harness.SAN, "a preloaded library answers for names, in the default build")
    def test_one_name_with_agents(self):
        self.one_name(2, "tcp")

    @unittest.skipIf(harness.SAN, "a preloaded library answers for names, in the default build")
    def test_one_name_over_grpc(self):
        self.one_name(0, "grpc")

    @unittest.skipIf(harness.SAN, "a preloaded library answers for names, in the default build")
    def test_one_name_with_short_answers(self):
        """Each lookup has only three of the addresses."""
        self.one_name(0, "tcp", most=3)

    def test_the_page(self):
        """The commands of deploy/slots.md."""
        text = (harness.ROOT / "deploy" / "slots.md").read_text(encoding="utf-8")
        program = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
        commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[-1]
        yaml = re.search(r"```yaml\n(.*?)```", text, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory(prefix="reduction-") as folder:
            folder = pathlib.Path(folder)
            (folder / "slots.py").write_text(program)
            (folder / "job.yaml").write_text(yaml)
            path = f"{harness.BUILD}/bin:{os.environ['PATH']}"

            def run(*addresses):
                env = {**os.environ, "ADDRESSES": " ".join(addresses), "PATH": path}
                done = subprocess.run(["bash", "-euc", commands], cwd=folder, env=env, capture_output=True, text=True,
                                      timeout=60)  # fmt: skip
                self.assertEqual(done.returncode, 0, done.stderr)
                slots = json.loads((folder / "job.json").read_text())["reducers"]
                return [slot.get("address", "").removesuffix(":7600") for slot in slots]

            status, out, err = ctl("check", str(folder / "job.yaml"))
            self.assertEqual((status, err), (0, ""))
            self.assertIn("4 reducers", out)
            (folder / "job.json").write_text(json.dumps({"job": {"min_reducers": 1},
                                                         "reducers": [{"id": f"r{i}"} for i in range(3)]}))  # fmt: skip
            self.assertEqual(run("10.0.0.1"), ["10.0.0.1", "", ""])
            self.assertEqual(run("10.0.0.3", "10.0.0.1", "10.0.0.2"), ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
            self.assertEqual(run("10.0.0.3"), ["", "", "10.0.0.3"])
            self.assertEqual(run("10.0.0.3", "10.0.0.4"), ["10.0.0.4", "", "10.0.0.3"])


if __name__ == "__main__":
    harness.main()
