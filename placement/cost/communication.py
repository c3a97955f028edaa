"""Seconds that communication adds to a micro-batch on a stage, and to the end of a step."""

from __future__ import annotations

from typing import NamedTuple

from ..pcg import Op
from ..workload import Workload
from .collective_time import Links, collective
from .constants import Constants
from .layout import Layout
from .operations import ELEMENT_BYTES, Slice
from .software import Software
from .spans import Span
from .stages import Parameters, Stage
from .work import StageWork

_LAUNCH_SHARPNESS = 4


class Prices:
    """Seconds of collectives on one kind of links by one program; what was asked before is kept."""

    def __init__(self, links: Links, software: Software, constants: Constants) -> None:
        self.software = software
        self._links, self._constants = links, constants
        self._known: dict[tuple[Op, float, Span, int, float], float] = {}

    def seconds(
        self, op: Op, size: float, span: Span, networks: int = 0, part_away: float = 1.0
    ) -> float:
        """Seconds of a collective, the launch by its hosts included where that is longer."""
        if span.ranks == 1 or not size:
            return 0.0
        key = (op, size, span, networks, part_away)
        found = self._known.get(key)
        if found is None:
            choice = collective(op, size, span, self._links, self._constants, networks, part_away)
            moving = choice.seconds
            launch = self.software.collective_launch_s
            launch += self.software.collective_launch_s_per_rank * span.per_island
            power = _LAUNCH_SHARPNESS
            found = self._known[key] = float((moving**power + launch**power) ** (1 / power))
        return found


class Waits(NamedTuple):
    """Seconds of a micro-batch on a stage that communication does not hide."""

    tensor: float
    context: float
    expert: float
    pipeline: float


def micro_batch_waits(
    workload: Workload, part: Slice, work: StageWork, layout: Layout, prices: Prices, ends: int
) -> Waits:
    """Communication of one micro-batch on a stage, beyond what overlaps.

    Tensor parallelism: a forward pass sums `work.reductions` times over its ranks, by an all-reduce
    or (sequence parallelism) an all-gather and a reduce-scatter of the activations; the backward
    pass as often, and full recomputation again; embedding and head once each (`ends` of them).
    Context: a gather of keys and values forward, again where attention is repeated, twice backward;
    by all-to-all, queries, keys, values and results change places in each. Experts: tokens out and
    back, as often as reductions. Pipeline: one send each way and piece.
    """
    split, program = workload.parallelism, prices.software
    rounds = 3 if workload.recompute == "full" else 2
    activation = ELEMENT_BYTES * part.tokens * workload.model.hidden
    tensor = context = expert = pipeline = 0.0
    if split.tp > 1:
        gathered = 0.0
        if split.sequence_parallel:
            gathered = prices.seconds(Op.ALL_GATHER, activation, layout.tp)
            one = gathered + prices.seconds(Op.REDUCE_SCATTER, activation, layout.tp)
        else:
            one = prices.seconds(Op.ALL_REDUCE, activation, layout.tp)
        layers = rounds * one + (gathered if workload.regather_inputs else 0.0)
        tensor = one * ends + work.reductions * layers * (1 - program.tensor_overlap)
    if split.cp > 1:
        again = 1 if workload.recompute == "none" or program.selective_products else 2
        if split.context_form == "ring":
            op, sizes, times = Op.ALL_GATHER, work.gathers, again + 2
        else:
            op, sizes, times = Op.ALL_TO_ALL, work.turns, again + 1
        for count, size in sizes:
            seconds = prices.seconds(op, size, layout.cp)
            context += count * times * seconds * (1 - program.context_overlap)
    for count, dispatch in work.exchanges:
        size, islands = dispatch.size, layout.ep.islands
        once = program.dispatch_once and islands > 1
        part_away = dispatch.part_to_islands(islands) if once else 1.0
        sent = size / 2 if workload.fp8_dispatch else size
        there = prices.seconds(Op.ALL_TO_ALL, sent, layout.ep, part_away=part_away)
        back = prices.seconds(Op.ALL_TO_ALL, size, layout.ep, part_away=part_away)
        # Ranks that share an expert's matrices gather the tokens that came for it, and sum.
        inside = prices.seconds(Op.ALL_GATHER, size * split.expert_tp, layout.etp)
        inside += prices.seconds(Op.REDUCE_SCATTER, size * split.expert_tp, layout.etp)
        expert += count * rounds * (there + back + inside) * (1 - program.expert_overlap)
    if split.pp > 1:
        size = activation / split.tp if split.sequence_parallel else activation
        seconds = prices.seconds(Op.SEND_RECV, size, layout.pp)
        pipeline = 2 * split.virtual_pp * seconds * (1 - program.pipeline_overlap)
    return Waits(tensor, context, expert, pipeline)


def gradient_s(
    workload: Workload, parameters: Parameters, stage: Stage, layout: Layout, prices: Prices
) -> tuple[float, float]:
    """Seconds a step that gradients and parameters travel, and those of a tied embedding's copies.

    zero 0: an all-reduce of the gradients. 1, 2: a reduce-scatter of them and an all-gather of the
    parameters. 3: the parameters are gathered forward and backward, the gradients scattered. With
    hybrid sharding that is done by the ranks of a shard, and gradients are then summed over its
    replicas. A tied embedding on two stages is reduced between them.
    """
    split, program = workload.parallelism, prices.software
    gradient = 4 if workload.fp32_gradients else ELEMENT_BYTES
    moved = tied = 0.0
    for count, whole, shard, replicas in (
        (parameters.dense, layout.dp, layout.shard, layout.replicas),
        (parameters.experts, layout.expert_dp, layout.expert_shard, layout.expert_replicas),
    ):
        if split.zero == 0:
            moved += prices.seconds(Op.ALL_REDUCE, gradient * count, whole)
            continue
        gathers, networks = (2, program.gather_networks) if split.zero == 3 else (1, 0)
        gathered = prices.seconds(Op.ALL_GATHER, ELEMENT_BYTES * count, shard, networks)
        scattered = prices.seconds(Op.REDUCE_SCATTER, gradient * count, shard, networks)
        summed = prices.seconds(Op.ALL_REDUCE, gradient * count / shard.ranks, replicas)
        moved += gathers * gathered + scattered + summed
    if split.zero == 3:
        rounds = workload.micro_batches if split.reshard_parameters else 1
        moved *= rounds / program.gather_share
    if split.pp > 1 and workload.model.tied_embeddings and (stage.first or stage.last):
        size = gradient * workload.model.embedding_parameters / split.vocabulary_tp
        tied = prices.seconds(Op.ALL_REDUCE, size, layout.ends)
    return moved, tied
