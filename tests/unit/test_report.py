"""The report of a job: it adds up, shows what happened, and nothing in it can break out."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import Cluster, Model, Parallelism, Workload, build_pcg, place
from railweave.scheduler.account import Mark, PhaseKind, phases, recoveries, totals
from railweave.scheduler.lifecycle import JobState, Life
from railweave.scheduler.progress import Progress, Sample, Saved, read_progress
from railweave.scheduler.records import AttemptRecord, EventRecord, JobRecord
from railweave.scheduler.report import JobReport, render_report, traffic_table, write_report
from railweave.scheduler.timeline import draw_loss, draw_timeline, duration_text, nice_ticks

T0 = 1_764_000_000.0
PRINTABLE = "</script><img src=x onerror=alert(1)>\"'&amp;]]> {{7*7}}"
HOSTILE = f"{PRINTABLE}\x00\x1b[31m\u202egnp.exe\ud800"


def cluster(node: str = "n") -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": f"demo {node}",
            "tiers": [
                {"name": "pod", "bandwidth": 25e9, "latency": 5e-6},
                {"name": "spine", "bandwidth": 12e9, "latency": 9e-6},
            ],
            "nodes": [
                {
                    "name": f"{node}{i}",
                    "accelerator": "H100-SXM",
                    "devices": 2,
                    "domains": {"pod": f"p{i % 2}"},
                }
                for i in range(5)
            ],
        }
    )


def pcg() -> Any:
    model = Model.transformer(hidden=64, layers=4, heads=4, vocab=59, sequence=64)
    split = Parallelism(tp=2, dp=2, pp=2, zero=0, sequence_parallel=False)
    return build_pcg(
        Workload(model=model, parallelism=split, global_batch=16, rank_order="tp-dp-pp")
    )


@cache
def placed(node: str = "n", without: str = "") -> dict[str, Any]:
    """Where the job goes on that cluster, as it stands in an attempt's record."""
    whole = cluster(node)
    free = whole.with_nodes(tuple(n for n in whole.nodes if n.name != without))
    return place(pcg(), free, time_limit_s=0.2).to_data()


def log(attempt: int, first: int, last: int, start_s: float, every_s: float) -> str:
    lines = [] if first == 1 else [f"resumed step={first - 1} from=/c time_s={start_s:.3f}"]
    for step in range(first, last + 1):
        at = start_s + (step - first + 1) * every_s
        loss = 4.1 * math.exp(-step / 30) + 1.6 + 0.05 * math.sin(step * 7)
        lines.append(f"step={step} loss={loss:.7f} hex=0x1p+1 took_s=0.2 time_s={at:.3f}")
        if step % 10 == 0:
            lines.append(f"saved step={step} path=/c time_s={at + 0.05:.3f}")
    return "\n".join([f"attempt {attempt}", *lines, "step=x loss=1", "done step=40"])


def attempt_record(number: int, **changes: Any) -> AttemptRecord:
    values: dict[str, Any] = {
        "job_id": "gpt-1",
        "number": number,
        "placement": placed(),
        "plan": None,
        "resumed_from": "",
        "moved_ranks": 0,
        "started_s": T0 + 1,
        "running_s": T0 + 3,
        "fault_seen_s": None,
        "stopped_s": None,
        "ended_s": None,
        "cause": None,
    }
    return AttemptRecord(**(values | changes))


def job_record(state: JobState = JobState.SUCCEEDED, **changes: Any) -> JobRecord:
    life = Life(state=state, attempt=2, faults=1, holds_devices=state is JobState.RUNNING)
    values: dict[str, Any] = {
        "job_id": "gpt-1",
        "number": 1,
        "name": "gpt",
        "priority": 0,
        "devices": 8,
        "kinds": {},
        "life": life,
        "reason": "",
        "submitted_s": T0,
        "updated_s": T0 + 60,
        "ended_s": T0 + 60,
    }
    return JobRecord(**(values | changes))


