"""Seconds that communication adds to a micro-batch on a stage, and to the end of a step."""

from __future__ import annotations

from typing import NamedTuple

from ..pcg import Op
from ..strategies.parts import embedding_shard
from ..workload import Workload
from .collective_time import Links, collective
from .constants import Constants
from .layout import Layout
from .slices import ELEMENT_BYTES, Slice
from .software import Software
from .spans import Span
from .stages import Parameters, Stage
from .work import Dispatch, StageWork

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


class MicroBatch:
    """Communication of one micro-batch of a workload on its stages, beyond what overlaps.

    The bytes are those of the PCG (`strategies.traffic`), the loss aside. Tensor parallelism: a
    forward pass sums `StageWork.sums` over its ranks, by an all-reduce or (sequence parallelism) an
    all-gather and a reduce-scatter of the activations; the backward pass as often, and full
    recomputation again; a divided embedding and head once each.
    Context: a gather of keys and values forward, again where attention is repeated, twice backward;
    by all-to-all, queries, keys, values and results change places in each. Experts: tokens out and
    back, as often as sums. Pipeline: one send each way and piece.
    """

    def __init__(self, workload: Workload, part: Slice, layout: Layout, prices: Prices) -> None:
        split, program = workload.parallelism, prices.software
        self._workload, self._layout, self._prices = workload, layout, prices
        self._rounds = 3 if workload.recompute == "full" else 2
        self._exchanged: dict[Dispatch, float] = {}
        self._tokens = ELEMENT_BYTES * part.tokens
        self._summed: dict[float, tuple[float, float]] = {}
        self._pipeline_s = 0.0
        if split.pp > 1:
            size = self._tokens * workload.model.hidden
            encoder = workload.model.encoder
            if encoder is not None:
                size += ELEMENT_BYTES * part.source_tokens * encoder.hidden
            if split.sequence_parallel:
                size /= split.tp
            seconds = prices.seconds(Op.SEND_RECV, size, layout.pp)
            self._pipeline_s = 2 * split.virtual_pp * seconds * (1 - program.pipeline_overlap)

    def waits(self, work: StageWork, stage: Stage) -> Waits:
        """Of a stage."""
        split = self._workload.parallelism
        tensor = expert = 0.0
        if split.tp > 1:
            shown = 1 - self._prices.software.tensor_overlap
            for count, size in work.sums:
                once, again = self._sum_s(size)
                tensor += count * (self._rounds * once + again) * shown
            if split.vocabulary_parallel and (stage.first or stage.last):
                tensor += self._ends_s(stage)
        for count, dispatch in work.exchanges:
            expert += count * self._exchange_s(dispatch)
        context = self._context_s(work) if split.cp > 1 else 0.0
        return Waits(tensor, context, expert, self._pipeline_s)

    def _sum_s(self, size: float) -> tuple[float, float]:
        """Of a sum over tensor-parallel ranks, and of gathering its inputs again."""
        found = self._summed.get(size)
        if found is None:
            prices, span, again = self._prices, self._layout.tp, 0.0
            if self._workload.parallelism.sequence_parallel:
                gathered = prices.seconds(Op.ALL_GATHER, size, span)
                once = gathered + prices.seconds(Op.REDUCE_SCATTER, size, span)
                again = gathered if self._workload.regather_inputs else 0.0
            else:
                once = prices.seconds(Op.ALL_REDUCE, size, span)
            found = self._summed[size] = once, again
        return found

    def _ends_s(self, stage: Stage) -> float:
        """Of a divided embedding, and of a divided head with those of further tokens."""
        model = self._workload.model
        found, ahead = 0.0, 0 if model.prediction is None else model.prediction.tokens
        lookups = stage.first + (ahead if stage.last else 0)
        if model.vocab and lookups:
            once, _ = self._sum_s(self._tokens * model.embedding.token_width)
            found += lookups * once
        if stage.last and model.head is not None:
            once, again = self._sum_s(self._tokens * model.head.inputs)
            found += (1 + ahead) * (once + again)
        return found

    def _context_s(self, work: StageWork) -> float:
        workload, program = self._workload, self._prices.software
        again = 1 if workload.recompute == "none" or program.selective_products else 2
        if workload.parallelism.context_form == "ring":
            op, sizes, times = Op.ALL_GATHER, work.gathers, again + 2
        else:
            op, sizes, times = Op.ALL_TO_ALL, work.turns, again + 1
        layers = [(count * times, op, size) for count, size in sizes]
        layers += [(count * self._rounds, Op.ALL_TO_ALL, size) for count, size in work.swaps]
        found = 0.0
        for count, kind, size in layers:
            seconds = self._prices.seconds(kind, size, self._layout.cp)
            found += count * seconds * (1 - program.context_overlap)
        return found

    def _exchange_s(self, dispatch: Dispatch) -> float:
        """Of a layer's tokens to their experts and back, in all passes."""
        found = self._exchanged.get(dispatch)
        if found is not None:
            return found
        workload, layout, prices = self._workload, self._layout, self._prices
        program, inner = prices.software, workload.parallelism.expert_tp
        size, islands = dispatch.size, layout.ep.islands
        once = program.dispatch_once and islands > 1
        part_away = dispatch.part_to_islands(islands) if once else 1.0
        sent = size / 2 if workload.fp8_dispatch else size
        moved = prices.seconds(Op.ALL_TO_ALL, sent, layout.ep, part_away=part_away)
        moved += prices.seconds(Op.ALL_TO_ALL, size, layout.ep, part_away=part_away)
        # Ranks that share an expert's matrices gather the tokens that came for it, and sum.
        moved += prices.seconds(Op.ALL_GATHER, sent * inner, layout.etp)
        moved += prices.seconds(Op.REDUCE_SCATTER, size * inner, layout.etp)
        found = self._exchanged[dispatch] = self._rounds * moved * (1 - program.expert_overlap)
        return found


