"""The runner of a node: starts guards, finds them again, and speaks for them.

Everything it knows is on disk, so a new runner on the same state directory carries on where the
last one was killed. Layout of `<state_dir>/jobs/<job_id>/`:

    highest                     the highest attempt number launched or stopped here: the fence
    attempt-<n>/launch.json     what was asked for
    attempt-<n>/journal.jsonl   what happened; locked by the guard as long as it lives
    attempt-<n>/rank-<r>.log    stdout and stderr of a rank
    attempt-<n>/guard.log       what the guard itself had to say
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..placement.files import write_text_atomically
from . import journal, notes
from .attempt import LogChunk, NodeLaunch, NodePhase, NodeStatus, Refused, StopReport
from .detached import start_detached
from .device_use import read_device_use
from .guard import JOURNAL_NAME, KILL_WAIT_S
from .guard_ends import SWEEP_S, ask_guard, close_if_dead, close_unstarted
from .journal import FINAL_PHASES, Status
from .logs import last_lines, log_path, read_chunk
from .lookout import vitals_at_end
from .processes import process, send_signal
from .spec import Spec, remove_dead_sockets

GUARD_START_S = 20.0
_ANSWER_MARGIN_S = 5.0
_VITALS_S = 1.0
_NOTED_S = 30.0
_DEVICES_FREE_S = 10.0
_CHUNK_BYTES = 1024 * 1024
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ATTEMPT_FOLDER = re.compile(r"attempt-([1-9][0-9]{0,8})")


class Runner:
    """The attempts of one node. Safe to call from many threads.

    state_dir: this node's own folder; no other node may use it.
    raylet_pid: every guard ends its ranks when this process dies. nvml: pynvml's functions; the
    library itself by default.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        node: str,
        raylet_pid: int,
        nvml: Any = None,
    ) -> None:
        self.node = node
        self._nvml = nvml
        self._jobs = Path(state_dir).absolute() / "jobs"
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._raylet_fd = os.pidfd_open(raylet_pid)
        self._mutex = threading.RLock()
        remove_dead_sockets()
        self._held: set[tuple[str, int]] = set()
        self._noting: dict[tuple[str, int], float] = {}
        self._noting_mutex = threading.Lock()
        self._held |= {
            (status.job_id, status.attempt)
            for status in self.attempts()
            if status.phase.value not in FINAL_PHASES
        }

    def close(self) -> None:
        """Let go of the raylet's handle; guards go on without this runner."""
        os.close(self._raylet_fd)

    def launch(self, launch: NodeLaunch) -> NodeStatus:
        """Start this node's part of an attempt and say how its ranks started.

        Asking again for the very same launch starts nothing twice. Raises Refused for an attempt
        that a later one has fenced, or whose job or devices are still in use here.
        """
        self._check(launch)
        folder = self._folder(launch.job_id, launch.attempt)
        with self._exclusive(launch.job_id):
            known = Spec.read(folder)
            if known is None:
                self._refuse_unfit(launch)
                self._raise_fence(launch.job_id, launch.attempt)
                known = Spec.create(folder, launch)
            elif known.launch != launch:
                raise Refused(
                    f"attempt {launch.attempt} of job {launch.job_id} was launched on {self.node} "
                    "with other settings; use the next attempt number"
                )
            if not (folder / JOURNAL_NAME).exists():
                self._start_guard(folder)
            self._held.add((launch.job_id, launch.attempt))
            # It may be over before anyone looks.
            with self._noting_mutex:
                self._noting[launch.job_id, launch.attempt] = time.monotonic() + _NOTED_S
        status = self.status(launch.job_id, launch.attempt)
        give_up = time.monotonic() + GUARD_START_S
        while status.phase is NodePhase.STARTING and time.monotonic() < give_up:
            status = self.status(launch.job_id, launch.attempt, status.seq, 1.0)
        return status

    def status(
        self, job_id: str, attempt: int, after_seq: int = -1, wait_s: float = 0.0
    ) -> NodeStatus:
        """The attempt's state here, at once or as soon as its `seq` is past `after_seq`.

        Waits no longer than `wait_s`, and not at all for an attempt that has ended or is unknown.
        """
        folder = self._folder(job_id, attempt)
        deadline = time.monotonic() + wait_s
        while True:
            found = self._current(job_id, attempt)
            left_s = deadline - time.monotonic()
            if (
                found["phase"] in ("unknown", *FINAL_PHASES)
                or found["seq"] > after_seq
                or left_s <= 0
            ):
                vitals = self._vitals(found, folder)
                told = {**found, "vitals": vitals, "now_s": time.time()}
                return NodeStatus.model_validate(told)
            request = {"command": "wait", "after_seq": after_seq, "wait_s": left_s}
            if ask_guard(folder, request, left_s + _ANSWER_MARGIN_S) is None:
                time.sleep(min(0.05, left_s))

    def _vitals(self, status: Status, folder: Path) -> list[dict[str, Any]]:
        """How ranks look that run or have failed.

        Nothing of running ones where their guard is too busy or too old to say.
        """
        failed = [
            vitals_at_end(folder, rank["rank"])
            for rank in status["ranks"]
            if rank.get("signal") is not None or rank.get("exit_code")
        ]
        if status["phase"] != NodePhase.RUNNING.value:
            return failed
        answer = ask_guard(folder, {"command": "vitals"}, _VITALS_S) or {}
        found = answer.get("vitals", [])
        return failed + (found if isinstance(found, list) else [])

    def stop(self, job_id: str, attempt: int, grace_s: float) -> StopReport:
        """End every process of the attempt here and see that it is gone.

        SIGTERM first, SIGKILL after `grace_s`. Afterwards the attempt cannot be launched here any
        more, also when its launch is still on its way.
        """
        folder = self._folder(job_id, attempt)
        began = time.monotonic()
        with self._exclusive(job_id):
            self._raise_fence(job_id, attempt)
            if Spec.read(folder) and not (folder / JOURNAL_NAME).exists():
                close_unstarted(folder)
        killed = 0
        survivors: tuple[int, ...] = ()
        if self._current(job_id, attempt)["phase"] not in ("unknown", *FINAL_PHASES):
            request = {"command": "stop", "grace_s": grace_s}
            wait_s = grace_s + KILL_WAIT_S + _ANSWER_MARGIN_S
            answer = ask_guard(folder, request, wait_s)
            if answer is not None:
                killed, survivors = answer["killed"], tuple(answer["survivors"])
                self._current(job_id, attempt)
            else:
                killed, survivors = self._stop_without_answer(job_id, attempt, grace_s)
        told = self._current(job_id, attempt)
        held = [] if survivors else self._held_devices(folder)
        return StopReport(
            job_id=job_id,
            attempt=attempt,
            node=self.node,
            killed=killed,
            survivors=survivors,
            took_s=time.monotonic() - began,
            freed=told.get("freed", ()),
            kept=told.get("kept", ()),
            held=tuple(held),
        )

    def _held_devices(self, folder: Path) -> list[str]:
        """Devices of an attempt whose processes are gone that the driver has not freed in time."""
        spec = Spec.read(folder)
        devices = {rank.device for rank in spec.launch.ranks} if spec else set()
        give_up = time.monotonic() + _DEVICES_FREE_S
        while held := [str(use) for use in read_device_use(devices, self._nvml) if not use.free]:
            if time.monotonic() >= give_up:
                return held
            time.sleep(0.1)
        return []

    def attempts(self) -> list[NodeStatus]:
        """Every attempt that has left something here, ended ones included."""
        found = []
        for folder in sorted(self._jobs.glob("*/attempt-*")):
            named = _ATTEMPT_FOLDER.fullmatch(folder.name)
            if named and _JOB_ID.fullmatch(folder.parent.name):
                found.append(self.status(folder.parent.name, int(named[1])))
        return found

    def held(self) -> tuple[tuple[str, int], ...]:
        """The attempts whose guards were at work at the last look, as (job id, attempt).

        Touches no file, so it answers at once whatever the disk does; `tend` looks again.
        """
        return tuple(sorted(self._held))

    def noted(self) -> tuple[tuple[str, int, int], ...]:
        """How much the ranks of attempts have noted that are held, or were a short time ago."""
        now_s = time.monotonic()
        with self._noting_mutex:
            self._noting |= dict.fromkeys(self.held(), now_s + _NOTED_S)
            self._noting = {key: until for key, until in self._noting.items() if until > now_s}
            recent = sorted(self._noting)
        sizes = ((*key, notes.size_bytes(self._folder(*key))) for key in recent)
        return tuple(each for each in sizes if each[2])

    def read_notes(self, job_id: str, attempt: int, after: int) -> list[notes.Note]:
        """What the ranks of an attempt have noted here, behind the first `after` lines."""
        return notes.read_notes(self._folder(job_id, attempt), after)

    def tend(self) -> None:
        """See which attempts have ended, and end what killed guards left; call it every second."""
        for job_id, attempt in self.held():
            self._current(job_id, attempt)

    def read_log(
        self, job_id: str, attempt: int, rank: int, offset: int = 0, limit: int = 65536
    ) -> LogChunk:
        """Part of a rank's log from byte `offset`, or from the end when it is negative.

        At most `limit` bytes, and never more than 1 MiB. Raises Refused when there is no such log.
        """
        folder = self._folder(job_id, attempt)
        try:
            text, next_offset, size = read_chunk(
                log_path(folder, int(rank)), int(offset), max(1, min(int(limit), _CHUNK_BYTES))
            )
        except OSError as error:
            raise Refused(
                f"no log of rank {rank} of attempt {attempt} of job {job_id} on node {self.node}: "
                f"{error.strerror}"
            ) from error
        return LogChunk(text=text, next_offset=next_offset, size=size)

    def forget(self, job_id: str, attempt: int) -> None:
        """Remove what an ended attempt left here; its number stays taken. Raises Refused."""
        status = self.status(job_id, attempt)
        if status.phase not in (NodePhase.ENDED, NodePhase.STOPPED, NodePhase.UNKNOWN):
            raise Refused(
                f"attempt {attempt} of job {job_id} is {status.phase} on {self.node}; stop it first"
            )
        with self._exclusive(job_id):
            shutil.rmtree(self._folder(job_id, attempt), ignore_errors=True)

    def prune(self, keep_s: float, now_s: float) -> int:
        """Forget attempts that ended more than `keep_s` before `now_s`; returns how many."""
        forgotten = 0
        for status in self.attempts():
            journal_path = self._folder(status.job_id, status.attempt) / JOURNAL_NAME
            if status.phase.value not in FINAL_PHASES:
                continue
            if now_s - journal_path.stat().st_mtime > keep_s:
                self.forget(status.job_id, status.attempt)
                forgotten += 1
        return forgotten

    def _folder(self, job_id: str, attempt: int) -> Path:
        if not _JOB_ID.fullmatch(job_id):
            raise Refused(
                f"{job_id!r} is not a job id: letters, digits, '.', '_' and '-', up to 63"
            )
        if not 1 <= attempt < 10**9:
            raise Refused(f"{attempt!r} is not an attempt number: they start at 1")
        return self._jobs / job_id / f"attempt-{int(attempt)}"

    @contextlib.contextmanager
    def _exclusive(self, job_id: str) -> Iterator[None]:
        """One change at a time, also against a runner of an agent that is about to be replaced."""
        with self._mutex, (self._jobs / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (self._jobs / job_id).mkdir(mode=0o700, exist_ok=True)
            yield

    def _check(self, launch: NodeLaunch) -> None:
        if launch.node != self.node:
            raise Refused(
                f"this is node {self.node}, the launch is for {launch.node}; find its agent again"
            )
        for what in ("rank", "local_rank"):
            numbers = [getattr(rank, what) for rank in launch.ranks]
            if len(set(numbers)) < len(numbers):
                raise Refused(f"a {what} is given twice in {numbers}; give each one once")
        if not os.path.isabs(launch.working_dir):
            raise Refused(f"working_dir {launch.working_dir!r} must be an absolute path")

    def _refuse_unfit(self, launch: NodeLaunch) -> None:
        highest = self._fence(launch.job_id)
        if launch.attempt <= highest:
            raise Refused(
                f"attempt {launch.attempt} of job {launch.job_id} is fenced on {self.node}: "
                f"attempt {highest} was launched or stopped here; use a number above it"
            )
        wanted = {rank.device for rank in launch.ranks}
        self.tend()
        for job_id, attempt in self.held():
            other = Spec.read(self._folder(job_id, attempt))
            if job_id == launch.job_id:
                raise Refused(
                    f"attempt {attempt} of job {job_id} still has processes on {self.node}; "
                    f"stop it before launching attempt {launch.attempt}"
                )
            shared = wanted & {rank.device for rank in other.launch.ranks} if other else set()
            if shared:
                devices = ", ".join(map(str, sorted(shared)))
                raise Refused(
                    f"device {devices} of {self.node} is in use by attempt {attempt} of job "
                    f"{job_id}; stop that first or use other devices"
                )

    def _fence(self, job_id: str) -> int:
        try:
            return int((self._jobs / job_id / "highest").read_text())
        except FileNotFoundError:
            return 0

    def _raise_fence(self, job_id: str, attempt: int) -> None:
        if attempt > self._fence(job_id):
            write_text_atomically(self._jobs / job_id / "highest", f"{attempt}\n")
            journal.sync_folder(self._jobs / job_id)

    def _start_guard(self, folder: Path) -> None:
        arguments = [str(folder), str(self._raylet_fd)]
        start_detached("guard", arguments, folder / "guard.log", self._raylet_fd, GUARD_START_S)
        if not (folder / JOURNAL_NAME).exists():
            said = " | ".join(last_lines(folder / "guard.log", 3)) or "nothing"
            raise Refused(
                f"the guard of {folder.parent.name} {folder.name} did not come up on {self.node} "
                f"within {GUARD_START_S:g} s; its log {folder / 'guard.log'} says: {said}"
            )

    def _replayed(self, job_id: str, attempt: int) -> Status:
        """What the journal says. Raises FileNotFoundError."""
        status = journal.empty(job_id, attempt, self.node)
        path = self._folder(job_id, attempt) / JOURNAL_NAME
        journal.replay(status, journal.read(path))
        if status["phase"] in FINAL_PHASES:
            self._held.discard((job_id, attempt))
        return status

    def _current(self, job_id: str, attempt: int) -> Status:
        """What the journal says, with the end of a dead guard's attempt seen to first."""
        try:
            status = self._replayed(job_id, attempt)
            if status["phase"] in FINAL_PHASES:
                return status
            close_if_dead(self._folder(job_id, attempt))
            return self._replayed(job_id, attempt)
        except FileNotFoundError:
            return journal.empty(job_id, attempt, self.node)

    def _stop_without_answer(
        self, job_id: str, attempt: int, grace_s: float
    ) -> tuple[int, tuple[int, ...]]:
        """Stop an attempt whose guard does not answer: it has ended, lost its socket, or hangs."""
        folder = self._folder(job_id, attempt)
        guard = journal.read(folder / JOURNAL_NAME)[0]["guard"]
        signals = [(signal.SIGKILL, SWEEP_S)]
        spec = Spec.read(folder)
        if spec and not os.path.exists(spec.socket):
            signals.insert(0, (signal.SIGTERM, grace_s + KILL_WAIT_S))
        killed = 0
        survivors: tuple[int, ...] = ()
        for number, wait_s in signals:
            give_up = time.monotonic() + wait_s
            if self._replayed(job_id, attempt)["phase"] in FINAL_PHASES:
                break
            found = process(guard["pid"])
            if found is not None and found.start_ticks == guard["start_ticks"]:
                send_signal(found, number)
            while time.monotonic() < give_up:
                more, survivors = close_if_dead(folder)
                killed += more
                if self._replayed(job_id, attempt)["phase"] in FINAL_PHASES:
                    return killed, ()
                time.sleep(0.01)
        return killed, survivors
