# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""REDUCTION_GPU_TRACE, on the fake driver of tests/cuda: every piece has its parts in order, copies of a direction do
not overlap, and bytes add up.

Not under ThreadSanitizer: test_device.c has the same threads.
"""

import collections
import json
import subprocess
import sys
import unittest

import harness
from test_python_api import program

PARTS = ["copy out", "network", "copy in"]
START = """
import fake_gpu
gpu = fake_gpu.Gpu()
"""
RATE = {"FAKE_CUDA_RATE": "500"}  # MB/s


def nanoseconds(event):
    """Begin and end of a slice; the file has microseconds with three digits behind the point."""
    begin = round(1000 * event["ts"])
    return begin, begin + round(1000 * event["dur"])


def pieces_of(trace):
    """{(op, piece): {part or "whole": (begin, end)}} and the bytes of each piece."""
    found, size = collections.defaultdict(dict), {}
    for ev in trace["traceEvents"]:
        if ev["ph"] != "X":
            continue
        key = ev["args"]["op"], ev["args"]["piece"]
        name = ev["name"] if ev["name"] in PARTS else "whole"
        assert name != "whole" or ev["name"] == "op %d piece %d" % key, ev
        assert name not in found[key], ev
        found[key][name] = nanoseconds(ev)
        assert size.setdefault(key, ev["args"]["bytes"]) == ev["args"]["bytes"], ev
    return found, size


def apart(spans):
    """Whether no two of the spans overlap."""
    spans = sorted(spans)
    return all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))


def overlap(found):
    """The nanoseconds of all copies, and of those while any piece is on the network."""
    network = []
    for begin, end in sorted(of["network"] for of in found.values() if "network" in of):
        if network and begin <= network[-1][1]:
            network[-1] = (network[-1][0], max(end, network[-1][1]))
        else:
            network.append((begin, end))
    copies = [of[name] for of in found.values() for name in ("copy out", "copy in") if name in of]
    both = sum(max(0, min(end, e) - max(begin, b)) for begin, end in copies for b, e in network)
    return sum(end - begin for begin, end in copies), both


class Timeline(unittest.TestCase):
    def record(self, code, agents):
        """Runs two ranks. Returns what each has written, and keeps what each has printed."""
        code = program(harness.python(START)[-1] + "\n" + harness.python(code)[-1])
        with harness.Cluster(reducers=2, agents=agents) as c:
            folder = c.dir / "trace"
            folder.mkdir()
            env = {"REDUCTION_BUILD": str(harness.BUILD), "REDUCTION_GPU_TRACE": str(folder), **RATE}
            self.said = [p.out for p in c.run(2, code, env=env)]
            return [json.loads((folder / f"test.0.{rank}.json").read_text()) for rank in range(2)]

    def check(self, trace, rank, ops):
        """ops: of each operation its bytes and the parts that its pieces have."""
        found, size = pieces_of(trace)
        self.assertEqual({op for op, _ in found}, set(range(len(ops))))
        for number, (total, parts) in enumerate(ops):
            of = {piece: spans for (op, piece), spans in found.items() if op == number}
            self.assertEqual(sorted(of), list(range(len(of))))
            self.assertEqual(sum(size[number, piece] for piece in of), total)
            for piece, spans in of.items():
                self.assertEqual(set(spans), {"whole", *parts}, (number, piece))
                times = [t for name in parts for t in spans[name]]
                self.assertEqual(times, sorted(times), (number, piece))
                self.assertEqual(spans["whole"], (times[0], times[-1]))
            for name in {"copy out", "copy in"} & set(parts):
                self.assertTrue(apart(spans[name] for spans in of.values()), (number, name))
        rows = collections.defaultdict(list)
        for ev in trace["traceEvents"]:
            self.assertEqual(ev["pid"], rank + 1)
            if ev["ph"] == "X" and ev["name"] not in PARTS:
                rows[ev["tid"]].append(nanoseconds(ev))
        self.assertTrue(all(map(apart, rows.values())))
        about = trace["otherData"]
        self.assertEqual((about["operations"], about["dropped"]), (len(ops), 0))
        copies, both = overlap(found)
        self.assertEqual((round(1000 * about["copies_us"]), round(1000 * about["overlap_us"])), (copies, both))
        return len(found)

    def test_pieces(self):
        for agents in (0, 2):
            with self.subTest(agents=agents):
                traces = self.record("""
                    a = gpu.array(np.full(5_000_000, rank, "float32"))
                    comm.all_reduce(a)
                    comm.broadcast(a, root=1)
                    comm.all_reduce(gpu.array(np.ones(1, "float32")))
                """, agents)
                whole = 20_000_000
                for rank, trace in enumerate(traces):
                    broadcast = PARTS[:2] if rank else PARTS[1:]
                    n = self.check(trace, rank, [(whole, PARTS), (whole, broadcast), (4, PARTS)])
                    self.assertGreater(n, 2 * 20)
                copied = whole / 500e6 * 1e6  # microseconds of each direction, at least
                self.assertGreater(traces[0]["otherData"]["copies_us"], 3 * copied)

    def test_work_on_the_stream(self):
        """A copy out begins when the work on the caller's stream is done: here 20 MB are copied to the same buffer."""
        traces = self.record("""
            import ctypes
            stream, host = gpu.stream(), np.full(5_000_000, rank, "float32")
            fake_gpu.call("cuMemHostRegister_v2", ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes), 0)
            a = gpu.array(np.zeros_like(host), stream=stream)
            print(time.monotonic_ns())
            fake_gpu.call("cuMemcpyHtoDAsync_v2", a.pointer, ctypes.c_void_p(host.ctypes.data),
                          ctypes.c_size_t(host.nbytes), ctypes.c_void_p(stream))
            comm.all_reduce(a)
            same(a.get(), np.ones_like(host))
        """, 0)
        for said, trace in zip(self.said, traces):
            first = min(spans["copy out"][0] for spans in pieces_of(trace)[0].values())
            self.assertGreater(first, int(said) + 20_000_000 / 500e6 * 1e9)

    def test_an_operation_that_fails(self):
        """What has begun is written. Rank 1 leaves before the second operation."""
        traces = self.record("""
            a = gpu.array(np.ones(5_000_000, "float32"))
            comm.all_reduce(a)
            if rank == 0:
                raises(reduction.ReductionError, "", comm.all_reduce, a)
        """, 0)
        for rank, trace in enumerate(traces):
            self.assertEqual(trace["otherData"]["operations"], 2 - rank)
            for (op, piece), spans in pieces_of(trace)[0].items():
                self.assertEqual(set(spans), {"whole", *(PARTS[:1] if op else PARTS)}, piece)

    def test_errors(self):
        """A wrong folder is an error of the first buffer of a GPU; the communicator goes on."""
        code = """
            a = gpu.array(np.ones(10, "float32"))
            raises(reduction.ReductionError, "cannot create /nowhere/test.0.%d.json (REDUCTION_GPU_TRACE): "
                   "No such file or directory" % rank, comm.all_reduce, a)
            comm.all_reduce(np.ones(10, "float32"))
        """
        code = program(harness.python(START)[-1] + "\n" + harness.python(code)[-1])
        with harness.Cluster(reducers=1) as c:
            c.run(2, code, env={"REDUCTION_BUILD": str(harness.BUILD), "REDUCTION_GPU_TRACE": "/nowhere"})

    def test_picture(self):
        traces = self.record("comm.all_reduce(gpu.array(np.ones(5_000_000, 'float32')))", 0)
        with harness.Cluster(start=False) as c:
            files = [c.dir / f"{rank}.json" for rank in range(2)]
            for file, trace in zip(files, traces):
                file.write_text(json.dumps(trace))
            argv = [sys.executable, harness.ROOT / "bench/trace_svg.py", *files, "--label", "fake GPU"]
            svg = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        pieces = sum(len(pieces_of(trace)[0]) for trace in traces)
        for style in ("out", "network", "in"):
            self.assertEqual(svg.count(f'<rect class="{style}" x='), pieces + 1)  # and one in the legend
        self.assertIn("fake GPU", svg)


if __name__ == "__main__":
    harness.main()
