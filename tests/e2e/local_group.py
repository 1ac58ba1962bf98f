# SPDX-License-Identifier: Apache-2.0
"""What torch_local.NcclGroup does, over gloo: `gloo` for tensors in the host's memory, `fake` for those of fake_torch.
Both wait on the host. torch 1.13's gloo has no reduce-scatter."""

import torch

from reduction import torch_local

_c10d = torch._C._distributed_c10d


class GlooGroup:
    device = "cpu"

    def __init__(self, store, rank, size, timeout):
        self.rank, self.size = rank, size
        self.scatter, self.gather = (
            _c10d.ProcessGroupGloo(_c10d.PrefixStore(name, store), rank, size, timeout)
            for name in ("scatter", "gather")
        )

    def reduce_scatter(self, part, whole, op):
        options = _c10d.AllreduceOptions()
        options.reduceOp = getattr(torch.distributed.ReduceOp, op)
        total = whole.double()
        self.scatter.allreduce([total], options).wait()
        part.copy_(total[self.rank * len(part) : (self.rank + 1) * len(part)])

    def all_gather(self, whole, part):
        parts = [torch.zeros(len(part), dtype=torch.float64) for _ in range(self.size)]
        self.gather.allgather([parts], [part.double()]).wait()
        whole.copy_(torch.cat(parts))


class FakeGroup(GlooGroup):
    device = "cuda"

    def reduce_scatter(self, part, whole, op):
        host = torch.zeros(part.numel(), dtype=part.dtype)
        super().reduce_scatter(host, whole.values(), op)
        part.fill(host)

    def all_gather(self, whole, part):
        host = torch.zeros(whole.numel(), dtype=whole.dtype)
        super().all_gather(host, part.values())
        whole.fill(host)


torch_local.GROUPS.update(gloo=GlooGroup, fake=FakeGroup)
