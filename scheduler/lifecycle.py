"""A job's life: its states, what may happen in each, and the one function that moves between them.

Pure: no clock, no store. `TABLE` is total over (state, devices held, event); `step` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "PENDING"
    """Queued: no device is held and no attempt is under way."""
    LAUNCHING = "LAUNCHING"
    """Devices are held for an attempt whose ranks are not all running yet."""
    RUNNING = "RUNNING"
    """Every rank of the attempt was started on its device."""
    RECOVERING = "RECOVERING"
    """An attempt broke; it is being stopped, or it is gone and the job waits to be placed again."""
    STOPPING = "STOPPING"
    """The attempt is being stopped for good, on the way to CANCELLED or FAILED."""
    SUCCEEDED = "SUCCEEDED"
    """Every rank ended with exit code 0. Final."""
    FAILED = "FAILED"
    """Given up: the restarts are spent, the job is at fault, or it can never be placed. Final."""
    CANCELLED = "CANCELLED"
    """Ended because somebody asked for it. Final."""

    @property
    def final(self) -> bool:
        """Whether nothing can change the job any more."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class JobEvent(StrEnum):
    """What can happen to a job."""

    LAUNCH = "launch"
    """Devices were chosen for the next attempt; it takes hold of them."""
    CALL_OFF = "call_off"
    """The attempt was given up before any of its ranks was started; it counts as no fault."""
    RUNNING = "running"
    """Every rank of the attempt was started."""
    FAULT = "fault"
    """Something of the attempt broke; it is being stopped everywhere."""
    STOPPED = "stopped"
    """The attempt is verified gone from every node that can still be reached."""
    SUCCEED = "succeed"
    """Every rank ended with exit code 0 and nothing of the attempt is left."""
    CANCEL = "cancel"
    """Somebody asked for the job to end."""
    REJECT = "reject"
    """The job can never be placed on this cluster."""
    GIVE_UP = "give_up"
    """The verdict on a broken attempt, while it is being stopped, is that none may follow."""
    RESIZE = "resize"
    """The attempt is to be stopped and followed by one of another size; nothing broke."""


class Move(StrEnum):
    """What the table says where the next state is not one fixed state."""

    KEEP = "keep"
    """Nothing changes: a repeated or late report."""
    REFUSE = "refuse"
    """This cannot happen here: the reporter is wrong about the job."""
    BREAK = "break"
    """RECOVERING while restarts are left, else STOPPING towards FAILED; one fault is counted."""
    YIELD = "yield"
    """RECOVERING, to be stopped and placed again, without a fault."""
    REQUEUE = "requeue"
    """Back to waiting: PENDING when nothing broke so far, else RECOVERING without devices."""
    STOP_TO_CANCEL = "stop_to_cancel"
    """STOPPING towards CANCELLED."""
    STOP_TO_FAIL = "stop_to_fail"
    """STOPPING towards FAILED."""
    RELEASE = "release"
    """Still RECOVERING, and the devices are free."""
    END = "end"
    """The state that STOPPING leads to."""


@dataclass(frozen=True)
class Life:
    """A job as the lifecycle sees it.

    attempt: number of the newest attempt, 0 before the first; only grows.
    faults: attempts that broke.
    holds_devices: exactly in LAUNCHING, RUNNING, STOPPING, and in RECOVERING until the broken
        attempt is verified stopped.
    ending: the state STOPPING leads to, CANCELLED or FAILED; None elsewhere.
    """

    state: JobState = JobState.PENDING
    attempt: int = 0
    faults: int = 0
    max_restarts: int = 3
    holds_devices: bool = False
    ending: JobState | None = None

    def check(self) -> None:
        """Raise ValueError when the fields contradict each other."""
        held = self.state in (JobState.LAUNCHING, JobState.RUNNING, JobState.STOPPING)
        if self.holds_devices != held and self.state is not JobState.RECOVERING:
            raise ValueError(f"{self.state} with holds_devices={self.holds_devices}")
        stopping = self.state is JobState.STOPPING
        if stopping != (self.ending in (JobState.CANCELLED, JobState.FAILED)):
            raise ValueError(f"{self.state} with ending={self.ending}")
        if not 0 <= self.faults <= self.attempt or self.faults > self.max_restarts + 1:
            raise ValueError(f"{self.faults} faults in {self.attempt} attempts")
        if self.holds_devices and self.attempt < 1:
            raise ValueError(f"{self.state} before the first attempt")


