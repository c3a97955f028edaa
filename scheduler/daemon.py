"""The daemon: the detached actor that owns the store and answers everybody.

It keeps nothing that is not in the store or found again in the cluster, so Ray may restart it at
any time. Its work is in `Launcher`, `Recovery` and `Nodes`; here are its loops and its public
methods, which take and give JSON.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from ..agents.checkpoint_nodes import is_node_place
from ..agents.prober import ProbeSettings
from ..agents.processes import be_favoured
from .codec import decode, encode
from .core import Core
from .database import StoreUnusable
from .elastic import Elastic
from .explain import explain
from .job import Job
from .job_ranks import RankView, rank_views
from .launcher import Launcher
from .lifecycle import JobEvent, JobState
from .log import write_log
from .messages import Report
from .nodes import Nodes
from .policy import in_order, look
from .quarantine import NodeRecord
from .records import AttemptRecord, EventRecord, JobRecord, NewJob
from .recovery import Recovery
from .settings import Settings
from .solver_warm_up import warm_up_solver
from .store import FencedOff, Store
from .views import CheckpointPlace, DaemonStatus, JobView, NetworkView

_IDLE_S = 5.0
_TEND_S = 2.0
_SWEEP_S = 60.0
_WARM_UP_S = 2.0
_PAUSE_AFTER_ERROR_S = 1.0
_LONGEST_WAIT_S = 30.0
_log = logging.getLogger(__name__)


class Daemon:
    """The actor `railweave-daemon`."""

    async def __init__(self, settings_json: str) -> None:  # type: ignore[misc]
        # Ray awaits this on the actor's event loop, for a new and for a restarted actor alike.
        be_favoured()
        settings = Settings.model_validate_json(settings_json)
        Path(settings.state_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_log(Path(settings.state_dir) / "daemon.log")
        store = await _open(settings)
        epoch = store.take_epoch(Core.now_s(), f"pid {os.getpid()} on {socket.gethostname()}")
        _log.info("epoch %d", epoch)
        self._core = Core(settings, store)
        self._nodes = Nodes(self._core)
        self._launcher = Launcher(self._core, self._nodes)
        self._recovery = Recovery(self._core, self._nodes, self._launcher)
        self._elastic = Elastic(self._core, self._nodes, self._recovery.stop, self._launcher.fits)
        self._nodes.on_lost.append(self._recovery.tell_node_lost)
        self._nodes.on_broken.append(self._recovery.tell_device_broken)
        self._noted_waits: dict[str, str] = {}
        self._started_s = Core.now_s()
        self._fenced = ""
        self._loops = [
            asyncio.create_task(self._forever(work, period_s))
            for work, period_s in (
                (self._nodes.refresh, settings.heartbeat_s),
                (self._recovery.tend, _TEND_S),
                (self._elastic.tend, _TEND_S),
                (self._recovery.sweep, _SWEEP_S),
                (self._nodes.health.tend, _TEND_S / 2),
                (self._schedule, 0.0),
            )
        ]
        self._loops.append(asyncio.create_task(self._warm_up()))

    async def _warm_up(self) -> None:
        """Make the solver ready once the cluster is known, and again when it has outgrown that."""
        ready = 0
        while True:
            devices = self._nodes.devices
            if self._nodes.settled and devices > 2 * ready:
                ready = devices
                try:
                    await warm_up_solver(devices)
                except Exception:
                    _log.exception("the solver is not warmed up")
            await asyncio.sleep(_WARM_UP_S)

    # Jobs

    async def submit(self, job_id: str, job_json: str) -> str:
        """Queue a job under an id that the client chose; repeating it queues nothing twice."""
        self._refuse_fenced()
        job = Job.parse(job_json)
        new = NewJob(
            job_id=job_id,
            name=job.name,
            spec=job_json,
            devices=job.world_size,
            kinds=job.kinds(),
            priority=job.priority,
            max_restarts=job.max_restarts,
        )
        record = self._core.store.add_job(new, self._core.now_s())
        self._core.changed()
        return encode(record, JobRecord)

    async def cancel(self, job_id: str) -> str:
        """Ask for a job's end; it is over once its state is."""
        self._refuse_fenced()
        self._core.advance(job_id, JobEvent.CANCEL, "cancelled by its user")
        await self._recovery.stop(job_id)
        return await self.job(job_id)

    async def job(self, job_id: str) -> str:
        """A job as a JobView. Raises UnknownJob."""
        record = self._core.store.job(job_id)
        # A plan is large and holds the job's environment; it is for controllers.
        attempts = [replace(each, plan=None) for each in self._core.store.attempts(job_id)]
        return encode(JobView(record, attempts), JobView)

    async def spec(self, job_id: str) -> str:
        """A job as it was submitted, as JSON text. Raises UnknownJob."""
        return self._core.store.spec(job_id)

    async def checkpoint_place(self, job_id: str) -> str:
        """Where a job's checkpoints are, as a CheckpointPlace. Raises UnknownJob."""
        job = Job.parse(self._core.store.spec(job_id))
        directory = job.checkpoint_dir or self._core.settings.checkpoint_dir(job_id)
        place = CheckpointPlace(directory)
        if is_node_place(directory):
            peers = await self._launcher.copies.readers(job_id, directory)
            key = self._launcher.copies.key(job_id)
            place = CheckpointPlace(directory, peers.to_text(), key)
        return encode(place, CheckpointPlace)

    async def jobs(self, states: list[str], limit: int | None) -> str:
        """Jobs in the order of their submission, as a list of JobRecord."""
        wanted = [JobState(state) for state in states]
        return encode(self._core.store.jobs(wanted, limit), list[JobRecord])

    async def wait(self, job_id: str, timeout_s: float) -> str:
        """The job once it is over, or as it is after `timeout_s` (30 s at most)."""
        store = self._core.store
        await self._core.until(
            lambda: store.job(job_id).state.final, min(timeout_s, _LONGEST_WAIT_S)
        )
        return await self.job(job_id)

    async def events(self, job_id: str | None, after_seq: int, timeout_s: float, limit: int) -> str:
        """What happened after `after_seq`, waiting up to `timeout_s` for something to happen."""
        found: list[EventRecord] = []

        def something() -> bool:
            found[:] = self._core.store.events(job_id, after_seq, limit)
            return bool(found)

        if job_id is not None:
            self._core.store.job(job_id)
        await self._core.until(something, min(timeout_s, _LONGEST_WAIT_S))
        return encode(found, list[EventRecord])

    async def explain(self, job_id: str) -> str:
        """Why the job is where it is, as text."""
        store = self._core.store
        record = store.job(job_id)
        queue = [each.job_id for each in in_order(store.waiting())]
        position = queue.index(job_id) + 1 if job_id in queue else None
        waits = self._core.waits.get(job_id, "")
        doing = self._core.doing.get(job_id, "")
        return explain(record, store.attempts(job_id), position, waits, doing)

    async def logs(
        self, job_id: str, rank: int, attempt: int | None, offset: int, limit: int
    ) -> str:
        """A part of a rank's log as a LogChunk; of the newest attempt by default.

        Raises UnknownJob, or LookupError when there is no such log or its node is out of reach.
        """
        record = self._find_attempt(job_id, attempt)
        devices = record.placement["devices"]
        if not 0 <= rank < len(devices):
            raise LookupError(f"job {job_id} has ranks 0 to {len(devices) - 1}, not {rank}")
        node = devices[rank][0]
        chunk = await self._nodes.read_log(node, job_id, record.number, rank, offset, limit)
        return str(chunk.model_dump_json())

    async def ranks(self, job_id: str) -> str:
        """How the ranks of a job's newest attempt look now, as a list of RankView.

        Raises UnknownJob, or LookupError when there is no attempt yet.
        """
        attempt = self._find_attempt(job_id, None)
        return encode(await rank_views(attempt, self._nodes.attempt_on), list[RankView])

    def _find_attempt(self, job_id: str, number: int | None) -> AttemptRecord:
        life = self._core.store.job(job_id).life
        wanted = life.attempt if number is None else number
        found = self._core.store.attempt(job_id, wanted)
        if found is None:
            has = f"its attempts are 1 to {life.attempt}" if life.attempt else "it has none yet"
            raise LookupError(f"job {job_id} has no attempt {wanted}; {has}")
        return found

    # The cluster

    async def status(self) -> str:
        """What the daemon sees, as a DaemonStatus."""
        status = DaemonStatus(
            epoch=self._core.store.epoch,
            pid=os.getpid(),
            started_s=self._started_s,
            state_dir=self._core.settings.state_dir,
            fenced=self._fenced,
            jobs=self._core.store.counts(),
            nodes=self._nodes.views(),
            probing=self._nodes.topology.probing,
        )
        return encode(status, DaemonStatus)

    async def cluster(self) -> str:
        """The cluster file as JSON text. Raises LookupError before a node with devices is known."""
        found = self._nodes.topology.cluster
        if found is None:
            why = self._nodes.topology.problem or "the agents of its nodes are starting"
            raise LookupError(f"the cluster is not known yet: {why}")
        return found.model_dump_json(exclude_none=True)

    async def network(self) -> str:
        """The cluster as it is now and what of its network is not well, as a NetworkView.

        Raises LookupError before a node with devices is known.
        """
        cluster = await self.cluster()
        now = self._nodes.ledger().shown().model_dump_json(exclude_none=True)
        found = [each.to_data() for each in self._nodes.health.findings]
        return encode(NetworkView(cluster, now, found), NetworkView)

    async def probe(self, settings: str = "{}") -> None:
        """Begin to measure the network, with ProbeSettings as JSON; see `probe_progress`."""
        self._refuse_fenced()
        self._nodes.begin_probe(decode(settings, ProbeSettings))

    async def probe_progress(self, after: int, timeout_s: float) -> str:
        """Lines of progress after the first `after`, waiting for some; a ProbeProgress as JSON."""
        return await self._nodes.topology.progress(after, min(timeout_s, _LONGEST_WAIT_S))

    async def release(self, node: str) -> bool:
        """Let a quarantined node be used again; False when it was not quarantined."""
        self._refuse_fenced()
        return self._nodes.release(node)

    async def set_aside(self, node: str, reason: str, for_s: float | None) -> None:
        """Keep a node out of placements for a time, or until its release. Raises LookupError."""
        self._refuse_fenced()
        self._nodes.set_aside(node, reason, for_s)

    async def node_records(self) -> str:
        """What is held against the nodes, as a list of NodeRecord."""
        return encode(self._nodes.records(), list[NodeRecord])

    async def close(self) -> None:
        """Stop acting and let go of the store; the process is ended by who asked."""
        self._fence("it was told to end")
        for loop in self._loops:
            loop.cancel()
        self._nodes.close()
        self._core.store.close()

    # Controllers

    async def report(self, report_json: str) -> None:
        """Take in a controller's report."""
        self._refuse_fenced()
        await self._recovery.report(Report.model_validate_json(report_json))

    # Work

    async def _schedule(self) -> None:
        """Wait until something may have changed, then start what can start."""
        core = self._core
        await _set_within(core.wake, _IDLE_S)
        core.wake.clear()
        began = time.monotonic()
        await self._start_what_can()
        # A long queue takes a while to look at; others get at least as much time as that.
        await asyncio.sleep(min(time.monotonic() - began, _IDLE_S))

    async def _start_what_can(self) -> None:
        core = self._core
        while True:
            now_s = core.now_s()
            waiting = in_order(core.store.waiting())
            # A job that pauses holds nobody back: its devices would stand idle.
            pauses = {job.job_id: core.paused(job, now_s) for job in waiting}
            pauses = {job_id: why for job_id, why in pauses.items() if why}
            queue = [job for job in waiting if job.job_id not in pauses]
            if not queue:
                core.waits = pauses
                return
            if self._nodes.topology.cluster is None:
                core.waits = {job.job_id: "no node of the cluster is known yet" for job in queue}
                return
            supply, settled = self._nodes.ledger().supply(), self._nodes.settled
            queue = [self._elastic.sized(job, supply) for job in queue]
            found = look(queue, supply, core.believed_unplaceable(queue), settled)
            for job_id, why in found.impossible.items():
                core.advance(job_id, JobEvent.REJECT, why)
            core.waits = found.waits | pauses
            self._note_waits(found.waits)
            if found.start is None:
                return
            (chosen,) = (job for job in queue if job.job_id == found.start)
            await self._launcher.start(core.store.job(found.start), chosen.devices)

    def _note_waits(self, waits: dict[str, str]) -> None:
        """Put the reason of the jobs that wait for devices into their history when it changes."""
        blocked = {job_id: why for job_id, why in waits.items() if not why.startswith("behind ")}
        for job_id, why in blocked.items():
            if self._noted_waits.get(job_id) != why:
                self._core.store.add_event("waiting", why, now_s=self._core.now_s(), job_id=job_id)
        self._noted_waits = blocked

    async def _forever(self, work: Callable[[], Awaitable[None]], period_s: float) -> None:
        while not self._fenced:
            try:
                await work()
            except FencedOff as error:
                self._fence(str(error))
            except Exception:
                _log.exception("%s failed, goes on", getattr(work, "__qualname__", work))
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
            await asyncio.sleep(period_s)

    def _fence(self, why: str) -> None:
        """Another daemon owns the store: do nothing any more."""
        _log.error("fenced off: %s", why)
        self._fenced = why

    def _refuse_fenced(self) -> None:
        if self._fenced:
            raise FencedOff(self._fenced)


async def _open(settings: Settings) -> Store:
    try:
        return Store.open(settings.store_location)
    except StoreUnusable:
        if ray.get_runtime_context().was_current_actor_reconstructed:
            # An error here would end the daemon for good; a restart later may find the store well.
            _log.exception("the store cannot be opened, trying again")
            await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
            os._exit(1)
        raise


async def _set_within(event: asyncio.Event, timeout_s: float) -> None:
    waiting: Coroutine[Any, Any, Any] = event.wait()
    try:
        await asyncio.wait_for(waiting, timeout_s)
    except TimeoutError:
        return
