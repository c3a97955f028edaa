"""Bytes that a rank of each pipeline stage sends in a step, by strategy: the formulas.

Symbols: s sequence, b micro-batch, h hidden, t tp, c cp, m micro-batches, T = s b / c tokens of a
tensor-parallel group, k experts a token; 2 bytes an element. Sources: Shoeybi 2019 and Korthikanti
2022 (tensor, sequence), Narayanan 2021 (pipeline), Rajbhandari 2020 (sharding), Lepikhin 2020
(experts), Liu 2023 and Jacobs 2023 (context).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..group import Kind, Op
from ..models.work import AttentionCore
from .parts import Part, RankParameters, StageParts, embedding_shard

if TYPE_CHECKING:
    from ..workload import Workload

ACTIVATION_BYTES = 2
"""Bytes of an activation and of a parameter on the wire: bf16 and fp16; fp8 training too sends
activations and parameters in 16 bits."""
LOSS_BYTES = 4
LOSS_SUMS = 3
"""All-reduces of one number a token for a loss over a divided vocabulary: the largest logit, that
of the target, and the sum of the exponentials (Shoeybi 2019)."""


class Channel(NamedTuple):
    """What a kind of group does, and the word that its names begin with."""

    kind: Kind
    op: Op
    word: str


@dataclass(slots=True)
class Volume:
    """Bytes that a group moves in a step, in how many calls, and the bytes that may hide."""

    bytes: float = 0.0
    count: float = 0.0
    hidden_bytes: float = 0.0


class Volumes(dict[Channel, Volume]):
    """Volumes of one stage by channel."""

    def add(self, channel: Channel, size: float, times: float, hidden: float = 0.0) -> None:
        """Add so many calls of `size` bytes, `hidden` of which may hide behind compute."""
        if size and times:
            total = self.setdefault(channel, Volume())
            total.bytes += size * times
            total.count += times
            total.hidden_bytes += size * hidden


_TP = Channel(Kind.TP, Op.ALL_REDUCE, "tp")
_SP_GATHER = Channel(Kind.SP, Op.ALL_GATHER, "tp")
_SP_SCATTER = Channel(Kind.SP, Op.REDUCE_SCATTER, "tp")
_LOSS = Channel(Kind.TP, Op.ALL_REDUCE, "tp-loss")
_NORMS = Channel(Kind.TP, Op.ALL_REDUCE, "tp-norms")
_RING_GATHER = Channel(Kind.CP, Op.ALL_GATHER, "cp")
_RING_SCATTER = Channel(Kind.CP, Op.REDUCE_SCATTER, "cp")
_SWAP = Channel(Kind.CP, Op.ALL_TO_ALL, "cp")
_EXPERTS = Channel(Kind.EP, Op.ALL_TO_ALL, "ep")
_DISPATCH = Channel(Kind.EP, Op.ALL_TO_ALL, "ep-dispatch")
_COMBINE = Channel(Kind.EP, Op.ALL_TO_ALL, "ep-combine")
_EXPERT_GATHER = Channel(Kind.ETP, Op.ALL_GATHER, "etp")
_EXPERT_SCATTER = Channel(Kind.ETP, Op.REDUCE_SCATTER, "etp")
EMBEDDING = Channel(Kind.EMBEDDING, Op.ALL_REDUCE, "embedding")


def stage_volumes(workload: Workload, stage: StageParts, held: RankParameters) -> Volumes:
    """What the tensor-, context- and expert-parallel groups of a stage move in a step."""
    split, found = workload.parallelism, Volumes()
    for part in stage.parts:
        if split.tp > 1:
            _tensor(workload, part, found)
        if split.cp > 1:
            _context(workload, part, found)
        if part.block.mixture is not None and split.exchanges_tokens:
            _experts(workload, part, found)
    if split.tp > 1 and split.vocabulary_parallel:
        _ends(workload, stage, found)
    if split.tp > 1 and split.sequence_parallel:
        found.add(_NORMS, gradient_bytes(workload) * held.replicated, 1)
    return found


def gradient_bytes(workload: Workload) -> int:
    """Bytes of a gradient on the wire."""
    return 4 if workload.fp32_gradients else ACTIVATION_BYTES


def activation_bytes(workload: Workload, sequence: int, width: int) -> int:
    """Bytes of a micro-batch's vectors on all ranks of a tensor-parallel group: 2 T h."""
    return ACTIVATION_BYTES * _tokens(workload, sequence) * width


