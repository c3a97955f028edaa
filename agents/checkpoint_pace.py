"""How often to save: so that saving and what faults cost together take the least time. Pure.

The optimum is J. T. Daly's: "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 22 (2006), equation 37; its first term is J. W. Young's,
"A first order approximation to the optimum checkpoint interval", CACM 17 (1974).
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Final, Self

# 419 unexpected interruptions in 54 days on 16,384 GPUs: "The Llama 3 Herd of Models" (2024),
# section 3.3.4 and table 5.
DEVICE_MTBF_S: Final = 16384 * 54 * 86400 / 419
MTBF_VARIABLE: Final = "RAILWEAVE_MTBF_S"
_REMEMBERED = 16


def best_interval_s(cost_s: float, mtbf_s: float) -> float:
    """Seconds of training between two saves that lose the least time (Daly 2006).

    cost_s: how long a save keeps training waiting. mtbf_s: mean time between faults of the job.
    Raises ValueError for numbers that are not positive.
    """
    if not (cost_s > 0 and mtbf_s > 0):
        raise ValueError(
            f"a save of {cost_s} s and {mtbf_s} s between faults; both must be above 0"
        )
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    young_s = math.sqrt(2 * cost_s * mtbf_s)
    return young_s * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost_s


def mtbf_s(devices: int, faults: int = 0, run_s: float = 0.0) -> float:
    """Mean time between faults of a job, from what is known of devices and what it has seen.

    Known beforehand counts as one fault after the mean time that is expected of so many devices
    (a gamma prior of weight one); each fault in `run_s` of running shifts it.
    """
    if devices < 1 or faults < 0 or run_s < 0:
        raise ValueError(f"{devices} devices, {faults} faults, {run_s} s make no sense")
    return (DEVICE_MTBF_S / devices + run_s) / (1 + faults)


class Pace:
    """When the next save is due, as step times and the cost of saving become known.

    mtbf_s: mean time between faults. every_steps: instead of all this, a fixed number. longest_s:
    never more training than that is at stake. first_steps: the first save comes after so many
    steps, because until then its cost is not known.
    """

    def __init__(
        self,
        mtbf_s: float = DEVICE_MTBF_S,
        *,
        every_steps: int | None = None,
        longest_s: float = 3600.0,
        first_steps: int = 10,
    ) -> None:
        if every_steps is not None and every_steps < 1:
            raise ValueError(f"every_steps is {every_steps}; it must be at least 1, or None")
        if not (mtbf_s > 0 and longest_s > 0 and first_steps >= 1):
            raise ValueError(
                f"mtbf_s {mtbf_s}, longest_s {longest_s} and first_steps {first_steps} must all "
                "be above 0"
            )
        self.mtbf_s = mtbf_s
        self.every_steps = every_steps
        self.longest_s = longest_s
        self.first_steps = first_steps
        self._steps_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._stalls_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._writes_s: deque[float] = deque(maxlen=_REMEMBERED)
        self._last_s: float | None = None

    @classmethod
    def for_job(cls, world_size: int, told_mtbf_s: str = "") -> Self:
        """For a job of so many ranks, with the mean time between faults that Railweave tells."""
        try:
            told = float(told_mtbf_s)
        except ValueError:
            told = math.nan
        return cls(told if told > 0 and math.isfinite(told) else mtbf_s(world_size))

    def stepped(self, now_s: float) -> None:
        """A step has ended, by a clock that only goes forward."""
        if self._last_s is not None:
            self._steps_s.append(max(0.0, now_s - self._last_s))
        self._last_s = now_s

    def stalled(self, stall_s: float) -> None:
        """A save kept training waiting for so long, which the step's time is not to contain."""
        self._stalls_s.append(stall_s)
        if self._last_s is not None:
            self._last_s += stall_s

    def wrote(self, took_s: float) -> None:
        """A save was written, or whole, after so long."""
        self._writes_s.append(took_s)

    @property
    def interval_s(self) -> float | None:
        """Seconds of training between saves; None while the cost of saving is not known.

        Never shorter than writing takes, so that one save is done before the next.
        """
        if not self._stalls_s:
            return None
        # The waits are the pace's own doing, and the smallest stall has the least of them.
        cost_s = max(min(self._stalls_s), 1e-6)
        written_s = median(self._writes_s) if self._writes_s else 0.0
        return max(min(best_interval_s(cost_s, self.mtbf_s), self.longest_s), written_s)

    def steps_until_next(self) -> int:
        """After how many steps, counting the one that has just ended, to save next."""
        if self.every_steps is not None:
            return self.every_steps
        interval_s = self.interval_s
        if interval_s is None or not self._steps_s:
            return self.first_steps
        return max(1, round(interval_s / max(median(self._steps_s), 1e-6)))