class Outcome(StrEnum):
    """What became of an event."""

    CHANGED = "changed"
    """The job moved."""
    UNCHANGED = "unchanged"
    """The event was late or repeated; nothing moved."""
    REFUSED = "refused"
    """The event contradicts the job; nothing moved."""


@dataclass(frozen=True)
class Step:
    """The life after an event, what became of the event, and why when nothing moved."""

    life: Life
    outcome: Outcome
    why: str = ""


_S, _E, _M = JobState, JobEvent, Move
_FINAL_ROW: dict[JobEvent, JobState | Move] = {
    _E.LAUNCH: _M.REFUSE,
    _E.CALL_OFF: _M.KEEP,
    _E.RUNNING: _M.KEEP,
    _E.FAULT: _M.KEEP,
    _E.STOPPED: _M.KEEP,
    _E.SUCCEED: _M.KEEP,
    _E.CANCEL: _M.KEEP,
    _E.REJECT: _M.KEEP,
    _E.GIVE_UP: _M.KEEP,
    _E.RESIZE: _M.KEEP,
}

TABLE: dict[tuple[JobState, bool], dict[JobEvent, JobState | Move]] = {
    (_S.PENDING, False): {
        _E.LAUNCH: _S.LAUNCHING,
        _E.CALL_OFF: _M.KEEP,
        _E.RUNNING: _M.REFUSE,
        _E.FAULT: _M.REFUSE,
        _E.STOPPED: _M.KEEP,
        _E.SUCCEED: _M.REFUSE,
        _E.CANCEL: _S.CANCELLED,
        _E.REJECT: _S.FAILED,
        _E.GIVE_UP: _M.REFUSE,
        _E.RESIZE: _M.REFUSE,
    },
    (_S.LAUNCHING, True): {
        _E.LAUNCH: _M.REFUSE,
        _E.CALL_OFF: _M.REQUEUE,
        _E.RUNNING: _S.RUNNING,
        _E.FAULT: _M.BREAK,
        _E.STOPPED: _M.REFUSE,
        _E.SUCCEED: _S.SUCCEEDED,
        _E.CANCEL: _M.STOP_TO_CANCEL,
        _E.REJECT: _M.STOP_TO_FAIL,
        _E.GIVE_UP: _M.REFUSE,
        _E.RESIZE: _M.REFUSE,
    },
    (_S.RUNNING, True): {
        _E.LAUNCH: _M.REFUSE,
        _E.CALL_OFF: _M.REFUSE,
        _E.RUNNING: _M.KEEP,
        _E.FAULT: _M.BREAK,
        _E.STOPPED: _M.REFUSE,
        _E.SUCCEED: _S.SUCCEEDED,
        _E.CANCEL: _M.STOP_TO_CANCEL,
        _E.REJECT: _M.STOP_TO_FAIL,
        _E.GIVE_UP: _M.REFUSE,
        _E.RESIZE: _M.YIELD,
    },
    (_S.RECOVERING, True): {
        _E.LAUNCH: _M.REFUSE,
        _E.CALL_OFF: _M.REFUSE,
        _E.RUNNING: _M.KEEP,
        _E.FAULT: _M.KEEP,
        _E.STOPPED: _M.RELEASE,
        _E.SUCCEED: _S.SUCCEEDED,
        _E.CANCEL: _M.STOP_TO_CANCEL,
        _E.REJECT: _M.STOP_TO_FAIL,
        _E.GIVE_UP: _M.STOP_TO_FAIL,
        _E.RESIZE: _M.KEEP,
    },
    (_S.RECOVERING, False): {
        _E.LAUNCH: _S.LAUNCHING,
        _E.CALL_OFF: _M.KEEP,
        _E.RUNNING: _M.REFUSE,
        _E.FAULT: _M.KEEP,
        _E.STOPPED: _M.KEEP,
        _E.SUCCEED: _M.REFUSE,
        _E.CANCEL: _S.CANCELLED,
        _E.REJECT: _S.FAILED,
        _E.GIVE_UP: _M.KEEP,
        _E.RESIZE: _M.KEEP,
    },
    (_S.STOPPING, True): {
        _E.LAUNCH: _M.REFUSE,
        _E.CALL_OFF: _M.END,
        _E.RUNNING: _M.KEEP,
        _E.FAULT: _M.KEEP,
        _E.STOPPED: _M.END,
        _E.SUCCEED: _M.END,
        _E.CANCEL: _M.KEEP,
        _E.REJECT: _M.KEEP,
        _E.GIVE_UP: _M.KEEP,
        _E.RESIZE: _M.KEEP,
    },
    (_S.SUCCEEDED, False): _FINAL_ROW,
    (_S.FAILED, False): _FINAL_ROW,
    (_S.CANCELLED, False): _FINAL_ROW,
}


