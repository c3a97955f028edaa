"""What a layer computes for each token: matrix multiplications, and the core of its mixer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["none", "columns", "rows"]
"""How tensor-parallel ranks divide a matrix: not at all, by its outputs, or by its inputs (so that
the results are summed over the ranks)."""

Rule = Literal["decay", "delta", "diagonal"]
"""How a recurrent state takes in a token: decayed by a scalar a head (Mamba-2), by a scalar and a
delta-rule correction (gated delta-net), or by each element's own rate (Mamba)."""


def share(count: int, degree: int) -> int:
    """The part of `count` that the fullest of `degree` ranks has."""
    return -(-count // degree)


@dataclass(frozen=True, slots=True)
class MatMul:
    """A weight matrix as one rank multiplies with it: (m x k) times (k x n), `count` times a layer.

    m is `rows` x the tokens of the rank's micro-batch. For experts `count` is the experts on the
    rank and `rows` what each gets when tokens spread evenly, so that the whole is
    2 x rows x count x k x n FLOPs a token. Of `source` "encoder" the tokens are the encoder's.
    reads: names the tensor multiplied; equal names in a block are the same tensor, kept once for
    the backward pass.
    expert: the matrix is divided over expert-parallel ranks, not over tensor-parallel ones alone.
    """

    name: str
    k: int
    n: int
    reads: str
    split: Split = "none"
    rows: float = 1.0
    count: int = 1
    expert: bool = False
    source: Literal["own", "encoder"] = "own"

    @property
    def weights(self) -> int:
        """Elements of the weights on the rank."""
        return self.k * self.n * self.count

    @property
    def flops_per_token(self) -> float:
        """Forward FLOPs on the rank for each token of its micro-batch."""
        return 2.0 * self.rows * self.weights


@dataclass(frozen=True, slots=True)
class AttentionCore:
    """Attention proper on one rank: scores, softmax and the weighted sum of values.

    heads, kv_heads: of the rank. qk_dim, v_dim: elements of a query or key head, and of a value
    head. window: keys that a query sees, itself included (both sides together when not causal).
    chunk: queries see keys of their own chunk of so many tokens alone. cross: keys and values are
    the encoder's.
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    causal: bool
    window: int | None = None
    chunk: int | None = None
    cross: bool = False

    @property
    def query_width(self) -> int:
        """Elements of the queries of one token."""
        return self.heads * self.qk_dim

    @property
    def key_value_width(self) -> int:
        """Elements of the keys and values of one token."""
        return self.kv_heads * (self.qk_dim + self.v_dim)

    @property
    def output_width(self) -> int:
        """Elements of the result of one token."""
        return self.heads * self.v_dim

    def keys_per_query(self, sequence: int, source: int | None = None) -> float:
        """Keys that a query of a sequence of so many tokens sees, on average (exact).

        source: tokens of the encoder, for cross-attention. Causal attention counts its triangle
        with the diagonal, (sequence + 1) / 2, where some publications count the whole square.
        """
        if self.cross:
            return float(sequence if source is None else source)
        if self.chunk is not None and self.chunk < sequence:
            whole, rest = divmod(sequence, self.chunk)
            inside = self._pairs(self.chunk), self._pairs(rest)
            return (whole * inside[0] + inside[1]) / sequence
        return self._pairs(sequence) / sequence

    def _pairs(self, sequence: int) -> int:
        if self.causal:
            window = min(self.window or sequence, sequence)
            return window * (window + 1) // 2 + (sequence - window) * window
        reach = sequence - 1 if self.window is None else min(self.window // 2, sequence - 1)
        return sequence + 2 * (reach * (reach + 1) // 2 + (sequence - 1 - reach) * reach)

    def flops_per_token(self, sequence: int, source: int | None = None) -> float:
        """Forward FLOPs on the rank for each query token; softmax is left out."""
        keys = self.keys_per_query(sequence, source)
        return 2.0 * keys * self.heads * (self.qk_dim + self.v_dim)


@dataclass(frozen=True, slots=True)
class ScanCore:
    """A recurrence over the sequence on one rank, computed chunk by chunk, and the short
    convolution before it.

    heads: of the rank; each keeps a state of key_dim x value_dim elements. groups: sets of keys
    and queries that the heads share. conv_channels, conv_kernel: of the depth-wise convolution.
    """

    heads: int
    groups: int
    key_dim: int
    value_dim: int
    chunk: int
    conv_channels: int
    conv_kernel: int
    rule: Rule

    def flops_per_token(self, sequence: int, source: int | None = None) -> float:
        """Forward FLOPs on the rank for each token: linear in the sequence beyond one chunk.

        decay: products inside chunks, chunk states, and their use (Dao & Gu 2024, section 6).
        delta: besides these the keys' own products and two triangular products (Yang et al. 2024,
        section 3.2). diagonal: decay, input, sum and output of each element of the state.
        """
        chunk, state = min(self.chunk, sequence), self.key_dim * self.value_dim
        flops = 2.0 * self.conv_channels * self.conv_kernel
        if self.rule == "diagonal":
            return flops + 6.0 * self.heads * state
        if self.rule == "decay":
            inside = self.groups * self.key_dim + self.heads * self.value_dim
            return flops + 2.0 * chunk * inside + 4.0 * self.heads * state
        inside = self.heads * (3 * self.key_dim + 2 * self.value_dim)
        return flops + 2.0 * chunk * inside + 6.0 * self.heads * state


Core = AttentionCore | ScanCore
