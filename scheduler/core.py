"""What the parts of the daemon share: the store, the clock, and who waits for a change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .lifecycle import JobEvent, Outcome, Step
from .records import JobRecord, NewAttempt
from .settings import Settings
from .store import Store
from .verdict import Verdict, broken_attempts, judge

_log = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """Why a job could not be started, believed until a time by `Core.tick_s`.

    devices: it holds for so many devices and more; 0 where the number makes no difference.
    """

    why: str
    until_s: float
    devices: int = 0


class Core:
    """The daemon's shared state. All of it is used on the daemon's event loop only.

    wake: set when the queue or the free devices may have changed.
    doing: what is being done for a job that is being launched, for people.
    waits: why each waiting job waits; unplaceable: jobs that the solver could not place on the
        devices that were free, or that Ray or a node refused.
    on_final: called with the id of a job that has come to its end.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.wake = asyncio.Event()
        self.doing: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        self.unplaceable: dict[str, Refusal] = {}
        self.on_final: list[Callable[[str], None]] = []
        self._changed = asyncio.Event()
        self._verdicts: dict[str, tuple[int, Verdict | None, float]] = {}

    @staticmethod
    def now_s() -> float:
        """Wall-clock seconds, for what is written down."""
        return time.time()

    @staticmethod
    def tick_s() -> float:
        """Seconds of a clock that nobody sets, for what is waited for."""
        return time.monotonic()

    def advance(
        self,
        job_id: str,
        happened: JobEvent,
        message: str,
        *,
        attempt: int | None = None,
        launch: NewAttempt | None = None,
        cause: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        happened_s: float | None = None,
        reason: str = "",
    ) -> Step:
        """`Store.advance`, and everyone who waits is woken."""
        taken = self.store.advance(
            job_id,
            happened,
            now_s=self.now_s(),
            message=message,
            attempt=attempt,
            launch=launch,
            cause=cause,
            data=data,
            happened_s=happened_s,
            reason=reason,
        )
        if taken.outcome is Outcome.REFUSED:
            _log.warning("%s of %s refused: %s", happened, job_id, taken.why)
        elif taken.outcome is Outcome.CHANGED:
            _log.info("%s: %s, now %s (%s)", job_id, happened, taken.life.state, message)
            if not taken.life.holds_devices:
                # Devices may be free again: what could not be placed before is worth a new look.
                self.unplaceable.clear()
            if taken.life.state.final:
                self._verdicts.pop(job_id, None)
                for told in self.on_final:
                    told(job_id)
        self.changed()
        return taken

    def believed_unplaceable(self, queue: Iterable[JobRecord]) -> dict[str, str]:
        """Jobs that the solver, Ray or a node refused lately at the size they have here: why."""
        found = ((job, self._refusal(job.job_id)) for job in queue)
        return {
            job.job_id: refusal.why
            for job, refusal in found
            if refusal is not None and refusal.devices <= job.devices
        }

    def refused_size(self, job_id: str) -> int | None:
        """From how many devices on the solver finds no placement for a job on what is free."""
        refusal = self._refusal(job_id)
        return None if refusal is None else refusal.devices or None

    def _refusal(self, job_id: str) -> Refusal | None:
        found = self.unplaceable.get(job_id)
        return found if found is not None and found.until_s > self.tick_s() else None

    def verdict(self, job: JobRecord) -> Verdict | None:
        """What followed from the last fault of a job that waits; None where nothing broke."""
        return self._judged(job)[0]

    def paused(self, job: JobRecord, now_s: float) -> str:
        """Why a job must not start yet though it may restart; empty when it may."""
        verdict, stopped_s = self._judged(job)
        if verdict is None or not stopped_s <= now_s < stopped_s + verdict.pause_s:
            return ""
        left_s = stopped_s + verdict.pause_s - now_s
        return f"pauses for another {left_s:.0f} s: {verdict.why}"

    def _judged(self, job: JobRecord) -> tuple[Verdict | None, float]:
        life = job.life
        if not life.faults:
            return None, 0.0
        known = self._verdicts.get(job.job_id)
        if known is None or known[0] != life.faults:
            # Attempts are large; a job's verdict stays until it breaks again.
            attempts = self.store.attempts(job.job_id)
            broken = broken_attempts(attempts)
            verdict = judge(broken, self.settings.limits(life.max_restarts)) if broken else None
            stopped_s = max((each.stopped_s or 0.0 for each in attempts if each.cause), default=0.0)
            known = (life.faults, verdict, stopped_s)
            self._verdicts[job.job_id] = known
        return known[1], known[2]

    def note(
        self,
        kind: str,
        message: str,
        *,
        job_id: str | None = None,
        attempt: int | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Write something that changes no state into the history."""
        self.store.add_event(
            kind, message, now_s=self.now_s(), job_id=job_id, attempt=attempt, data=data
        )
        self.changed()

    def changed(self) -> None:
        """Wake the scheduling loop and every client that waits."""
        self.wake.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` has become true within `timeout_s`; looked at after each change."""
        give_up = time.monotonic() + timeout_s
        while not condition():
            left_s = give_up - time.monotonic()
            if left_s <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
        return True
