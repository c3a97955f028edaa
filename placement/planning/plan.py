"""Planning a training: the one function that users call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..cluster import Cluster
from ..cost import Estimator
from ..errors import Infeasible, InvalidInput, Problem
from ..explained import shown
from ..jobs.search_limits import check_search
from ..models import Model
from ..strategies.cluster_rules import check
from ..workload import Parallelism, Precision, Workload
from .baselines import Baseline, baselines
from .ground import domain_sizes, free_devices, of_kinds
from .limits import Limits
from .neighbours import neighbours
from .planned import Plan, PlannedStrategy, RuleOfThumb
from .search import Strategy
from .searched import Ground, last_s, searched_on_kind, searched_on_kinds, sets_of_kinds
from .seats import Seated, seat, seat_in_order
from .shortage import shortage_text
from .space import Space
from .task import Task
from .why import memory_text, why_slower

PLACED_OF_EACH_PLAN = 5
"""So many of the best strategies are placed by the solver, the rest on free devices in order."""
PLACED_OF_LARGE_PLANS = 2
MOST_RANKS_OF_SMALL_PLANS = 4096
"""Above, fewer are placed, and rules of thumb not: a placement takes seconds."""
MOST_DEVICES_MIXED = 64
"""Up to so many free devices pipelines over several kinds are considered unasked."""
_NEARLY_FULL = 0.92
_FIXED = ("model", "parallelism", "global_batch", "micro_batch", "sequence", "recompute")


def plan(
    model: Model,
    cluster: Cluster,
    *,
    global_batch: int,
    sequence: int | None = None,
    precision: Precision = "bf16",
    devices: int | None = None,
    limits: Limits | None = None,
    keep: int = 10,
    time_limit_s: float = 2.0,
    seed: int = 0,
    training: Mapping[str, Any] | None = None,
    mix_kinds: bool | None = None,
) -> Plan:
    """The fastest ways to split a training over a cluster, with their placements.

    Every strategy within the limits that satisfies the rules and fits is considered; none that is
    predicted faster on the free devices in order is left out. The best few are then placed on the
    cluster as it is and predicted there.

    sequence: tokens a sample, the model's own by default. devices: how many to use; by default all
    that are free, or fewer where that is faster: of up to 64 free devices every number is tried, of
    more a few smaller ones where numbers of nodes do not divide well, and all of them where no
    strategy uses all devices. keep: strategies told, each with other degrees. time_limit_s: of the
    solver, for all that it places. training: other fields of `Workload`, alike in all strategies.
    mix_kinds: where a cluster has several kinds of accelerator, pipelines over two or more of them
    are considered besides strategies on one, with as many layers on a stage as its kind's speed and
    memory allow; by default up to 64 free devices.

    The same arguments give the same plan. Raises InvalidInput for what no strategy could satisfy,
    Infeasible where nothing fits, with the memory that is short and the nearest thing that fits.
    """
    _check(model, cluster, limits, training, {"devices": devices, "keep": keep})
    check_search("plan", time_limit_s, seed)
    limits = limits or Limits()
    task = _task(model, global_batch, sequence, precision, training or {})
    room = free_devices(cluster)
    _check_room(room.total(), devices)
    searched = [
        ground
        for kind in sorted(room)
        if devices is None or room[kind] >= devices
        for ground in searched_on_kind(task, limits, of_kinds(cluster, [kind]), devices, keep)
    ]
    if mix_kinds is None:
        mix_kinds = room.total() <= MOST_DEVICES_MIXED
    if mix_kinds and devices is None:
        for kinds in sets_of_kinds(room):
            searched += searched_on_kinds(task, limits, of_kinds(cluster, kinds), keep, searched)
    if not searched:
        most = ", ".join(f"{count} {kind}" for kind, count in sorted(room.items()))
        raise Infeasible(
            f"plan: {devices} devices of one kind on cluster {cluster.name!r}: {most} are free"
        )
    if not any(ground.outcome.best for ground in searched):
        texts = [
            shortage_text(task, limits, of_kinds(cluster, [kind]), devices or room[kind])
            for kind in sorted(room)
            if devices is None or room[kind] >= devices
        ]
        raise Infeasible("plan: " + "\n".join(texts))
    return _Planner(cluster, searched, devices, keep, time_limit_s, seed).plan()


def _task(
    model: Model,
    global_batch: int,
    sequence: int | None,
    precision: Precision,
    training: Mapping[str, Any],
) -> Task:
    """The task, its fields checked as those of the plainest workload. Raises InvalidInput."""
    own = (*_FIXED, "precision")
    unknown = [name for name in training if name not in Workload.model_fields or name in own]
    if unknown:
        known = sorted(set(Workload.model_fields) - set(own))
        fix = f"use {', '.join(known)}"
        raise InvalidInput(
            "plan",
            [Problem(f"training.{name}", "not a field of training", fix) for name in unknown],
        )
    plain = Workload(
        model=model,
        parallelism=Parallelism(),
        global_batch=global_batch,
        sequence=sequence,
        precision=precision,
        **training,
    )
    common = {name: getattr(plain, name) for name in Workload.model_fields if name not in _FIXED}
    return Task(model, plain.global_batch, plain.sequence, common)


def _check(
    model: object,
    cluster: object,
    limits: object,
    training: object,
    counts: Mapping[str, object],
) -> None:
    """Refuse what is not of the kind that is asked for: InvalidInput that lists all of it."""
    problems = [
        Problem(name, f"found {shown(value)}", f"give {what}")
        for name, value, kind, what in (
            ("model", model, Model, "a Model"),
            ("cluster", cluster, Cluster, "a Cluster"),
            ("limits", limits, Limits | None, "Limits, or leave it out"),
            ("training", training, Mapping | None, "fields of Workload by name"),
        )
        if not isinstance(value, kind)
    ]
    for name, value in counts.items():
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not whole and not (name == "devices" and value is None):
            problems.append(Problem(name, f"found {shown(value)}", "give a whole number from 1"))
    if problems:
        raise InvalidInput("plan", problems)


def _check_room(free: int, devices: int | None) -> None:
    if not free or (devices or 0) > free:
        raise Infeasible(f"plan: {devices or 1} devices asked for, {free} are free")


class _Planner:
    """Places what was found, ranks it and says why."""

    def __init__(
        self,
        cluster: Cluster,
        grounds: list[Ground],
        devices: int | None,
        keep: int,
        time_limit_s: float,
        seed: int,
    ) -> None:
        self._cluster, self._grounds = cluster, grounds
        self._devices, self._keep, self._seed = devices, keep, seed
        found = [(one, ground) for ground in grounds for one in ground.outcome.best]
        self._found = sorted(found, key=lambda pair: pair[0].rank)[:keep]
        alone = [ground for ground in grounds if not ground.mixed]
        self._ground = min(alone or grounds, key=lambda one: last_s([one], 1))
        ranks = self._found[0][0].workload.parallelism.world_size
        self._large = ranks > MOST_RANKS_OF_SMALL_PLANS
        self._placed = PLACED_OF_LARGE_PLANS if self._large else PLACED_OF_EACH_PLAN
        self._each_s = time_limit_s / (self._placed + 2)
        self._several = len(free_devices(cluster)) > 1

    def plan(self) -> Plan:
        ground = self._ground
        rules = baselines(ground.space, ground.estimator, ground.island)
        ranked = [
            (self._seated(one, here, position < self._placed), one, here)
            for position, (one, here) in enumerate(self._found)
        ]
        thumbs = [
            (self._seated(rule.strategy, ground, not self._large), rule.strategy, rule)
            for rule in rules
            if rule.strategy is not None and rule.fits
        ]
        inside = [(seated, one, ground) for seated, one, _ in thumbs if self._allowed(ground, one)]
        fastest: dict[Any, tuple[Seated, Strategy, Ground]] = {}
        for entry in sorted([*ranked, *inside], key=lambda entry: _order(entry[0])):
            kinds = tuple(need.accelerator for need in entry[0].requires)
            fastest.setdefault((entry[1].degrees, kinds), entry)
        ranked = list(fastest.values())[: self._keep]
        best, strategy, ground = ranked[0]
        strategies = [self._told(best, rules, "")]
        for seated, _, _ in ranked[1:]:
            strategies.append(self._told(seated, rules, why_slower(seated.estimate, best.estimate)))
        counts: dict[str, int] = {}
        for one in self._grounds:
            for name, count in one.outcome.tally.to_data().items():
                counts[name] = counts.get(name, 0) + count
        return Plan(
            strategies=tuple(strategies),
            rules_of_thumb=tuple(self._rule(rule, thumbs, best) for rule in rules),
            neighbours=neighbours(
                ground.space, ground.estimator, strategy, ground.island, degrees=not ground.mixed
            ),
            considered=counts,
            points=tuple(point for one in self._grounds for point in one.outcome.points),
            notes=(*self._notes(strategies), *_findings(best.workload, ground)),
            free_devices=free_devices(self._cluster).total(),
            cluster_name=self._cluster.name,
            spine=self._cluster.spine,
        )

    def _seated(self, one: Strategy, ground: Ground, placed: bool) -> Seated:
        order = ground.devices(one.workload)
        requires = ground.requires(one.workload) if self._several else ()
        if not placed:
            return seat_in_order(one.workload, ground.cluster, ground.estimator, order, requires)
        limit_s, seed = self._each_s, self._seed
        return seat(one.workload, ground.cluster, ground.estimator, limit_s, seed, order, requires)

    def _allowed(self, ground: Ground, one: Strategy) -> bool:
        """Whether a rule of thumb's choice, which may use fewer devices, is within the limits."""
        count = one.workload.parallelism.world_size
        if self._devices is not None and count != self._devices:
            return False
        space, cluster = ground.space, ground.cluster
        same = Space(space.task, space.limits, [count], ground.island, domain_sizes(cluster))
        return same.holds(one.shape, one.sharing)

    def _told(self, seated: Seated, rules: list[Baseline], why: str) -> PlannedStrategy:
        names = [
            rule.name
            for rule in rules
            if rule.strategy is not None and rule.strategy.workload == seated.workload
        ]
        return PlannedStrategy(
            workload=Workload.model_validate(seated.workload),
            estimate=seated.estimate,
            placement=seated.placement,
            in_order_s=seated.in_order_s,
            placed=seated.placed,
            why=why,
            name=" and ".join(names),
            requires=seated.requires,
        )

    def _rule(
        self, rule: Baseline, thumbs: list[tuple[Seated, Strategy, Baseline]], best: Seated
    ) -> RuleOfThumb:
        for seated, _, other in thumbs:
            if other is rule:
                told = self._told(seated, [], why_slower(seated.estimate, best.estimate))
                times = seated.estimate.step_s / best.estimate.step_s
                return RuleOfThumb(rule.name, replace(told, name=rule.name), "", times)
        if rule.strategy is None:
            return RuleOfThumb(rule.name, None, rule.problem.found if rule.problem else "")
        share = self._ground.space.limits.memory_share
        return RuleOfThumb(rule.name, None, memory_text(rule.strategy.estimate, share))

    def _notes(self, strategies: list[PlannedStrategy]) -> list[str]:
        notes = []
        best = strategies[0].estimate
        free = free_devices(self._cluster).total()
        if self._devices is None and best.devices < free and not self._several:
            notes.append(f"the best uses {best.devices} of the {free} free devices")
        filled = best.memory_bytes / best.memory_limit_bytes
        if filled > _NEARLY_FULL:
            notes.append(
                f"the best fills {filled:.1%} of a device's memory, and predictions may be a tenth "
                "off: a memory_share of 0.9 leaves room"
            )
        programs = sorted({one.estimate.software for one in strategies})
        if "megatron-2021" in programs and len(programs) > 1:
            notes.append(
                f"strategies are predicted for different programs ({', '.join(programs)}); "
                "give software to compare like with like"
            )
        if self._several:
            kinds = sorted({need.accelerator for need in strategies[0].requires})
            of = len(free_devices(self._cluster))
            notes.append(f"of {of} kinds of accelerator the best uses {' and '.join(kinds)}")
            if self._devices is None and not any(ground.mixed for ground in self._grounds):
                notes.append("pipelines over several kinds were not considered: see mix_kinds")
        return notes


def _findings(workload: Workload, ground: Ground) -> list[str]:
    """What is unwise about a strategy without being forbidden."""
    if not isinstance(ground.estimator, Estimator):
        return []
    return [str(found.problem) for found in check(workload, ground.cluster, ground.estimator)]


def _order(seated: Seated) -> tuple[float, float, float]:
    found = seated.estimate
    return found.step_s, seated.placement.cross_spine_bytes, found.memory_bytes
