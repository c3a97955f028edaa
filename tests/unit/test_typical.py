"""The typical workload: any degrees, and traffic in the proportions of large training jobs."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import build_pcg
from railweave.scheduler.typical import typical_workload


@settings(max_examples=30, deadline=None)
@given(tp=st.integers(1, 12), pp=st.integers(1, 12), dp=st.integers(1, 12))
def test_every_split_has_a_workload_of_its_size(tp: int, pp: int, dp: int) -> None:
    assert build_pcg(typical_workload(tp, pp, dp)).world_size == tp * pp * dp


@pytest.mark.parametrize("split", [(2, 2, 2), (8, 4, 4), (4, 8, 2), (8, 16, 8), (2, 1, 2)])
def test_a_rank_sends_most_to_its_slices_then_to_its_replicas_then_along_the_pipeline(
    split: tuple[int, int, int],
) -> None:
    sent: defaultdict[str, float] = defaultdict(float)
    for group in build_pcg(typical_workload(*split)).groups:
        if 0 in group.ranks:
            sent[group.name.partition("/")[0]] += group.bytes
    assert sent["tp"] > sent["dp"] > sent["pp"]