class Gradients:
    """Communication of a step's gradients and parameters.

    zero 0: an all-reduce of the gradients. 1, 2: a reduce-scatter of them and an all-gather of the
    parameters. 3: the parameters are gathered forward and backward, the gradients scattered. With
    hybrid sharding that is done by the ranks of a shard, and gradients are then summed over its
    replicas. Copies of the embedding on the first and last stage are reduced between them.
    """

    def __init__(self, workload: Workload, layout: Layout, prices: Prices) -> None:
        split = workload.parallelism
        self._layout, self._prices, self._zero = layout, prices, split.zero
        self._element = 4 if workload.fp32_gradients else ELEMENT_BYTES
        self._times = 1.0
        self._gathers, self._networks = (1, 0)
        if split.zero == 3:
            rounds = workload.micro_batches if split.reshard_parameters else 1
            self._times = rounds / prices.software.gather_share
            self._gathers, self._networks = (2, prices.software.gather_networks)
        self._tied_s = 0.0
        model = workload.model
        if split.pp > 1 and (model.tied_embeddings or model.prediction is not None):
            size = self._element * embedding_shard(workload)
            self._tied_s = prices.seconds(Op.ALL_REDUCE, size, layout.ends)

    def seconds(self, parameters: Parameters, stage: Stage) -> tuple[float, float]:
        """A step of a stage's parameters, and of copies of the embedding."""
        layout, (dense, experts) = self._layout, parameters
        moved = self._moved_s(dense, layout.dp, layout.shard, layout.replicas)
        if experts:
            shard, replicas = layout.expert_shard, layout.expert_replicas
            moved += self._moved_s(experts, layout.expert_dp, shard, replicas)
        return moved * self._times, self._tied_s if stage.first or stage.last else 0.0

    def _moved_s(self, count: int, whole: Span, shard: Span, replicas: Span) -> float:
        seconds, gradients = self._prices.seconds, self._element * count
        if self._zero == 0:
            return seconds(Op.ALL_REDUCE, gradients, whole)
        networks = self._networks
        gathered = seconds(Op.ALL_GATHER, ELEMENT_BYTES * count, shard, networks)
        scattered = seconds(Op.REDUCE_SCATTER, gradients, shard, networks)
        summed = seconds(Op.ALL_REDUCE, gradients / shard.ranks, replicas)
        return self._gathers * gathered + scattered + summed