def _tokens(workload: Workload, sequence: int) -> int:
    return workload.micro_batch * sequence // workload.parallelism.cp


def _forwards(workload: Workload) -> int:
    """Forward passes a step: of each micro-batch, and again with full recomputation."""
    return workload.micro_batches * (2 if workload.recompute == "full" else 1)


def _sums(workload: Workload, size: int, forwards: int, backwards: int, found: Volumes) -> None:
    """Sums over tensor-parallel ranks of `size` bytes.

    All-reduces, or with sequence parallelism an all-gather before and a reduce-scatter after: the
    same bytes. Backward, the sum of input gradients may hide behind the weight gradients, and so
    may the gathering of inputs that were not kept.
    """
    if not workload.parallelism.sequence_parallel:
        found.add(_TP, size, forwards + backwards, hidden=backwards)
        return
    again = backwards if workload.regather_inputs else 0
    found.add(_SP_GATHER, size, forwards + backwards + again, hidden=again)
    found.add(_SP_SCATTER, size, forwards + backwards, hidden=backwards)


def _tensor(workload: Workload, part: Part, found: Volumes) -> None:
    """Each mixer and feed-forward sums once forward and once backward. A mixture whose tokens
    travel has its own groups for that; what every token passes besides still sums."""
    block, batches = part.block, workload.micro_batches
    sums = block.tensor_sums(workload.parallelism.exchanges_tokens)
    size = activation_bytes(workload, part.sequence, block.hidden)
    _sums(
        workload, size, part.count * sums * _forwards(workload), part.count * sums * batches, found
    )


def _ends(workload: Workload, stage: StageParts, found: Volumes) -> None:
    """Looking up a divided vocabulary sums once, forward; the output head once, backward; the loss
    three numbers a token. Layers that predict further tokens do all of it again."""
    model, batches = workload.model, workload.micro_batches
    ahead = 0 if model.prediction is None else model.prediction.tokens
    scattered = workload.parallelism.sequence_parallel
    size = activation_bytes(workload, workload.sequence, model.embedding.token_width)
    lookups = batches * (stage.first + (ahead if stage.last else 0))
    if model.vocab:
        if scattered:
            found.add(_SP_SCATTER, size, lookups)
            found.add(_SP_GATHER, size, lookups)
        else:
            found.add(_TP, size, lookups)
    if stage.last and model.head is not None:
        heads = batches * (1 + ahead)
        size = activation_bytes(workload, workload.sequence, model.head.inputs)
        if scattered:
            again = heads if workload.regather_inputs else 0
            found.add(_SP_GATHER, size, heads + again, hidden=again)
            found.add(_SP_SCATTER, size, heads, hidden=heads)
        else:
            found.add(_TP, size, heads, hidden=heads)
        loss = LOSS_BYTES * _tokens(workload, workload.sequence)
        found.add(_LOSS, loss, LOSS_SUMS * heads)


def _context(workload: Workload, part: Part, found: Volumes) -> None:
    """Ring: keys and values of the whole sequence pass each rank, which an all-gather of them
    counts; backward they pass again, and their gradients travel home. All the passing may hide
    behind the attention to what is there. All-to-all: queries, keys, values and results change
    places, forward and backward. Recurrent mixers change places in both forms.
    """
    split, batches = workload.parallelism, workload.micro_batches
    repeated = batches if workload.recompute != "none" else 0
    forwards = part.count * (batches + repeated)
    backwards = part.count * batches
    whole = split.cp * ACTIVATION_BYTES
    for core in part.block.cores(split.tp):
        if not isinstance(core, AttentionCore):
            continue
        keys = part.source if core.cross else part.sequence
        if split.context_form == "ring":
            size = whole * _tokens(workload, keys) * core.key_value_width
            found.add(_RING_GATHER, size, forwards + backwards, hidden=forwards + backwards)
            found.add(_RING_SCATTER, size, backwards, hidden=backwards)
        else:
            own = ACTIVATION_BYTES * _tokens(workload, part.sequence)
            other = ACTIVATION_BYTES * _tokens(workload, keys)
            queries = own * (core.query_width + core.output_width)
            each = (queries + other * core.key_value_width) / 4
            found.add(_SWAP, each, 4 * (forwards + backwards))
    for width in part.block.recurrent_widths(split.tp):
        full = _forwards(workload) * part.count + backwards
        found.add(_SWAP, ACTIVATION_BYTES * _tokens(workload, part.sequence) * width, full)


