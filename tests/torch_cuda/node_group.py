# SPDX-License-Identifier: Apache-2.0
"""What reduction.torch_local.NcclGroup does with NCCL, here over gloo and in the order of the current stream, which
waits while the host does not. Its name for `local` is "stream"."""

import kernels
import torch

from reduction import torch_local

_c10d = torch._C._distributed_c10d


class StreamGroup:
    device = "cuda"

    def __init__(self, store, rank, size, timeout):
        self.rank, self.size = rank, size
        self.scatter, self.gather = (
            _c10d.ProcessGroupGloo(_c10d.PrefixStore(name, store), rank, size, timeout)
            for name in ("scatter", "gather")
        )

    def reduce_scatter(self, part, whole, op):
        options = _c10d.AllreduceOptions()
        options.reduceOp = getattr(torch.distributed.ReduceOp, op)
        to, source = kernels.alias(part), kernels.alias(whole)

        def call():
            total = source.double()
            self.scatter.allreduce([total], options).wait()
            to.copy_(total[self.rank * len(to) : (self.rank + 1) * len(to)])

        kernels.queue(call)

    def all_gather(self, whole, part):
        to, source = kernels.alias(whole), kernels.alias(part)

        def call():
            parts = [torch.zeros(len(source), dtype=torch.float64) for _ in range(self.size)]
            self.gather.allgather([parts], [source.double()]).wait()
            to.copy_(torch.cat(parts))

        kernels.queue(call)


torch_local.GROUPS["stream"] = StreamGroup
