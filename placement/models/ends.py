"""What stands before and after the layers: embeddings, output heads, towers beside the text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..explained import Explained
from .block import Stack
from .sizes import Count, CountOrZero, Norm, Positions, norm_parameters
from .work import MatMul, share


class Projection(Explained):
    """A matrix outside the layers: patches to embeddings, a tower's output to the text's width.

    rows: how often a token of the part is multiplied (a convolution with stride 2 before: 2).
    extra: parameters beside matrix and bias, such as a norm's.
    """

    name: str
    inputs: Count
    outputs: Count
    bias: bool = False
    rows: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    extra: CountOrZero = 0

    @property
    def parameters(self) -> int:
        """Parameters, which every rank holds."""
        return self.inputs * self.outputs + (self.outputs if self.bias else 0) + self.extra

    @property
    def matmul(self) -> MatMul:
        """The multiplication, whole on every rank."""
        return MatMul(self.name, self.inputs, self.outputs, f"{self.name} input", rows=self.rows)


class Embedding(Explained):
    """What turns tokens, patches or samples of sound into vectors of `hidden` elements.

    width: of the token embedding where it is projected to hidden (ALBERT, small OPT).
    position_kind, positions: how positions are told, and how many are learned, each of
    position_width (hidden by default). token_types: segment embeddings. class_tokens: learned
    tokens put before the others. norm: over the sum. front: convolutions or patch projections.
    """

    hidden: Count
    vocab: CountOrZero = 0
    width: Count | None = None
    projection_bias: bool = False
    positions: CountOrZero = 0
    position_kind: Positions = "none"
    position_width: Count | None = None
    token_types: CountOrZero = 0
    class_tokens: CountOrZero = 0
    norm: Norm | None = None
    front: tuple[Projection, ...] = ()
    extra: CountOrZero = 0

    @property
    def token_width(self) -> int:
        """Elements of a token's embedding before any projection."""
        return self.hidden if self.width is None else self.width

    @property
    def position_parameters(self) -> int:
        """Parameters of learned positions."""
        width = self.hidden if self.position_width is None else self.position_width
        return self.positions * width

    def parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks: the vocabulary is padded to divide, the rest whole."""
        width = self.token_width
        count = share(self.vocab, tp) * width + self.position_parameters + self.extra
        count += self.token_types * width + self.class_tokens * self.hidden
        if self.norm is not None:
            count += norm_parameters(self.norm, width)
        if self.width is not None:
            count += width * self.hidden + (self.hidden if self.projection_bias else 0)
        return count + sum(part.parameters for part in self.front)


class Head(Explained):
    """What turns the last vector into `outputs` numbers: logits of the vocabulary, or classes.

    tied: the matrix is the token embedding's. before: what the vector passes first.
    """

    inputs: Count
    outputs: Count
    tied: bool = False
    bias: bool = False
    before: tuple[Projection, ...] = ()

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The multiplications on one of `tp` ranks."""
        last = MatMul("head", self.inputs, share(self.outputs, tp), "head input", "columns")
        return (*(part.matmul for part in self.before), last)

    def matrix_parameters(self, tp: int = 1) -> int:
        """Parameters of the output matrix on one of `tp` ranks."""
        return self.inputs * share(self.outputs, tp)

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks beside the output matrix."""
        bias = share(self.outputs, tp) if self.bias else 0
        return bias + sum(part.parameters for part in self.before)

    @property
    def parameters(self) -> int:
        """Parameters of its own: a tied matrix is the embedding's."""
        return self.other_parameters() + (0 if self.tied else self.matrix_parameters())


class Tower(Explained):
    """Layers beside the main ones, with their own input: an encoder, a vision or audio tower.

    sequence: tokens that its layers work on for one sample, where it is fixed. outputs: tokens it
    hands on. projector: what its result passes on its way to the main layers.
    """

    name: str
    embedding: Embedding
    stack: Stack
    sequence: Count | None = None
    outputs: Count | None = None
    projector: tuple[Projection, ...] = ()

    @property
    def hidden(self) -> int:
        """Elements of a vector between its layers."""
        return self.stack.hidden

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return self.stack.layers

    @property
    def heads(self) -> int:
        """Heads of its attention."""
        return next((b.attention.heads for b in self.stack.blocks if b.attention is not None), 0)

    def parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters on one of `tp` x `ep` ranks, those of the projector included."""
        projector = sum(part.parameters for part in self.projector)
        return self.embedding.parameters(tp) + self.stack.parameters(tp, ep) + projector

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses."""
        return self.parameters() - self.stack.parameters() + self.stack.active_parameters


class Prediction(Explained):
    """Layers that predict tokens further ahead in training (multi-token prediction).

    tokens: how many tokens ahead are predicted. For each one the last vector and the next token's
    embedding, both normed, are joined by a matrix of 2 hidden x hidden, pass as many of the layers
    and end in a final norm. Embedding and head are the main ones.
    Source: DeepSeek-V3 (2024), section 2.2.
    """

    stack: Stack
    tokens: Count

    def matmuls(self) -> tuple[MatMul, ...]:
        """The joining matrix of one token ahead, whole on every rank."""
        hidden = self.stack.hidden
        return (MatMul("join", 2 * hidden, hidden, "join input"),)

    def parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters on one of `tp` x `ep` ranks."""
        hidden, norm = self.stack.hidden, self.stack.norm_parameters
        # The stack has counted one final norm.
        joins = self.tokens * 2 * hidden * hidden + (3 * self.tokens - 1) * norm
        return self.stack.parameters(tp, ep) + joins
