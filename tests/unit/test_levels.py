"""Levels of noisy values: as many as there are, wherever most of the values lie."""

from __future__ import annotations

import numpy as np
import pytest
from railweave.placement.inference.levels import find_levels

TRIPS_S = (6e-6, 10e-6, 14e-6)


def logs(counts: tuple[int, ...], seed: int) -> np.ndarray:
    """Logarithms of round trips with 10 % noise, so many at each level."""
    random = np.random.default_rng(seed)
    values = np.repeat(TRIPS_S[: len(counts)], counts)
    return np.log(values * np.maximum(0.05, 1 + 0.1 * random.standard_normal(len(values))))


@pytest.mark.parametrize(
    "counts",
    [
        (100, 1000, 1000),
        (2000, 15500, 15500),
        (2500, 16000, 15000),
        (900, 900, 900),
        (200, 4000, 1500),
    ],
)
def test_three_levels_are_found_in_any_mixture(counts: tuple[int, ...]) -> None:
    for seed in range(3):
        found = find_levels(logs(counts, seed))
        assert len(found.means) == 3
        assert np.exp(found.means) == pytest.approx(TRIPS_S, rel=0.05)


@pytest.mark.parametrize("count", [30, 3000])
def test_noise_around_one_level_is_one_level(count: int) -> None:
    assert all(len(find_levels(logs((count,), seed)).means) == 1 for seed in range(10))
