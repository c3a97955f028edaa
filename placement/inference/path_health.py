"""The state of one path, as its re-probes come in."""

from __future__ import annotations

import statistics
from collections import deque
from itertools import takewhile

from .health import Health, HealthRules, Symptom

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal over its median absolute deviation."""


class Series:
    """One quantity of a path against its own past; more is better.

    Invariant: `_past` holds only samples that were not low; `_usual` and `_least` are of it.
    """

    def __init__(self, rules: HealthRules) -> None:
        self._rules = rules
        self._past: deque[float] = deque(maxlen=rules.history)
        self._newest: deque[tuple[float, float, bool]] = deque(maxlen=rules.window)
        self._usual: float | None = None
        self._least = 0.0
        self.since_s: float | None = None

    @property
    def bad(self) -> bool:
        """Whether the quantity counts as degraded."""
        return self.since_s is not None

    @property
    def usual(self) -> float | None:
        """The median of the past; None while it is being learned."""
        return self._usual

    @property
    def newest(self) -> float | None:
        """The median of the newest samples; None where there are fewer than half a window."""
        values = [value for _, value, _ in self._newest]
        return statistics.median(values) if 2 * len(values) >= self._rules.window else None

    @property
    def factor(self) -> float:
        """The bad samples of the window over what is usual; 1 where nothing is bad."""
        usual = self.usual
        bad = [value for _, value, bad in self._newest if bad]
        return statistics.median(bad) / usual if usual and bad else 1.0

    def add(self, value: float, at_s: float, peers: float) -> None:
        """Take in a sample. peers: the ratio of paths like this to their own past, by now."""
        low = value < self._least
        bad = low and value < self._least * peers
        self._newest.append((at_s, value, bad))
        # What is low along with its peers is no fault, but not what is usual either.
        if not low:
            self._learn(value)
        count = sum(bad for *_, bad in self._newest)
        if self.bad and count <= self._rules.better:
            self.since_s = None
        elif not self.bad and count >= self._rules.worse:
            self.since_s = next(at for at, _, bad in self._newest if bad)

    def _learn(self, value: float) -> None:
        self._past.append(value)
        if len(self._past) < self._rules.learn:
            return
        usual = self._usual = statistics.median(self._past)
        off = statistics.median(abs(each - usual) for each in self._past)
        change = max(self._rules.least_change, self._rules.spreads * _NORMAL_MAD * off / usual)
        self._least = (1 - change) * usual


class PathHealth:
    """One path: bandwidth and speed of round trips (1/s) against their past, and losses.

    The table of states: UP or DOWN by `down` losses or successes in a row; FLAPPING instead of
    either while there were `flaps` such changes in the last flap_window_s; DEGRADED when up and a
    quantity is bad, or losses are many; WELL otherwise.
    """

    def __init__(self, rules: HealthRules) -> None:
        self._rules = rules
        self.series = {"bandwidth": Series(rules), "speed": Series(rules)}
        length = max(rules.window, rules.down)
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=length)
        self._down_since_s: float | None = None
        self._lossy_since_s: float | None = None
        self._changes: deque[float] = deque(maxlen=rules.flaps)

    def add_outcome(self, at_s: float, lost: bool) -> None:
        """A re-probe got through, or not."""
        rules = self._rules
        self._outcomes.append((at_s, lost))
        newest = list(self._outcomes)
        run = list(takewhile(lambda each: each[1] == lost, reversed(newest)))
        if len(run) >= rules.down and lost != (self._down_since_s is not None):
            self._down_since_s = run[-1][0] if lost else None
            self._changes.append(at_s)
        losses = [at for at, was_lost in newest[-rules.window :] if was_lost]
        if self._lossy_since_s is None and len(losses) >= rules.worse:
            self._lossy_since_s = losses[0]
        elif self._lossy_since_s is not None and len(losses) <= rules.better:
            self._lossy_since_s = None

    def state(self, now_s: float) -> tuple[Health, Symptom, float, float]:
        """The state, what shows it, since when, and the factor that is left."""
        rules = self._rules
        recent = [at for at in self._changes if now_s - at <= rules.flap_window_s]
        if len(recent) >= rules.flaps:
            return Health.FLAPPING, Symptom.LOSS, recent[0], self._through
        if self._down_since_s is not None:
            return Health.DOWN, Symptom.LOSS, self._down_since_s, 0.0
        rate, speed = self.series["bandwidth"], self.series["speed"]
        if rate.since_s is not None:
            return Health.DEGRADED, Symptom.BANDWIDTH, rate.since_s, rate.factor
        if self._lossy_since_s is not None:
            return Health.DEGRADED, Symptom.LOSS, self._lossy_since_s, self._through
        if speed.since_s is not None:
            return Health.DEGRADED, Symptom.LATENCY, speed.since_s, speed.factor
        return Health.WELL, Symptom.BANDWIDTH, now_s, 1.0

    @property
    def _through(self) -> float:
        lost = [was_lost for _, was_lost in self._outcomes]
        return 1 - sum(lost) / max(1, len(lost))
