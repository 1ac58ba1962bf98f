# SPDX-License-Identifier: Apache-2.0
"""One rank of bench-sites that only communicates: collective.py gloo|reducers ELEMENTS TIMES [WIRE].

It averages a vector over all ranks so many times, after one warm-up, and prints the seconds of each as a JSON line.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    system, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    vector = torch.randn(count)
    if system == "gloo":
        dist.init_process_group("gloo")

        def average():
            dist.all_reduce(vector)
            vector.div_(dist.get_world_size())
    else:
        import reduction

        comm = reduction.Communicator(mode="direct", run="collective")

        def average():
            comm.all_reduce(vector, "avg", wire=sys.argv[4])

    seconds = []
    for _ in range(1 + times):
        began = time.monotonic()
        average()
        seconds.append(round(time.monotonic() - began, 4))
    print(json.dumps(seconds[1:]), flush=True)
    if system == "gloo":
        dist.barrier()
    else:
        comm.close()
    os._exit(0)  # threads of gloo may wait for peers that have ended


if __name__ == "__main__":
    main()
