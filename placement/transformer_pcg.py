"""The parallel computation graph of a workload: every group of every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from .group import Kind, Op
from .group_table import GroupTable, Names
from .pcg import PCG
from .strategies.grid import Family, Grid, sharded
from .strategies.parts import RankParameters, StageParts, rank_parameters, stage_parts
from .strategies.traffic import (
    EMBEDDING,
    Channel,
    Sharing,
    Volume,
    Volumes,
    embedding_volume,
    hop_volume,
    sharing,
    stage_volumes,
)
from .workload import Workload

Result = TypeVar("Result")


def build_pcg(workload: Workload) -> PCG:
    """The ranks of a workload and the groups they communicate in, with bytes a step.

    Each group has its kind, how many times a step it runs, and the part that can hide behind
    compute. What is sent, and where the formulas are from, stands in `strategies.traffic` and in
    docs/workloads.md. Left out: sums of gradients over ranks that share a key/value head, norms of
    gradients, and what a program sends for its own ends (statistics, checkpoints).
    """
    grid = Grid.of(workload)
    stages = stage_parts(workload)
    held = _each_once(stages, lambda stage: rank_parameters(workload, stage))
    tables = [
        *_inside_stages(workload, grid, stages, held),
        *_between_stages(workload, grid),
        *_same_parameters(workload, grid, stages, held),
        *_embedding_copies(workload, grid),
    ]
    return PCG.folded(workload.parallelism.world_size, GroupTable.joined(tables))


def _each_once(stages: Sequence[StageParts], of: Callable[[StageParts], Result]) -> list[Result]:
    """A function of every stage, worked out once for stages that are alike."""
    known: dict[tuple[object, ...], Result] = {}
    found = []
    for stage in stages:
        parts = ((p.count, p.copies, id(p.block), p.sequence) for p in stage.parts)
        key = (*parts, stage.first, stage.last)
        if key not in known:
            known[key] = of(stage)
        found.append(known[key])
    return found


def _inside_stages(
    workload: Workload,
    grid: Grid,
    stages: Sequence[StageParts],
    held: Sequence[RankParameters],
) -> Iterator[GroupTable]:
    """Tensor-, context- and expert-parallel groups."""
    counts = dict(zip(map(id, stages), held, strict=True))
    volumes: list[Volumes] = _each_once(
        stages, lambda stage: stage_volumes(workload, stage, counts[id(stage)])
    )
    for channel in sorted({channel for stage in volumes for channel in stage}):
        family = _family_of(channel.kind, grid)
        yield _table(channel, family, workload, [stage.get(channel) for stage in volumes])


def _family_of(kind: Kind, grid: Grid) -> Family:
    if kind is Kind.CP:
        return grid.cp
    if kind is Kind.EP:
        return grid.ep
    return grid.etp if kind is Kind.ETP else grid.tp


def _between_stages(workload: Workload, grid: Grid) -> Iterator[GroupTable]:
    """Pairs of neighbouring stages; the last feeds the first for all virtual stages but one."""
    split = workload.parallelism
    hops = [(stage, stage + 1, split.virtual_pp) for stage in range(split.pp - 1)]
    if split.virtual_pp > 1:
        hops.append((split.pp - 1, 0, split.virtual_pp - 1))
    for sender, receiver, times in hops:
        volume, pairs = hop_volume(workload, times), grid.hops(sender, receiver)
        for word, ranks in (("forward", pairs.ranks), ("backward", pairs.ranks[:, ::-1])):
            channel = Channel(Kind.PP, Op.SEND_RECV, "pp")
            prefix = f"pp/{word}/pp{sender}-pp{receiver}"
            yield _table(channel, pairs._replace(ranks=ranks), workload, [volume], prefix)


def _same_parameters(
    workload: Workload,
    grid: Grid,
    stages: Sequence[StageParts],
    held: Sequence[RankParameters],
) -> Iterator[GroupTable]:
    """Ranks that have the same parameters; experts of their own where they are spread otherwise."""
    split = workload.parallelism
    apart = split.exchanges_tokens
    dense = [one.dense + (0 if apart else one.experts) for one in held]
    layers = [stage.layers for stage in stages]
    yield from _shared_out(workload, Kind.DP, grid.dp, split.shard_size, dense, layers)
    if apart:
        experts = [one.experts for one in held]
        size = split.expert_shard_size
        yield from _shared_out(workload, Kind.EDP, grid.edp, size, experts, layers)


def _shared_out(
    workload: Workload,
    kind: Kind,
    family: Family,
    shards: int,
    parameters: Sequence[int],
    layers: Sequence[int],
) -> Iterator[GroupTable]:
    if family.ranks.shape[1] == 1:
        return
    found: list[Sharing] = [
        sharing(workload, count, shards, depth)
        for count, depth in zip(parameters, layers, strict=True)
    ]
    whole = workload.parallelism.zero == 0 or shards == family.ranks.shape[1]
    inside, across = (family, family) if whole else sharded(family, shards)
    if inside.ranks.shape[1] > 1:
        for place, (op, _) in enumerate(found[0].inside):
            volumes = [one.inside[place][1] for one in found]
            yield _table(Channel(kind, op, kind.value), inside, workload, volumes)
    if not whole:
        channel = Channel(kind, Op.ALL_REDUCE, kind.value)
        prefix = f"{kind}/replicas"
        yield _table(channel, across, workload, [one.across for one in found], prefix)


def _embedding_copies(workload: Workload, grid: Grid) -> Iterator[GroupTable]:
    volume = embedding_volume(workload)
    if volume.bytes:
        ends = grid.hops(0, workload.parallelism.pp - 1)
        yield _table(EMBEDDING, ends, workload, [volume])


def _table(
    channel: Channel,
    family: Family,
    workload: Workload,
    volumes: Sequence[Volume | None],
    prefix: str | None = None,
) -> GroupTable:
    """The groups of a family that move something: by stage where there is a volume for each."""
    ranks, labels = family.ranks, family.labels
    stage = labels[:, family.names.index("pp")] if "pp" in family.names else 0
    rows = [(0.0, 0.0, 0.0) if v is None else (v.bytes, v.count, v.hidden_bytes) for v in volumes]
    size, count, hidden = np.broadcast_to(np.array(rows)[stage], (len(ranks), 3)).T
    busy = size > 0
    shown = [
        place
        for place, name in enumerate(family.names)
        if name != "cp" or workload.parallelism.cp > 1
    ]
    template = "/".join(
        [prefix or f"{channel.word}/{channel.op}", *(family.names[p] + "{}" for p in shown)]
    )
    return GroupTable.alike(
        Names(template, labels[busy][:, shown]),
        channel.kind,
        channel.op,
        ranks[busy],
        size[busy].copy(),
        count[busy].copy(),
        hidden[busy] / size[busy],
    )
