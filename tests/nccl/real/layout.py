#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes where the kernels of a libnccl.so.2 find their arguments: offsets and sizes from the library's own debug
information, read by gdb, as lines "NAME VALUE" for layout.c.

    layout.py libnccl.so.2 > layout.txt
"""

import re
import subprocess
import sys


def offset(struct, member):
    return f"(long)&((struct {struct} *)0)->{member}"


def size(struct):
    return f"sizeof(struct {struct})"


def wanted(comm):
    """Returns the expressions; `comm` is the name of the communicator's struct, which has changed."""
    coll = "((struct ncclDevWorkColl *)0)->collnet"
    return {
        "ARGS_SIZE": size("ncclDevKernelArgs"),
        "ARGS_MASK": offset("ncclDevKernelArgs", "channelMask"),
        "ARGS_STORAGE": offset("ncclDevKernelArgs", "workStorageType"),
        "ARGS_WORK_MASK": offset("ncclDevKernelArgs", "workMask"),
        "ARGS_WORK": offset("ncclDevKernelArgs", "workBuf"),
        "COMM_RANKS": offset(comm, "nRanks"),
        "COMM_ABORT": offset(comm, "abortFlag"),
        "COMM_BUFFER_SIZES": offset(comm, "buffSizes"),
        "COMM_CHANNELS": offset(comm, "channels"),
        "CHANNEL_SIZE": size("ncclDevChannel"),
        "CHANNEL_PEERS": offset("ncclDevChannel", "peers"),
        "CHANNEL_CHAIN": offset("ncclDevChannel", "collnetChain"),
        "CHANNEL_FIFO_DONE": offset("ncclDevChannel", "workFifoDone"),
        "TREE_UP": offset("ncclTree", "up"),
        "TREE_DOWN": offset("ncclTree", "down"),
        "PEER_SEND": offset("ncclDevChannelPeer", "send"),
        "PEER_RECV": offset("ncclDevChannelPeer", "recv"),
        "CONN_SIZE": size("ncclConnInfo"),
        "CONN_BUFFERS": offset("ncclConnInfo", "buffs"),
        "CONN_TAIL": offset("ncclConnInfo", "tail"),
        "CONN_HEAD": offset("ncclConnInfo", "head"),
        "CONN_STEP_SIZE": offset("ncclConnInfo", "stepSize"),
        "CONN_FIFO": offset("ncclConnInfo", "connFifo"),
        "CONN_STEP": offset("ncclConnInfo", "step"),
        "FIFO_SIZE": size("ncclConnFifo"),
        "FIFO_MODE": offset("ncclConnFifo", "mode"),
        "FIFO_OFFSET": offset("ncclConnFifo", "offset"),
        "FIFO_BYTES": offset("ncclConnFifo", "size"),
        "WORK_SIZE": size("ncclDevWorkColl"),
        "WORK_SEND": offset("ncclDevWorkColl", "sendbuff"),
        "WORK_RECV": offset("ncclDevWorkColl", "recvbuff"),
        "WORK_COUNT": offset("ncclDevWorkColl", "collnet.count"),
        "WORK_COUNT_SIZE": f"sizeof({coll}.count)",
        "WORK_CHUNK": offset("ncclDevWorkColl", "collnet.chunkCount"),
        "BATCH_SIZE": size("ncclDevWorkBatch"),
        "BATCH_BASE": offset("ncclDevWorkBatch", "offsetBase"),
        "BATCH_SET": offset("ncclDevWorkBatch", "offsetBitset"),
        "ELEM_SIZE": size("ncclWorkElem"),
        "ELEM_SEND": offset("ncclWorkElem", "sendbuff"),
        "ELEM_RECV": offset("ncclWorkElem", "recvbuff"),
        "ELEM_COUNT": offset("ncclWorkElem", "count"),
    }


def evaluate(library, expressions):
    """Returns the values; None for what the library does not have."""
    argv = ["gdb", "-nx", "-q", "-batch"]
    for e in expressions:
        argv += ["-ex", "echo @@", "-ex", f"print/d {e}"]
    said = subprocess.run([*argv, library], capture_output=True, text=True, timeout=300, check=False).stdout
    found = [re.search(r"= (-?\d+)", part) for part in said.split("@@")[1:]]
    return [int(m[1]) if m else None for m in found]


def read(library):
    """Returns the text of the layout file."""
    comm = "ncclKernelComm" if evaluate(library, [size("ncclKernelComm")])[0] is not None else "ncclDevComm"
    names = wanted(comm)
    values = evaluate(library, names.values())
    return "".join(f"{name} {-1 if value is None else value}\n" for name, value in zip(names, values))


if __name__ == "__main__":
    sys.stdout.write(read(sys.argv[1]))
