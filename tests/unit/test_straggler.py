"""Which rank is steadily slower than its peers, by what they report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.attempt import NodePhase, NodeStatus
from railweave.agents.progress import Entry, Progress
from railweave.scheduler.fault import Fault, FaultKind
from railweave.scheduler.straggler import straggler


def verdict(*compute_s: float | None, steps: int = 20, ratio: float = 1.8) -> Fault | None:
    """Two ranks a node."""
    vitals = [
        {"rank": rank, "step": 99, "reports": 99}
        | ({} if found is None else {"compute_s": found, "compute_steps": steps})
        for rank, found in enumerate(compute_s)
    ]
    statuses = {
        f"n{node}": NodeStatus(
            job_id="job",
            attempt=1,
            node=f"n{node}",
            phase=NodePhase.RUNNING,
            vitals=tuple(vitals[2 * node : 2 * node + 2]),
        )
        for node in range((len(vitals) + 1) // 2)
    }
    return straggler(tuple(statuses), statuses, ratio, 5.0)


def test_a_rank_twice_as_slow_as_its_peers_is_named_and_its_node_blamed() -> None:
    fault = verdict(1.0, 1.1, 0.9, 2.0)
    assert fault is not None
    assert (fault.kind, fault.rank, fault.node) == (FaultKind.STRAGGLER, 3, "n1")
    assert (fault.node_at_fault, fault.step) == (True, 99)


def test_two_slow_ranks_of_one_node_do_not_hide_each_other() -> None:
    fault = verdict(1.0, 1.0, 2.0, 2.1, 1.0, 1.0)
    assert fault is not None and fault.node == "n1"


def test_too_few_steps_or_ranks_are_no_evidence() -> None:
    assert verdict(1.0, 1.0, 1.0, 9.0, steps=9) is None
    assert verdict(9.0) is None
    assert verdict(None, None, None, 9.0) is None


def test_steps_of_microseconds_are_no_evidence() -> None:
    assert verdict(1e-5, 1e-5, 1e-5, 9e-5) is None


def test_a_node_that_has_not_answered_yet_leaves_it_open() -> None:
    assert straggler(("n0",), {}, 1.8, 5.0) is None


@given(st.lists(st.floats(0.5, 0.899), min_size=2, max_size=9))
def test_ranks_within_the_ratio_are_never_blamed(compute_s: list[float]) -> None:
    assert verdict(*compute_s) is None


@given(st.permutations([0.5] * 11 + [30.0] * 9))
def test_single_slow_steps_do_not_count(times: list[float]) -> None:
    entries = tuple(Entry(step, float(step), seconds) for step, seconds in enumerate(times))
    found, steps = Progress(20, 1.0, None, 0, -1, 0.0, entries).compute_s(20)
    assert (found, steps) == (0.5, 20)
    assert verdict(0.5, 0.5, 0.5, found) is None
