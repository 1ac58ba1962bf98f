# SPDX-License-Identifier: Apache-2.0
# run: beside-others all-only
"""One reducer with many ranks, simulated by reduction-load: right sums, memory within its bound, a clean end.
"""

import json
import pathlib
import re
import socket
import unittest

import harness
import wire

LOAD = str(harness.BUILD / "bench" / "reduction-load")
MANY = 64 if harness.SLOW else 256


def resident(pid):
    """Returns resident bytes of a process: now and peak."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M).group(1)) << 10 for name in ("VmRSS", "VmHWM")]


class Load(unittest.TestCase):
    def cluster(self, **more):
        c = harness.Cluster(**more)
        self.addCleanup(c.__exit__, None, None, None)
        return c.__enter__()

    def load(self, c, *more, status=0):
        """Runs it to its end; returns its JSON object, None if its exit status is not 0."""
        p = c.start("reduction-load", [LOAD, "--address", c.address(0), "--json", *map(str, more)])
        self.assertEqual(p.wait(120), status, p.report())
        return json.loads(p.out) if status == 0 else p

    def announced(self, c, job):
        return int(c.reducers[0].wait_text(rf"\bjob-opened job={job} .*\bmemory_bytes=(\d+)").group(1))

    def test_many_ranks(self):
        """Memory is measured after a first small job, since the program's own pages are no job's."""
        c = self.cluster()
        pid = c.reducers[0].pid
        for window, chunk, more in ((4, "32K", []), (1, "1K", ["--dtype", "bfloat16"]), (16, "4K", [])):
            with self.subTest(window=window, chunk=chunk):
                name = f"many{window}"
                self.load(c, "--name", f"first{window}", "--ranks", 2, "--ops", 3, "--window", window)
                before, _ = resident(pid)
                row = self.load(c, "--name", name, "--ranks", MANY, "--ops", 3, "--bytes", "200K", "--chunk", chunk,
                                "--window", window, "--check-all", "--server-pid", pid, *more)  # fmt: skip
                chunks = -(-(200 << 10) // ({"32K": 32, "1K": 1, "4K": 4}[chunk] << 10))
                self.assertEqual((row["results"], row["wrong"]), (3 * chunks * MANY, 0))
                c.reducers[0].wait_text(rf"\bjob-closed job={name}-0\b")
                if not harness.SAN:  # a sanitizer's shadow and quarantine are not announced
                    bound = self.announced(c, f"{name}-0")
                    self.assertLess(row["rss_after"] - before, bound)

    def test_many_jobs(self):
        c = self.cluster(lanes=2)
        row = self.load(c, "--ranks", 4, "--jobs", 32, "--ops", 5, "--bytes", "64K", "--chunk", "8K", "--check-all")
        self.assertEqual((row["results"], row["wrong"]), (5 * 8 * 4 * 32, 0))

    def test_for_a_time(self):
        """With --seconds all ranks of a job end with the same operation."""
        c = self.cluster()
        row = self.load(c, "--ranks", 9, "--jobs", 2, "--seconds", 0.2, "--warmup", 0.1, "--bytes", "1000K")
        self.assertEqual(row["wrong"], 0)
        self.assertEqual(row["results"] % (9 * 32), 0)
        self.assertGreater(row["gib_per_s"], 0)

    def test_all_dtypes(self):
        c = self.cluster()
        for dtype in "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64 bfloat16".split():
            row = self.load(c, "--name", dtype, "--ranks", 11, "--ops", 2, "--bytes", "8K", "--chunk", "1K",
                            "--dtype", dtype, "--check-all")  # fmt: skip
            self.assertEqual((row["results"], row["wrong"]), (2 * 8 * 11, 0), dtype)

    def test_silent_connections(self):
        """Those that never say HELLO are closed in time and do not keep others from the reducer."""
        c = self.cluster(server_config={"timeouts": {"handshake": "3s"}})
        p = c.start("reduction-load", [LOAD, "--address", c.address(0), "--json", "--ranks", 4, "--silent", MANY,
                                       "--bytes", "64K", "--seconds", 5, "--warmup", 0])  # fmt: skip
        c.reducers[0].wait_text(r"no complete HELLO came within 3.0 s")
        self.assertEqual(p.wait(), 0, p.report())
        row = json.loads(p.out)
        self.assertEqual(row["wrong"], 0)
        self.assertGreater(row["silent_closed"], 0)

    def test_descriptors_run_out(self):
        """Said when the reducer starts, and again when it happens; the job that is there goes on."""
        c = self.cluster(start=False, lanes=1)
        argv = [harness.binary("reduction-server"), "--listen", c.address(0), "--lanes", "1"]
        c.reducers[0] = c.start("reducer r0", ["/bin/sh", "-c", 'ulimit -n 60 && exec "$@"', "sh", *argv])
        c.reducers[0].wait_text(r"\bfew-descriptors found=60 expected=\d+ .*server.max_connections")
        p = c.start("reduction-load", [LOAD, "--address", c.address(0), "--json", "--ranks", 4, "--bytes", "64K",
                                       "--seconds", 1, "--warmup", 0])  # fmt: skip
        c.reducers[0].wait_text(r"\bjob-started")
        crowd = [c.connect(0) for _ in range(100)]
        c.reducers[0].wait_text(r"\bout-of-descriptors\b")
        self.assertEqual(p.wait(), 0, p.report())
        self.assertEqual(json.loads(p.out)["wrong"], 0)
        for connection in crowd:
            connection.close()
        # and there is room again
        self.assertEqual(self.load(c, "--ranks", 2, "--ops", 1)["wrong"], 0)

    def test_wrong_sums_are_found(self):
        """A reducer that changes one byte of a result: seen at the beginning, with --check-all anywhere."""
        for at, more, status in ((0, [], 1), (63, [], 1), (100, [], 0), (1023, ["--check-all"], 1)):
            c = self.cluster(start=False, reducers=0)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                p = c.start("reduction-load", [LOAD, "--address", "127.0.0.1:%d" % listener.getsockname()[1],
                                               "--ranks", 1, "--ops", 1, "--bytes", "1K", *more])  # fmt: skip
                listener.settimeout(20 * harness.SCALE)
                with wire.Client(listener.accept()[0]) as reducer:
                    reducer.expect(wire.HELLO)
                    reducer.send(wire.frame(wire.WELCOME, wire.pb.Welcome(detect_ms=10000)) + wire.frame(wire.START))
                    payload = bytearray(reducer.expect(wire.DATA))
                    payload[at] ^= 1
                    reducer.send(wire.frame(wire.RESULT, bytes(payload), dtype=7, count=256, chunk_elems=8192))
                    reducer.expect(wire.GOODBYE)
                self.assertEqual(p.wait(), status, p.report())
                self.assertIn(f"1 results, {status} of them wrong", p.out)

    def test_refusals_are_reported(self):
        c = self.cluster(server_config={"server": {"max_workers": 3}})
        p = self.load(c, "--ranks", 4, "--ops", 1, status=1)
        # whichever's answer came first
        self.assertRegex(p.err, "rank [0-3] of job load-0 was refused: job load-0 has 4 workers, this reducer's "
                                "server.max_workers allows 3")  # fmt: skip
        p = self.load(c, "--ranks", 1, "--ops", 1, "--server-pid", 1 << 29, status=1)
        self.assertIn("reduction-load: the reducer's /proc/536870912/stat cannot be read", p.err)

    def test_wrong_usage(self):
        c = self.cluster(start=False, reducers=0)
        for words, says in (
            (["--ranks", "0"], '--ranks: found "0", expected a number from 1 to 4096'),
            (["--chunk", "1000K"], None),
            (["--chunk", "1050"], "--chunk: found 1050, expected a multiple of 64"),
            (["--bytes", "7"], "--bytes: found 7, expected a multiple of float32's 4 bytes"),
            (["--seconds", "x"], '--seconds: found "x", expected a number from 0.01 to 1000000'),
            (["--dtype", "float"], '--dtype: found "float", expected int8, uint8'),
            (["more"], 'unexpected argument "more"'),
        ):
            p = c.start("reduction-load", [LOAD, "--address", "127.0.0.1:1", *words])
            self.assertEqual(p.wait(), 2 if says else 1, p.report())
            self.assertIn(says or "cannot connect to 127.0.0.1:1: Connection refused", p.err)
        p = c.start("reduction-load", [LOAD, "--address", "127.0.0.1:1", "--dtype", "bfloat16", "--ranks", 1000])
        self.assertEqual(p.wait(), 1)
        self.assertIn("sums of 1000 ranks in bfloat16 are not exact", p.err)


if __name__ == "__main__":
    harness.main()
