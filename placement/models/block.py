"""A layer of a model, and a stack of layers in which equal ones are described once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained
from .attention import Attention, LatentAttention
from .feed_forward import FeedForward, Mixture
from .recurrent import DeltaNet, KimiDelta, Mamba, Mamba2
from .sizes import MOST_LAYERS, Count, CountOrZero, LayerCount, Norm, norm_parameters
from .work import AttentionCore, Core, MatMul

Mixer = Annotated[
    Attention | LatentAttention | DeltaNet | KimiDelta | Mamba2 | Mamba, Field(discriminator="kind")
]


class Block(Explained):
    """One layer: a mixer of tokens, cross-attention in a decoder with an encoder, a feed-forward.

    Each part may be absent. norms: norms over `hidden`. parallel: mixer and feed-forward read the
    same input and are summed together, so that the layer has one sum over tensor-parallel ranks.
    extra: parameters beside these that every rank holds, such as scales of residuals.
    """

    hidden: Count
    mixer: Mixer | None = None
    cross: Attention | None = None
    feed_forward: Annotated[FeedForward | Mixture, Field(discriminator="kind")] | None = None
    norm: Norm = "rms"
    norms: CountOrZero = 2
    parallel: bool = False
    extra: CountOrZero = 0

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        problems = [
            Problem(name, f"hidden {part.hidden} in a block of {self.hidden}", "make them equal")
            for name, part in (
                ("mixer", self.mixer),
                ("cross", self.cross),
                ("feed_forward", self.feed_forward),
            )
            if part is not None and part.hidden != self.hidden
        ]
        if problems:
            raise InvalidInput("Block", problems)
        return self

    @property
    def attention(self) -> Attention | LatentAttention | None:
        """The mixer when its cost is quadratic in the sequence."""
        return self.mixer if isinstance(self.mixer, Attention | LatentAttention) else None

    @property
    def mixture(self) -> Mixture | None:
        """The feed-forward when it is a mixture of experts."""
        return self.feed_forward if isinstance(self.feed_forward, Mixture) else None

    def tensor_sums(self, experts_travel: bool = False) -> int:
        """Sums over tensor-parallel ranks in one forward pass.

        experts_travel: tokens travel to their experts, so that of a mixture only what every token
        passes besides is summed.
        """
        parts = [p for p in (self.mixer, self.cross, self.feed_forward) if p is not None]
        count = len(parts)
        if experts_travel and self.mixture is not None and self.mixture.shared is None:
            count -= 1
        return min(count, 1) if self.parallel else count

    def recurrent_widths(self, tp: int = 1) -> tuple[int, ...]:
        """Elements a token that go into a recurrence on one of `tp` ranks, and that come out."""
        if self.mixer is None or all(isinstance(c, AttentionCore) for c in self.cores(tp)):
            return ()
        matmuls = self.mixer.matmuls(tp)
        return matmuls[0].n, matmuls[-1].k

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        parts = (self.mixer, self.cross, self.feed_forward)
        return tuple(split for part in parts if part is not None for split in part.tensor_splits)

    def matmuls(self, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> tuple[MatMul, ...]:
        """Every multiplication with a weight matrix on one of `tp` x `ep` ranks, in order.

        expert_tp: ranks that divide one expert; `tp` by default.
        """
        found = self.mixer.matmuls(tp) if self.mixer is not None else ()
        if self.cross is not None:
            found += self.cross.matmuls(tp)
        if self.feed_forward is not None:
            found += self.feed_forward.matmuls(tp, ep, expert_tp)
        return found

    def cores(self, tp: int = 1) -> tuple[Core, ...]:
        """What mixes tokens on one of `tp` ranks: attention or a recurrence, cross-attention.

        A lightning indexer's scores, which choose the keys of the attention, are a core besides.
        """
        found: list[Core] = [p.core(tp) for p in (self.mixer, self.cross) if p is not None]
        if isinstance(self.mixer, LatentAttention) and (index := self.mixer.indexer_core()):
            found.append(index)
        return tuple(found)

    def parameters(self, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> int:
        """Parameters on one of `tp` x `ep` ranks."""
        experts = self.expert_parameters(tp if expert_tp is None else expert_tp, ep)
        return self.dense_parameters(tp) + experts

    def dense_parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks that are not divided over expert-parallel ranks.

        Matrices are divided; norms, the router, compressions to a latent and the biases that follow
        a sum over ranks are on every rank. With more ranks than key/value heads, each rank has one.
        """
        count = self.norms * norm_parameters(self.norm, self.hidden) + self.extra
        for part in (self.mixer, self.cross):
            if part is not None:
                count += sum(matrix.weights for matrix in part.matmuls(tp))
                count += part.other_parameters(tp)
        if self.feed_forward is not None:
            count += self.feed_forward.dense_parameters(tp)
        return count

    def expert_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters of experts on one of `tp` x `ep` ranks."""
        return 0 if self.feed_forward is None else self.feed_forward.expert_parameters(tp, ep)

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token uses."""
        idle = 0 if self.feed_forward is None else self.feed_forward.idle_parameters
        return self.parameters() - idle