def _experts(workload: Workload, part: Part, found: Volumes) -> None:
    """Every token goes to its experts and back, forward and backward; where the matrices of an
    expert are shared out, the ranks that have them gather what each was sent and scatter sums."""
    mixture, split = part.block.mixture, workload.parallelism
    assert mixture is not None
    forwards, backwards = _forwards(workload) * part.count, workload.micro_batches * part.count
    calls = forwards + backwards
    copies = mixture.experts_per_token * mixture.expert.hidden
    sent = _tokens(workload, part.sequence) // split.tp * copies
    size, there = ACTIVATION_BYTES * sent, (1 if workload.fp8_dispatch else ACTIVATION_BYTES) * sent
    if split.ep > 1:
        same = there == size
        found.add(_EXPERTS if same else _DISPATCH, there, calls)
        found.add(_EXPERTS if same else _COMBINE, size, calls)
    if split.expert_tp > 1:
        found.add(_EXPERT_GATHER, split.expert_tp * there, calls)
        found.add(_EXPERT_SCATTER, split.expert_tp * size, calls)


class Sharing(NamedTuple):
    """What ranks with the same parameters move in a step.

    inside: by operation, among those that share state out; across: the all-reduce over replicas of
    these, of what each rank has.
    """

    inside: tuple[tuple[Op, Volume], ...]
    across: Volume


def sharing(workload: Workload, parameters: int, shards: int, layers: int) -> Sharing:
    """How gradients of `parameters` are summed, and parameters gathered.

    zero 0: an all-reduce of the gradients. 1 and 2: a reduce-scatter of them and an all-gather of
    the parameters. 3: a reduce-scatter and two all-gathers, once a step or (reshard_parameters)
    once a micro-batch. Summed over replicas once a step. All but one layer's may hide behind the
    passes of the others.
    """
    split = workload.parallelism
    hides = 1 - 1 / max(1, layers)
    gradients = float(gradient_bytes(workload) * parameters)
    if split.zero == 0:
        return Sharing(((Op.ALL_REDUCE, Volume(gradients, 1, hides * gradients)),), Volume())
    rounds = workload.micro_batches if split.reshard_parameters else 1
    gathers = rounds * (2 if split.zero == 3 else 1)
    gathered = float(gathers * ACTIVATION_BYTES * parameters)
    summed = rounds * gradients
    return Sharing(
        (
            (Op.REDUCE_SCATTER, Volume(summed, rounds, hides * summed)),
            (Op.ALL_GATHER, Volume(gathered, gathers, hides * gathered)),
        ),
        Volume(gradients / shards, 1, hides * gradients / shards),
    )


def hop_volume(workload: Workload, times: int) -> Volume:
    """What a rank sends to the next stage in one direction, `times` a micro-batch.

    2 T h bytes, over t with sequence parallelism, and the encoder's output for the layers to come.
    Plain 1F1B has no work beside a transfer; interleaved stages have, but for the first and last
    rounds.
    """
    model, split = workload.model, workload.parallelism
    size: float = activation_bytes(workload, workload.sequence, model.hidden)
    if model.encoder is not None:
        size += activation_bytes(workload, workload.encoder_sequence, model.encoder.hidden)
    if split.sequence_parallel:
        size /= split.tp
    count = workload.micro_batches * times
    beside = 0.0
    if split.virtual_pp > 1:
        all_chunks = workload.micro_batches * split.virtual_pp
        warm_up = 2 * (split.pp - 1) + (split.virtual_pp - 1) * split.pp
        beside = max(0.0, 1 - warm_up / all_chunks)
    return Volume(size * count, count, beside * size * count)


def embedding_volume(workload: Workload) -> Volume:
    """Gradients of the token embedding's copies on the first and the last stage; none where there
    is one copy."""
    model = workload.model
    copies = model.tied_embeddings or model.prediction is not None
    if workload.parallelism.pp == 1 or not copies:
        return Volume()
    return Volume(float(gradient_bytes(workload) * embedding_shard(workload)), 1, 0.0)
