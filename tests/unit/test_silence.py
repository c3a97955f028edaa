"""What a node's silence means: every answer follows from what is known of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from railweave.scheduler.fault import FaultKind
from railweave.scheduler.silence import Silence, meaning

QUIET = Silence(silent_s=1.0, limit_s=8.0, line_holds=True, watched=5)
CUT = replace(QUIET, silent_s=2.3, line_holds=False, out=1)
LONG = {"silent_s": 8.1}


def test_a_machine_that_answers_nobody_is_lost_at_once() -> None:
    found = meaning(replace(CUT, not_reached_by=("a1", "b0")))
    assert found.kind is FaultKind.NODE_LOST
    assert "neither the head nor a1, b0 reach it" in found.why
    assert meaning(CUT).kind is FaultKind.NODE_LOST  # there is nobody to ask


def test_a_machine_that_its_peers_reach_is_waited_for_and_then_called_cut_off() -> None:
    seen = replace(CUT, reached_by=("a1",), not_reached_by=("b0",))
    assert meaning(seen).kind is None
    found = meaning(replace(seen, **LONG))
    assert found.kind is FaultKind.PARTITION and "a1 can" in found.why


def test_a_head_that_reaches_nobody_blames_no_node_before_the_limit() -> None:
    alone = replace(CUT, out=5)
    assert meaning(alone).kind is None
    found = meaning(replace(alone, **LONG))
    assert found.kind is FaultKind.PARTITION and "reaches none of its 5 nodes" in found.why


def test_a_silent_agent_on_a_machine_that_answers_hangs() -> None:
    assert meaning(QUIET).kind is None
    found = meaning(replace(QUIET, **LONG))
    assert found.kind is FaultKind.NODE_HUNG and "the machine itself answers" in found.why


def test_a_node_whose_agent_is_gone_hangs_when_its_machine_takes_calls() -> None:
    ended = replace(QUIET, line_holds=None, takes_calls=True)
    assert meaning(ended).kind is None
    found = meaning(replace(ended, **LONG))
    assert found.kind is FaultKind.NODE_HUNG and "does not come back" in found.why


def test_without_a_line_a_silent_node_is_lost() -> None:
    silent = replace(QUIET, line_holds=None)
    assert meaning(silent).kind is None
    assert meaning(replace(silent, **LONG)).kind is FaultKind.NODE_LOST


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True).map(tuple)


@given(
    silent_s=st.floats(0, 100),
    limit_s=st.floats(0.5, 50),
    line_holds=st.sampled_from([True, False, None]),
    takes_calls=st.booleans(),
    reached_by=NAMES,
    not_reached_by=NAMES,
    out=st.integers(0, 5),
    more=st.integers(0, 5),
)
def test_every_silence_past_the_limit_is_a_fault_and_none_before_it_where_something_answers(
    silent_s: float,
    limit_s: float,
    line_holds: bool | None,
    takes_calls: bool,
    reached_by: tuple[str, ...],
    not_reached_by: tuple[str, ...],
    out: int,
    more: int,
) -> None:
    silence = Silence(
        silent_s=silent_s,
        limit_s=limit_s,
        line_holds=line_holds,
        takes_calls=takes_calls,
        reached_by=reached_by,
        not_reached_by=not_reached_by,
        out=out,
        watched=out + more,
    )
    found = meaning(silence)
    if silent_s > limit_s:
        assert found.kind is not None
    elif line_holds is not False or reached_by:
        assert found.kind is None
    assert f"{silent_s:.1f} s" in found.why
