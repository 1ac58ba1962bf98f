# SPDX-License-Identifier: Apache-2.0
"""Programs of test_jax.py: worker_jax_program.py NAME. With JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo without reducers.

Rank, world size and the coordinator come from torchrun's variables, or Slurm's.
"""

import os
import sys
import time

import worker

GLOO = os.environ.get("JAX_CPU_COLLECTIVES_IMPLEMENTATION") == "gloo"
RANK = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
SIZE = int(os.environ.get("WORLD_SIZE") or os.environ["SLURM_NTASKS"])

if sys.argv[1] == "late":
    import jax

    try:
        import reduction.jax
    except ImportError as exc:
        worker.say("refused", text=str(exc))
    raise SystemExit(0)

if not GLOO:
    import reduction.jax

import jax
import jax.numpy as jnp
import numpy
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

DTYPES = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 bfloat16 float32 float64 complex64 complex128"
).split()


def start():
    """COORDINATOR: an address that no launcher's variable tells."""
    coordinator = os.environ.get("COORDINATOR")
    if GLOO:
        coordinator = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    if coordinator:
        jax.distributed.initialize(coordinator, SIZE, RANK)
    else:
        jax.distributed.initialize()
    return Mesh(numpy.array(jax.devices()), ("d",))


def call(mesh, function, x, spec=None):
    """Calls a function of one process's array in all processes of a mesh."""
    spec = P("d") if spec is None else spec
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), x[(None,) * len(spec)])
    lead = (0,) * len(spec)

    def inner(a):
        return function(a[lead])[(None,) * len(spec)]

    mapped = jax.jit(jax.shard_map(inner, mesh=mesh, in_specs=spec, out_specs=spec))
    return numpy.asarray(mapped(whole).addressable_data(0))[lead]


def data(dtype, count, rank):
    numbers = numpy.arange(count) + rank
    return numbers % 2 == 0 if dtype == "bool" else (numbers % 3 + 1).astype(jnp.dtype(dtype))


def combine(function, dtype, count):
    """All ranks' data, combined in dtype."""
    everything = [data(dtype, count, r) for r in range(SIZE)]
    total = everything[0]
    for x in everything[1:]:
        total = function(total, x).astype(total.dtype)
    return total


def rows(dtype, count):
    """(name, function, expected result) of each collective."""
    everything = numpy.stack([data(dtype, count, r) for r in range(SIZE)])
    part = count // SIZE
    own = slice(RANK * part, RANK * part + part)
    yield "all_gather", lambda a: jax.lax.all_gather(a, "d"), everything
    ring = [(i, (i + 1) % SIZE) for i in range(SIZE)]
    yield "ppermute", lambda a: jax.lax.ppermute(a, "d", ring), everything[RANK - 1]
    some = numpy.where(RANK == SIZE - 1, everything[0], numpy.zeros_like(everything[0]))
    yield "ppermute of two", lambda a: jax.lax.ppermute(a, "d", [(0, SIZE - 1)]), some
    exchanged = numpy.stack([x[own] for x in everything])
    yield "all_to_all", lambda a: jax.lax.all_to_all(a.reshape(SIZE, part), "d", 0, 0), exchanged
    if dtype == "bool":
        return
    total = combine(numpy.add, dtype, count)
    yield "psum", lambda a: jax.lax.psum(a, "d"), total
    yield "psum_scatter", lambda a: jax.lax.psum_scatter(a, "d", tiled=True), total[own]
    if not dtype.startswith("complex"):
        yield "pmax", lambda a: jax.lax.pmax(a, "d"), combine(numpy.maximum, dtype, count)
        yield "pmin", lambda a: jax.lax.pmin(a, "d"), combine(numpy.minimum, dtype, count)


def reduced(mesh, function, x):
    """Reduces an array with one row in each process, as jnp.prod does: XLA finds out that it needs an all-reduce."""
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), x[None])
    return numpy.asarray(jax.jit(function, out_shardings=NamedSharding(mesh, P()))(whole).addressable_data(0))


def reductions(dtype, count):
    """(name, function, own data, expected result) of the all-reduces that no function of jax.lax has."""
    two = [((numpy.arange(count) + r) % 2).astype(bool) for r in range(SIZE)]
    if dtype == "bool":
        for name, function in (("all", numpy.all), ("any", numpy.any)):
            yield name, lambda a, name=name: getattr(jnp, name)(a, axis=0), two[RANK], function(two, axis=0)
        return
    factors = [(x + 1).astype(jnp.dtype(dtype)) for x in two]  # powers of 2: the product is exact
    product = factors[0]
    for x in factors[1:]:
        product = (product * x).astype(product.dtype)
    yield "prod", lambda a: jnp.prod(a, axis=0, dtype=a.dtype), factors[RANK], product


def helpers(mesh):
    """What programs call around their training: the helpers of jax.experimental.multihost_utils."""
    own = numpy.arange(5, dtype="float32") + RANK
    assert (multihost_utils.broadcast_one_to_all(own, is_source=RANK == SIZE - 1) == own - RANK + SIZE - 1).all()
    everything = numpy.stack([own - RANK + r for r in range(SIZE)])
    assert (multihost_utils.process_allgather(own) == everything).all()
    multihost_utils.sync_global_devices("a barrier")
    multihost_utils.assert_equal(everything, "the same in all processes")


