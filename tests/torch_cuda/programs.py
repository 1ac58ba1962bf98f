# SPDX-License-Identifier: Apache-2.0
"""Programs for rank.py, each the text of what one rank does. Tests run them on the fake CUDA, and part `torch` of
check-gpu on a GPU."""

OPERATIONS = """
torch.cuda.set_device(0)
init()
last = f"cuda:{torch.cuda.device_count() - 1}"              # several GPUs of a process, if there are
for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for count in (1, 1000, 300_000):
        x = torch.arange(count).remainder(50).to(dtype)
        there = last if count == 1000 else "cuda:0"
        a, b = (x + rank).to(there), (x + rank).to(there)
        with torch.cuda.device(there):
            dist.all_reduce(a)
            work = dist.all_reduce(b, dist.ReduceOp.MAX, async_op=True)
            check(("sum", dtype, count), a, x + x + 1)
            work.wait()
            check(("max", dtype, count), b, x + 1)
# several in flight; each is waited for on a stream of its own
many = [torch.full((i * 3000 + 1,), float(rank + i)).cuda() for i in range(12)]
works = [dist.all_reduce(x, async_op=True) for x in many]
users = [torch.cuda.Stream() for _ in many]
results = []
for x, work, user in zip(many, works, users):
    with torch.cuda.stream(user):
        work.wait()
        results.append(x + 1)
for i, (x, user) in enumerate(zip(results, users)):
    with torch.cuda.stream(user):
        check(("side stream", i), x, torch.full(x.shape, 2.0 * i + 2))
# input that another stream makes
for i in range(10):
    with torch.cuda.stream(users[i]):
        x = torch.zeros(50_000, device="cuda")
        kernels.delay()
        for _ in range(3):
            x += rank + i
        dist.all_reduce(x)
        check(("made on a side stream", i), x, torch.full(x.shape, 3.0 * (2 * i + 1)))
y = torch.arange(40_000.0).reshape(100, 400)
x = (y + rank).cuda().t()
dist.all_reduce(x)
check("strided", x, (2 * y + 1).t())
x = (y + rank).cuda()
dist.broadcast(x, 1)
check("broadcast", x, y + 1)
x = (y + rank).cuda()
dist.reduce(x, 1)
check("reduce", x, 2 * y + 1 if rank == 1 else y)
x = (y + rank).cuda()
(x,) = dist.all_reduce(x, async_op=True).get_future().wait()
check("future", x, 2 * y + 1)
bad = dist.all_reduce(torch.ones(5 + rank).cuda(), async_op=True)
raises(RuntimeError, "of 6 float32", bad.wait, datetime.timedelta(seconds=200))
done()
dist.destroy_process_group()
"""

# Parts of more than 64 KiB go through the reducers, unless an agent serves a rank.
SHARDED = """
torch.cuda.set_device(0)
init()
size = dist.get_world_size()
for dtype in (torch.int32, torch.bfloat16, torch.float32):
    for count in (40_000, 300_001):
        x = torch.arange(size * count).remainder(50).to(dtype)
        own = x[rank * count : (rank + 1) * count]
        wholes = [(x + rank).cuda() for _ in range(3)]
        outs = [torch.zeros(count, dtype=dtype, device="cuda") for _ in range(3)]
        full = [torch.zeros(size * count, dtype=dtype, device="cuda") for _ in range(3)]
        # both kinds at once, each waited for on a stream of its own
        users = [torch.cuda.Stream() for _ in range(6)]
        works = []
        for i in range(3):
            works.append(dist.reduce_scatter_tensor(outs[i], wholes[i], async_op=True))
            works.append(dist.all_gather_into_tensor(full[i], wholes[i][:count], async_op=True))
        found = []
        for i, (work, user) in enumerate(zip(works, users)):
            with torch.cuda.stream(user):
                work.wait()
                found.append((full if i % 2 else outs)[i // 2] + 1)
        for i, (y, user) in enumerate(zip(found, users)):
            with torch.cuda.stream(user):
                want = torch.cat([x[:count] + r for r in range(size)]) if i % 2 else size * own + size * (size - 1) // 2
                check(("both", dtype, count, i), y, want + 1)
        torch.cuda.synchronize()
        for i in range(3):
            check(("input", dtype, count), wholes[i], x + rank)
# input that another stream makes, and a result in place
user = torch.cuda.Stream()
for i in range(6):
    with torch.cuda.stream(user):
        x = torch.zeros(size * 50_000, device="cuda")
        kernels.delay()
        for _ in range(3):
            x += rank + i
        part = x[rank * 50_000 : (rank + 1) * 50_000]
        dist.reduce_scatter_tensor(part, x)
        check(("scattered from a side stream", i), part, torch.full((50_000,), 3.0 * (2 * i + 1)))
        kernels.delay()
        part.fill_(rank + i)
        dist.all_gather_into_tensor(x, part)
        check(("gathered from a side stream", i), x, torch.arange(2.0).repeat_interleave(50_000) + i)
# tensors that are not contiguous, and lists of tensors
y = torch.arange(80_000.0).reshape(200, 400)
strided = torch.zeros(400, 100, device="cuda").t()
dist.reduce_scatter_tensor(strided, (y + rank).cuda(), op=dist.ReduceOp.AVG)
check("strided", strided, y[rank * 100 : rank * 100 + 100] + 0.5)
parts = [torch.zeros(100, 400, device="cuda") for _ in range(size)]
dist.all_gather(parts, strided)
for r, x in enumerate(parts):
    check(("list", r), x, y[r * 100 : r * 100 + 100] + 0.5)
out = torch.zeros(100, 400, device="cuda")
dist.reduce_scatter(out, [x * (rank + 1) for x in parts])
check("list of parts", out, 3 * (y[rank * 100 : rank * 100 + 100] + 0.5))
done()
dist.destroy_process_group()
"""

