"""A split laid on devices: where each kind of group lies, and what the devices there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..accelerators import Accelerator
from ..cluster import Cluster, CrossRail
from ..workload import Workload
from .collective_time import Links
from .spans import ALONE, Dimension, Ground, Ints, Span, ranks_along


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the groups of a split lie, each kind by its worst group.

    tp, cp: those groups. dp: ranks with the same parameters, over data and context parallelism.
    ep: ranks that exchange tokens for experts. expert_dp: ranks with the same experts. pp: ranks of
    neighbouring stages. ends: of the first and the last stage.
    kinds: accelerators of each stage; first_ranks: the least rank of each. links: what the devices
    see of the network. accelerators: devices of each kind: how many, and their numbers.
    """

    tp: Span
    cp: Span
    dp: Span
    ep: Span
    expert_dp: Span
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
    split = workload.parallelism
    sizes = {"tp": split.tp, "cp": split.cp, "dp": split.dp, "pp": split.pp}
    dimensions: dict[str, Dimension] = {}
    stride = 1
    for name in workload.dimension_order:
        if name in sizes:
            dimensions[name] = (stride, sizes[name])
            stride *= sizes[name]

    def along(names: Iterable[str]) -> Ints:
        chosen = [(dimensions[name]) for name in dimensions if name in names]
        return ranks_along(chosen)

    def span(*names: str) -> Span:
        others = along([name for name in sizes if name not in names])
        return ground.span_of(others[:, None] + along(names))

    shared = along(("cp", "dp"))
    others = along(("tp", "pp"))[:, None, None]
    exchanges = (others + shared.reshape(-1, split.ep)).reshape(-1, split.ep)
    copies = (others + shared.reshape(-1, split.ep).T).reshape(-1, len(shared) // split.ep)
    stage = along(("tp", "cp", "dp"))
    step = dimensions["pp"][0]
    starts = [index * step for index in range(split.pp)]
    kinds = tuple(ground.kinds_of(stage + start) for start in starts)
    used = sorted({kind for stage_kinds in kinds for kind in stage_kinds})
    count = split.world_size
    return Layout(
        tp=span("tp"),
        cp=span("cp"),
        dp=span("cp", "dp"),
        ep=ground.span_of(exchanges),
        expert_dp=ground.span_of(copies),
        pp=_hops(ground, stage, starts[:-1], step),
        ends=_hops(ground, stage, starts[:1], starts[-1]),
        kinds=kinds,
        first_ranks=tuple(starts),
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


def _hops(ground: Ground, stage: Ints, starts: list[int], far: int) -> Span:
    """The span of sends from each rank of the stages at `starts` to the one `far` ranks on."""
    if not starts or not far:
        return ALONE
    senders = (stage[:, None] + np.array(starts)).ravel()
    return ground.span_of(np.stack([senders, senders + far], axis=1))
