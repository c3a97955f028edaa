"""`Client`: submitting jobs to a running daemon, and asking about them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from ..agents.attempt import LogChunk
from ..agents.prober import ProbeSettings
from ..placement.cluster import Cluster
from ..placement.placement import Placement
from .codec import decode
from .connection import Connection
from .embedded import EMBEDDED_SILENT_S, EmbeddedCluster, EmbeddedNode
from .job import Job, new_job_id
from .job_ranks import RankView
from .lifecycle import JobState
from .quarantine import NodeRecord
from .records import AttemptRecord, EventRecord, JobRecord
from .settings import Reprobe
from .views import CheckpointPlace, DaemonStatus, JobView, Network, NetworkView, ProbeProgress

_POLL_S = 20.0
_LOG_BYTES = 256 * 1024
_LOG_POLL_S = 0.2


class JobHandle:
    """A submitted job. Every property asks the daemon anew."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self.id = job_id

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    @property
    def record(self) -> JobRecord:
        """The job with its state, its reason and its times."""
        return self._view().job

    @property
    def spec(self) -> Job:
        """The job as it was submitted."""
        return Job.parse(self._connection.call("spec", self.id), self.id)

    @property
    def state(self) -> JobState:
        """Where the job is in its life."""
        return self.record.state

    @property
    def attempts(self) -> list[AttemptRecord]:
        """Its attempts, first to last."""
        return self._view().attempts

    @property
    def placement(self) -> Placement | None:
        """Where the newest attempt's ranks are; None before the first attempt."""
        attempts = self.attempts
        return Placement.parse(attempts[-1].placement) if attempts else None

    def events(self, after_seq: int = 0) -> list[EventRecord]:
        """What happened to the job, first to last."""
        found: list[EventRecord] = []
        while more := self._events(found[-1].seq if found else after_seq, 0.0):
            found += more
        return found

    def follow(self) -> Iterator[EventRecord]:
        """What happens to the job, from its submission until it is over."""
        seq = 0
        while True:
            over = self.state.final
            for event in (more := self._events(seq, 0.0 if over else _POLL_S)):
                seq = event.seq
                yield event
            if over and not more:
                return

    def logs(self, rank: int = 0, attempt: int | None = None) -> str:
        """All that a rank wrote, of the newest attempt by default.

        Raises LookupError when there is no such log or its node is out of reach.
        """
        return "".join(self.read_logs(rank, attempt))

    def ranks(self) -> list[RankView]:
        """How the ranks of its newest attempt look now, by rank.

        Raises LookupError when it has no attempt yet.
        """
        return decode(self._connection.call("ranks", self.id), list[RankView])

    def read_logs(
        self, rank: int = 0, attempt: int | None = None, follow: bool = False
    ) -> Iterator[str]:
        """What a rank wrote, in pieces, of the newest attempt by default.

        follow: go on until the job is over; where no attempt was asked for, from one to the next.
        Raises LookupError when there is no such log or its node is out of reach.
        """
        number, offset = attempt, 0
        while True:
            record = self.record
            life, final = record.life, record.state.final
            number = number or life.attempt or None
            over = final or not follow or (number is not None and life.attempt > number)
            try:
                arguments = (self.id, rank, number, offset, _LOG_BYTES)
                chunk = LogChunk.model_validate_json(self._connection.call("logs", *arguments))
            except LookupError:
                # Not written yet, or gone with its node: a later attempt may have more to say.
                if final or not follow:
                    raise
                chunk = LogChunk(text="", next_offset=offset, size=offset)
            if chunk.text:
                yield chunk.text
            if chunk.next_offset > offset:
                offset = chunk.next_offset
            elif not over:
                time.sleep(_LOG_POLL_S)
            elif follow and attempt is None and number is not None and life.attempt > number:
                number, offset = number + 1, 0
            else:
                return

    def wait(self, timeout_s: float | None = None) -> JobState:
        """The job's last state once it is over.

        Raises TimeoutError, saying what the job does, when it is not over after `timeout_s`. A
        daemon that restarts meanwhile is waited for.
        """
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _POLL_S if give_up is None else give_up - time.monotonic()
            text = self._connection.call("wait", self.id, max(0.0, min(left_s, _POLL_S)))
            state = decode(text, JobView).job.state
            if state.final:
                return state
            if give_up is not None and time.monotonic() >= give_up:
                raise TimeoutError(f"after {timeout_s:g} s: {self.explain()}")

    def checkpoint_place(self) -> CheckpointPlace:
        """Where its checkpoints are."""
        return decode(self._connection.call("checkpoint_place", self.id), CheckpointPlace)

    def cancel(self) -> None:
        """Ask for the job's end. It is over once its state is; an ended job stays as it is."""
        self._connection.call("cancel", self.id)

    def explain(self) -> str:
        """Why the job is where it is, in sentences."""
        return str(self._connection.call("explain", self.id))

    def _view(self) -> JobView:
        return decode(self._connection.call("job", self.id), JobView)

    def _events(self, after_seq: int, timeout_s: float) -> list[EventRecord]:
        text = self._connection.call("events", self.id, after_seq, timeout_s, 1000)
        return decode(text, list[EventRecord])


