"""Device memory of a rank: weights, gradients, optimizer state, activations, logits, the rest.

Sources: Rajbhandari 2020 (sharded state), Korthikanti 2022 (activations), work.py for which tensors
a layer keeps.
"""

from __future__ import annotations

from typing import NamedTuple

from ..models import AttentionCore, Block, Model
from ..workload import Workload
from .constants import Constants
from .operations import ELEMENT_BYTES, Slice
from .schedule import in_flight
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


def layer_bytes(block: Block, part: Slice, software: Software, dropout: bool) -> LayerMemory:
    """Activations of one layer for one micro-batch on one rank.

    Kept without recomputation: inputs of norms and of each matrix product once, queries, keys and
    values, inputs of activations, masks of dropout, and where attention is not fused softmax,
    its dropped copy and the mask. For a GPT layer that is sbh (10 + 24 / t + 5 a s / (h t))
    (Korthikanti 2022), all of it over t with sequence parallelism. Selective recomputation leaves
    out the scores; full keeps the layer's input alone.
    While a layer is worked on it needs what it does not keep, the gradients of the operands of its
    largest product, and with sequence parallelism its inputs gathered.
    """
    dropout = dropout and software.dropout
    whole = _whole_bytes(block, part, dropout)
    split = _split_bytes(block, part)
    scores = 0.0 if software.fused_attention else _score_bytes(block, part, dropout)
    entry = ELEMENT_BYTES * block.hidden * part.whole_tokens
    everything = whole + split + scores
    beside = _beside_bytes(block, part)
    if part.recompute == "none":
        return LayerMemory(everything, beside)
    if part.recompute == "full":
        return LayerMemory(entry, everything + beside)
    if not software.selective_products:
        return LayerMemory(whole + split, scores + beside)
    saved = _saved_outputs(block, part, software.selective_products)
    return LayerMemory(entry + saved, everything + beside)


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


def slice_of(workload: Workload) -> Slice:
    """The part of a layer that each rank of a workload works on."""
    split = workload.parallelism
    return Slice(
        workload.sequence,
        workload.micro_batch,
        split.tp,
        split.cp,
        split.ep,
        split.expert_tp,
        split.sequence_parallel,
        workload.recompute,
        workload.precision == "fp8",
        None if workload.model.encoder is None else workload.encoder_sequence,
        split.vocabulary_tp,
        workload.tower_inputs,
        workload.fp8_dispatch,
    )


def _whole_bytes(block: Block, part: Slice, dropout: bool) -> float:
    """Tensors over the whole hidden size: inputs of norms and of products before the split."""
    read = {m.reads: m.k for m in block.matmuls() if m.split != "rows" and not m.expert}
    parts = sum(p is not None for p in (block.mixer, block.cross, block.feed_forward))
    masks = MASK_BYTES * block.hidden * parts if dropout else 0.0
    elements = block.norms * block.hidden + sum(read.values())
    return part.whole_tokens * (ELEMENT_BYTES * elements + masks)


def _split_bytes(block: Block, part: Slice) -> float:
    """Tensors that tensor-parallel ranks share out: of heads, and inside the feed-forward."""
    matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
    kept = {m.reads: part.tokens_of(m) * m.k * m.count for m in matmuls if m.split == "rows"}
    kept |= {m.reads: part.tokens_of(m) * m.k * m.count for m in matmuls if m.expert}
    elements = sum(kept.values())
    elements += sum(part.tokens_of(m) * m.n * m.count for m in matmuls if m.name in _ACTIVATED)
    for core in block.cores(part.tp):
        if isinstance(core, AttentionCore):
            elements += part.tokens * (core.query_width + core.key_value_width)
        else:
            elements += part.tokens * (2 * core.conv_channels + core.heads * core.value_dim)
    return ELEMENT_BYTES * elements


def _score_bytes(block: Block, part: Slice, dropout: bool) -> float:
    """Softmax, and with dropout its dropped copy and the mask: 5 bytes a score."""
    total = 0.0
    for core in block.cores(part.tp):
        if isinstance(core, AttentionCore):
            keys = part.source if core.cross and part.source is not None else part.sequence
            size = 2 * ELEMENT_BYTES + MASK_BYTES if dropout else ELEMENT_BYTES
            total += size * part.tokens * core.heads * keys
    return total


def _beside_bytes(block: Block, part: Slice) -> float:
    """Gradients of the largest product's operands, and inputs gathered along the sequence."""
    matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
    largest = max((part.tokens_of(m) * (m.k + m.n) * m.count for m in matmuls), default=0.0)
    read = {m.reads: m.k for m in matmuls if m.split == "columns" and not m.expert}
    gathered = sum(read.values()) * (part.tokens - part.whole_tokens)
    return ELEMENT_BYTES * (largest + gathered)


def _saved_outputs(block: Block, part: Slice, share: float) -> float:
    """Outputs of the products that are not repeated, and of attention."""
    matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
    outputs = 0.0
    for m in matmuls:
        tokens = part.tokens_of(m)
        if m.split == "rows":
            tokens *= part.whole_tokens / part.tokens
        outputs += (1 - share) * tokens * m.n * m.count
    for core in block.cores(part.tp):
        if isinstance(core, AttentionCore):
            outputs += part.tokens * core.output_width
    return ELEMENT_BYTES * outputs


class Footprint(NamedTuple):
    """Bytes on each rank of a stage, in all and by what holds them."""

    stage: int
    total: float
    parts: dict[str, float]


class StageMemory(NamedTuple):
    """Bytes of a stage that do not depend on the schedule or on sharding.

    kept: activations of one micro-batch; working: of the largest layer while it is worked on;
    logits: on the last stage. largest: parameters of the largest layer.
    """

    kept: float
    working: float
    logits: float
    largest: int


def footprint(
    workload: Workload,
    stage: int,
    parameters: Parameters,
    held: StageMemory,
    constants: Constants,
) -> Footprint:
    """Device memory of a rank of pipeline stage `stage`.

    Activations are those of the micro-batches that the schedule lets a stage hold at once, with the
    one layer that is worked on; logits those of one micro-batch. Sharded parameters (zero 3) need
    the largest layer whole, and the next one gathered beside it; where they stay gathered from one
    micro-batch to the next, all of them (and their fp8 casts), and gradients whole in fp32 until
    the last is done. Each kind of group has a communicator with buffers of its own.
    """
    split = workload.parallelism
    fp32, zero = workload.fp32_gradients, split.zero
    dense = state_bytes(parameters.dense, split.shard_size, zero, fp32)
    experts = state_bytes(parameters.experts, split.expert_shard_size, zero, fp32)
    batches = in_flight(split.pp, split.virtual_pp, workload.micro_batches, stage)
    buffers = 0.0
    if zero >= 3:
        buffers = 2.0 * WEIGHT_BYTES * held.largest
        if workload.micro_batches > 1 and not split.reshard_parameters:
            cast = CAST_BYTES if workload.precision == "fp8" else 0
            buffers = float(WEIGHT_BYTES + cast + MASTER_BYTES) * sum(parameters)
    groups = (split.tp, split.cp, split.dp * split.cp, split.pp, split.ep)
    communicators = sum(degree > 1 for degree in groups)
    parts = {
        "weights": dense.weights + experts.weights,
        "gradients": dense.gradients + experts.gradients,
        "optimizer": dense.optimizer + experts.optimizer,
        "activations": batches * held.kept + held.working,
        "logits": held.logits,
        "buffers": buffers,
        "framework": constants.framework_bytes + communicators * constants.communicator_bytes,
    }
    return Footprint(stage, sum(parts.values()), parts)
