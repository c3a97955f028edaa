"""The state of one path, as its re-probes come in."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from .health import Health, HealthRules, Symptom

_NORMAL_MAD = 1.4826
"""Standard deviation of a normal over its median absolute deviation."""
_DIGITS = 5
"""Digits of what is kept of a sample; more would be noise."""
BANDWIDTH, SPEED, ARRIVAL = "bandwidth", "speed", "arrival"
"""The quantities of a path: bytes/s, round trips a second, and what of its segments arrives."""
_LEAST_LOSS = 0.02
"""Losses are told apart in proportion to this: with it, usual 0 and a least change of 20 %, half a
percent counts; below, a connection that fills its own queue loses as much."""


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
        return self.worst / usual if usual and any(bad for *_, bad in self._newest) else 1.0

    @property
    def worst(self) -> float:
        """The median of the bad samples of the window; of all where none is bad."""
        bad = [value for _, value, bad in self._newest if bad]
        return statistics.median(bad or [value for _, value, _ in self._newest])

    def to_data(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        return {
            "past": [_rounded(value) for value in self._past],
            "newest": [[at_s, _rounded(value), bad] for at_s, value, bad in self._newest],
            "since_s": self.since_s,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Be as the series was that gave this data. Raises ValueError, TypeError, KeyError."""
        self._past.extend(float(value) for value in data["past"])
        self._newest.extend(
            (float(at), float(value), bool(bad)) for at, value, bad in data["newest"]
        )
        self.since_s = None if data["since_s"] is None else float(data["since_s"])
        self._judge_past()

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
        self._judge_past()

    def _judge_past(self) -> None:
        if len(self._past) < self._rules.learn:
            return
        usual = self._usual = statistics.median(self._past)
        off = statistics.median(abs(each - usual) for each in self._past)
        change = max(self._rules.least_change, self._rules.spreads * _NORMAL_MAD * off / usual)
        self._least = (1 - change) * usual


class PathHealth:
    """One path: bandwidth, speed of round trips and arrivals against their past, and lost probes.

    The table of states: UP or DOWN by `down` losses or successes in a row; FLAPPING instead of
    either while there were `flaps` such changes in the last flap_window_s; DEGRADED when up and a
    quantity is bad, or losses are many; WELL otherwise. A path on which no probe has ever come
    through, as behind a firewall, is not judged.
    """

    def __init__(self, rules: HealthRules) -> None:
        self._rules = rules
        self.series = {name: Series(rules) for name in (BANDWIDTH, SPEED, ARRIVAL)}
        length = max(rules.window, rules.down)
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=length)
        self._reached = False
        self._down_since_s: float | None = None
        self._lossy_since_s: float | None = None
        self._changes: deque[float] = deque(maxlen=rules.flaps)

    def to_data(self) -> dict[str, Any]:
        """What `restore` needs, as plain data."""
        return {
            "series": {name: series.to_data() for name, series in self.series.items()},
            "outcomes": [list(each) for each in self._outcomes],
            "reached": self._reached,
            "down_since_s": self._down_since_s,
            "lossy_since_s": self._lossy_since_s,
            "changes": list(self._changes),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Be as the path was that gave this data. Raises ValueError, TypeError, KeyError."""
        for name, series in self.series.items():
            series.restore(data["series"][name])
        self._outcomes.extend((float(at_s), bool(lost)) for at_s, lost in data["outcomes"])
        self._reached = bool(data["reached"])
        self._down_since_s = data["down_since_s"]
        self._lossy_since_s = data["lossy_since_s"]
        self._changes.extend(float(at_s) for at_s in data["changes"])

    def add_outcome(self, at_s: float, lost: bool) -> None:
        """A re-probe got through, or not."""
        rules = self._rules
        self._reached |= not lost
        if not self._reached:
            return
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
        rate, speed, arrival = (self.series[name] for name in (BANDWIDTH, SPEED, ARRIVAL))
        if rate.since_s is not None:
            return Health.DEGRADED, Symptom.BANDWIDTH, rate.since_s, rate.factor
        if self._lossy_since_s is not None:
            return Health.DEGRADED, Symptom.LOSS, self._lossy_since_s, self._through
        if arrival.since_s is not None:
            return Health.DEGRADED, Symptom.LOSS, arrival.since_s, arrived(arrival.worst)
        if speed.since_s is not None:
            return Health.DEGRADED, Symptom.LATENCY, speed.since_s, speed.factor
        return Health.WELL, Symptom.BANDWIDTH, now_s, 1.0

    @property
    def _through(self) -> float:
        lost = [was_lost for _, was_lost in self._outcomes]
        return 1 - sum(lost) / max(1, len(lost))


def arrival_of(loss: float) -> float:
    """The quantity of a path that loses this part of its segments; more is better."""
    return 1 / (loss + _LEAST_LOSS)


def arrived(arrival: float) -> float:
    """The part of segments that arrives where `arrival_of` gave this."""
    return min(1.0, 1 - (1 / arrival - _LEAST_LOSS))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
