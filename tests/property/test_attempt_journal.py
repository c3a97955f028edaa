"""Journals and logs, whatever is cut off or written into them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.agents import journal
from railweave.agents.attempt import NodeStatus
from railweave.agents.logs import last_lines, read_chunk

SHARED_FOLDER = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@st.composite
def stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Journals as guards write them: started ranks that exit one after another, then the end."""
    count = draw(st.integers(1, 5))
    records: list[dict[str, Any]] = [
        {"phase": "starting", "guard": {"pid": 1, "start_ticks": 1}},
        {"ranks": [{"rank": r} for r in range(count)]},
        {"phase": "running", "changes": [{"rank": r, "pid": 10 + r} for r in range(count)]},
    ]
    for rank in draw(st.permutations(range(count))):
        code = draw(st.integers(-15, 3))
        change: dict[str, Any] = {"rank": rank, "exited_s": 1.0}
        change["signal" if code < 0 else "exit_code"] = abs(code)
        if code:
            change["last_lines"] = [draw(st.text(max_size=30))]
        records.append({"changes": [change]})
    records.append({"phase": draw(st.sampled_from(["ended", "stopped"])), "reason": "why"})
    return [{"seq": i, "time_s": 1.5, **record} for i, record in enumerate(records, 1)]


def status_of(records: list[dict[str, Any]]) -> dict[str, Any]:
    return journal.replay(journal.empty("job", 1, "n0"), records)


@SHARED_FOLDER
@given(story=stories(), data=st.data())
def test_a_journal_cut_anywhere_is_a_valid_earlier_state(
    folder: Path, story: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    written = journal.Journal.create(path, story[0])
    for record in story[1:]:
        written.append(record)
    written.flush()
    written.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    records = journal.read(path)
    assert records == story[: len(records)]
    assert len(records) in (whole[:cut].count(b"\n"), whole[:cut].count(b"\n") + 1)
    NodeStatus.model_validate(status_of(records))


@SHARED_FOLDER
@given(story=stories(), data=st.data())
def test_a_journal_that_was_cut_can_be_written_on(
    folder: Path, story: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = folder / "journal.jsonl"
    path.unlink(missing_ok=True)
    written = journal.Journal.create(path, story[0])
    for record in story[1:]:
        written.append(record)
    written.flush()
    written.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    before = journal.read(path)
    taken = journal.Journal.take_over(path)
    assert taken
    end = {"seq": len(before) + 1, "phase": "stopped", "time_s": 2.5}
    taken.append(end)
    taken.flush()
    taken.close()
    assert journal.read(path) == [*before, end]


@settings(deadline=None)
@given(stories())
def test_a_status_follows_from_its_journal_and_grows_with_it(story: list[dict[str, Any]]) -> None:
    seqs = [status_of(story[:count])["seq"] for count in range(len(story) + 1)]
    assert seqs == list(range(len(story) + 1))
    end = NodeStatus.model_validate(status_of(story))
    assert end.phase.value == story[-1]["phase"]
    assert all((rank.exit_code is None) != (rank.signal is None) for rank in end.ranks)


@SHARED_FOLDER
@given(data=st.binary(max_size=400), limit=st.integers(1, 50), offset=st.integers(-450, 450))
def test_reading_any_log_in_any_parts_ends_and_misses_no_byte(
    folder: Path, data: bytes, limit: int, offset: int
) -> None:
    path = folder / "rank-0.log"
    path.write_bytes(data)
    text, position, size = read_chunk(path, offset, limit)
    assert size == len(data)
    parts = [text]
    while position < size:
        text, following, _ = read_chunk(path, position, limit)
        assert position < following <= position + limit
        parts.append(text)
        position = following
    assert position == size
    start = max(0, size + offset) if offset < 0 else min(offset, size)
    expected = data[start:].decode("utf-8", "replace")
    assert "".join(parts).replace("\ufffd", "") == expected.replace("\ufffd", "") or limit < 4


@SHARED_FOLDER
@given(st.binary(max_size=3000))
def test_last_lines_are_few_short_and_printable(folder: Path, data: bytes) -> None:
    path = folder / "rank-0.log"
    path.write_bytes(data)
    lines = last_lines(path)
    assert len(lines) <= 20
    assert all(len(line) <= 500 for line in lines)
    assert not any(c < " " and c != "\t" for line in lines for c in line)