# The result of a strided tensor is copied back from memory that nobody refers to any more
# when the host sees the end.
REUSE = """
init()
dist.barrier()
y = torch.arange(160_000.0).reshape(400, 400)
user = torch.cuda.Stream()
kept = []
for i in range(8):
    x = (y + rank + i).cuda().t()
    kept.append(x)
    work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(user):
        work.wait()
    del work
    torch.cuda.current_stream().synchronize()
    for _ in range(30):
        dist.all_reduce(torch.ones(1))                        # the package forgets operations that have ended
        taken = [torch.empty(400, 400, device="cuda") for _ in range(6)]
        for t in taken:
            kernels.alias(t).fill_(-1)                        # as a kernel on the current stream that runs at once
        time.sleep(0.002)
torch.cuda.synchronize()
for i, x in enumerate(kept):
    check(("strided", i), x, (2 * (y + i) + 1).t())
done()
dist.destroy_process_group()
"""

TRAINING = """
init()
cpu = dist.new_group(backend="gloo")

def train(device, group, hook=None, **options):
    torch.manual_seed(7)
    net = torch.nn.Sequential(torch.nn.Linear(60, 200), torch.nn.ReLU(), torch.nn.Linear(200, 300), torch.nn.ReLU(),
                              torch.nn.Linear(300, 10)).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.1, **options)
    if hook is not None:
        ddp.register_comm_hook(hook, reduction.torch.allreduce_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(6):
        x = torch.randn(16, 60, generator=generator)
        optimizer.zero_grad()
        ddp(x.to(device)).square().mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in net.parameters()]

want = train(kernels.PLAIN, cpu)
for name, found in (("DDP", train("cuda", None)), ("views", train("cuda", None, gradient_as_bucket_view=True))):
    for i, (a, b) in enumerate(zip(found, want)):
        check((name, i), a, b)
with reduction.torch.State() as state:
    for i, (a, b) in enumerate(zip(train("cuda", cpu, state), want)):
        check(("hook", i), a, b)
done()
dist.destroy_process_group()
"""

# FSDP2: the bits of the same training on CPUs, where the backend shards tensors of the host.
FSDP = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(0)
init()

def train(device):
    torch.manual_seed(7)
    sizes = [(200, 400), (400, 400), (400, 200)]
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(*s), torch.nn.ReLU()) for s in sizes)).to(device)
    mesh = init_device_mesh(torch.device(device).type, (n,))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    generator = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(16, 200, generator=generator).to(device)
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return [p.to_local().detach().cpu() for p in net.parameters()]

want = train(kernels.PLAIN)
for i, (a, b) in enumerate(zip(train("cuda"), want)):
    check(("FSDP2", i), a, b)
done()
dist.destroy_process_group()
"""

GRAPHS = """
init()
x = torch.ones(1000, device="cuda")
dist.all_reduce(x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    raises(RuntimeError, "the stream is being captured to a graph", dist.all_reduce, x)
done()
dist.destroy_process_group()
"""

LOCAL = """
os.environ.update(GROUP_RANK=str(rank // 2), LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2")
init(pg_options={"local": HOW})
for count in (1, 1000, 300_001):
    x = torch.arange(count).remainder(50).float()
    tensors = [(x + rank + i).cuda() for i in range(4)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for i, (t, work) in enumerate(zip(tensors, works)):
        work.wait()
        check(("group", count, i), t, 4 * (x + i) + 6)
    del tensors, works
with reduction.torch.State(local=HOW, op="sum") as state:
    for count in (1, 1000, 300_001):
        x = torch.arange(count).remainder(50).float()
        tensors = [(x + rank + i).cuda() for i in range(4)]
        for i, (t, future) in enumerate([(t, state.submit(t, i, i == 3)) for i, t in enumerate(tensors)]):
            future.wait()
            check(("hook", count, i), t, 4 * (x + i) + 6)
done()
dist.destroy_process_group()
"""

END = """
init()
x = torch.ones(10, device="cuda")
dist.all_reduce(x)
check("before", x, torch.full((10,), 2.0))
done()
group = dist.group.WORLD
if WAY == "abort":
    dist.barrier()
    group.abort()
    raises(RuntimeError, "has been shut down", dist.all_reduce, x)
dist.destroy_process_group()
"""
