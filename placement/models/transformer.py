"""Decoders by their dimensions: what `Model.transformer` takes, and what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained, problems_of
from .attention import Attention, LatentAttention
from .block import Block, Run, Stack
from .ends import Embedding, Head, Prediction
from .feed_forward import FeedForward, Mixture
from .sizes import Count, CountOrZero, LayerCount, Norm, Positions


class Dimensions(Explained):
    """Sizes of a decoder in elements; in brackets what is meant where one is left out.

    hidden, layers, heads, vocab, sequence (the longest, and the number of learned positions).
    kv_heads (heads), head_dim (hidden / heads), v_head_dim (head_dim).
    ffn (4 hidden): width of dense layers, and of experts unless expert_ffn is given.
    norm, bias (of every linear layer), positions, tied_embeddings, dropout: as the family has them.
    qkv_bias (bias). qk_norm (off): a norm of each query and key head. norms_per_layer (2).
    experts, experts_per_token (0): a mixture in every layer but the first dense_layers (0), or
    in every moe_every-th layer (1) alone, of which the last layer is one. shared_experts (0) of
    expert_ffn each, or shared_ffn, their width together; shared_expert_gate, router_bias (off).
    sliding_window (none); full_attention_every (0, never): every so manieth layer sees everything.
    kv_lora_rank and its like (0): latent attention, see `LatentAttention`.
    prediction_layers (0): see `Prediction`.
    """

    name: str = "transformer"
    hidden: Count
    layers: LayerCount
    heads: Count
    vocab: Count
    sequence: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    v_head_dim: Count | None = None
    ffn: Count | None = None
    gated_mlp: bool = False
    norm: Norm | None = None
    bias: bool | None = None
    qkv_bias: bool | None = None
    qk_norm: bool = False
    norms_per_layer: Count = 2
    positions: Positions | None = None
    tied_embeddings: bool | None = None
    dropout: bool | None = None
    experts: CountOrZero = 0
    experts_per_token: CountOrZero = 0
    expert_ffn: Count | None = None
    shared_experts: CountOrZero = 0
    shared_ffn: Count | None = None
    shared_expert_gate: bool = False
    router_bias: bool = False
    dense_layers: CountOrZero = 0
    moe_every: Count = 1
    sliding_window: Count | None = None
    full_attention_every: CountOrZero = 0
    q_lora_rank: CountOrZero = 0
    kv_lora_rank: CountOrZero = 0
    qk_nope_head_dim: CountOrZero = 0
    qk_rope_head_dim: CountOrZero = 0
    prediction_layers: CountOrZero = 0

    @model_validator(mode="after")
    def _consistent(self) -> Dimensions:
        problems = [*self._attention_faults(), *self._mixture_faults()]
        if problems:
            raise InvalidInput("Model", problems)
        return self

    def _attention_faults(self) -> list[Problem]:
        problems = []
        if self.head_dim is None and not self.kv_lora_rank and self.hidden % self.heads:
            each = f"{self.hidden / self.heads:.6g} each"
            found = f"{self.heads} heads do not divide hidden {self.hidden} ({each})"
            problems.append(Problem("heads", found, "give head_dim, or other heads"))
        if self.kv_heads is not None and self.heads % self.kv_heads:
            found = f"{self.kv_heads} kv_heads do not divide {self.heads} heads"
            problems.append(Problem("kv_heads", found, "give a divisor of heads"))
        if self.kv_lora_rank and not (self.qk_nope_head_dim and self.v_head_dim):
            found = f"kv_lora_rank {self.kv_lora_rank} without the sizes of a head"
            fix = "give qk_nope_head_dim, qk_rope_head_dim and v_head_dim"
            problems.append(Problem("kv_lora_rank", found, fix))
        if not self.kv_lora_rank:
            fix = "give kv_lora_rank, or leave it out"
            problems += [
                Problem(name, f"{getattr(self, name)}, but no latent attention", fix)
                for name in ("q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
                if getattr(self, name)
            ]
        if self.full_attention_every and self.sliding_window is None:
            found = f"every {self.full_attention_every}th layer, but no sliding_window"
            fix = "give sliding_window, or leave it out"
            problems.append(Problem("full_attention_every", found, fix))
        return problems

    def _mixture_faults(self) -> list[Problem]:
        problems = []
        chosen, experts = self.experts_per_token, self.experts
        if experts and not 1 <= chosen <= experts:
            found = f"{chosen} experts a token of {experts}"
            problems.append(Problem("experts_per_token", found, f"give 1 to {experts}"))
        if not experts:
            problems += [
                Problem(name, found, "give experts, or leave it out")
                for name, given, found in (
                    ("experts_per_token", chosen, f"{chosen} experts a token, but no experts"),
                    ("expert_ffn", self.expert_ffn, f"{self.expert_ffn}, but no experts"),
                    ("shared_experts", self.shared_experts, "shared experts, but no experts"),
                    ("shared_ffn", self.shared_ffn, f"{self.shared_ffn}, but no experts"),
                    ("dense_layers", self.dense_layers, "dense layers, but no experts"),
                )
                if given
            ]
        elif self.dense_layers >= self.layers:
            found = f"{self.dense_layers} dense layers of {self.layers}"
            problems.append(Problem("dense_layers", found, "leave some for the experts"))
        elif self.moe_every > self.layers:
            found = f"every {self.moe_every}th of {self.layers} layers"
            problems.append(Problem("moe_every", found, f"give {self.layers} at most"))
        if self.shared_experts and self.shared_ffn is not None:
            found = f"{self.shared_experts} shared experts and shared_ffn {self.shared_ffn}"
            problems.append(Problem("shared_experts", found, "give one of the two"))
        return problems

    @property
    def biased(self) -> bool:
        """Whether linear layers have biases."""
        return not self.gated_mlp if self.bias is None else self.bias

    @property
    def norm_kind(self) -> Norm:
        """The norm of the family, or the one given."""
        return self.norm or ("rms" if self.gated_mlp else "layer")

    def attention(self, window: int | None) -> Attention | LatentAttention:
        """The attention of a layer that sees so far."""
        if self.kv_lora_rank:
            return LatentAttention(
                hidden=self.hidden,
                heads=self.heads,
                q_lora_rank=self.q_lora_rank,
                kv_lora_rank=self.kv_lora_rank,
                qk_nope_head_dim=self.qk_nope_head_dim,
                qk_rope_head_dim=self.qk_rope_head_dim,
                v_head_dim=self.v_head_dim,
                bias=self.biased,
            )
        head_dim = self.hidden // self.heads if self.head_dim is None else self.head_dim
        return Attention(
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.heads if self.kv_heads is None else self.kv_heads,
            head_dim=head_dim,
            v_head_dim=head_dim if self.v_head_dim is None else self.v_head_dim,
            window=window,
            bias=self.biased,
            qkv_bias=self.biased if self.qkv_bias is None else self.qkv_bias,
            qk_norm="head" if self.qk_norm else "none",
            norm=self.norm_kind,
        )

    def feed_forward(self, sparse: bool) -> FeedForward | Mixture:
        """The feed-forward of a dense layer, or the mixture of a sparse one."""
        ffn = 4 * self.hidden if self.ffn is None else self.ffn

        def network(width: int) -> FeedForward:
            return FeedForward(
                hidden=self.hidden, ffn=width, gated=self.gated_mlp, bias=self.biased
            )

        if not sparse:
            return network(ffn)
        expert = ffn if self.expert_ffn is None else self.expert_ffn
        shared = self.shared_experts * expert if self.shared_ffn is None else self.shared_ffn
        return Mixture(
            hidden=self.hidden,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            expert=network(expert),
            shared=network(shared) if shared else None,
            shared_gate=self.shared_expert_gate,
            router_bias=self.router_bias,
        )

    def block(self, window: int | None, sparse: bool) -> Block:
        """One layer."""
        return Block(
            hidden=self.hidden,
            mixer=self.attention(window),
            feed_forward=self.feed_forward(sparse),
            norm=self.norm_kind,
            norms=self.norms_per_layer,
        )

    def layer_kinds(self) -> list[tuple[int, bool, bool]]:
        """Runs of layers: their count, whether they see everything, whether they are sparse."""
        kinds: list[tuple[int, bool, bool]] = []
        for layer in range(self.layers):
            full = self.sliding_window is None or (
                self.full_attention_every > 0 and (layer + 1) % self.full_attention_every == 0
            )
            place = layer - self.layers + 1
            sparse = bool(self.experts) and layer >= self.dense_layers
            sparse = sparse and place % self.moe_every == 0
            if kinds and kinds[-1][1:] == (full, sparse):
                kinds[-1] = (kinds[-1][0] + 1, full, sparse)
            else:
                kinds.append((1, full, sparse))
        return kinds


def transformer_parts(dimensions: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Model of these dimensions. Raises InvalidInput listing every fault."""
    try:
        given = Dimensions.model_validate(dict(dimensions))
    except ValidationError as error:
        raise InvalidInput("Model", problems_of(error, Dimensions)) from None
    gpt = not given.gated_mlp
    kinds = given.layer_kinds()
    blocks = {
        kind: given.block(None if kind[0] else given.sliding_window, kind[1])
        for kind in {(full, sparse) for _, full, sparse in kinds}
    }
    layers: list[Run] = [(count, blocks[full, sparse]) for count, full, sparse in kinds]
    positions: Positions = given.positions or ("learned" if gpt else "rotary")
    norm = given.norm_kind
    ahead = given.prediction_layers
    return {
        "name": given.name,
        "sequence": given.sequence,
        "embedding": Embedding(
            hidden=given.hidden,
            vocab=given.vocab,
            positions=given.sequence if positions == "learned" else 0,
            position_kind=positions,
        ),
        "stack": Stack.of(layers, final_norm=norm),
        "head": Head(
            inputs=given.hidden,
            outputs=given.vocab,
            tied=gpt if given.tied_embeddings is None else given.tied_embeddings,
        ),
        "prediction": (
            Prediction(stack=Stack.of([(ahead, layers[-1][1])], final_norm=norm), tokens=ahead)
            if ahead
            else None
        ),
        "dropout": gpt if given.dropout is None else given.dropout,
    }
