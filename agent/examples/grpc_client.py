# SPDX-License-Identifier: Apache-2.0
"""One all-reduce over gRPC without libreduction: grpc_client.py ADDRESS JOB RANK WORLD_SIZE

It needs Debian's python3-grpcio, python3-numpy and python3-xxhash, and in its folder the stubs that this command makes:

    protoc -I proto --python_out=. --grpc_python_out=. \\
        --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin reduction.proto
"""

import os, queue, struct, sys, time
import grpc, numpy, xxhash
import reduction_pb2 as pb, reduction_pb2_grpc

HEAD = struct.Struct("<2sBBBBBBIIQQQIIIIII")
HELLO, REFUSED, START, DATA, RESULT, ABORT, GOODBYE = 1, 3, 5, 6, 7, 9, 10
FLOAT32, SUM, CHUNK = 7, 0, 8192  # elements: 32 KiB

def xxh(data, seed=0):
    return xxhash.xxh3_64_intdigest(data, seed)

def frame(kind, payload=b"", priority=0, chunk=0, count=0, ack=0):
    head = HEAD.pack(b"RS", 1, kind, 0, priority, FLOAT32, SUM, len(payload), chunk, 0, count, ack, 0, 0, CHUNK,
                     0, 0, 0)
    return pb.Piece(data=head[:60] + struct.pack("<I", xxh(head[:60]) & 0xFFFFFFFF) + payload)

def digest():  # not deterministic, no checksums, chunk bytes, window, priorities, reducers; r0 with 1 lane, 64 shards
    d = 0
    for v in [0, 0, 4 * CHUNK, 32, 2, 1, b"r0", 1, 64] + 64 * [0]:
        d = xxh(v if isinstance(v, bytes) else struct.pack("<Q", v), d)
    return d

def frames(pieces):
    data = b""
    for piece in pieces:
        data += piece.data
        while len(data) >= 64 and len(data) >= 64 + (n := HEAD.unpack_from(data)[7]):
            yield HEAD.unpack_from(data), data[64 : 64 + n]
            data = data[64 + n :]

def all_reduce(address, job, rank, world_size, x):
    """The sum of all workers' x, an array of at most 32 chunks of float32."""
    hello = pb.Hello(job=job, rank=rank, world_size=world_size, lanes=1, chunk_bytes=4 * CHUNK, window=32, priorities=2,
                     config_digest=digest(), processes=1, label=f"python {rank}", reducer="r0",
                     run=os.environ.get("REDUCTION_RUN", ""),  # which start of the training this is: equal on all ranks
                     incarnation=time.time_ns(), detect_ms=10000)
    out, chunks, done = queue.SimpleQueue(), -(-len(x) // CHUNK), 0
    out.put(frame(HELLO, hello.SerializeToString()))
    with grpc.insecure_channel(address) as channel:
        for head, payload in frames(reduction_pb2_grpc.ReducerStub(channel).Exchange(iter(out.get, None))):
            if head[2] in (REFUSED, ABORT):
                raise RuntimeError(pb.Abort.FromString(payload).message)
            if head[2] == START:
                for i in range(chunks):  # what has at most 64 KiB is urgent
                    part = x[i * CHUNK : (i + 1) * CHUNK].tobytes()
                    out.put(frame(DATA, part, priority=int(x.nbytes <= 65536), chunk=i, count=len(x)))
            elif head[2] == RESULT:
                x[head[8] * CHUNK :][: len(payload) // 4] = numpy.frombuffer(payload, numpy.float32)
                done += 1
                if done == chunks:
                    out.put(frame(GOODBYE, ack=1))
                    out.put(None)
    return x

if __name__ == "__main__":  # ADDRESS JOB RANK WORLD_SIZE
    print(all_reduce(*sys.argv[1:3], *map(int, sys.argv[3:5]), numpy.arange(100000, dtype=numpy.float32)))
