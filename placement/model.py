"""A transformer by its dimensions, and exactly how many parameters it has."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .errors import InvalidInput, Problem
from .explained import Explained

Count = Annotated[int, Field(ge=1)]
Norm = Literal["layer", "rms"]
Positions = Literal["learned", "rotary"]


class Model(Explained):
    """A decoder-only transformer. Make one with `Model.transformer`.

    Sizes are in elements: `hidden`, `ffn` (the feed-forward width, of each expert in a mixture),
    `head_dim`, `vocab`, `sequence` (the longest, and the number of learned positions).
    `norm` "layer" has a weight and a bias, "rms" a weight. `bias` is that of every linear layer,
    `qkv_bias` that of query, key and value alone. `experts` 0 is a dense model.
    """

    name: str = "transformer"
    hidden: Count
    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocab: Count
    sequence: Count
    gated_mlp: bool
    norm: Norm
    bias: bool
    qkv_bias: bool
    qk_norm: bool
    norms_per_layer: Count
    positions: Positions
    tied_embeddings: bool
    experts: Annotated[int, Field(ge=0)]
    experts_per_token: Annotated[int, Field(ge=0)]

    @classmethod
    def transformer(
        cls,
        *,
        hidden: int,
        layers: int,
        heads: int,
        vocab: int,
        sequence: int,
        kv_heads: int | None = None,
        ffn: int | None = None,
        gated_mlp: bool = False,
        experts: int = 0,
        experts_per_token: int = 0,
        head_dim: int | None = None,
        norm: Norm | None = None,
        bias: bool | None = None,
        qkv_bias: bool | None = None,
        qk_norm: bool = False,
        norms_per_layer: int = 2,
        positions: Positions | None = None,
        tied_embeddings: bool | None = None,
        name: str = "transformer",
    ) -> Self:
        """A model by its dimensions. What is left out follows the family that the MLP tells.

        Without a gate, GPT: layer norm with bias, biases on linear layers, learned positions, tied
        embeddings, ffn 4 x hidden. With a gate, Llama: RMS norm, no biases, rotary positions, an
        output head of its own. `kv_heads` is `heads` and `head_dim` is hidden / heads by default.
        Raises InvalidInput listing every fault.
        """
        gpt = not gated_mlp
        if head_dim is None and heads > 0 and hidden % heads:
            found = f"{heads} heads do not divide hidden {hidden} ({hidden / heads:.6g} each)"
            raise InvalidInput("Model", [Problem("heads", found, "give head_dim, or other heads")])
        biased = gpt if bias is None else bias
        return cls(
            name=name,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=heads if kv_heads is None else kv_heads,
            head_dim=head_dim if head_dim is not None else hidden // max(heads, 1),
            ffn=4 * hidden if ffn is None else ffn,
            vocab=vocab,
            sequence=sequence,
            gated_mlp=gated_mlp,
            norm=norm or ("layer" if gpt else "rms"),
            bias=biased,
            qkv_bias=biased if qkv_bias is None else qkv_bias,
            qk_norm=qk_norm,
            norms_per_layer=norms_per_layer,
            positions=positions or ("learned" if gpt else "rotary"),
            tied_embeddings=gpt if tied_embeddings is None else tied_embeddings,
            experts=experts,
            experts_per_token=experts_per_token,
        )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        if self.heads % self.kv_heads:
            found = f"{self.kv_heads} kv_heads do not divide {self.heads} heads"
            problems.append(Problem("kv_heads", found, "give a divisor of heads"))
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            found = f"{self.experts_per_token} experts a token of {self.experts}"
            problems.append(Problem("experts_per_token", found, f"give 1 to {self.experts}"))
        if self.experts_per_token and not self.experts:
            found = f"{self.experts_per_token} experts a token, but no experts"
            problems.append(Problem("experts_per_token", found, "give experts, or leave it out"))
        if problems:
            raise InvalidInput("Model", problems)
        return self

    @property
    def parameters(self) -> int:
        """Parameters in all; tied embeddings are counted once."""
        embeddings = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return (
            self.layers * self.layer_parameters()
            + embeddings
            + self.position_parameters
            + self.norm_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses, embeddings and output head included."""
        idle = max(0, self.experts - self.experts_per_token)
        return self.parameters - self.layers * idle * self.mlp_parameters()

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding, and of an output head of its own."""
        return self.vocab * self.hidden

    @property
    def position_parameters(self) -> int:
        """Parameters of learned positions."""
        return self.sequence * self.hidden if self.positions == "learned" else 0

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm over the hidden size."""
        return self.hidden * (2 if self.norm == "layer" else 1)

    def layer_parameters(self, tp: int = 1) -> int:
        """Parameters of one layer on one of `tp` tensor-parallel ranks.

        Matrices are divided; norms, the router, and the biases that follow a sum over ranks are
        on every rank. With more ranks than key/value heads, each rank has one such head.
        """
        feed_forward = self.mlp_parameters(tp)
        if self.experts:
            feed_forward = self.experts * feed_forward + self.hidden * self.experts
        return (
            self._attention_parameters(tp)
            + feed_forward
            + self.norms_per_layer * self.norm_parameters
        )

    def mlp_parameters(self, tp: int = 1) -> int:
        """Parameters of one feed-forward block (of one expert in a mixture) on one rank."""
        inputs = 2 if self.gated_mlp else 1
        weights = (inputs + 1) * self.hidden * self.ffn // tp
        return weights + (inputs * self.ffn // tp + self.hidden if self.bias else 0)

    def _attention_parameters(self, tp: int) -> int:
        query = self.heads * self.head_dim // tp
        key_and_value = 2 * max(1, self.kv_heads // tp) * self.head_dim
        weights = self.hidden * (query + key_and_value) + query * self.hidden
        biases = query + key_and_value if self.qkv_bias else 0
        if self.bias:
            biases += self.hidden
        return weights + biases + (2 * self.head_dim if self.qk_norm else 0)