def collectives():
    """Every collective of the types that are named, or of all, against NumPy: the bits must be equal."""
    jax.config.update("jax_enable_x64", True)
    mesh = start()
    checked = 0
    for dtype in sys.argv[2:] or DTYPES:
        large = 50000 * SIZE if dtype in ("float32", "int16") else 3 * SIZE
        for count in (SIZE, large) if SIZE in (2, 4) else (large,):  # XLA compiles for each
            found = [(n, call(mesh, f, data(dtype, count, RANK)), want) for n, f, want in rows(dtype, count)]
            found += [(n, reduced(mesh, f, x), want) for n, f, x, want in reductions(dtype, count)]
            for name, result, expected in found:
                assert result.dtype == expected.dtype, (dtype, name, result.dtype)
                assert result.tobytes() == expected.tobytes(), (dtype, name, count, result, expected)
            checked += len(found)
    helpers(mesh)
    worker.say("checked", count=checked)


def refused():
    """jaxlib itself refuses float16."""
    mesh = start()
    try:
        call(mesh, lambda a: jax.lax.psum(a, "d"), data("float16", 4, RANK))
    except Exception as exc:
        worker.say("refused", text=str(exc))


def meshes():
    """Sums over one axis of a mesh with two, over the other one, and in another order of devices."""
    start()
    devices = numpy.array(jax.devices())
    mesh = Mesh(devices.reshape(2, SIZE // 2), ("a", "b"))
    x = numpy.full(5, RANK + 1.0, "float32")
    for axis, same in (("a", lambda r: r % (SIZE // 2)), ("b", lambda r: r // (SIZE // 2))):
        expected = sum(r + 1 for r in range(SIZE) if same(r) == same(RANK))
        assert (call(mesh, lambda v, axis=axis: jax.lax.psum(v, axis), x, P("a", "b")) == expected).all(), axis
    swapped = Mesh(devices[::-1], ("d",))
    expected = numpy.arange(SIZE, 0, -1)
    found = call(swapped, lambda v: jax.lax.all_gather(v[0], "d"), x)
    assert (found == expected).all(), found
    worker.say("right")


def outside():
    """Computations that reducers cannot do: an exception before anything runs."""
    start()
    devices = numpy.array(jax.devices())
    for chosen in (devices[:-1], devices):
        mesh = Mesh(chosen, ("d",))
        try:
            spec = NamedSharding(mesh, P("d"))
            jax.jit(lambda: jnp.zeros(len(chosen)), out_shardings=spec)()
        except reduction.ReductionError as exc:
            worker.say("refused", text=str(exc), devices=len(chosen))
        else:
            worker.say("accepted", devices=len(chosen))


def again():
    """jax.distributed is shut down and initialized again, in the same processes: each time another job."""
    from jax.extend import backend

    for number in range(3):
        os.environ["MASTER_PORT"] = sys.argv[2 + number]
        mesh = start()
        assert (call(mesh, lambda a: jax.lax.psum(a, "d"), numpy.ones(3, "float32")) == SIZE).all()
        del mesh
        jax.clear_caches()
        backend.clear_backends()
        jax.distributed.shutdown()
    worker.say("right")


def encoded():
    """Sums of bfloat16, which JAX sends as float32. They are rounded once, to nearest even."""
    mesh = start()
    everything = [numpy.random.default_rng(r).normal(size=1 << 18).astype(jnp.bfloat16) for r in range(SIZE)]
    expected = sum(x.astype("float32") for x in everything).astype(jnp.bfloat16)
    for _ in range(8):
        found = call(mesh, lambda a: jax.lax.psum(a, "d"), everything[RANK])
        assert found.tobytes() == expected.tobytes(), (found, expected)
    worker.say("right")


def own():
    """Sums of a number that is this training's own, before and after the test program has done something else."""
    value = float(sys.argv[2])
    mesh = start()
    for _ in range(2):
        for _ in range(10):
            found = call(mesh, lambda a: jax.lax.psum(a, "d"), numpy.full(1000, value, "float32"))
            assert (found == SIZE * value).all(), f"a foreign sum: {found[0]} of {value}"
        worker.say("own sums")
        worker.listen()


def network(key):
    keys = jax.random.split(key, 3)
    return [jax.random.normal(k, shape) / shape[0] ** 0.5 for k, shape in zip(keys, ((16, 64), (64, 64), (64, 1)))]


def loss_of(weights, x, y):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


def prepare():
    """Returns what a training needs: a function of a step, the weights, and the data."""
    mesh = start()
    random = numpy.random.default_rng(RANK)
    x = random.normal(size=(32, 16)).astype("float32")
    y = numpy.sin(x.sum(1, keepdims=True))
    spread, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    x, y = (jax.make_array_from_process_local_data(spread, part) for part in (x, y))
    weights = jax.jit(network, out_shardings=whole)(jax.random.key(0))

    @jax.jit
    def step(weights, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return [w - 0.05 * g for w, g in zip(weights, gradients)], loss

    return step, weights, x, y


def train():
    """Data-parallel steps of an MLP: says each loss. `pause` holds each step back, so that a test can end a reducer.
    With a third argument rank 1 fails in the middle of torchrun's first start."""
    steps, pause, fails = int(sys.argv[2]), float(sys.argv[3]), len(sys.argv) > 4
    step, weights, x, y = prepare()
    for number in range(steps):
        if fails and RANK == 1 and number == steps // 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.abort()
        weights, loss = step(weights, x, y)
        worker.say("step", number=number, loss=float(loss))
        time.sleep(pause)


def unread():
    """The same without a wait in any step; only the ranks that are named read the last loss, and the others end."""
    steps, readers = int(sys.argv[2]), sys.argv[3:]
    step, weights, x, y = prepare()
    for number in range(steps):
        weights, loss = step(weights, x, y)
    if str(RANK) in readers:
        worker.say("step", number=number, loss=float(loss))


KNOWN = (collectives, encoded, refused, meshes, outside, again, own, train, unread)
{f.__name__: f for f in KNOWN}[sys.argv[1]]()
