"""Any history of faults: the cap holds, nobody's word is undone, and every exclusion has an end."""

from __future__ import annotations

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.scheduler.quarantine import NodeFault, Rules, Standing, Why, let_back, ruled

FAULTS = st.sampled_from([Why.LOST, Why.FAULT, Why.SUSPECTED, Why.SURVIVORS])
FOR_FAULTS = (Why.FAULT, Why.SUSPECTED)
RULES = st.builds(
    Rules,
    expiry_s=st.sampled_from([5.0, 50.0]),
    set_aside_s=st.sampled_from([1.0, 10.0]),
    longest_s=st.sampled_from([2.0, 15.0]),
    trial_s=st.sampled_from([0.0, 8.0]),
    suspicions=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
HAPPENINGS = st.lists(
    st.tuples(st.integers(0, 4), FAULTS, st.sampled_from(["a", "b", "c"]), st.booleans()),
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@given(RULES, st.integers(2, 5), HAPPENINGS)
def test_faults_never_take_more_than_their_share(
    rules: Rules, nodes: int, happenings: list[tuple[int, Why, str, bool]]
) -> None:
    standings = dict.fromkeys(range(nodes), Standing())
    for now_s, (which, why, job, heals) in enumerate(happenings):
        node = which % nodes
        before = standings[node]
        others = [n for n, each in standings.items() if n != node and each.out in FOR_FAULTS]
        fault = NodeFault(float(now_s), why, "", job)
        ruling = ruled(before, fault, float(now_s), rules, len(others), nodes)
        standings[node] = ruling.standing
        if ruling.set_aside and ruling.standing.out is not Why.LOST:
            assert ruling.until_s is not None and now_s <= ruling.until_s <= now_s + rules.longest_s
        if not ruling.set_aside:
            assert ruling.standing.out is before.out
        assert all(now_s - each.time_s < rules.expiry_s for each in ruling.standing.faults)
        out = [n for n, each in standings.items() if each.out in FOR_FAULTS]
        assert len(out) <= rules.most_out(nodes) < nodes
        if heals:
            standings[node] = let_back(ruling.standing, float(now_s), rules)
            assert standings[node].out is None
