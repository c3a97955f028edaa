"""Whatever the queue and the cluster: the policy neither overbooks, starves, nor forgets a job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from railweave.scheduler.ledger import Supply
from railweave.scheduler.lifecycle import Life
from railweave.scheduler.policy import in_order, look
from railweave.scheduler.records import JobRecord

KINDS = st.dictionaries(st.sampled_from(["A", "B"]), st.integers(1, 4), max_size=2)


@st.composite
def queues(draw: st.DrawFn) -> list[JobRecord]:
    jobs = []
    for number in range(draw(st.integers(0, 8))):
        kinds = draw(KINDS)
        devices = max(1, sum(kinds.values()) + draw(st.integers(0, 3)))
        priority = draw(st.integers(-1, 1))
        name = f"j{number}"
        jobs.append(JobRecord(name, number, name, priority, devices, kinds, Life(), "", 0, 0, None))
    return in_order(jobs)


@st.composite
def supplies(draw: st.DrawFn) -> Supply:
    total = {kind: draw(st.integers(0, 8)) for kind in ("A", "B")}
    return Supply(total, {kind: draw(st.integers(0, count)) for kind, count in total.items()})


def fits(job: JobRecord, have: dict[str, int]) -> bool:
    rest = dict(have)
    for kind, count in job.kinds.items():
        rest[kind] = rest.get(kind, 0) - count
    left = job.devices - sum(job.kinds.values())
    return min(rest.values()) >= 0 and sum(rest.values()) >= left


@given(queues(), supplies())
def test_every_job_is_started_waits_or_is_impossible(
    queue: list[JobRecord], supply: Supply
) -> None:
    found = look(queue, supply, {})
    told = [*found.waits, *found.impossible, *([found.start] if found.start else [])]
    assert sorted(told) == sorted(job.job_id for job in queue)
    for job in queue:
        assert (job.job_id in found.impossible) == (not fits(job, supply.total))
        if job.job_id == found.start:
            assert fits(job, supply.free)


@given(queues(), supplies())
def test_nobody_overtakes_a_job_that_could_use_the_same_devices(
    queue: list[JobRecord], supply: Supply
) -> None:
    found = look(queue, supply, {})
    possible = [job for job in queue if job.job_id not in found.impossible]
    if possible and fits(possible[0], supply.free):
        assert found.start == possible[0].job_id
    for job in possible:
        if job.job_id == found.start:
            break
        starter = next((j for j in possible if j.job_id == found.start), None)
        if starter is not None:
            anything = sum(starter.kinds.values()) < starter.devices
            assert not anything
            assert sum(job.kinds.values()) == job.devices
            assert not set(job.kinds) & set(starter.kinds)
