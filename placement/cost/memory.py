"""Device memory of a rank: weights, gradients, optimizer state, activations, logits, the rest.

Sources: Rajbhandari 2020 (sharded state), Korthikanti 2022 (activations).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..models import AttentionCore, Block, MatMul, Model
from ..models.work import Core
from ..workload import Workload
from .constants import Constants
from .schedule import in_flight
from .slices import ELEMENT_BYTES, Slice
from .software import Software
from .stages import Parameters

WEIGHT_BYTES = 2
MASTER_BYTES = 4
CAST_BYTES = 1
ADAM_BYTES = 8
MASK_BYTES = 1
_ACTIVATED = ("up", "expert_up", "shared_up")


class State(NamedTuple):
    """Bytes of parameters and what belongs to them: weights, gradients, optimizer state."""

    weights: float
    gradients: float
    optimizer: float


def state_bytes(parameters: float, shards: int, zero: int, fp32_gradients: bool) -> State:
    """State of `parameters` that `shards` ranks hold alike, by ZeRO stage, with Adam.

    16 bytes a parameter (18 with fp32 gradients): 2 weights, 2 (4) gradients, 12 optimizer (fp32
    copy and two moments). Stage 1 shares out the optimizer, 2 gradients too, 3 weights too.
    """
    gradient = 4 if fp32_gradients else WEIGHT_BYTES
    return State(
        weights=WEIGHT_BYTES * parameters / (shards if zero >= 3 else 1),
        gradients=gradient * parameters / (shards if zero >= 2 else 1),
        optimizer=(MASTER_BYTES + ADAM_BYTES) * parameters / (shards if zero >= 1 else 1),
    )


class LayerMemory(NamedTuple):
    """Bytes of a layer's activations: kept for the backward pass, and needed while it runs."""

    kept: float
    working: float


class BlockMemory:
    """Activations of a layer on one rank of `tp` x `ep`, for any number of tokens.

    Kept without recomputation: inputs of norms and of each matrix product once, queries, keys and
    values, inputs of activations, masks of dropout, and where attention is not fused softmax,
    its dropped copy and the mask. For a GPT layer that is sbh (10 + 24 / t + 5 a s / (h t))
    (Korthikanti 2022), all of it over t with sequence parallelism. Selective recomputation leaves
    out the scores; full keeps the layer's input alone.
    While a layer is worked on it needs what it does not keep, the gradients of the operands of its
    largest product, and with sequence parallelism its inputs gathered.
    """

    def __init__(self, block: Block, part: Slice, software: Software, dropout: bool) -> None:
        matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
        cores = block.cores(part.tp)
        self._software, self._dropout = software, dropout and software.dropout
        self._entry = ELEMENT_BYTES * block.hidden
        self._whole = _whole_bytes(block, self._dropout)
        own = [m for m in matmuls if m.source == "own"]
        encoder = [m for m in matmuls if m.source == "encoder"]
        self._split = ELEMENT_BYTES * _split_widths(own, cores)
        self._split_source = ELEMENT_BYTES * _split_widths(encoder, ())
        self._largest, self._largest_source = _largest_width(own), _largest_width(encoder)
        self._cores = [core for core in cores if isinstance(core, AttentionCore)]
        gathered = {m.reads: m.k for m in matmuls if m.split == "columns" and not m.expert}
        self._gathered = sum(gathered.values())
        self._matmuls = matmuls

    def bytes(self, part: Slice) -> LayerMemory:
        """Those of one micro-batch."""
        software = self._software
        tokens, whole_tokens = part.tokens, part.whole_tokens
        scores = 0.0 if software.fused_attention else self._score_bytes(part)
        source = part.source_tokens
        unscored = self._whole * whole_tokens + self._split * tokens
        unscored += self._split_source * source
        largest = max(self._largest * tokens, self._largest_source * source)
        beside = ELEMENT_BYTES * (largest + self._gathered * (tokens - whole_tokens))
        if part.recompute == "none":
            return LayerMemory(unscored + scores, beside)
        entry = self._entry * whole_tokens
        if part.recompute == "full":
            return LayerMemory(entry, unscored + scores + beside)
        if not software.selective_products:
            return LayerMemory(unscored, scores + beside)
        return LayerMemory(entry + self._saved_outputs(part), unscored + scores + beside)

    def _score_bytes(self, part: Slice) -> float:
        """Softmax, and with dropout its dropped copy and the mask: 5 bytes a score."""
        size = 2 * ELEMENT_BYTES + MASK_BYTES if self._dropout else ELEMENT_BYTES
        keys = sum(core.heads * part.keys_of(core) for core in self._cores)
        return size * part.tokens * keys

    def _saved_outputs(self, part: Slice) -> float:
        """Outputs of the products that are not repeated, and of attention."""
        outputs = 0.0
        for m in self._matmuls:
            tokens = part.rows_of(m)
            if m.split == "rows":
                tokens *= part.whole_tokens / part.tokens
            outputs += (1 - self._software.selective_products) * tokens * m.n * m.count
        outputs += part.tokens * sum(core.output_width for core in self._cores)
        return ELEMENT_BYTES * outputs


