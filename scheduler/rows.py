"""Statements that the store's operations share; each runs inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from . import tables
from .lifecycle import JobEvent, JobState, Life
from .records import DoubleBooking, JobRecord, NewAttempt, UnknownJob


def stored_epoch(connection: Connection) -> int:
    """The epoch of the daemon that owns the store, locked until the transaction ends."""
    query = select(tables.meta.c.value).where(tables.meta.c.key == "epoch").with_for_update()
    return int(connection.execute(query).scalar_one())


def life_values(life: Life) -> dict[str, Any]:
    """A life as column values."""
    return {
        "state": life.state.value,
        "attempt": life.attempt,
        "faults": life.faults,
        "holds_devices": life.holds_devices,
        "ending": None if life.ending is None else life.ending.value,
    }


def find_job(connection: Connection, job_id: str, for_update: bool = False) -> JobRecord:
    """The job of that id. Raises UnknownJob."""
    query = select(tables.jobs).where(tables.jobs.c.id == job_id)
    row = connection.execute(query.with_for_update() if for_update else query).one_or_none()
    if row is None:
        raise UnknownJob(f"no job {job_id!r}")
    return job_record(row)


def job_record(row: Row[Any]) -> JobRecord:
    """A row of the jobs table as a record."""
    return JobRecord(
        job_id=row.id,
        number=row.number,
        name=row.name,
        priority=row.priority,
        devices=row.devices,
        kinds=row.kinds,
        life=Life(
            state=JobState(row.state),
            attempt=row.attempt,
            faults=row.faults,
            max_restarts=row.max_restarts,
            holds_devices=row.holds_devices,
            ending=None if row.ending is None else JobState(row.ending),
        ),
        reason=row.reason,
        submitted_s=row.submitted_s,
        updated_s=row.updated_s,
        ended_s=row.ended_s,
    )


def begin_attempt(
    connection: Connection, job_id: str, number: int, launch: NewAttempt, now_s: float
) -> None:
    """Write a new attempt and take hold of its devices. Raises DoubleBooking."""
    attempt = {
        "job_id": job_id,
        "number": number,
        "placement": dict(launch.placement),
        "moved_ranks": launch.moved_ranks,
        "started_s": now_s,
    }
    connection.execute(insert(tables.attempts).values(attempt))
    rows = [
        {"node": node, "device": device, "job_id": job_id, "attempt": number, "rank": rank}
        for rank, (node, device) in enumerate(launch.devices)
    ]
    try:
        connection.execute(insert(tables.held), rows)
    except IntegrityError as error:
        raise DoubleBooking(
            f"attempt {number} of {job_id} wants a device that is held already: {error.orig}"
        ) from error


def mark_attempt(
    connection: Connection,
    job_id: str,
    before: Life,
    after: Life,
    happened: JobEvent,
    happened_s: float,
    cause: Mapping[str, Any] | None,
) -> None:
    """Write the time of what happened to the newest attempt, and what broke."""
    values: dict[str, Any] = {}
    if happened is JobEvent.RUNNING:
        values["running_s"] = happened_s
    elif happened is JobEvent.FAULT:
        values["fault_seen_s"] = happened_s
        values["cause"] = None if cause is None else dict(cause)
    elif happened is JobEvent.STOPPED:
        values["stopped_s"] = happened_s
        if cause is not None:
            values["cause"] = dict(cause)
    if before.holds_devices and not after.holds_devices:
        values["ended_s"] = happened_s
    if values:
        table = tables.attempts
        where = (table.c.job_id == job_id, table.c.number == before.attempt)
        connection.execute(update(table).where(*where).values(values))


def log(
    connection: Connection,
    job_id: str | None,
    now_s: float,
    kind: str,
    attempt: int | None,
    message: str,
    data: dict[str, Any],
) -> None:
    """Append to the history."""
    row = {
        "job_id": job_id,
        "time_s": now_s,
        "kind": kind,
        "attempt": attempt,
        "message": message,
        "data": data,
    }
    connection.execute(insert(tables.events).values(row))
