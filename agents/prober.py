"""Probing a cluster round by round, within what an operator allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from pydantic import Field

from ..placement.explained import Explained
from ..placement.inference.measurements import Measurement, Pair, ProbeKind, ProbeRound
from .netprobe import Budget, Opening
from .probe_end import PairProbe, ProbeOrder

Answer = TypeVar("Answer")

_ANSWER_S = 10.0
_BULK_PINGS = 1

Progress = Callable[[int, str], None]
"""Called with the number of rounds done and a line for people."""


class ProbeSettings(Explained):
    """What probing may do and cost.

    transfer_bytes, transfer_s: of one connection in one direction, whichever is used up first.
    pings: round trips of a probe of latency. paths: from how many source ports the path of a pair
    is traced where paths are probed; each path found is then measured apart. rails: whose NICs are
    probed, one after another.
    budget_bytes: of the whole probing, both directions together; never exceeded. budget_s: after
    which no round is begun. rate_bytes_per_s: what a node may send and receive on average; rounds
    wait for it. rounds: at most so many. None sets no bound.
    include_busy: whether nodes that run jobs are probed as well.
    """

    transfer_bytes: int = Field(default=32 * 2**20, ge=1, le=2**36)
    transfer_s: float = Field(default=1.0, gt=0, le=60)
    pings: int = Field(default=20, ge=1, le=10_000)
    connect_s: float = Field(default=5.0, gt=0, le=60)
    paths: int = Field(default=0, ge=0, le=256)
    rails: tuple[int, ...] = Field(default=(0,), min_length=1)
    budget_bytes: int | None = Field(default=None, ge=0)
    budget_s: float | None = Field(default=None, gt=0)
    rate_bytes_per_s: float | None = Field(default=None, gt=0)
    rounds: int | None = Field(default=None, ge=1)
    include_busy: bool = False

    def order(self, kind: ProbeKind, rail: int = 0, traced: bool = False) -> ProbeOrder:
        """What is asked of the pairs of a round; of every path of theirs where `traced`."""
        return ProbeOrder(
            budget=Budget(
                transfer_bytes=0 if kind is ProbeKind.LATENCY else self.transfer_bytes,
                transfer_s=self.transfer_s,
                # Round trips beside the bulk data of other pairs say nothing of the network.
                pings=self.pings if kind is ProbeKind.LATENCY else _BULK_PINGS,
                connect_s=self.connect_s,
                # The way back may be another path; a traced one is measured in its own direction.
                both_ways=not traced,
            ),
            rail=rail,
            trace_ports=self.paths if traced else 0,
            each_path=traced,
        )


@dataclass(frozen=True)
class Answers(Generic[Answer]):
    """What nodes answered, and why the others did not.

    unanswered: those of the failures that are a node's, which did not take part, and not the
    network's.
    """

    found: dict[Pair, Answer] = field(default_factory=dict)
    failures: dict[Pair, str] = field(default_factory=dict)
    unanswered: set[Pair] = field(default_factory=set)

    def fail(self, pair: Pair, why: str, unanswered: bool) -> None:
        """Note why a pair has no answer."""
        self.failures[pair] = why
        if unanswered:
            self.unanswered.add(pair)


class Ends(Protocol):
    """The nodes' ends of probes, wherever they run. Every call comes back by its timeout."""

    def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        """Have the second node of each pair expect a probe."""
        ...

    def connect(
        self, orders: Mapping[Pair, tuple[Opening, ProbeOrder]], timeout_s: float
    ) -> Answers[PairProbe]:
        """Have the first node of each pair probe the second, all at the same time."""
        ...


class Planner(Protocol):
    """Says which pairs to probe next."""

    def next_round(self) -> ProbeRound | None:
        """The next round; None when nothing more is to be learned."""
        ...

    def add(self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float) -> None:
        """Take in what the round it gave last has measured."""
        ...


@dataclass
class Probed:
    """What a probing came to.

    left_alone: nodes that were not probed because they run jobs. stopped: why it ended before the
    planner had learned everything; empty otherwise. What is spent counts against the settings.
    """

    measurements: list[Measurement] = field(default_factory=list)
    rounds: int = 0
    moved_bytes: int = 0
    took_s: float = 0.0
    left_alone: set[str] = field(default_factory=set)
    stopped: str = ""


