"""The sort that compiled loops call orders numbers by their keys, equal ones as given."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement.loops.sorting import sort_by


@settings(deadline=None)
@given(keys=st.lists(st.sampled_from([0.0, -1.5, 2.0, 1e300]) | st.floats(-9, 9), max_size=40))
def test_rising_keys_and_equal_ones_as_they_stood(keys: list[float]) -> None:
    count = len(keys)
    order, spare = np.full(count + 2, -1), np.full(count + 2, -1)
    sort_by.py_func(np.array([*keys, -99.0]), count, order, spare)  # type: ignore[attr-defined]
    assert order.tolist() == [*np.argsort(np.array(keys), kind="stable").tolist(), -1, -1]
