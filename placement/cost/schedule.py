"""Pipeline schedules: how long stages wait for each other, and how many micro-batches they hold.

Sources: Narayanan 2021 (1F1B, interleaved), Qi 2023 (zero bubble, ZB-H1).
"""

from __future__ import annotations

from collections.abc import Sequence


def bubble_s(schedule: str, stages: Sequence[tuple[int, float, float]], virtual_pp: int) -> float:
    """Seconds a step that the slowest stage waits for the others.

    stages: how many are alike, seconds of one micro-batch forward and backward on each, and the
    part of these that weight gradients take. A micro-batch must pass every other stage once on its
    way there and back: with p equal stages (p - 1)(F + B), over virtual_pp when interleaved, and
    less the weight gradients where these fill the gap (zero bubble).
    """
    if schedule == "zero-bubble":
        passed = [(count, seconds, seconds - weights) for count, seconds, weights in stages]
    else:
        passed = [(count, seconds, seconds) for count, seconds, _ in stages]
    _, slowest = max((seconds, through) for _, seconds, through in passed)
    waited = sum(count * through for count, _, through in passed) - slowest
    return waited / virtual_pp


def in_flight(pp: int, virtual_pp: int, micro_batches: int, stage: int) -> float:
    """Micro-batches whose activations a stage holds at its peak.

    1F1B and ZB-H1: p - i, but no more than there are. Interleaved: chunks of 1 / v of a stage,
    2 (p - 1 - i) + (v - 1) p + 1 of them; on the first stage p (1 + (p - 1) / (p v)) micro-batches
    (Korthikanti 2022).
    """
    if virtual_pp == 1:
        return float(min(pp - stage, micro_batches))
    chunks = 2 * (pp - 1 - stage) + (virtual_pp - 1) * pp + 1
    return min(chunks, micro_batches * virtual_pp) / virtual_pp
