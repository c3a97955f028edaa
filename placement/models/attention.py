"""Mixers that attend: grouped-query attention in its variants, and multi-head latent attention."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained
from .sizes import Count, CountOrZero, Norm, norm_parameters
from .work import AttentionCore, MatMul, share

QKNorm = Literal["none", "head", "whole"]
"""Norms of queries and keys: none, over each head with weights that heads share, or with weights
for all heads."""


class Attention(Explained):
    """Multi-head attention: `heads` query heads, `kv_heads` heads of keys and values.

    head_dim: elements of a query and key head; v_head_dim: of a value head, the same by default.
    window, chunk: how far a query sees (`AttentionCore`). qkv_bias, bias: biases of the query, key
    and value projections (of keys unless key_bias is off), and of the output projection.
    sinks: a learned logit a head. output_gate: a gate of the output, projected with the queries.
    key_is_value: the keys before their norm are the values too, so that one projection gives both.
    source_hidden: width of the encoder's output, which makes this cross-attention.
    """

    kind: Literal["attention"] = "attention"
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    v_head_dim: Count
    causal: bool = True
    window: Count | None = None
    chunk: Count | None = None
    bias: bool = False
    qkv_bias: bool = False
    key_bias: bool = True
    qk_norm: QKNorm = "none"
    norm: Norm = "rms"
    sinks: bool = False
    output_gate: bool = False
    key_is_value: bool = False
    source_hidden: Count | None = None

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.heads % self.kv_heads:
            found = f"{self.kv_heads} kv_heads do not divide {self.heads} heads"
            fault = Problem("kv_heads", found, "give a divisor of heads")
            raise InvalidInput("Attention", [fault])
        return self

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("heads", self.heads),)

    def core(self, tp: int = 1) -> AttentionCore:
        """The attention proper on one of `tp` ranks; each has at least one key/value head."""
        return AttentionCore(
            heads=share(self.heads, tp),
            kv_heads=share(self.kv_heads, tp),
            qk_dim=self.head_dim,
            v_dim=self.v_head_dim,
            causal=self.causal,
            window=self.window,
            chunk=self.chunk,
            cross=self.source_hidden is not None,
        )

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks."""
        core = self.core(tp)
        query = core.query_width + (core.output_width if self.output_gate else 0)
        keys = core.key_value_width - (core.kv_heads * core.v_dim if self.key_is_value else 0)
        if self.source_hidden is None:
            inputs = [MatMul("qkv", self.hidden, query + keys, "mixer input", "columns")]
        else:
            inputs = [
                MatMul("query", self.hidden, query, "cross input", "columns"),
                MatMul(
                    "key_value",
                    self.source_hidden,
                    keys,
                    "encoder output",
                    "columns",
                    source="encoder",
                ),
            ]
        reads = "mixer output" if self.source_hidden is None else "cross output"
        return (*inputs, MatMul("output", core.output_width, self.hidden, reads, "rows"))

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks beside the matrices: biases, norms of heads, sinks."""
        core = self.core(tp)
        count = core.heads if self.sinks else 0
        if self.qkv_bias:
            count += core.query_width + (core.output_width if self.output_gate else 0)
            count += core.kv_heads * (0 if self.key_is_value else self.v_head_dim)
            count += core.kv_heads * (self.head_dim if self.key_bias else 0)
        if self.bias:
            count += self.hidden
        if self.qk_norm == "head":
            count += 2 * norm_parameters(self.norm, self.head_dim)
        elif self.qk_norm == "whole":
            heads = core.heads + core.kv_heads
            count += norm_parameters(self.norm, heads * self.head_dim)
        return count


class LatentAttention(Explained):
    """Multi-head latent attention: keys and values come from one compressed vector a token.

    q_lora_rank: width of the compressed query, 0 for none. bias: of both compressions and of the
    output. output_gate: a gate of the output, projected from the input.
    indexer_heads, indexer_head_dim, indexer_top: a lightning indexer that chooses the keys a query
    sees (0 for none). Sources: DeepSeek-V2 (2024), section 2.1; DeepSeek-V3.2 (2025).
    """

    kind: Literal["latent"] = "latent"
    hidden: Count
    heads: Count
    q_lora_rank: CountOrZero = 0
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: CountOrZero
    v_head_dim: Count
    causal: bool = True
    bias: bool = False
    output_gate: bool = False
    indexer_heads: CountOrZero = 0
    indexer_head_dim: CountOrZero = 0
    indexer_top: CountOrZero = 0

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values once they are expanded."""
        return self.heads

    @property
    def head_dim(self) -> int:
        """Elements of a query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("heads", self.heads),)

    def core(self, tp: int = 1) -> AttentionCore:
        """The attention proper on one of `tp` ranks, with keys and values expanded."""
        heads = share(self.heads, tp)
        top = self.indexer_top or None
        return AttentionCore(heads, heads, self.head_dim, self.v_head_dim, self.causal, window=top)

    def indexer_core(self) -> AttentionCore | None:
        """The scores of the lightning indexer, whole on every rank; it has one key a token."""
        if not self.indexer_heads:
            return None
        return AttentionCore(self.indexer_heads, 1, self.indexer_head_dim, 0, self.causal)

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks; the compressions are whole on every rank."""
        heads = share(self.heads, tp)
        hidden, latent = self.hidden, self.kv_lora_rank
        found = []
        if self.q_lora_rank:
            found.append(MatMul("query_down", hidden, self.q_lora_rank, "mixer input"))
            width = self.q_lora_rank
            found.append(
                MatMul("query_up", width, heads * self.head_dim, "query latent", "columns")
            )
        else:
            found.append(MatMul("query", hidden, heads * self.head_dim, "mixer input", "columns"))
        expanded = heads * (self.qk_nope_head_dim + self.v_head_dim)
        found += [
            MatMul("key_value_down", hidden, latent + self.qk_rope_head_dim, "mixer input"),
            MatMul("key_value_up", latent, expanded, "key/value latent", "columns"),
            MatMul("output", heads * self.v_head_dim, hidden, "mixer output", "rows"),
        ]
        if self.output_gate:
            width = heads * self.v_head_dim
            found.append(MatMul("gate", hidden, width, "mixer input", "columns"))
        if self.indexer_heads:
            width = self.indexer_heads * self.indexer_head_dim
            reads = "query latent" if self.q_lora_rank else "mixer input"
            found += [
                MatMul("index_query", self.q_lora_rank or hidden, width, reads),
                MatMul("index_key", hidden, self.indexer_head_dim, "mixer input"),
                MatMul("index_weights", hidden, self.indexer_heads, "mixer input"),
            ]
        return tuple(found)

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters beside the matrices, on every rank: norms of the latents, biases."""
        count = self.q_lora_rank + self.kv_lora_rank
        if self.bias:
            count += self.q_lora_rank + self.kv_lora_rank + self.qk_rope_head_dim + self.hidden
        if self.indexer_heads:
            count += norm_parameters("layer", self.indexer_head_dim)
        return count
