# SPDX-License-Identifier: Apache-2.0
"""Lengths of sequences, drawn from a real distribution, and when gradients are ready with them.

The distribution is that of the pre-training sequences of Wikipedia in tokens, at most 512, which Krell, Kosec, Perez
and Fitzgibbon published ("Efficient Sequence Packing without Cross-contamination", arXiv:2107.02027, its histogram
`wikipedia_histogram`), summed up in bins of 64; almost a quarter has the full length."""

import random

BIN = 64  # tokens
SEQUENCES = (2863079, 3150804, 1855542, 1349565, 1050206, 859509, 722518, 613285)  # of bins 1-64, 65-128, ...
FULL, FULL_SEQUENCES = 512, 3815044


def draw(random_numbers):
    """One length."""
    bins = len(SEQUENCES)
    i = random_numbers.choices(range(bins + 1), weights=(*SEQUENCES, FULL_SEQUENCES))[0]
    return FULL if i == bins else random_numbers.randint(BIN * i + 1, BIN * (i + 1))


def tokens(seed, steps, micro, world, batch):
    """The tokens of each rank's batch in each micro-batch of each step: [step][micro][rank]."""
    numbers = random.Random(seed)
    return [
        [[sum(draw(numbers) for _ in range(batch)) for _ in range(world)] for _ in range(micro)] for _ in range(steps)
    ]


def ready(step, rank, seconds_per_token, buckets):
    """The times at which a rank's gradients are ready, from the start of the step on: of each bucket of each
    micro-batch. A forward pass takes a third of the time, and has no gradients."""
    times, now = [], 0.0
    for lengths in step:
        whole = lengths[rank] * seconds_per_token
        times += [now + whole / 3 + whole * 2 / 3 * (b + 1) / buckets for b in range(buckets)]
        now += whole
    return times


def bound(step, world, seconds_per_token, buckets, bucket_seconds):
    """The least time of a step in which each rank sends its own gradients as they are ready, and nobody waits for the
    others before the end."""
    last = 0.0
    for rank in range(world):
        now = 0.0
        for at in ready(step, rank, seconds_per_token, buckets):
            now = max(now, at) + bucket_seconds
        last = max(last, now)
    return last


def fluid(step, world, reducers, seconds_per_token, buckets, micro_bytes, line, ahead):
    """The time of a step in which gradients are a fluid: a rank's link and all reducers' links together limit its rate,
    ranks share the reducers' links evenly, and none is more than `ahead` bytes before the slowest one."""
    plans = [ready(step, rank, seconds_per_token, buckets) for rank in range(world)]
    bucket, tick, now = micro_bytes / buckets, 1e-3, 0.0
    sent, whole = [0.0] * world, bucket * len(plans[0])
    while min(sent) < whole - 1:
        now += tick
        slowest = min(sent)
        wants = [min(sum(at <= now for at in plan) * bucket, slowest + ahead) - s for plan, s in zip(plans, sent)]
        wants = [min(max(0.0, want), line * tick) for want in wants]
        room, left = reducers * line * tick, world
        for rank in sorted(range(world), key=wants.__getitem__):
            part = min(wants[rank], room / left)
            sent[rank] += part
            room, left = room - part, left - 1
    return now


MEAN = (sum((BIN * i + (BIN + 1) / 2) * n for i, n in enumerate(SEQUENCES)) + FULL * FULL_SEQUENCES) / (
    sum(SEQUENCES) + FULL_SEQUENCES
)