def recovered() -> JobReport:
    """A job that lost a node at 20 s, in its 26th step, and went on from step 20."""
    cause = {
        "kind": "node_lost",
        "message": "node n2 is lost: its raylet died",
        "node": "n2",
        "node_at_fault": True,
        "rank": None,
        "happened_s": None,
        "last_lines": ["Connection closed by peer"],
    }
    first = attempt_record(
        1, fault_seen_s=T0 + 20.8, stopped_s=T0 + 22, ended_s=T0 + 22, cause=cause
    )
    second = attempt_record(
        2,
        placement=placed(without="n2"),
        resumed_from="/c/step-000000000020.attempt-0001",
        moved_ranks=4,
        started_s=T0 + 23,
        running_s=T0 + 25,
        ended_s=T0 + 60,
    )
    progress = read_progress({1: log(1, 1, 25, T0 + 7, 0.5), 2: log(2, 21, 40, T0 + 30, 1.45)})
    events = [
        EventRecord(n, "gpt-1", T0 + when, kind, attempt, message, {})
        for n, (when, kind, attempt, message) in enumerate(
            [
                (0, "submitted", None, "submitted, 8 devices"),
                (1, "launch", 1, "placed on n0, n1, n2, n4"),
                (3, "running", 1, "every rank is running"),
                (20.8, "fault", 1, "node n2 is lost: its raylet died"),
                (22, "stopped", 1, "stopped on every node, 6 processes were ended"),
                (23, "launch", 2, "placed on n0, n1, n3, n4"),
                (25, "running", 2, "every rank is running"),
                (60, "succeed", 2, "every rank ended with exit code 0"),
            ]
        )
    ]
    packed = {"node": 2.0e6, "pod": 0.0, "spine": 3.1e6}
    return JobReport(
        job=job_record(),
        attempts=[first, second],
        events=events,
        now_s=T0 + 61,
        entrypoint=["python", "examples/train_gpt.py", "--tp", "2"],
        cluster=cluster(),
        pcg=pcg(),
        packed_traffic_bytes=packed,
        progress=progress,
        marks=[Mark(T0 + 20, "node n2 was killed")],
    )


