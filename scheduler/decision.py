"""What to do where an attempt cannot go on as it was: wait, go on with fewer, or grow again. Pure.

All costs are in seconds of training at full size that are lost. While k of n devices work, k/n of
the training is done; a start costs its own time whatever the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Choice(StrEnum):
    """What is done."""

    WAIT = "wait"
    """Nothing runs until enough devices are back: a node that only reboots is soon there again."""
    SHRINK = "shrink"
    """The job goes on with fewer devices now, and with all of them once they are back."""
    MOVE = "move"
    """The job starts at once on other devices, where each of its steps takes longer."""
    GROW = "grow"
    """A job that goes on with fewer devices is stopped and started with all of them."""
    STAY = "stay"
    """A job that goes on with fewer devices is left alone: growing costs more than it brings."""


@dataclass(frozen=True)
class Option:
    """One thing that can be done. devices: that would work meanwhile. cost_s: what is lost."""

    choice: Choice
    devices: int
    cost_s: float


@dataclass(frozen=True)
class Decision:
    """The cheapest option, and all of them with what they were reckoned from."""

    chosen: Option
    options: tuple[Option, ...]
    numbers: dict[str, float]

    def to_data(self) -> dict[str, Any]:
        """The decision with its numbers, for the job's history."""
        return {
            "choice": self.chosen.choice.value,
            "devices": self.chosen.devices,
            "options": [[o.choice.value, o.devices, round(o.cost_s, 1)] for o in self.options],
            **{name: _rounded(value) for name, value in self.numbers.items()},
        }

    def __str__(self) -> str:
        told = ", ".join(
            f"{o.choice} with {o.devices} devices {o.cost_s:.0f} s" for o in self.options
        )
        return f"{self.chosen.choice}: of what can be done costs {told}"


def _rounded(value: float) -> float:
    """To tenths, or to three digits where that would be nothing, as for a part of a step."""
    return round(value, 1) if abs(value) >= 10 else float(f"{value:.3g}")


def without_devices(
    full: int,
    sizes: Sequence[int],
    free: int,
    *,
    refused: int | None = None,
    back_s: float,
    start_s: float,
    lost_steps_s: float,
) -> Decision:
    """What to do with a job of `full` devices of which only `free` are to be had.

    sizes: numbers of devices that it can run with. refused: from how many on there is no placement
    on those that are free, though they are enough. back_s: until all are expected to be back.
    start_s: from a launch to its first step. lost_steps_s: what is done again when it grows.
    """
    options = [Option(Choice.WAIT, 0, back_s + start_s)]
    most = min(free, full - 1, full if refused is None else refused - 1)
    fits = [size for size in sizes if 0 < size <= most]
    if fits:
        size = max(fits)
        working_s = max(0.0, back_s - start_s)
        idle_s = min(back_s, start_s)
        cost_s = idle_s + working_s * (1 - size / full) + lost_steps_s + start_s
        options.append(Option(Choice.SHRINK, size, cost_s))
    numbers = {
        "full": full,
        "free": free,
        **({} if refused is None else {"refused": refused}),
        "back_s": back_s,
        "start_s": start_s,
        "lost_steps_s": lost_steps_s,
    }
    return Decision(min(options, key=lambda o: o.cost_s), tuple(options), numbers)


def move_or_wait(
    full: int,
    *,
    back_s: float,
    start_s: float,
    horizon_s: float,
    step_s: float,
    slower_s: float,
) -> Decision:
    """Whether to start at once on other devices, or when those of before are there again.

    back_s: until that is expected. horizon_s: for how long the job stays where it starts, as until
    its next fault. step_s: what a step took before; slower_s: by how much it is predicted to take
    longer on the others.
    """
    wait = Option(Choice.WAIT, 0, back_s + start_s)
    lost = slower_s / (step_s + slower_s)
    move = Option(Choice.MOVE, full, start_s + horizon_s * lost)
    numbers = {
        "full": full,
        "back_s": back_s,
        "start_s": start_s,
        "horizon_s": horizon_s,
        "step_s": step_s,
        "slower_s": slower_s,
    }
    return Decision(min((move, wait), key=lambda o: o.cost_s), (move, wait), numbers)


def with_devices_back(
    full: int, now: int, *, horizon_s: float, start_s: float, lost_steps_s: float
) -> Decision:
    """What to do with a job that runs on `now` of its `full` devices when all can be had.

    horizon_s: for how long what is decided is expected to last, as until the next fault.
    """
    stay = Option(Choice.STAY, now, horizon_s * (1 - now / full))
    grow = Option(Choice.GROW, full, min(start_s + lost_steps_s, horizon_s))
    numbers = {
        "full": full,
        "now": now,
        "horizon_s": horizon_s,
        "start_s": start_s,
        "lost_steps_s": lost_steps_s,
    }
    return Decision(min((stay, grow), key=lambda o: o.cost_s), (stay, grow), numbers)


def expected_back_s(absences_s: Sequence[float], away_s: float, unknown_s: float) -> float:
    """How long a node that has been away for `away_s` is expected to stay away still.

    absences_s: how long nodes were away before; unknown_s: what is reckoned with where none was.
    Once it is away for longer than usual, as long again is expected as it has been away already:
    what has lasted long lasts longer (Gott, Nature 363, 1993).
    """
    usual_s = sorted(absences_s)[len(absences_s) // 2] if absences_s else unknown_s
    return usual_s - away_s if away_s < usual_s else away_s
