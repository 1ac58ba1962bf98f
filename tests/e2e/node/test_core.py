# SPDX-License-Identifier: Apache-2.0
# run: beside-others no-tsan
"""What a core of a daemon would contain: no gradients.

Not under ThreadSanitizer, whose own memory is large.
"""

import pathlib
import re
import unittest

import harness

MIB = 1 << 20
WORKER = harness.python("""
    import numpy, reduction, worker
    with reduction.Communicator() as comm:
        comm.all_reduce(numpy.ones(100_000, "float32"))
        worker.say("summed")
        worker.listen()
    """)


def mappings(pid):
    """(name, bytes in memory, whether a core has it) of each mapping."""
    ret = []
    for part in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", pathlib.Path(f"/proc/{pid}/smaps").read_text())[1:]:
        head = part.split("\n", 1)[0].split(None, 5)
        resident = int(re.search(r"^Rss: +(\d+) kB", part, re.M)[1]) << 10
        ret.append((head[5] if len(head) > 5 else "", resident, " dd" not in re.search("VmFlags:.*", part)[0]))
    return ret


class Core(unittest.TestCase):
    def test_gradients_are_not_in_a_core(self):
        sharding = {"chunk_bytes": "1MiB", "window": 4, "priorities": 1}  # 16 MiB, soon touched on a busy machine too
        config = {"agent": {"single_node": "reducers"}, "sharding": sharding}
        with harness.Cluster(agents=1, config=config) as c:
            ranks = c.start_workers(2, WORKER)
            for p in ranks:
                p.said("summed", 60)
            for p, least in ((c.reducers[0], 8 * MIB), (c.agents[0], MIB // 4)):
                found = mappings(p.pid)
                self.assertGreater(sum(size for _, size, dumped in found if not dumped), least, found)
                for name, size, dumped in found:
                    self.assertFalse(dumped and (size >= 8 * MIB or "memfd:" in name), (p.name, name, size))
            for p in ranks:
                p.tell("end")
            for p in ranks:
                self.assertEqual(p.wait(), 0, p.report())


if __name__ == "__main__":
    harness.main()
