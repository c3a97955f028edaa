"""Sharing work among ways: more for what gains more, some for each."""

from __future__ import annotations

import pytest
from railweave.placement.division.shares import Shares


def shared(rates: list[float], work: list[float], steps: int) -> list[float]:
    """The work that each way did, when it gains and takes so much at each step."""
    shares = Shares(len(rates))
    done = [0.0] * len(rates)
    for _ in range(steps):
        way = shares.next()
        shares.done(way, work[way], rates[way] * work[way])
        done[way] += work[way]
    return [part / sum(done) for part in done]


def test_ways_that_gain_alike_do_the_same_work_whatever_a_step_takes() -> None:
    assert shared([1.0, 1.0], [0.001, 0.01], 3000) == pytest.approx([0.5, 0.5], abs=0.02)


def test_a_way_that_gains_more_does_more_and_one_that_gains_nothing_does_some() -> None:
    most, some, none = shared([3.0, 1.0, 0.0], [0.002, 0.002, 0.002], 3000)
    assert most > 1.8 * some
    assert 0.08 < none < 0.12


def test_ways_share_the_work_while_none_gains_anything() -> None:
    assert shared([0.0] * 4, [0.001] * 4, 400) == pytest.approx([0.25] * 4, abs=0.01)


def test_what_is_long_past_counts_less() -> None:
    shares, done = Shares(2), [0.0, 0.0]
    for step in range(4000):
        way = shares.next()
        shares.done(way, 0.001, 0.001 if (way == 0) == (step < 2000) else 0.0)
        done[way] += 0.001 * (step >= 3000)
    assert done[1] > 3 * done[0]