class Client:
    """A connection to the daemon of a Ray cluster.

    address: the cluster's; else RAY_ADDRESS. Raises NoCluster, NoDaemon or WrongToken, each saying
    what to do. Use `with`, or call `close`, to end the connection.
    """

    def __init__(self, address: str | None = None) -> None:
        self._closers: list[Callable[[], None]] = []
        self._connection = Connection.open(address)
        self._closers.append(self._connection.close)

    @classmethod
    def local(
        cls,
        nodes: int | Sequence[EmbeddedNode] = 2,
        *,
        devices: int = 2,
        state_dir: str | os.PathLike[str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Self:
        """A client of a Ray cluster of its own on this machine, which ends with the client.

        nodes: the nodes to start, or how many, with `devices` declared devices each. state_dir:
        kept afterwards when it is given. Raises EmbeddedClusterError.
        """
        from .service import start_daemon

        if isinstance(nodes, int):
            nodes = [EmbeddedNode(f"n{index}", devices) for index in range(nodes)]
        cluster = EmbeddedCluster(nodes, state_dir=state_dir).start(progress)
        try:
            cluster.use()
            start_daemon(cluster.state_dir, silent_s=EMBEDDED_SILENT_S, reprobe=Reprobe(every_s=0))
            client = cls(cluster.address)
        except BaseException:
            cluster.stop()
            raise
        client._closers.insert(0, cluster.stop)
        return client

    def close(self) -> None:
        """End the connection, and the embedded cluster of `local`."""
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, job: Job) -> JobHandle:
        """Queue a job. A connection that breaks meanwhile queues it once all the same."""
        job_id = new_job_id(job.name)
        self._connection.call("submit", job_id, job.to_json())
        return JobHandle(self._connection, job_id)

    def job(self, job_id: str) -> JobHandle:
        """A job that was submitted before. Raises UnknownJob."""
        self._connection.call("job", job_id)
        return JobHandle(self._connection, job_id)

    def jobs(self, states: Iterable[JobState] = (), limit: int | None = None) -> list[JobRecord]:
        """Jobs in the order of their submission, the newest `limit` of them."""
        wanted = [JobState(state).value for state in states]
        return decode(self._connection.call("jobs", wanted, limit), list[JobRecord])

    def events(self, after_seq: int = 0, timeout_s: float = 0.0) -> list[EventRecord]:
        """What happened to jobs and nodes after `after_seq`."""
        text = self._connection.call("events", None, after_seq, timeout_s, 1000)
        return decode(text, list[EventRecord])

    def status(self) -> DaemonStatus:
        """The daemon, its nodes, and how many jobs are in each state."""
        return decode(self._connection.call("status"), DaemonStatus)

    def cluster(self) -> Cluster:
        """The cluster as probed. Raises LookupError before a node with a device is known."""
        return Cluster.parse(self._connection.call("cluster"), "the daemon's cluster")

    def network(self) -> Network:
        """The cluster now, and what of its network is not well.

        Raises LookupError before a node with a device is known.
        """
        view = decode(self._connection.call("network"), NetworkView)
        return view.parsed()

    def probe(
        self,
        progress: Callable[[str], None] | None = None,
        settings: ProbeSettings | None = None,
    ) -> Cluster:
        """Measure the network; `progress` gets a line a step. Returns the new cluster.

        settings: what probing may do and cost. Raises RuntimeError with the reason when it fails.
        """
        self._connection.call("probe", (settings or ProbeSettings()).model_dump_json())
        known = 0
        while True:
            text = self._connection.call("probe_progress", known, _POLL_S)
            found = decode(text, ProbeProgress)
            known += len(found.lines)
            if progress is not None:
                for line in found.lines:
                    progress(line)
            if found.error:
                raise RuntimeError(found.error)
            if not found.running and not found.lines:
                return self.cluster()

    def release(self, node: str) -> bool:
        """Let a quarantined node be used again; False when it was not quarantined."""
        return bool(self._connection.call("release", node))

    def set_aside(self, node: str, reason: str, for_s: float | None = None) -> None:
        """Keep a node out of placements, for a time or until its release; what runs there goes on.

        Raises LookupError when there is no such node.
        """
        self._connection.call("set_aside", node, reason, for_s)

    def node_records(self) -> list[NodeRecord]:
        """What is held against each node, by name."""
        return decode(self._connection.call("node_records"), list[NodeRecord])

    def close_daemon(self) -> None:
        """Have the daemon let go of its store, before it is ended; see `stop_daemon`."""
        self._connection.call("close")