def probe(
    planner: Planner,
    ends: Ends,
    settings: ProbeSettings,
    *,
    traced: bool = False,
    after: Probed | None = None,
    busy: Callable[[], Collection[str]] = frozenset,
    progress: Progress = lambda *_: None,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Probed:
    """Run the planner's rounds until it is content or a bound of the settings is met.

    traced: whether every path of a pair is measured. after: a probing that this one goes on with,
    and whose costs count. busy: the nodes that run jobs, asked anew before every round.
    """
    probed = after or Probed()
    began_s = now_s() - probed.took_s
    while True:
        probed.took_s = now_s() - began_s
        probed.stopped = _bound_met(settings, probed)
        round_ = None if probed.stopped else planner.next_round()
        if round_ is None:
            break
        kept = round_.pairs
        if not settings.include_busy:
            occupied = set(busy())
            probed.left_alone |= {node for pair in kept for node in pair} & occupied
            kept = tuple(pair for pair in kept if not occupied.intersection(pair))
        order = settings.order(round_.kind, traced=traced)
        affordable = _affordable(settings, order, probed.moved_bytes)
        if affordable == 0 and kept:
            probed.stopped = f"another probe may exceed the {settings.budget_bytes} bytes allowed"
            break
        if affordable is not None:
            kept = kept[:affordable]
        what = f"{len(kept)} pairs of nodes for {'paths and ' if traced else ''}{round_.kind.value}"
        progress(probed.rounds, f"probing {what}")
        started_s = now_s()
        run = ProbeRound(round_.number, round_.kind, kept)
        found = run_round(run, ends, settings, traced)
        planner.add(round_, found, now_s() - started_s)
        probed.measurements += found
        probed.rounds += 1
        probed.moved_bytes += sum(each.moved_bytes for each in found)
        rest_s = _rest_s(settings, found, now_s() - started_s)
        if rest_s > 0:
            progress(probed.rounds, f"waiting {rest_s:.1f} s to keep to the rate allowed")
            pause(rest_s)
    lost = sum(each.lost is not None for each in probed.measurements)
    progress(
        probed.rounds,
        f"{len(probed.measurements) - lost} pairs measured, {lost} failed, "
        f"{probed.moved_bytes / 1e6:.1f} MB moved in {probed.took_s:.1f} s",
    )
    return probed


def run_round(
    round_: ProbeRound, ends: Ends, settings: ProbeSettings, traced: bool = False
) -> list[Measurement]:
    """Probe a round's pairs at the same time, rail after rail; failures are measurements, too."""
    found: list[Measurement] = []
    for rail in settings.rails:
        order = settings.order(round_.kind, rail, traced)
        expected = ends.listen(dict.fromkeys(round_.pairs, order), _ANSWER_S)
        asked = {pair: (opening, order) for pair, opening in expected.found.items()}
        probed = ends.connect(asked, order.deadline_s + _ANSWER_S)
        for pair in round_.pairs:
            about = _About(pair, rail if len(settings.rails) > 1 else None, round_)
            if pair in probed.found:
                found += about.measurements(probed.found[pair])
            else:
                why = expected.failures.get(pair) or probed.failures.get(pair)
                unanswered = pair in expected.unanswered | probed.unanswered
                found.append(about.lost(why or "no answer", unanswered=unanswered))
    return found


@dataclass(frozen=True)
class _About:
    """What all measurements of a pair in a round have in common."""

    pair: Pair
    rail: int | None
    round_: ProbeRound

    def lost(
        self, why: str, hops: tuple[str, ...] | None = None, unanswered: bool = False
    ) -> Measurement:
        return Measurement(**self._common(), lost=why, hops=hops, unanswered=unanswered)

    def measurements(self, probe: PairProbe) -> list[Measurement]:
        found = []
        for path in probe.paths:
            if path.measured is None:
                found.append(self.lost(path.lost, path.hops))
                continue
            left_out = {"pings", "took_s"}
            if self.round_.kind is not ProbeKind.LATENCY:
                left_out |= {"round_trip_min_s", "round_trip_median_s", "spread_s"}
            numbers = path.measured.model_dump(exclude=left_out)
            found.append(Measurement(**self._common(), **numbers, hops=path.hops))
        for hops in sorted({path.hops for path in probe.traced if not path.reached}):
            where = f"ends at {hops[-1]}" if hops else "ends before the first router"
            found.append(self.lost(f"a path of this pair {where}", hops))
        return found

    def _common(self) -> dict[str, object]:
        a, b = self.pair
        round_ = self.round_
        return {"a": a, "b": b, "rail": self.rail, "round": round_.number, "kind": round_.kind}


def _bound_met(settings: ProbeSettings, probed: Probed) -> str:
    if settings.rounds is not None and probed.rounds >= settings.rounds:
        return f"the {settings.rounds} rounds allowed are done"
    if settings.budget_s is not None and probed.took_s >= settings.budget_s:
        return f"the {settings.budget_s:g} s allowed are over"
    return ""


def _affordable(settings: ProbeSettings, order: ProbeOrder, moved_bytes: int) -> int | None:
    """How many pairs the budget allows for sure; None where there is no bound."""
    most = order.most_bytes * len(settings.rails)
    if settings.budget_bytes is None or most == 0:
        return None
    return max(0, settings.budget_bytes - moved_bytes) // most


def _rest_s(settings: ProbeSettings, found: Collection[Measurement], took_s: float) -> float:
    """How long to wait until no node of the round is above the rate allowed."""
    if settings.rate_bytes_per_s is None:
        return 0.0
    moved: dict[Pair, int] = {}
    for each in found:
        moved[each.pair] = moved.get(each.pair, 0) + each.moved_bytes
    return max(moved.values(), default=0) / settings.rate_bytes_per_s - took_s
