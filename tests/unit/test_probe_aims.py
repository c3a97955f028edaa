"""Rounds of bandwidth: every node's own link, and paths that nothing else is on."""

from __future__ import annotations

import numpy as np
import pytest
from railweave.placement.inference.aiming import in_rounds, own_links, quiet_paths

PODS = np.repeat(np.arange(4), 18)
LEAVES = np.repeat(np.arange(12), 6)
LEAVES[-1] = 12  # alone
FREE = np.ones(len(LEAVES), dtype=bool)


@pytest.mark.parametrize("most", range(9))
def test_however_few_rounds_there_are_no_node_is_in_two_pairs_and_quiet_paths_stay_quiet(
    most: int,
) -> None:
    tiers = [PODS, LEAVES]
    own, quiet = own_links(tiers, FREE, 1), quiet_paths(tiers, FREE, 1)
    rounds = in_rounds(own, quiet, LEAVES, most)
    assert len(rounds) <= most
    for number, pairs in enumerate(rounds):
        ends = [end for pair in pairs for end in pair]
        assert len(set(ends)) == len(ends)
        crossing = [end for pair in pairs if LEAVES[pair[0]] != LEAVES[pair[1]] for end in pair]
        if pairs not in own and number < len(quiet):
            assert len(set(LEAVES[crossing])) == len(crossing)
    if most >= 2:
        assert {end for pairs in rounds for pair in pairs for end in pair} == set(range(72))