def step(life: Life, event: JobEvent, attempt: int | None = None) -> Step:
    """The life after `event`.

    attempt: the attempt that the event is about; for LAUNCH the new one, which must be the next
        number. CANCEL and REJECT are about the job and need none. A report of an older attempt
        changes nothing.
    """
    if event is JobEvent.LAUNCH:
        if attempt != life.attempt + 1:
            why = f"attempt {attempt} cannot follow attempt {life.attempt}"
            return Step(life, Outcome.REFUSED, why)
    elif event not in (JobEvent.CANCEL, JobEvent.REJECT):
        if attempt is None:
            return Step(life, Outcome.REFUSED, f"{event} names no attempt")
        if attempt < life.attempt:
            why = f"about attempt {attempt}; the job is at attempt {life.attempt}"
            return Step(life, Outcome.UNCHANGED, why)
        if attempt > life.attempt:
            why = f"about attempt {attempt}, which does not exist: the newest is {life.attempt}"
            return Step(life, Outcome.REFUSED, why)
    rule = TABLE[life.state, life.holds_devices][event]
    if rule is Move.KEEP:
        return Step(life, Outcome.UNCHANGED, f"{event} changes nothing in {life.state}")
    if rule is Move.REFUSE:
        return Step(life, Outcome.REFUSED, f"{event} cannot happen in {life.state}")
    return Step(_moved(life, rule), Outcome.CHANGED)


def _moved(life: Life, rule: JobState | Move) -> Life:
    if isinstance(rule, JobState):
        if rule is JobState.LAUNCHING:
            return replace(life, state=rule, attempt=life.attempt + 1, holds_devices=True)
        return replace(life, state=rule, holds_devices=rule is JobState.RUNNING)
    if rule is Move.BREAK:
        broken = replace(life, faults=life.faults + 1)
        if broken.faults > life.max_restarts:
            return replace(broken, state=JobState.STOPPING, ending=JobState.FAILED)
        return replace(broken, state=JobState.RECOVERING)
    if rule is Move.YIELD:
        return replace(life, state=JobState.RECOVERING)
    if rule is Move.REQUEUE:
        waiting = JobState.RECOVERING if life.faults else JobState.PENDING
        return replace(life, state=waiting, holds_devices=False)
    if rule is Move.STOP_TO_CANCEL:
        return replace(life, state=JobState.STOPPING, ending=JobState.CANCELLED)
    if rule is Move.STOP_TO_FAIL:
        return replace(life, state=JobState.STOPPING, ending=JobState.FAILED)
    if rule is Move.RELEASE:
        return replace(life, holds_devices=False)
    if life.ending is None:
        raise ValueError(f"{life.state} leads nowhere")
    return replace(life, state=life.ending, holds_devices=False, ending=None)