def logit_bytes(model: Model, part: Slice, software: Software) -> float:
    """Logits and what the loss makes of them, with the input of the final norm and of the head."""
    if model.head is None:
        return 0.0
    logits = software.logit_memory_bytes * model.head.matmuls(part.vocabulary_tp)[-1].n
    return part.tokens * logits + 2 * ELEMENT_BYTES * model.hidden * part.whole_tokens


def embedding_bytes(model: Model, part: Slice, software: Software) -> float:
    """The mask of dropout after the embedding, for one micro-batch."""
    dropout = model.dropout and software.dropout
    return MASK_BYTES * model.hidden * part.whole_tokens if dropout else 0.0


def _whole_bytes(block: Block, dropout: bool) -> float:
    """Of a token, tensors over the whole hidden size: inputs of norms and of products before the
    split."""
    read = {m.reads: m.k for m in block.matmuls() if m.split != "rows" and not m.expert}
    parts = sum(p is not None for p in (block.mixer, block.cross, block.feed_forward))
    masks = MASK_BYTES * block.hidden * parts if dropout else 0.0
    return ELEMENT_BYTES * (block.norms * block.hidden + sum(read.values())) + masks


def _split_widths(matmuls: Sequence[MatMul], cores: Sequence[Core]) -> float:
    """Elements a token that tensor-parallel ranks share out: of heads, and inside the
    feed-forward."""
    kept = {m.reads: m.rows * m.k * m.count for m in matmuls if m.split == "rows"}
    kept |= {m.reads: m.rows * m.k * m.count for m in matmuls if m.expert}
    elements = sum(kept.values())
    elements += sum(m.rows * m.n * m.count for m in matmuls if m.name in _ACTIVATED)
    for core in cores:
        if isinstance(core, AttentionCore):
            elements += core.query_width + core.key_value_width
        else:
            elements += 2 * core.conv_channels + core.heads * core.value_dim
    return elements


def _largest_width(matmuls: Sequence[MatMul]) -> float:
    """Elements a token of the operands of the largest product."""
    return max((m.rows * (m.k + m.n) * m.count for m in matmuls), default=0.0)


class StageMemory(NamedTuple):
    """Bytes of a stage that do not depend on the schedule or on sharding.

    kept: activations of one micro-batch; working: of the largest layer while it is worked on;
    logits: on the last stage. largest: parameters of the largest layer.
    """

    kept: float
    working: float
    logits: float
    largest: int


class Footprint(NamedTuple):
    """Bytes on each rank of a stage, in all and by what holds them."""

    stage: int
    total: float
    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    framework: float

    @property
    def parts(self) -> dict[str, float]:
        """Bytes by what holds them."""
        return dict(zip(self._fields[2:], self[2:], strict=True))


class RankMemory:
    """Device memory of the ranks of a workload.

    Activations are those of the micro-batches that the schedule lets a stage hold at once, with the
    one layer that is worked on; logits those of one micro-batch. Sharded parameters (zero 3) need
    the largest layer whole, and the next one gathered beside it; where they stay gathered from one
    micro-batch to the next, all of them (and their fp8 casts), and gradients whole in fp32 until
    the last is done. Each kind of group has a communicator with buffers of its own.
    """

    def __init__(self, workload: Workload, constants: Constants) -> None:
        split = workload.parallelism
        fp32, zero = workload.fp32_gradients, split.zero
        self._split, self._micro_batches = split, workload.micro_batches
        self._dense = state_bytes(1, split.shard_size, zero, fp32)
        self._experts = state_bytes(1, split.expert_shard_size, zero, fp32)
        self._held_whole = 0.0
        if zero >= 3 and self._micro_batches > 1 and not split.reshard_parameters:
            cast = CAST_BYTES if workload.precision == "fp8" else 0
            self._held_whole = float(WEIGHT_BYTES + cast + MASTER_BYTES)
        groups = (split.tp, split.cp, split.dp * split.cp, split.pp, split.ep)
        communicators = sum([degree > 1 for degree in groups])
        self._framework = constants.framework_bytes + communicators * constants.communicator_bytes

    def footprint(self, stage: int, parameters: Parameters, held: StageMemory) -> Footprint:
        """Of a rank of pipeline stage `stage`."""
        split, (dense, experts) = self._split, parameters
        ours, theirs = self._dense, self._experts
        batches = in_flight(split.pp, split.virtual_pp, self._micro_batches, stage)
        buffers = 0.0
        if self._held_whole:
            buffers = self._held_whole * (dense + experts)
        elif split.zero >= 3:
            buffers = 2.0 * WEIGHT_BYTES * held.largest
        weights = ours.weights * dense + theirs.weights * experts
        gradients = ours.gradients * dense + theirs.gradients * experts
        optimizer = ours.optimizer * dense + theirs.optimizer * experts
        activations = batches * held.kept + held.working
        total = weights + gradients + optimizer + activations + held.logits + buffers
        return Footprint(
            stage,
            total + self._framework,
            weights,
            gradients,
            optimizer,
            activations,
            held.logits,
            buffers,
            self._framework,
        )
