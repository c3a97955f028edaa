"""A split laid on devices: where each kind of group lies, and what the devices there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..accelerators import Accelerator
from ..cluster import Cluster, CrossRail
from ..strategies.grid import Grid, sharded
from ..workload import Workload
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
    kinds: accelerators of each stage; first_ranks: the least rank of each. links: what the devices
    see of the network. accelerators: devices of each kind: how many, and their numbers.
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
    first_ranks: tuple[int, ...]
    links: Links
    accelerators: dict[str, tuple[int, Accelerator]]

    def peak_of(self, precision: str) -> float:
        """Peak FLOP/s of all devices together."""
        return sum(count * known.peak_of(precision) for count, known in self.accelerators.values())

    def slowest(self, kinds: tuple[str, ...], precision: str) -> str:
        """The one of these kinds that has the lowest peak."""
        return min(kinds, key=lambda kind: self.accelerators[kind][1].peak_of(precision))

    def memory_bytes(self, stage: int) -> float:
        """Memory of the smallest device of a stage."""
        return min(self.accelerators[kind][1].memory_bytes for kind in self.kinds[stage])

    @property
    def power_w(self) -> float | None:
        """Mean power of the devices, None where that of any is unknown."""
        total = count = 0.0
        for devices, known in self.accelerators.values():
            if known.power_w is None:
                return None
            total += devices * known.power_w
            count += devices
        return total / count


def layout_of(workload: Workload, ground: Ground, cluster: Cluster) -> Layout:
    """The layout of a workload on the first devices of a ground."""
    split, grid = workload.parallelism, Grid.of(workload)
    shards, replicas = sharded(grid.dp, split.shard_size)
    expert_shards, expert_replicas = sharded(grid.edp, split.expert_shard_size)
    stages = [stage.ravel() for stage in grid.dense]
    kinds = tuple(ground.kinds_of(stage) for stage in stages)
    used = sorted({kind for stage_kinds in kinds for kind in stage_kinds})
    hops = [(stage, stage + 1) for stage in range(split.pp - 1)]
    if split.virtual_pp > 1:
        hops.append((split.pp - 1, 0))
    count = split.world_size
    return Layout(
        tp=ground.span_of(grid.tp.ranks),
        cp=ground.span_of(grid.cp.ranks),
        dp=ground.span_of(grid.dp.ranks),
        shard=ground.span_of(shards.ranks),
        replicas=ground.span_of(replicas.ranks),
        ep=ground.span_of(grid.ep.ranks),
        etp=ground.span_of(grid.etp.ranks),
        expert_dp=ground.span_of(grid.edp.ranks),
        expert_shard=ground.span_of(expert_shards.ranks),
        expert_replicas=ground.span_of(expert_replicas.ranks),
        pp=_hops(ground, stages, hops),
        ends=_hops(ground, stages, [(0, split.pp - 1)] if split.pp > 1 else []),
        kinds=kinds,
        first_ranks=tuple(int(stage.min()) for stage in stages),
        links=links_of(cluster, used),
        accelerators={
            kind: (
                int((ground.kinds[:count] == ground.accelerators.index(kind)).sum()),
                cluster.accelerator(kind),
            )
            for kind in used
        },
    )


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


def _hops(ground: Ground, stages: list[Ints], hops: list[tuple[int, int]]) -> Span:
    """The span of sends between the ranks of these pairs of stages, each to its counterpart."""
    if not hops:
        return ALONE
    senders = np.concatenate([stages[sender] for sender, _ in hops])
    receivers = np.concatenate([stages[receiver] for _, receiver in hops])
    return ground.span_of(np.stack([senders, receivers], axis=1))
