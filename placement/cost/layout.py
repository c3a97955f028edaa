"""A split laid on devices: where each kind of group lies, and what the devices there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ..accelerators import Accelerator
from ..cluster import Cluster, CrossRail
from ..strategies.grid import Family, Grid, sharded
from ..workload import Parallelism, Precision, Workload
from .axes import Axes, Axis, SplitAxes, cut, ends_of, groups_of, hops_of, joined
from .collective_time import Links
from .spans import ALONE, Ground, Ints, Span


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the groups of a split lie, each kind by its worst group.

    tp, cp: those groups. dp: ranks with the same parameters, over data and context parallelism;
    shard: those of them that share out their state, replicas: those with the same share.
    ep: ranks that exchange tokens for experts. etp: that share out an expert's matrices.
    expert_dp, expert_shard, expert_replicas: as dp, for experts. pp: ranks of neighbouring stages.
    ends: of the first and the last stage.
    kinds: accelerators of each stage; memory_bytes: of the smallest device of each; first_ranks:
    the least rank of each. links: what the devices see of the network. peaks: FLOP/s of all devices
    together, by precision. accelerators: devices of each kind: how many, and their numbers.
    inside, outside, kinds_number: numbers that are equal where spans inside a replica, spans
    across them, and kinds and links are.
    """

    tp: Span
    cp: Span
    dp: Span
    shard: Span
    replicas: Span
    ep: Span
    etp: Span
    expert_dp: Span
    expert_shard: Span
    expert_replicas: Span
    pp: Span
    ends: Span
    kinds: tuple[tuple[str, ...], ...]
    memory_bytes: tuple[int, ...]
    first_ranks: tuple[int, ...]
    links: Links
    peaks: dict[str, float]
    accelerators: dict[str, tuple[int, Accelerator]]
    power_w: float | None
    inside: int
    outside: int
    kinds_number: int

    def slowest(self, kinds: tuple[str, ...], precision: str) -> str:
        """The one of these kinds that has the lowest peak."""
        if len(kinds) == 1:
            return kinds[0]
        return min(kinds, key=lambda kind: self.accelerators[kind][1].peak_of(precision))


