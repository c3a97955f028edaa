"""What each pipeline rank has: layers of each kind with the tokens they work on, and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from ..models import Attention, Block, LatentAttention, Stack
from ..models.work import share
from .division import starts

if TYPE_CHECKING:
    from ..workload import Workload


@dataclass(frozen=True, slots=True)
class Part:
    """Layers of a stage that are alike.

    count: how many. copies: how many sets of parameters they have. sequence: tokens a sample.
    source: tokens a sample of the encoder, for cross-attention.
    """

    count: int
    copies: int
    block: Block
    sequence: int
    source: int


class StageParts(NamedTuple):
    """Layers of a pipeline rank over all of its virtual stages. first, last: whether the rank has
    the embedding, and the output head."""

    parts: tuple[Part, ...]
    first: bool
    last: bool

    @property
    def layers(self) -> int:
        """Layers, those of towers and of prediction included."""
        return sum(part.count for part in self.parts)


def stage_parts(workload: Workload) -> tuple[StageParts, ...]:
    """The pipeline ranks of a workload, first to last.

    The first runs an encoder and towers besides, the last the layers that predict further tokens.
    """
    model, split = workload.model, workload.parallelism
    limits = starts(workload.piece_layers)
    source = workload.encoder_sequence
    before, after = front_parts(workload), back_parts(workload)
    found = []
    for stage in range(split.pp):
        counts: dict[int, tuple[int, Block]] = {}
        for start, end in limits[stage :: split.pp]:
            for count, block in model.stack.between(start, end):
                counts[id(block)] = (counts.get(id(block), (0, block))[0] + count, block)
        own = [
            Part(count, 1 if model.stack.shared else count, block, workload.sequence, source)
            for count, block in counts.values()
        ]
        first, last = stage == 0, stage == split.pp - 1
        parts = [*(before if first else ()), *own, *(after if last else ())]
        found.append(StageParts(tuple(parts), first, last))
    return tuple(found)


def front_parts(workload: Workload) -> list[Part]:
    """Layers that the first stage has besides: those of an encoder, and of towers."""
    model, source = workload.model, workload.encoder_sequence
    found: list[Part] = []
    if model.encoder is not None:
        found += _all_parts(model.encoder.stack, source, source)
    if workload.tower_inputs:
        for tower in model.towers:
            tokens = workload.tower_inputs * (tower.sequence or 0)
            found += _all_parts(tower.stack, tokens, source)
    return found


def back_parts(workload: Workload) -> list[Part]:
    """Layers that the last stage has besides: those that predict further tokens."""
    ahead = workload.model.prediction
    if ahead is None:
        return []
    return list(_all_parts(ahead.stack, workload.sequence, workload.encoder_sequence))


def _all_parts(stack: Stack, sequence: int, source: int) -> Iterator[Part]:
    for count, block in stack.kinds:
        yield Part(count, 1 if stack.shared else count, block, sequence, source)


class RankParameters(NamedTuple):
    """Parameters on one rank: of experts, and all others. replicated: of these, what all
    tensor-parallel ranks have whole and work on with different tokens."""

    dense: int
    experts: int
    replicated: int


def rank_parameters(workload: Workload, stage: StageParts) -> RankParameters:
    """Parameters of a rank on a stage.

    The first stage has the embedding, tables of positions, an encoder and towers; the last the
    final norm, the output head (a copy of the embedding when that is tied and on another stage),
    and what predicts further tokens, with a copy of the embedding for them.
    """
    model, split = workload.model, workload.parallelism
    tp, vocabulary = split.tp, split.vocabulary_tp
    dense = experts = replicated = 0
    for part in stage.parts:
        dense += part.copies * part.block.dense_parameters(tp)
        experts += part.copies * part.block.expert_parameters(split.expert_tp, split.ep)
        replicated += part.copies * _replicated(part.block, tp)
    if stage.first:
        dense += model.input_parameters(vocabulary) + model.stack.extra
        towers = [] if model.encoder is None else [model.encoder]
        towers += model.towers if workload.tower_inputs else ()
        for tower in towers:
            layers = sum(
                part.copies * part.block.parameters() for part in _all_parts(tower.stack, 0, 0)
            )
            whole = tower.parameters() - layers
            dense += whole - tower.embedding.parameters() + tower.embedding.parameters(vocabulary)
            replicated += tower.stack.norm_parameters
    if stage.last:
        dense += model.output_parameters(vocabulary, own_copy=not stage.first)
        replicated += model.norm_parameters
        if model.prediction is not None:
            ahead = model.prediction
            joins = ahead.parameters() - ahead.stack.parameters() + ahead.stack.norm_parameters
            dense += joins
            replicated += joins
            if not stage.first:
                dense += embedding_shard(workload)
    return RankParameters(dense, experts, replicated)


def embedding_shard(workload: Workload) -> int:
    """Parameters of one rank's share of the token embedding; the vocabulary is padded to divide."""
    embedding = workload.model.embedding
    return share(embedding.vocab, workload.parallelism.vocabulary_tp) * embedding.token_width


def stage_parameters(workload: Workload, stage: int) -> int:
    """Parameters on each rank of a pipeline stage, before data-parallel ranks share them out."""
    counts = rank_parameters(workload, stage_parts(workload)[stage])
    return counts.dense + counts.experts


def _replicated(block: Block, tp: int) -> int:
    """Parameters of a layer that every tensor-parallel rank has whole, experts aside.

    t ranks together hold the layer once and what is replicated t - 1 times more. Key/value heads
    that only some of the ranks share are not among it: t is chosen so that none are.
    """
    if tp == 1:
        return 0
    ranks = tp
    for part in (block.mixer, block.cross):
        if isinstance(part, Attention | LatentAttention) and gcd(ranks, part.kv_heads) > 1:
            ranks = gcd(ranks, part.kv_heads)
    return (ranks * block.dense_parameters(ranks) - block.dense_parameters(1)) // (ranks - 1)
