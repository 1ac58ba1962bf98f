# SPDX-License-Identifier: Apache-2.0
"""A worker of test_reconfigure.py. It executes the lines that it reads:

    open RANK WORLD GENERATION [LOCAL_RANK LOCAL_WORLD_SIZE]
    join RANK WORLD GENERATION      sum      pend      end      abort      close

and says after each line what came of it, also how long that took.
"""

import json
import sys
import time

import numpy as np
import reduction

comm = request = None


def run(word, *args):
    global comm, request
    if word == "open":
        names = ("rank", "world_size", "generation", "local_rank", "local_world_size")
        comm = reduction.Communicator(connect_timeout=20, **dict(zip(names, args)))
    elif word == "join":
        comm.reconfigure(*args)
    elif word == "sum":
        x = np.full(300000, comm.rank + 1, np.float32)
        comm.all_reduce(x)
        assert (x == x[0]).all()
        return float(x[0])
    elif word == "pend":
        request = comm.all_reduce(np.ones(300000, np.float32), async_op=True)
    elif word == "end":
        request.wait()
    elif word == "abort":
        comm.abort("it fails")
    elif word == "close":
        comm.close()
    return None


for i, line in enumerate(sys.stdin):
    word, *args = line.split()
    began, said = time.monotonic(), {}
    try:
        said["value"] = run(word, *map(int, args))
    except reduction.ReductionError as exc:
        said["error"], said["code"] = str(exc), exc.code
    print(json.dumps({"what": str(i), "ms": (time.monotonic() - began) * 1000, **said}), flush=True)
