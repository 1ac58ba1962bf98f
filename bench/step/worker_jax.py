# SPDX-License-Identifier: Apache-2.0
"""One rank of bench-jax: data-parallel training steps of JAX. step_jax.py starts it.

Prints one JSON line: the seconds of each timed step, of a step without other ranks, and the last loss.
"""

import argparse
import json
import os
import time

if os.environ.get("JAX_CPU_COLLECTIVES_IMPLEMENTATION") != "gloo":
    import reduction.jax  # noqa: F401 sets the collectives

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH, INNER = 1024, 2048  # the dense model: two layers of 8 MiB
TOKENS, LENGTH, MODEL, HEADS, LAYERS = 256, 32, 128, 4, 2  # the transformer: 30 tensors


def normal(key, *shape):
    return jax.random.normal(key, shape) / shape[0] ** 0.5


def make_dense(key):
    a, b = jax.random.split(key)
    return [normal(a, WIDTH, INNER), normal(b, INNER, WIDTH)]


def dense_loss(weights, x):
    return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1] - x) ** 2)


def dense_data(random):
    return random.normal(size=(4, WIDTH)).astype("float32")


def make_transformer(key):
    keys = iter(jax.random.split(key, 4 * LAYERS + 3))
    one, zero = jnp.ones(MODEL), jnp.zeros(MODEL)
    layers = [
        [one, zero, normal(next(keys), MODEL, 3 * MODEL), jnp.zeros(3 * MODEL), normal(next(keys), MODEL, MODEL), zero]
        + [one, zero, normal(next(keys), MODEL, 4 * MODEL), jnp.zeros(4 * MODEL)]
        + [normal(next(keys), 4 * MODEL, MODEL), zero]
        for _ in range(LAYERS)
    ]
    table, places = normal(next(keys), TOKENS, MODEL), normal(next(keys), LENGTH, MODEL)
    return [table, places, layers, one, zero, normal(next(keys), MODEL, TOKENS), jnp.zeros(TOKENS)]


def norm(x, scale, shift):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale + shift


def attend(x, qkv, bias, out, out_bias):
    def heads(t):
        return t.reshape(t.shape[0], LENGTH, HEADS, MODEL // HEADS).transpose(0, 2, 1, 3)

    q, k, v = map(heads, jnp.split(x @ qkv + bias, 3, -1))
    scores = q @ k.transpose(0, 1, 3, 2) / (MODEL // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    mixed = jax.nn.softmax(scores) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ out + out_bias


def transformer_loss(weights, tokens):
    table, places, layers, scale, shift, head, head_bias = weights
    x = table[tokens[:, :-1]] + places
    for n1, s1, qkv, b, out, out_b, n2, s2, up, up_b, down, down_b in layers:
        x = x + attend(norm(x, n1, s1), qkv, b, out, out_b)
        x = x + jax.nn.gelu(norm(x, n2, s2) @ up + up_b) @ down + down_b
    found = jax.nn.log_softmax(norm(x, scale, shift) @ head + head_bias)
    return -jnp.mean(jnp.take_along_axis(found, tokens[:, 1:, None], -1))


def transformer_data(random):
    """Sequences that can be learnt: each token follows from the one before."""
    tokens = numpy.zeros((8, LENGTH + 1), "int32")
    tokens[:, 0] = random.integers(TOKENS, size=8)
    for i in range(LENGTH):
        tokens[:, i + 1] = (5 * tokens[:, i] + 3) % TOKENS
    return tokens


MODELS = {
    "dense": (make_dense, dense_loss, dense_data),
    "transformer": (make_transformer, transformer_loss, transformer_data),
}


def make_step(loss):
    """Without donated buffers: with them jax 0.8.1 computes wrong weights in several processes, also with gloo."""

    @jax.jit
    def step(weights, data):
        value, gradients = jax.value_and_grad(loss)(weights, data)
        return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradients), value

    return step


def timed(step, weights, data):
    started = time.monotonic()
    weights, value = jax.block_until_ready(step(weights, data))
    return time.monotonic() - started, weights, value


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", choices=MODELS, required=True)
    p.add_argument("--steps", type=int, default=5, help="timed steps (default 5)")
    p.add_argument("--warmup", type=int, default=2, help="warm-up steps before them (default 2)")
    args = p.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", size, rank)
    make, loss, make_data = MODELS[args.model]
    mesh = Mesh(numpy.array(jax.devices()), ("d",))
    own = make_data(numpy.random.default_rng(rank))
    data = jax.make_array_from_process_local_data(NamedSharding(mesh, P("d")), own)
    weights = jax.jit(make, out_shardings=NamedSharding(mesh, P()))(jax.random.key(0))
    step, seconds = make_step(loss), []
    for _ in range(args.warmup + args.steps):
        took, weights, value = timed(step, weights, data)
        seconds.append(took)
    alone, computing = jax.jit(make)(jax.random.key(0)), []
    for _ in range(4):
        took, alone, _ = timed(step, alone, own)
        computing.append(took)
    tensors = len(jax.tree.leaves(weights))
    found = {"rank": rank, "seconds": seconds[args.warmup :], "compute": min(computing), "tensors": tensors}
    print(json.dumps(found | {"loss": float(value)}), flush=True)


if __name__ == "__main__":
    main()