class Numbering:
    """Numbers for things, equal ones alike; what was forgotten gets another number."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, thing: Any) -> int:
        """The number of a thing."""
        found = self._known.get(thing)
        if found is None:
            found = self._known[thing] = self._next
            self._next += 1
        return found

    def forget(self) -> None:
        """Start anew, with numbers not given before: layouts at hand keep theirs."""
        self._known.clear()


class Layouts:
    """Lays splits on the first devices of a ground; what they have in common is worked out once."""

    def __init__(self, ground: Ground, cluster: Cluster, numbers: Numbering | None = None) -> None:
        """numbers: where several such objects number alike."""
        self.ground, self._cluster = ground, cluster
        self._numbers = Numbering() if numbers is None else numbers
        self._spans: dict[Any, Span] = {}
        self._links: dict[tuple[str, ...], Links] = {}

    def of(self, workload: Workload) -> Layout:
        """The layout of a workload."""
        split = workload.parallelism
        axes = SplitAxes(split, workload.rank_order)
        world, grid = split.world_size, _Later(workload)
        shard, replicas = self._shared(axes.dp, split.shard_size, world, lambda: grid.get().dp)
        expert_dp: Axes | None = None
        if axes.experts:
            expert_dp = joined([axes.expert_dp])
            ep, etp = self._along(joined([axes.ep]), world), self._along(joined([axes.etp]), world)
            edp = self._along(expert_dp, world)
        else:
            families = grid.get()
            ep, etp, edp = (
                self.ground.span_of(family.ranks)
                for family in (families.ep, families.etp, families.edp)
            )
        expert_shard, expert_replicas = self._shared(
            expert_dp, split.expert_shard_size, world, lambda: grid.get().edp
        )
        kinds = self._kinds(split, grid)
        used = tuple(sorted({kind for stage_kinds in kinds for kind in stage_kinds}))
        accelerators = self._accelerators(used, world)
        tp, cp = self._along(joined([axes.tp]), world), self._along(joined([axes.cp]), world)
        dp, ends = self._along(axes.dp, world), self._ends(axes.pp, world)
        pp = self._hops(axes.pp, world, split.virtual_pp > 1)
        links = self._links_of(used)
        dense, experts = (dp, shard, replicas), (edp, expert_shard, expert_replicas)
        return Layout(
            tp=tp,
            cp=cp,
            dp=dp,
            shard=shard,
            replicas=replicas,
            ep=ep,
            etp=etp,
            expert_dp=edp,
            expert_shard=expert_shard,
            expert_replicas=expert_replicas,
            pp=pp,
            ends=ends,
            kinds=kinds,
            memory_bytes=self._memory_bytes(kinds),
            first_ranks=tuple(range(0, split.pp * axes.pp.stride, axes.pp.stride)),
            links=links,
            peaks={
                precision: sum(
                    count * one.peak_of(precision) for count, one in accelerators.values()
                )
                for precision in get_args(Precision)
            },
            accelerators=accelerators,
            power_w=_mean_power_w(accelerators),
            inside=self._numbers.of((tp, cp, ep, etp, pp)),
            outside=self._numbers.of((dense, experts, ends)),
            kinds_number=self._numbers.of((kinds, links)),
        )

    def _along(self, axes: Axes, world: int) -> Span:
        if not axes:
            return ALONE
        return self._span((world, axes), lambda: groups_of(axes, world))

    def _hops(self, axis: Axis, world: int, closed: bool) -> Span:
        """The span of sends between neighbouring stages, each rank to its counterpart."""
        if axis.size == 1:
            return ALONE
        key = ("hops", world, axis, closed)
        return self._span(key, lambda: hops_of(axis, world, closed))

    def _ends(self, axis: Axis, world: int) -> Span:
        if axis.size == 1:
            return ALONE
        return self._span(("ends", world, axis), lambda: ends_of(axis, world))

    def _shared(
        self, axes: Axes | None, size: int, world: int, family: Callable[[], Family]
    ) -> tuple[Span, Span]:
        """Groups with the same parameters cut into shards, and the replicas of these."""
        parts = None if axes is None else cut(axes, size)
        if parts is not None:
            return self._along(parts[0], world), self._along(parts[1], world)
        shards, replicas = sharded(family(), size)
        return self.ground.span_of(shards.ranks), self.ground.span_of(replicas.ranks)

    def _span(self, key: Any, groups: Callable[[], Ints]) -> Span:
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = self.ground.span_of(groups())
        return found

    def _kinds(self, split: Parallelism, grid: _Later) -> tuple[tuple[str, ...], ...]:
        known = self.ground.accelerators
        if len(known) == 1:
            return (known,) * split.pp
        return tuple(self.ground.kinds_of(stage.ravel()) for stage in grid.get().dense)

    def _memory_bytes(self, kinds: tuple[tuple[str, ...], ...]) -> tuple[int, ...]:
        accelerator = self._cluster.accelerator
        least = {one: min(accelerator(kind).memory_bytes for kind in one) for one in set(kinds)}
        return tuple([least[one] for one in kinds])

    def _links_of(self, used: tuple[str, ...]) -> Links:
        found = self._links.get(used)
        if found is None:
            found = self._links[used] = links_of(self._cluster, used)
        return found

    def _accelerators(
        self, used: tuple[str, ...], world: int
    ) -> dict[str, tuple[int, Accelerator]]:
        ground, cluster = self.ground, self._cluster
        if len(ground.accelerators) == 1:
            return {kind: (world, cluster.accelerator(kind)) for kind in used}
        counts = np.bincount(ground.kinds[:world], minlength=len(ground.accelerators)).tolist()
        return {
            kind: (counts[ground.accelerators.index(kind)], cluster.accelerator(kind))
            for kind in used
        }


class _Later:
    """The grid of a workload, made when it is asked for."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._grid: Grid | None = None

    def get(self) -> Grid:
        if self._grid is None:
            self._grid = Grid.of(self._workload)
        return self._grid


def _mean_power_w(accelerators: dict[str, tuple[int, Accelerator]]) -> float | None:
    """Mean power of the devices, None where that of any is unknown."""
    total = count = 0.0
    for devices, known in accelerators.values():
        if known.power_w is None:
            return None
        total += devices * known.power_w
        count += devices
    return total / count


def links_of(cluster: Cluster, kinds: Iterable[str]) -> Links:
    """What devices of these kinds see of the network, the slower where they differ."""
    chosen = [cluster.accelerator(kind) for kind in kinds]
    names = set(kinds)
    a_node = max((n.devices for n in cluster.nodes if n.accelerator in names), default=1)
    wide = [tier for tier in cluster.tiers if tier.scale_up]
    network = [tier for tier in cluster.tiers if not tier.scale_up]
    return Links(
        scale_up=wide[-1].bandwidth if wide else _scale_up(chosen, cluster),
        network=tuple(tier.bandwidth * cluster.rails / a_node for tier in network),
        latency=tuple(tier.latency for tier in network),
        oversubscription=tuple(tier.oversubscription for tier in network),
        switch_reduces=all(accelerator.switch_reduces for accelerator in chosen),
        network_reduces=tuple(tier.reduces for tier in network),
        rails_apart=cluster.cross_rail is CrossRail.SPINE,
    )


def _scale_up(accelerators: list[Accelerator], cluster: Cluster) -> float:
    """The slowest scale-up rate; without any, devices of a node meet over the nearest tier."""
    slowest = min(accelerator.scale_up_bandwidth for accelerator in accelerators)
    return slowest or cluster.tiers[0].bandwidth
