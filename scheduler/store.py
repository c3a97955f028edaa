"""The daemon's memory: jobs, attempts, events, the device ledger, quarantine, the cluster.

Every write is one transaction that first checks the daemon's epoch, so of two daemons the older one
can change nothing. `advance` is the only function that changes a job's state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from . import tables
from .database import Database
from .lifecycle import JobEvent, JobState, Life, Outcome, Step, step
from .records import (
    AttemptRecord,
    Device,
    EventRecord,
    Holding,
    JobRecord,
    NewAttempt,
    NewJob,
    Quarantined,
    UnknownJob,
)
from .rows import begin_attempt, find_job, job_record, life_values, log, mark_attempt, stored_epoch


class FencedOff(RuntimeError):
    """A newer daemon has taken over the store; this one must not act any more."""


class Store:
    """The store. Readers may use it freely; writers call `take_epoch` first."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._joint: Connection | None = None
        self.epoch = 0

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Store:
        """Open the store at a path or database URL. Raises StoreUnusable."""
        return cls(Database.open(location))

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def take_epoch(self, now_s: float, owner: str) -> int:
        """Become the store's only writer; every earlier one is fenced off from here on."""
        with self._database.write() as connection:
            self.epoch = stored_epoch(connection) + 1
            where = tables.meta.c.key == "epoch"
            connection.execute(update(tables.meta).where(where).values(value=str(self.epoch)))
            message = f"daemon {owner} takes over"
            log(connection, None, now_s, "daemon", None, message, {"epoch": self.epoch})
        return self.epoch

    def refuse_fenced(self) -> None:
        """Raise FencedOff when another daemon has taken over."""
        with self._database.read() as connection:
            self._check_epoch(connection)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written inside is one transaction: all of it is kept, or nothing."""
        with self._write() as connection:
            self._joint = connection
            try:
                yield
            finally:
                self._joint = None

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        if self._joint is not None:
            yield self._joint
            return
        with self._database.write() as connection:
            self._check_epoch(connection)
            yield connection

    def _check_epoch(self, connection: Connection) -> None:
        stored = stored_epoch(connection)
        if stored != self.epoch:
            raise FencedOff(
                f"{self._database.source} belongs to epoch {stored}; this daemon's is "
                f"{self.epoch or 'not taken'}: another daemon has taken over"
            )

    # Jobs

    def add_job(self, job: NewJob, now_s: float) -> JobRecord:
        """Queue a job. Adding the same job again (a submission repeated) changes nothing.

        Raises ValueError when another job has that id.
        """
        with self._write() as connection:
            known = connection.execute(
                select(tables.specs.c.spec).where(tables.specs.c.job_id == job.job_id)
            ).scalar_one_or_none()
            if known is None:
                life = Life(max_restarts=job.max_restarts)
                values = {
                    "id": job.job_id,
                    "name": job.name,
                    "priority": job.priority,
                    "devices": job.devices,
                    "kinds": dict(job.kinds),
                    "submitted_s": now_s,
                    "updated_s": now_s,
                    "max_restarts": job.max_restarts,
                    **life_values(life),
                }
                connection.execute(insert(tables.jobs).values(values))
                connection.execute(insert(tables.specs).values(job_id=job.job_id, spec=job.spec))
                message = f"submitted, {job.devices} devices"
                log(connection, job.job_id, now_s, "submitted", None, message, {})
            elif known != job.spec:
                raise ValueError(f"job id {job.job_id!r} is taken by another job")
            return find_job(connection, job.job_id)

    def advance(
        self,
        job_id: str,
        happened: JobEvent,
        *,
        now_s: float,
        message: str,
        attempt: int | None = None,
        launch: NewAttempt | None = None,
        cause: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        happened_s: float | None = None,
        reason: str = "",
    ) -> Step:
        """Apply an event to a job: its state, attempt, devices and history, in one transaction.

        attempt fences the event as `lifecycle.step` says; an event that changes nothing writes
        nothing. launch is needed for LAUNCH. cause is what broke: the first sign with FAULT, the
        root cause with STOPPED. `data` goes into the history. happened_s is for what is reported
        later than it happened. reason: the job's, where it is not what broke.

        Raises UnknownJob, DoubleBooking, FencedOff.
        """
        when_s = now_s if happened_s is None else happened_s
        details = dict(data or {})
        with self._write() as connection:
            before = find_job(connection, job_id, for_update=True).life
            taken = step(before, happened, attempt)
            if taken.outcome is not Outcome.CHANGED:
                return taken
            after = taken.life
            values: dict[str, Any] = {**life_values(after), "updated_s": now_s}
            if happened in (JobEvent.FAULT, JobEvent.REJECT, JobEvent.CANCEL, JobEvent.GIVE_UP):
                values["reason"] = message
            elif happened is JobEvent.STOPPED and cause is not None:
                values["reason"] = str(cause.get("message", message))
            if reason:
                values["reason"] = reason
            if after.state.final:
                values["ended_s"] = now_s
                if after.state is JobState.SUCCEEDED:
                    values["reason"] = ""
            connection.execute(update(tables.jobs).where(tables.jobs.c.id == job_id).values(values))
            if happened is JobEvent.LAUNCH:
                if launch is None:
                    raise ValueError("a launch needs its placement and devices")
                begin_attempt(connection, job_id, after.attempt, launch, now_s)
            else:
                mark_attempt(connection, job_id, before, after, happened, when_s, cause)
            if before.holds_devices and not after.holds_devices:
                connection.execute(delete(tables.held).where(tables.held.c.job_id == job_id))
            details |= {"from": before.state.value, "to": after.state.value}
            if cause is not None:
                details["cause"] = dict(cause)
            number = after.attempt or None
            log(connection, job_id, when_s, happened.value, number, message, details)
            return taken

    def set_plan(
        self, job_id: str, attempt: int, plan: Mapping[str, Any], resumed_from: str
    ) -> None:
        """Keep what an attempt was launched with, so that a later daemon can take it up."""
        with self._write() as connection:
            connection.execute(
                update(tables.attempts)
                .where(tables.attempts.c.job_id == job_id, tables.attempts.c.number == attempt)
                .values(plan=dict(plan), resumed_from=resumed_from)
            )

    def job(self, job_id: str) -> JobRecord:
        """A job. Raises UnknownJob."""
        with self._database.read() as connection:
            return find_job(connection, job_id)

    def jobs(self, states: Iterable[JobState] = (), limit: int | None = None) -> list[JobRecord]:
        """Jobs in the order of their submission, the newest `limit` of them; all states if none."""
        wanted = [state.value for state in states]
        query = select(tables.jobs).order_by(tables.jobs.c.number.desc())
        if wanted:
            query = query.where(tables.jobs.c.state.in_(wanted))
        if limit is not None:
            query = query.limit(limit)
        with self._database.read() as connection:
            return [job_record(row) for row in reversed(connection.execute(query).all())]

    def waiting(self) -> list[JobRecord]:
        """Jobs that wait for devices, in the order of their submission."""
        jobs = tables.jobs.c
        query = (
            select(tables.jobs)
            .where(
                jobs.state.in_([JobState.PENDING.value, JobState.RECOVERING.value]),
                jobs.holds_devices.is_(False),
            )
            .order_by(jobs.number)
        )
        with self._database.read() as connection:
            return [job_record(row) for row in connection.execute(query)]

    def holding(self) -> list[JobRecord]:
        """Jobs that hold devices: those with an attempt under way."""
        query = select(tables.jobs).where(tables.jobs.c.holds_devices.is_(True))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(tables.jobs.c.number))
            return [job_record(row) for row in rows]

    def counts(self) -> dict[JobState, int]:
        """How many jobs are in each state."""
        state = tables.jobs.c.state
        with self._database.read() as connection:
            rows = connection.execute(select(state, func.count()).group_by(state)).all()
        found = {name: int(count) for name, count in rows}
        return {each: found.get(each.value, 0) for each in JobState}

    def spec(self, job_id: str) -> str:
        """A job's specification as the JSON text it was submitted with. Raises UnknownJob."""
        query = select(tables.specs.c.spec).where(tables.specs.c.job_id == job_id)
        with self._database.read() as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise UnknownJob(f"no job {job_id!r}")
        return str(found)

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """A job's attempts, first to last."""
        table = tables.attempts
        query = select(table).where(table.c.job_id == job_id).order_by(table.c.number)
        with self._database.read() as connection:
            return [AttemptRecord(**row) for row in connection.execute(query).mappings()]

    def attempt(self, job_id: str, number: int) -> AttemptRecord | None:
        """One attempt of a job, or None."""
        table = tables.attempts
        query = select(table).where(table.c.job_id == job_id, table.c.number == number)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else AttemptRecord(**row)

    # History

    def add_event(
        self,
        kind: str,
        message: str,
        *,
        now_s: float,
        job_id: str | None = None,
        attempt: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Note something that changes no state."""
        with self._write() as connection:
            log(connection, job_id, now_s, kind, attempt, message, dict(data or {}))

    def events(
        self, job_id: str | None = None, after_seq: int = 0, limit: int = 10_000
    ) -> list[EventRecord]:
        """What happened to a job, or to everything when job_id is None, after `after_seq`."""
        table = tables.events
        query = select(table).where(table.c.seq > after_seq).order_by(table.c.seq).limit(limit)
        if job_id is not None:
            query = query.where(table.c.job_id == job_id)
        with self._database.read() as connection:
            return [EventRecord(**row) for row in connection.execute(query).mappings()]

    # Devices and nodes

    def held(self) -> dict[Device, Holding]:
        """Who holds which device."""
        table = tables.held
        with self._database.read() as connection:
            return {
                (row.node, row.device): Holding(row.job_id, row.attempt, row.rank)
                for row in connection.execute(select(table))
            }

    def kept_spares(self, but: str) -> set[str]:
        """Nodes that the attempts under way keep as spares, those of job `but` left out."""
        jobs, attempts = tables.jobs.c, tables.attempts.c
        query = (
            select(attempts.placement["spares"])
            .join_from(tables.attempts, tables.jobs, jobs.id == attempts.job_id)
            .where(jobs.holds_devices.is_(True), jobs.attempt == attempts.number, jobs.id != but)
        )
        with self._database.read() as connection:
            found = connection.execute(query).scalars().all()
        return {str(node) for spares in found for node in spares or ()}

    def quarantine(self, node: str, reason: str, now_s: float, until_s: float | None) -> None:
        """Keep a node out of placements; a node already out keeps its first reason and time."""
        with self._write() as connection:
            table = tables.quarantine
            changed = connection.execute(
                update(table).where(table.c.node == node).values(until_s=until_s)
            )
            if changed.rowcount == 0:
                row = {"node": node, "reason": reason, "since_s": now_s, "until_s": until_s}
                connection.execute(insert(table).values(row))
                data = {"node": node, "until_s": until_s}
                log(connection, None, now_s, "quarantined", None, f"{node}: {reason}", data)

    def release(self, node: str, why: str, now_s: float) -> bool:
        """Let a quarantined node be used again; False when it was not quarantined."""
        with self._write() as connection:
            table = tables.quarantine
            gone = connection.execute(delete(table).where(table.c.node == node))
            if gone.rowcount:
                log(connection, None, now_s, "released", None, f"{node}: {why}", {"node": node})
            return bool(gone.rowcount)

    def quarantined(self) -> dict[str, Quarantined]:
        """Nodes kept out of placements, by name."""
        with self._database.read() as connection:
            rows = connection.execute(select(tables.quarantine)).mappings()
            return {row["node"]: Quarantined(**row) for row in rows}

    # Documents

    def put_document(self, name: str, content: Any, now_s: float) -> None:
        """Keep a JSON document under a name, in place of the one before."""
        with self._write() as connection:
            table = tables.documents
            values = {"content": content, "written_s": now_s}
            changed = connection.execute(update(table).where(table.c.name == name).values(values))
            if changed.rowcount == 0:
                connection.execute(insert(table).values(name=name, **values))

    def document(self, name: str) -> Any:
        """The document of that name, or None."""
        query = select(tables.documents.c.content).where(tables.documents.c.name == name)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one_or_none()
