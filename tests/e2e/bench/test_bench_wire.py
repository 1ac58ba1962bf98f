# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan all-only
"""bench/wire plays ranks and reducers: its sums have the bits of those of real ones.

Not under ThreadSanitizer: test_wire covers the threads.
"""

import unittest

import harness
from test_python_api import program

CODE = """
import pathlib
sys.path.insert(0, "{bench}")
from codec import Codec
codec, size = Codec(pathlib.Path("{build}")), 100_001
residuals = [np.zeros(size, "float32") for _ in range(n)] if {feedback} else None
for step in range(3):
    given = [(np.random.default_rng(100 * step + r).standard_t(2, size) * np.exp2(np.arange(size) // 1000 % 9))
             .astype("float32") for r in range(n)]
    x = given[rank].copy()
    comm.all_reduce(x, "avg", name="bucket 0")
    # number of the operation: it is not told
    numbers = range(64) if {stochastic} else [None]
    wanted = (codec.reduce(given, "{wire}", number, residuals, n) for number in numbers)
    assert any(np.array_equal(x.view("uint32"), w.view("uint32")) for w in wanted), step
"""


class Sums(unittest.TestCase):
    def check(self, wire, stochastic, feedback):
        how = {"up": wire, "down": wire, "rounding": "stochastic" if stochastic else "nearest"}
        if feedback:
            how["feedback"] = "1MiB"
        bench = harness.ROOT / "bench" / "wire"
        code = CODE.format(bench=bench, build=harness.BUILD, wire=wire, stochastic=stochastic, feedback=feedback)
        for agents in (0, 4):
            config = {"job": {"deterministic": True, "wire": how}}
            with self.subTest(wire, agents=agents), harness.Cluster(reducers=2, agents=agents, config=config) as c:
                c.run(4, program(code))

    def test_nearest(self):
        for wire in ("bf16", "fp8", "int8", "fp16", "int4"):
            self.check(wire, False, False)

    def test_stochastic(self):
        self.check("fp8", True, False)

    def test_feedback(self):
        self.check("int8", False, True)


if __name__ == "__main__":
    harness.main()
