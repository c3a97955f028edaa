"""Bytes as whole numbers, for a solver that only knows integers."""

from __future__ import annotations

import math

import numpy as np

from .index import PAIRS, Demand, Floats, Ints

_LARGEST_TOTAL = 2.0**50


def integer_weights(demand: Demand) -> tuple[Ints, float]:
    """Weights as whole numbers, and how many bytes one of them is worth.

    Exact where the weights are fractions of bytes over the groups' sizes; else rounded so finely
    that sums are right to about 14 digits.
    """
    weight = demand.weight
    if not len(weight):
        return np.zeros(0, dtype=np.int64), 1.0
    size = demand.size.astype(np.float64)
    reach = weight * np.where(demand.form == PAIRS, size**2, size)
    common = 1
    for members in sorted(set(demand.size.tolist())):
        common = math.lcm(common, members)
        if common > 10**6:
            break
    for factor in (1, 2, common, 2 * common):
        scaled: Floats = weight * factor
        whole = np.rint(scaled)
        near = np.abs(scaled - whole) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)
        if near.all() and whole.min() > 0 and whole.max() < 2.0**62:
            exact = whole.astype(np.int64)
            divisor = int(np.gcd.reduce(exact))
            if reach.sum() * factor / divisor < _LARGEST_TOTAL:
                return exact // divisor, divisor / factor
    factor_down = _LARGEST_TOTAL / float(reach.sum())
    return np.rint(weight * factor_down).astype(np.int64), 1.0 / factor_down
