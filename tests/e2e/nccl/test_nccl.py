#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# run: beside-others
"""The NCCL plugin, called as NCCL's transports call it (tests/nccl), for each version of the tables."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest

import certs
import harness

EXERCISE = harness.BUILD / "tests" / "nccl" / "exercise"
PLUGIN = harness.BUILD / "lib" / "libnccl-net-reduction.so"
VERSIONS = (8, 9, 10, 11, 12)
LEAVE_S = 2.0 * {"": 1, "thread": 10}.get(harness.SAN, 4)  # what the plugin promises; sanitizers make it slower
FEWER = 4 if harness.SLOW else 1  # so many times fewer operations with sanitizers
LEAVE_TRIES = 3  # a busy machine may stop any thread for a while

INTERFACES = """
ip link set lo up && ip link add d0 type veth peer name d1 || exit 77
for i in 0 1; do
    ip addr add 10.97.$i.1/24 dev d$i && ip link set d$i up || exit 77
done
exec "$@"
"""


class Case(unittest.TestCase):
    def start(self, c, case, *args, env=None, config=None, program=EXERCISE, version=12):
        """Starts the ranks of a case, which are processes of one program."""
        argv = [program, "--library", PLUGIN, "--case", case, "--version", version, *args]
        full = {"REDUCTION_CONFIG": c.write_config("nccl.yaml", config), "NCCL_COLLNET_ENABLE": "1", **(env or {})}
        return c.start(case, argv, full)

    def run_case(self, c, case, *args, timeout=120, **kwargs):
        p = self.start(c, case, *args, **kwargs)
        self.assertEqual(p.wait(timeout), 0, p.report())
        return p

    def survives(self, scenario, ops):
        """Kills one of two reducers when half of the operations are done. All of them must be right."""
        with harness.Cluster(reducers=2) as c:
            p = self.start(c, scenario, "--ranks", 3, "--bytes", 256 << 10, "--ops", ops // FEWER, "--depth", 16)
            p.wait_text("half", 120, "out")
            c.reducers[1].kill()
            self.assertEqual(p.wait(120), 0, p.report())
            self.assertRegex(p.err, r"WARN reduction: reducer-lost reducer=r1")


class Sums(Case):
    """Results are exact, for all data types and operations."""

    def test_versions(self):
        with harness.Cluster(reducers=2) as c:
            for version in VERSIONS:
                with self.subTest(version=version):
                    p = self.run_case(c, "sums", "--ranks", 2, "--bytes", 64 << 10, "--ops", 48, version=version)
                    self.assertRegex(p.err, r"communicator test@[0-9a-f]{16}: rank 1 of 2 has joined, summed by 2")
                    self.assertRegex(p.err, r"rank 0 is closed after 48 all-reduces of \d+ bytes")

    def test_managed_job(self):
        """Without a file, reducers and the name of the job come from CLUSTER_SPEC."""
        with harness.Cluster(reducers=1) as c:
            pools = {"workerpool0": ["a:1"], "workerpool1": ["b:1"], "workerpool2": [c.address(0)]}
            spec = json.dumps({"cluster": pools, "task": {"type": "workerpool0", "index": 0, "trial": "7"}})
            p = self.run_case(c, "sums", "--ranks", 2, "--bytes", 64 << 10, "--ops", 8,
                              env={"REDUCTION_CONFIG": "", "CLUSTER_SPEC": spec})
            self.assertRegex(p.err, r"communicator cluster-a-1\.7-[0-9a-f]{8}@[0-9a-f]{16}: rank 1 of 2 has joined")

    def test_list_of_reducers(self):
        with harness.Cluster(reducers=2) as c:
            env = {"REDUCTION_CONFIG": "", "REDUCTION_REDUCERS": f"{c.address(0)},{c.address(1)}",
                   "REDUCTION_JOB": "test"}
            p = self.run_case(c, "sums", "--ranks", 2, "--bytes", 64 << 10, "--ops", 8, env=env)
            self.assertRegex(p.err, r"communicator test@[0-9a-f]{16}: rank 1 of 2 has joined, summed by 2")

    def test_large(self):
        with harness.Cluster(reducers=2, lanes=2) as c:
            self.run_case(c, "sums", "--ranks", 4, "--bytes", 4 << 20, "--ops", 12, "--depth", 8)

    def test_many_ranks_and_communicators(self):
        with harness.Cluster(reducers=2) as c:
            ranks = 4 if harness.SLOW else 8
            self.run_case(c, "sums", "--ranks", ranks, "--bytes", 32 << 10, "--ops", 96 // FEWER, "--comms", 3,
                          "--depth", 64, "--shuffle", version=8)

    def test_throttle(self):
        with harness.Cluster() as c:
            for version in (8, 12):
                self.run_case(c, "throttle", "--ranks", 2, version=version)

    def test_secret(self):
        """Reducers know the secret by the name of the job, and communicators have longer names."""
        with tempfile.TemporaryDirectory() as folder:
            secret = pathlib.Path(folder, "test.secret")
            secret.write_text("0123456789abcdef-of-the-job\n")
            secret.chmod(0o600)
            with harness.Cluster(server_config={"server": {"secrets_dir": folder}}) as c:
                config = {"security": {"secret": str(secret)}}
                self.run_case(c, "sums", "--ranks", 2, "--bytes", 32 << 10, "--ops", 8, config=config)

    def test_tls(self):
        """security.tls of REDUCTION_CONFIG holds for the plugin: mutual TLS, and no sums without a certificate."""
        with tempfile.TemporaryDirectory() as folder:
            made = certs.Folder(f"{folder}/certs", "reducer:localhost,127.0.0.1", "client:team")
            access = [{"certificate": "team", "jobs": "test"}]
            with harness.Cluster(server_config={**made.reducer("localhost", mutual=True), "access": access}) as c:
                args = ("--ranks", 2, "--bytes", 32 << 10, "--ops", 8)
                self.run_case(c, "sums", *args, config=made.worker("team"))
                p = self.start(c, "sums", *args, config={**made.worker(), **harness.SOON})
                self.assertNotEqual(p.wait(60), 0)
                self.assertRegex(p.err, "WARN .*do not go through the reducers: .*certificate")

    def test_ipv6(self):
        """Reducers with IPv6 addresses; the net table then uses IPv6 too."""
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                pass
        except OSError:
            self.skipTest("loopback has no IPv6 here")
        with harness.Cluster(start=False) as c:
            server = c.start("reducer", [harness.binary("reduction-server"), "--listen", "[::1]:0"])
            address = server.wait_text(r"\blistening address=(\S+)")[1]
            config = {"reducers": [{"id": "r0", "address": address}]}
            for case in ("sums", "messages"):
                self.run_case(c, case, "--ranks", 2, "--bytes", 32 << 10, "--ops", 8, config=config)

    def test_never_used(self):
        with harness.Cluster() as c:
            p = self.run_case(c, "unused", "--ranks", 2)
            self.assertRegex(p.err, r"INFO .*rank 0 is closed, and NCCL never used it")


class Slices(Case):
    """All-gathers and reduce-scatters, as CollNet Direct asks for them."""

    def test_versions(self):
        """Slices that are a part of one rank's part, several parts, and all of them."""
        with harness.Cluster(reducers=2) as c:
            for version in VERSIONS:
                with self.subTest(version=version):
                    p = self.run_case(c, "slices", "--ranks", 3, "--bytes", 30 << 10, "--ops", 400, version=version)
                    self.assertGreater(int(re.search(r"^collectives (\d+)$", p.out, re.M)[1]), 30)
                    self.assertRegex(p.err, r"rank 0 is closed after 0 all-reduces of 0 bytes, and 400 slices of "
                                            r"all-gathers and reduce-scatters of \d+ bytes")

    def test_large(self):
        with harness.Cluster(reducers=2, lanes=2) as c:
            self.run_case(c, "slices", "--ranks", 4, "--bytes", 1 << 20, "--ops", 160 // FEWER, "--depth", 8)

    def test_refused(self):
        with harness.Cluster() as c:
            for version in (8, 12):
                p = self.run_case(c, "refused", "--ranks", 2, version=version)
                self.assertRegex(p.err, r"WARN .*NCCL asked for a reduce-scatter of bytes 128 to 136 of 2 parts of 64 ")

    def test_reducer_killed(self):
        """One of two reducers dies while slices are pending; no result is lost."""
        self.survives("slices", 240)

    def test_baseline(self):
        """Without the feature the communicator ends with a sentence."""
        with harness.Cluster() as c:
            p = self.start(c, "slices", "--ranks", 2, "--bytes", 32 << 10, "--ops", 8,
                           config={"job": {"features": "baseline"}})
            self.assertEqual(p.wait(60), 1, p.report())
            self.assertRegex(p.err, r"WARN .*does not know all-gather: start a newer release everywhere")


class Failures(Case):
    def test_reducer_killed(self):
        """One of two reducers dies while all-reduces are pending; no result is lost."""
        self.survives("sums", 160)

    def test_absent_rank(self):
        """A rank that does not come fails connect on all others, in time."""
        with harness.Cluster() as c:
            p = self.run_case(c, "absent", "--ranks", 3, "--odd", 1, config=harness.SOON)
            self.assertEqual(len(re.findall("^connect [1-9]", p.out, re.M)), 2, p.report())
            self.assertEqual(len(re.findall(r"WARN .*?do not go through the reducers", p.err)), 2, p.report())

    def test_rank_dies_after_its_vote(self):
        with harness.Cluster() as c:
            p = self.run_case(c, "dies", "--ranks", 3, "--odd", 1)
            self.assertRegex(p.err, r"WARN reduction: job test@\w{16}: rank 1 \(pid \d+ on .*\)")
            self.assertEqual(len(re.findall("^WARN reduction: job test@", p.err, re.M)), 2, p.report())

    def leave(self, c, case, bytes_):
        """Returns the seconds that deregister and close, or close alone, took with operations pending."""
        p = self.run_case(c, case, "--ranks", 3, "--odd", 1, "--depth", 16, "--bytes", bytes_)
        self.assertRegex(p.err, r"rank 1 \(pid \d+ on .*\) (deregistered|closed)")
        return float(re.search(r"left in ([\d.]+) s", p.out)[1])

    def test_leaves(self):
        """With operations pending, deregister and close take less than 2 s, and the memory may go at once."""
        with harness.Cluster(reducers=2) as c:
            for case in ("aborts", "closes"):
                for bytes_ in (32 << 10, 4 << 20):
                    with self.subTest(case=case, bytes=bytes_):
                        tries = []
                        while len(tries) < LEAVE_TRIES and not any(t < LEAVE_S for t in tries):
                            tries.append(self.leave(c, case, bytes_))
                        self.assertLess(min(tries), LEAVE_S)

    def test_different_settings(self):
        """Ranks with other settings than rank 0 are found before anything is sent."""
        with harness.Cluster() as c:
            shared = c.dir / "shared"
            procs = []
            for rank, chunk in enumerate(("16KiB", "32KiB")):
                config = c.write_config(f"nccl{rank}.yaml", {"sharding": {"chunk_bytes": chunk}})
                argv = [EXERCISE, "--library", PLUGIN, "--case", "unused", "--ranks", 2]
                argv += ["--shared", shared, "--rank", rank]
                procs.append(c.start(f"rank {rank}", argv, {"REDUCTION_CONFIG": config, "NCCL_COLLNET_ENABLE": "1"}))
            for p in procs:
                self.assertNotEqual(p.wait(60), 0)
                self.assertIn("nodes 0 and 1 have different settings", p.err)


class Required(Case):
    def test_no_reducers(self):
        """Without it connect fails and the net works; with it the net fails too."""
        with harness.Cluster(start=False) as c:
            for required in ("0", "1"):
                env = {"REDUCTION_REQUIRED": required}
                p = self.run_case(c, "fallback", "--ranks", 2, config=harness.SOON, env=env)
                want = "net works" if required == "0" else "net fails"
                self.assertEqual(p.out.splitlines(), [want] * 2, p.report())
            self.assertRegex(p.err, "REDUCTION_REQUIRED is 1, and all-reduces cannot go through the reducers")

    def test_not_enabled(self):
        with harness.Cluster(start=False) as c:
            env = {"REDUCTION_REQUIRED": "1", "NCCL_COLLNET_ENABLE": "0"}
            p = self.start(c, "unused", "--ranks", 1, env=env)
            self.assertNotEqual(p.wait(60), 0)
            self.assertIn("NCCL_COLLNET_ENABLE is 0, 1 was expected", p.err)

    def test_wrong_settings(self):
        with harness.Cluster(start=False) as c:
            for name, value, want in (
                ("REDUCTION_CONFIG", "/nonexistent.yaml", "/nonexistent.yaml"),
                ("REDUCTION_REDUCERS", "a", 'REDUCTION_REDUCERS ("a"): found both'),
                ("NCCL_SOCKET_IFNAME", "nothing", 'NCCL_SOCKET_IFNAME is "nothing"'),
                ("REDUCTION_NET_SOCKETS", "99", "a number from 1 to 16 was expected"),
                ("REDUCTION_REQUIRED", "yes", "0 or 1 was expected"),
                ("REDUCTION_JOB", "j" * 47, "at most 46 letters"),
            ):
                p = self.start(c, "unused", "--ranks", 1, env={name: value})
                self.assertNotEqual(p.wait(60), 0)
                self.assertIn(want, p.err)


class Net(Case):
    def test_versions(self):
        with harness.Cluster(start=False) as c:
            for version in VERSIONS:
                for sockets in (1, 4):
                    with self.subTest(version=version, sockets=sockets):
                        self.run_case(c, "messages", "--ranks", 2, "--ops", 32 // FEWER, "--bytes", 4 << 20,
                                      version=version, env={"REDUCTION_NET_SOCKETS": str(sockets)})

    def test_interfaces(self):
        """NCCL_SOCKET_IFNAME chooses one of several interfaces as it does in NCCL."""
        isolated = ["unshare", "--net", "sh", "-c", INTERFACES, "sh"]
        if subprocess.run([*isolated, "true"], capture_output=True).returncode:
            self.skipTest("this user may not make network interfaces in a namespace of its own")
        with harness.Cluster(start=False) as c:
            env = {"REDUCTION_CONFIG": c.write_config("nccl.yaml"), "NCCL_COLLNET_ENABLE": "1"}
            for wanted, found in (("d1", "d1"), ("=d0", "d0"), ("^lo,d0", "d1"), ("x,d1", "d1"), ("lo", "lo"),
                                  ("=d", None)):
                with self.subTest(wanted=wanted):
                    argv = [*isolated, EXERCISE, "--library", PLUGIN, "--case", "messages", "--ranks", 2, "--ops", 4]
                    p = c.start("messages", argv, {**env, "NCCL_SOCKET_IFNAME": wanted})
                    self.assertEqual(p.wait(60) == 0, found is not None, p.report())
                    self.assertIn(f"interface {found} with" if found else f'NCCL_SOCKET_IFNAME is "{wanted}"', p.err)

    def test_ring_of_many(self):
        with harness.Cluster(start=False) as c:
            self.run_case(c, "messages", "--ranks", 5, "--ops", 24 // FEWER, "--bytes", 1 << 20)

    def test_strangers(self):
        with harness.Cluster(start=False) as c:
            self.run_case(c, "strangers", "--ranks", 2)

    def test_descriptors(self):
        with harness.Cluster() as c:
            p = self.run_case(c, "descriptors", "--ranks", 2)
            self.assertRegex(p.err, "WARN .*cannot accept a connection: Too many open files")

    def test_breaks(self):
        with harness.Cluster(start=False) as c:
            p = self.run_case(c, "breaks", "--ranks", 2)
            self.assertIn("a message has 100 bytes, and its receive has room for 99", p.err)
            self.assertIn("the other rank has closed the connection", p.err)


ENV_PLUGIN = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
number, text, pointer = ctypes.c_uint8, ctypes.c_char_p, ctypes.c_void_p
for version, more in (("v1", []), ("v2", [pointer])):
    _, init, _, get = (pointer * 4).in_dll(lib, f"ncclEnvPlugin_{version}")
    start = ctypes.CFUNCTYPE(ctypes.c_int, number, number, number, text, *more)(init)
    assert start(2, 28, 9, b"", *[None for _ in more]) == 0
    print(*(ctypes.CFUNCTYPE(text, text)(get)(name) for name in (b"NCCL_COLLNET_ENABLE", b"NCCL_NET_PLUGIN_REF_COUNT")))
"""


@unittest.skipIf(harness.SAN, "Python loads it")
class Environment(unittest.TestCase):
    def test_variables(self):
        """libnccl-env.so sets variables only if NCCL is to load the plugin, and none that the user has set."""
        for env, want in (({"NCCL_NET_PLUGIN": "reduction"}, "b'1' b'1'"),
                          ({"NCCL_NET_PLUGIN": "other,/opt/lib/libnccl-net-reduction.so"}, "b'1' b'1'"),
                          ({"NCCL_NET_PLUGIN": "reduction", "NCCL_COLLNET_ENABLE": "0"}, "b'0' b'1'"),
                          ({"NCCL_NET_PLUGIN": "other"}, "None None"),
                          ({}, "None None")):
            with self.subTest(env):
                argv = [harness.PYTHON, "-c", ENV_PLUGIN, harness.BUILD / "lib" / "libnccl-env.so"]
                done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True)
                self.assertEqual(done.stdout.splitlines(), [want] * 2)


class Library(Case):
    @staticmethod
    def said(*argv):
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def test_symbols(self):
        """Only the tables are visible, and nothing of NCCL or CUDA is needed."""
        names = self.said("nm", "-D", "--defined-only", PLUGIN)
        ours = {line.split()[2] for line in names.splitlines() if not re.search(r" [VWw] |asan|ubsan|tsan", line)}
        tables = {f"nccl{kind}Plugin_v{v}" for kind in ("Net", "CollNet") for v in VERSIONS}
        self.assertEqual(ours, tables | {f"ncclTunerPlugin_v{v}" for v in (2, 3, 4)})
        needed = self.said("readelf", "-d", PLUGIN)
        self.assertNotRegex(needed, r"lib(nccl|cuda|cudart)\.so")
        self.assertIn("NODELETE", needed)

    @unittest.skipUnless(shutil.which("g++"), "there is no g++")
    def test_foreign_uv(self):
        """A C++ program that exports functions with libuv's names is not called."""
        if "libuv.so" in self.said("readelf", "-d", PLUGIN):
            self.skipTest("the plugin was linked with the shared libuv, because there is no static one")
        with harness.Cluster() as c:
            host = c.dir / "host"
            objects = sorted(EXERCISE.parent.glob("*.o"))
            san = [f"-fsanitize={harness.SAN}"] if harness.SAN else []
            argv = ["g++", "-rdynamic", *san, "-o", host, harness.ROOT / "tests/nccl/host.cc", *objects]
            argv += [harness.BUILD / "common/libcommon.a", "-ldl", "-pthread", "-lm"]
            subprocess.run(argv, check=True)
            self.run_case(c, "sums", "--ranks", 2, "--bytes", 32 << 10, "--ops", 8, program=host)


if __name__ == "__main__":
    harness.main()