Run = tuple[int, Block]
"""A block, and how many layers in a row are like it."""


class Stack(Explained):
    """Layers in order: `blocks` are the different ones, `order` says which follow each other.

    order: pairs of a count and an index into blocks. final_norm: the norm after the last layer.
    shared: all layers that are alike have one set of parameters (ALBERT).
    extra: parameters beside the layers, such as a table of relative positions.
    """

    hidden: Count
    blocks: tuple[Block, ...] = Field(min_length=1)
    order: tuple[tuple[LayerCount, CountOrZero], ...] = Field(min_length=1)
    final_norm: Norm | None = "rms"
    shared: bool = False
    extra: CountOrZero = 0

    @classmethod
    def of(cls, layers: Iterable[Block | Run], **fields: object) -> Self:
        """A stack of these blocks (or counts of blocks) in order, with equal ones folded."""
        blocks: dict[Block, int] = {}
        known: dict[int, int] = {}
        order: list[tuple[int, int]] = []
        # Kept in a list: an identity holds only while its object lives.
        for count, block in [(1, a) if isinstance(a, Block) else a for a in layers]:
            if id(block) not in known:
                known[id(block)] = blocks.setdefault(block, len(blocks))
            index = known[id(block)]
            if order and order[-1][1] == index:
                count += order.pop()[0]
            order.append((count, index))
        kinds = tuple(blocks)
        hidden = kinds[0].hidden if kinds else 0
        return cls(**{"hidden": hidden, "blocks": kinds, "order": tuple(order), **fields})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        problems = []
        for place, (_, index) in enumerate(self.order):
            if index >= len(self.blocks):
                found = f"block {index} of {len(self.blocks)}"
                problems.append(
                    Problem(f"order[{place}]", found, f"give 0 to {len(self.blocks) - 1}")
                )
        for place, block in enumerate(self.blocks):
            if block.hidden != self.hidden:
                found = f"hidden {block.hidden} in a stack of {self.hidden}"
                problems.append(Problem(f"blocks[{place}]", found, "make them equal"))
        if sum(count for count, _ in self.order) > MOST_LAYERS:
            problems.append(Problem("order", "too many layers", f"give {MOST_LAYERS} at most"))
        if problems:
            raise InvalidInput("Stack", problems)
        return self

    @cached_property
    def layers(self) -> int:
        """How many layers there are."""
        return sum(count for count, _ in self.order)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The layers in order, each run of equal ones as its length and its block."""
        return tuple((count, self.blocks[index]) for count, index in self.order)

    @cached_property
    def kinds(self) -> tuple[Run, ...]:
        """Every different block once, with how many layers in all are like it."""
        return self._kinds(self.order)

    def between(self, first: int, last: int) -> tuple[Run, ...]:
        """The different blocks of layers `first` to `last` (not included), with their counts."""
        found = []
        start = 0
        for count, index in self.order:
            inside = min(last, start + count) - max(first, start)
            if inside > 0:
                found.append((inside, index))
            start += count
        return self._kinds(found)

    def _kinds(self, order: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
        counts: dict[int, int] = {}
        for count, index in order:
            counts[index] = counts.get(index, 0) + count
        return tuple((count, self.blocks[index]) for index, count in counts.items())

    @property
    def norm_parameters(self) -> int:
        """Parameters of the final norm."""
        return 0 if self.final_norm is None else norm_parameters(self.final_norm, self.hidden)

    def parameters(self, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> int:
        """Parameters of all layers and the final norm on one of `tp` x `ep` ranks."""
        layers = sum(
            (1 if self.shared else count) * block.parameters(tp, ep, expert_tp)
            for count, block in self.kinds
        )
        return layers + self.norm_parameters + self.extra

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token uses."""
        idle = sum(
            (1 if self.shared else count) * (block.parameters() - block.active_parameters)
            for count, block in self.kinds
        )
        return self.parameters() - idle
