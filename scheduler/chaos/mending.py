"""What has to be mended after a run of faults: in time, or in the end at the latest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from ...agents.attempt import Refused
from .reach import OutOfReach, Reach

LOOK_S = 0.2
_MEND_S = 60.0
_AGAIN_S = 2.0


class Mends:
    """What is broken now and how it is mended. Safe to use from many threads.

    unmended: after `close`, why something is not mended.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._stack = ExitStack()
        self.unmended: list[str] = []

    def close(self) -> None:
        """Mend everything, what was broken last first."""
        self._stack.close()

    def later(self, after_s: float, mend: Callable[[], None]) -> None:
        """Mend something after a time, or in the end if that is earlier; again where it failed."""
        mending, mended, ended = threading.Lock(), threading.Event(), threading.Event()

        def attempt() -> str:
            with mending:
                if mended.is_set():
                    return ""
                try:
                    mend()
                except (RuntimeError, OSError, LookupError, OutOfReach) as error:
                    return str(error)
                mended.set()
                return ""

        def in_time() -> None:
            ended.wait(after_s)
            # A machine that is too busy to start a node now may do so later.
            while not ended.is_set() and attempt():
                ended.wait(_AGAIN_S)

        thread = threading.Thread(target=in_time, name="chaos-mend")
        thread.start()

        def in_the_end() -> None:
            ended.set()
            thread.join()
            if why := attempt():
                self.unmended.append(why)

        self._stack.callback(in_the_end)

    def held(self, node: str, pid: int, start_ticks: int, until_s: float) -> None:
        """In the end have a hold of a node mend, unless its time is over by then."""
        self._stack.callback(self._mend_hold, node, pid, start_ticks, until_s)

    def in_the_end(self, node: str, act: str) -> None:
        """In the end have a node's agent do something that mends."""
        self._stack.callback(self._quietly, node, act)

    def _mend_hold(self, node: str, pid: int, start_ticks: int, until_s: float) -> None:
        """Have a hold mend; where its node cannot be asked, it mends when its time is over."""
        give_up = time.monotonic() + min(_MEND_S, max(0.0, until_s - time.time()) + 5.0)
        while time.time() < until_s and time.monotonic() < give_up:
            if self._quietly(node, "mend", pid=pid, start_ticks=start_ticks):
                return
            time.sleep(LOOK_S)

    def _quietly(self, node: str, act: str, **arguments: Any) -> bool:
        with suppress(OutOfReach, Refused):
            return bool(self._reach.break_on(node, act, **arguments)["mended"])
        return False