class _Page(HTMLParser):
    """Tags and attributes of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def test_the_report_of_a_recovered_job_tells_what_broke_and_what_it_cost(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, recovered())
    text = _Page(path.read_text(encoding="utf-8")).text
    assert "SUCCEEDED" in text
    for number in (
        "0.80 s to detect",
        "10.7 s to restart",
        "5 steps lost",
        "node n2 is lost: its raylet died 0.80 s 1.20 s 10.7 s 20 5 4",
        "1 0.80 s 10.7 s 5",  # by kind: times, to detect, to train again, steps
        "node n2 was killed",
        "Connection closed by peer",
        "submitted, 8 devices",
    ):
        assert number in text, number
    assert len(re.findall(r"<svg", path.read_text())) == 5


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = _Page(render_report(recovered()))
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert not {"src", "href", "xlink:href", "srcset"} & set(attributes)
    policy = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in render_report(recovered()) and "@import" not in render_report(recovered())


def test_every_drawing_is_well_formed_xml() -> None:
    html = render_report(recovered())
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        ElementTree.fromstring(drawing)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    fine = recovered()
    hostile_cluster = cluster(PRINTABLE)
    placement = placed(PRINTABLE)
    attempts = [
        replace(
            attempt,
            placement=placement,
            cause={"message": HOSTILE, "node": HOSTILE, "last_lines": [HOSTILE]},
        )
        for attempt in fine.attempts
    ]
    report = replace(
        fine,
        job=replace(fine.job, name=HOSTILE, reason=HOSTILE, job_id=HOSTILE),
        attempts=attempts,
        events=[replace(e, message=HOSTILE, kind=HOSTILE) for e in fine.events],
        entrypoint=[HOSTILE],
        cluster=hostile_cluster,
        packed_traffic_bytes={HOSTILE: 1.0},
        marks=[Mark(T0 + 20, HOSTILE)],
    )
    path = tmp_path / "report.html"
    write_report(path, report)
    html = path.read_bytes().decode("utf-8")
    page = _Page(html)
    assert not {"img", "script"} & {tag for tag, _ in page.tags}
    assert not re.search("[\x00\x1b\u202e\ud800]", html)
    assert "onerror=alert(1)" in page.text and "{{7*7}}" in page.text
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(drawing)


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet=st.characters(), max_size=40))
def test_any_text_gives_a_page_that_can_be_written(text: str) -> None:
    job = job_record(JobState.FAILED, name=text, reason=text)
    event = EventRecord(1, "x", T0, text, 1, text, {})
    report = JobReport(job, [], [event], T0 + 5, entrypoint=[text])
    html = render_report(report)
    html.encode("utf-8")
    tags = [tag for tag, _ in _Page(html).tags]
    empty = render_report(JobReport(job_record(JobState.FAILED, reason="x"), [], [event], T0 + 5))
    assert set(tags) <= {tag for tag, _ in _Page(empty).tags} | {"code"}


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_in_any_state_and_without_anything_else_has_a_report(state: JobState) -> None:
    ended_s = T0 + 4 if state.final else None
    html = render_report(JobReport(job_record(state, ended_s=ended_s), [], [], T0 + 5))
    assert state.value in _Page(html).text


def test_a_placement_that_does_not_fit_the_cluster_is_listed_instead_of_drawn() -> None:
    other = replace(recovered(), cluster=cluster("other-"))
    text = _Page(render_report(other)).text
    assert "n0" in text and "0→0" in text
    broken = [replace(a, placement={"format": "nonsense"}) for a in other.attempts]
    assert "Traffic" not in _Page(render_report(replace(other, attempts=broken))).text


def test_the_traffic_table_has_packing_beside_the_first_and_the_last_attempt() -> None:
    report = recovered()
    rows = traffic_table(report.attempts, report.packed_traffic_bytes)
    assert [row.tier for row in rows] == ["node", "pod", "spine"]
    assert [row.spine for row in rows] == [False, False, True]
    for column, attempt in enumerate(report.attempts):
        traffic = attempt.placement["traffic_bytes"]
        assert [row.placed[column] for row in rows] == list(traffic.values())
    assert rows[-1].packed == 3.1e6


def test_the_time_of_a_recovered_job_is_split_as_it_was_spent() -> None:
    report = recovered()
    found = phases(report.job, report.attempts, report.progress, report.marks, report.now_s)
    spent = {kind: round(seconds, 6) for kind, seconds in totals(found).items()}
    assert spent == {
        PhaseKind.QUEUED: 1.0,
        PhaseKind.LAUNCHING: 2.0 + 2.0,
        PhaseKind.STARTING: 4.5 + 6.45,
        PhaseKind.TRAINING: 9.5 + 28.55,
        PhaseKind.LOST: 3.0,
        PhaseKind.UNNOTICED: 0.8,
        PhaseKind.STOPPING: 1.2,
        PhaseKind.PLACING: 1.0,
    }
    assert sum(spent.values()) == pytest.approx(60)


def test_the_end_of_a_job_is_the_end_of_its_last_attempt_and_not_the_wait_for_another() -> None:
    report = recovered()
    cut = replace(report.attempts[1], ended_s=T0 + 59.9)  # told by a node, written down later
    found = phases(report.job, [report.attempts[0], cut], report.progress, [], T0 + 61)
    assert (found[-1].kind, found[-1].attempt) == (PhaseKind.TRAINING, 2)
    broken = replace(cut, fault_seen_s=T0 + 50, stopped_s=T0 + 52, ended_s=T0 + 52)
    for faults, kind in ((4, PhaseKind.STOPPING), (2, PhaseKind.PLACING)):
        life = Life(JobState.FAILED, attempt=2, faults=faults, max_restarts=3)
        failed = replace(report.job, life=life)
        found = phases(failed, [report.attempts[0], broken], report.progress, [], T0 + 61)
        assert (found[-1].kind, found[-1].attempt, found[-1].end_s) == (kind, 2, T0 + 60)
    waiting = replace(report.job, life=Life(JobState.RECOVERING), ended_s=None)
    found = phases(waiting, report.attempts[:1], report.progress, [], T0 + 30)
    assert (found[-1].kind, found[-1].attempt) == (PhaseKind.PLACING, 2)


def test_a_fault_whose_time_nobody_knows_has_no_time_to_detect() -> None:
    report = recovered()
    (fault,) = recoveries(report.attempts, Progress())
    assert fault.detect_s is None and fault.lost_steps is None
    assert fault.restart_s == pytest.approx(4.2)
    text = _Page(render_report(replace(report, marks=[], progress=Progress()))).text
    assert "to detect" not in text.lower().split("timeline")[0]


_TIME = st.floats(min_value=-50, max_value=200).map(lambda t: T0 + t)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_phases_add_up_to_the_whole_time_whatever_the_clocks_say(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 4))
    maybe = st.none() | _TIME
    attempts = [
        attempt_record(
            number,
            placement={},
            started_s=data.draw(_TIME),
            running_s=data.draw(maybe),
            fault_seen_s=data.draw(maybe),
            stopped_s=data.draw(maybe),
            ended_s=data.draw(maybe),
            cause=data.draw(st.none() | st.fixed_dictionaries({"happened_s": maybe})),
            resumed_from=data.draw(st.sampled_from(["", "/c/step-000000000003.attempt-0001", "x"])),
        )
        for number in range(1, count + 1)
    ]
    numbers = st.integers(1, 4)
    samples = st.builds(Sample, numbers, st.integers(0, 9), st.none() | st.floats(0, 9), maybe)
    progress = Progress(
        tuple(data.draw(st.lists(samples, max_size=6))),
        tuple(data.draw(st.lists(st.builds(Saved, numbers, st.integers(0, 9), maybe)))),
    )
    marks = [Mark(t, "m") for t in data.draw(st.lists(_TIME, max_size=2))]
    ended_s = data.draw(maybe)
    job = job_record(JobState.FAILED, ended_s=ended_s)
    found = phases(job, attempts, progress, marks, T0 + 100)
    end_s = max(T0, T0 + 100 if ended_s is None else ended_s)
    assert sum(phase.took_s for phase in found) == pytest.approx(end_s - T0, abs=1e-4)
    for one, two in pairwise(found):
        assert one.end_s == two.start_s and one.took_s > 0
    faults = recoveries(attempts, progress, marks)
    for fault in faults:
        known = (fault.detect_s, fault.stop_s, fault.restart_s, fault.lost_steps)
        assert all(value is None or value >= 0 for value in known)
    ElementTree.fromstring(draw_timeline(found, progress, faults, marks, state="FAILED"))
    curve = draw_loss(progress)
    assert curve is None or ElementTree.fromstring(curve) is not None


def test_a_log_is_read_line_by_line_and_what_is_no_progress_is_skipped() -> None:
    progress = read_progress(
        {
            1: "hello\nstep=1 loss=2.5 time_s=10.5\nstep=2 loss=nan\nxstep=3\nstep=4x\n"
            "saved step=2 path=/x time_s=11\nstep=3\nstep=5 loss=" + "9" * 3000,
            2: "resumed step=2 from=/x\nstep=3 loss=-inf",
        }
    )
    assert progress.samples == (
        Sample(1, 1, 2.5, 10.5),
        Sample(1, 2, None),
        Sample(1, 3, None),
        Sample(2, 3, None),
    )
    assert progress.saves == (Saved(1, 2, 11.0),)
    assert progress.resumed == {2: 2}


def test_durations_and_ticks_read_well() -> None:
    seconds = (0.4, 12.34, 99.96, 185, 8040, 260_000)
    assert [duration_text(s) for s in seconds] == [
        *("0.40 s", "12.3 s", "1 min 40 s", "3 min 05 s", "2 h 14 min", "3.0 days")
    ]
    assert nice_ticks(1.7, 4.2, 5) == [2.0, 2.5, 3.0, 3.5, 4.0] or nice_ticks(1.7, 4.2, 5)
    assert nice_ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert nice_ticks(3, 3, 5) == [3]


def test_a_long_history_stays_a_small_page() -> None:
    progress = Progress(
        tuple(Sample(1, step, 2.0 + 1 / (step + 1), T0 + step) for step in range(50_000)),
        tuple(Saved(1, step, T0 + step) for step in range(0, 50_000, 10)),
    )
    events = [EventRecord(n, "x", T0 + n, "note", 1, "m" * 50, {}) for n in range(5_000)]
    attempts = [attempt_record(n, placement={}, started_s=T0 + n) for n in range(1, 200)]
    html = render_report(JobReport(job_record(), attempts, events, T0 + 60, progress=progress))
    assert len(html) < 1_500_000
    assert "4000 earlier events are not shown" in _Page(html).text
