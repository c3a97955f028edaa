"""A model by its layers, and exactly how many parameters it has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained
from .attention import Attention, LatentAttention
from .block import Block, Run, Stack
from .catalog import catalog_name, catalog_row, nearest_names
from .ends import Embedding, Head, Prediction, Tower
from .feed_forward import FeedForward, Mixture
from .hf import hf_parts
from .sizes import Count, Positions
from .transformer import transformer_parts


class Model(Explained):
    """A model: embedding, layers, output head, and what stands beside them.

    Make one with `Model.transformer`, `Model.from_catalog` or `Model.from_hf`.

    sequence: the longest in tokens, None when unknown. stack: the layers that a pipeline divides.
    encoder: that of an encoder-decoder, part of the model. towers: vision or audio towers beside
    the text, not in `parameters`. prediction: layers used in training alone, not in `parameters`.
    dropout: whether activations are dropped in training. notes: what was odd about its source.
    As JSON, the keywords of `transformer` are understood as well.
    """

    name: str = "transformer"
    sequence: Count | None
    embedding: Embedding
    stack: Stack
    head: Head | None = None
    encoder: Tower | None = None
    towers: tuple[Tower, ...] = ()
    prediction: Prediction | None = None
    dropout: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def transformer(cls, **dimensions: Any) -> Self:
        """A decoder by its dimensions; the fields of `Dimensions` say what there is.

        What is left out follows the family that the MLP tells. Without a gate, GPT: layer norm with
        bias, biases on linear layers, learned positions, tied embeddings, dropout, ffn 4 x hidden.
        With a gate, Llama: RMS norm, no biases, rotary positions, an output head of its own.
        `kv_heads` is `heads` and `head_dim` is hidden / heads by default.
        Raises InvalidInput listing every fault.
        """
        return cls(**transformer_parts(dimensions))

    @classmethod
    def from_catalog(cls, name: str) -> Self:
        """A published model, or the shape of a published measurement, by its name.

        Raises InvalidInput with the nearest names when there is none.
        """
        own, row = catalog_row(name)
        parts = hf_parts(row) if "model_type" in row else transformer_parts(row)
        return cls(**parts | {"name": own, "notes": ()})

    @classmethod
    def from_hf(cls, config: str | os.PathLike[str] | Mapping[str, Any]) -> Self:
        """The model of a Hugging Face config.json: a path, the file's folder, or its content.

        Of a wrapper for several kinds of input this is the text model, with towers beside it. What
        is odd but readable stands in `notes`. Raises InvalidInput when it is no model config or
        lacks dimensions, saying which.
        """
        model = cls(**hf_parts(config))
        odd = cls._unlike_its_name(model)
        return model if odd is None else model.model_copy(update={"notes": (*model.notes, odd)})

    @classmethod
    def _unlike_its_name(cls, model: Model) -> str | None:
        """What a model has otherwise than the published one whose name it bears."""
        claimed = re.sub(r"[-_]hf$", "", re.split(r"/|--", model.name)[-1])
        named = catalog_name(claimed) or catalog_name(claimed.partition("_")[2])
        if named is None:
            if not any(note.startswith("no model_type") for note in model.notes):
                return None
            near = ", ".join(
                f"{name} ({other.layers} layers of {other.hidden})"
                for name in nearest_names(claimed)[:1]
                for other in (cls.from_catalog(name),)
            )
            return f"no published model {claimed!r} is known" + (near and f"; nearest: {near}")
        public = cls.from_catalog(named)
        unlike = [
            f"{key} {getattr(public, key)}, not {getattr(model, key)}"
            for key in ("layers", "hidden", "heads", "kv_heads", "ffn", "experts", "vocab")
            if getattr(public, key) != getattr(model, key)
        ]
        return f"the published {named} has {', '.join(unlike)}" if unlike else None

    @model_validator(mode="before")
    @classmethod
    def _by_dimensions(cls, data: Any) -> Any:
        if isinstance(data, dict) and "stack" not in data and "hidden" in data:
            return transformer_parts(data)
        return data

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.embedding.hidden != self.stack.hidden:
            found = f"hidden {self.embedding.hidden} before layers of {self.stack.hidden}"
            raise InvalidInput("Model", [Problem("embedding", found, "make them equal")])
        return self

    @cached_property
    def parameters(self) -> int:
        """Parameters in all, an encoder's included; tied embeddings are counted once."""
        head = 0 if self.head is None else self.head.parameters
        encoder = 0 if self.encoder is None else self.encoder.parameters()
        return self.embedding.parameters() + self.stack.parameters() + head + encoder

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token uses, embeddings and output head included."""
        idle = self.stack.parameters() - self.stack.active_parameters
        if self.encoder is not None:
            idle += self.encoder.parameters() - self.encoder.active_parameters
        return self.parameters - idle

    @cached_property
    def tower_parameters(self) -> int:
        """Parameters of towers beside the text."""
        return sum(tower.parameters() for tower in self.towers)

    @cached_property
    def prediction_parameters(self) -> int:
        """Parameters of the prediction layers."""
        return 0 if self.prediction is None else self.prediction.parameters()

    def input_parameters(self, tp: int = 1) -> int:
        """Parameters before the first layer on one of `tp` ranks."""
        return self.embedding.parameters(tp)

    def output_parameters(self, tp: int = 1, own_copy: bool = False) -> int:
        """Parameters after the last layer on one of `tp` ranks: final norm and output head.

        own_copy: a tied output matrix is held again, as on a pipeline stage without the embedding.
        """
        count = self.stack.norm_parameters
        if self.head is None:
            return count
        if own_copy or not self.head.tied:
            count += self.head.matrix_parameters(tp)
        return count + self.head.other_parameters(tp)

    @property
    def hidden(self) -> int:
        """Elements of a vector between layers."""
        return self.stack.hidden

    @property
    def layers(self) -> int:
        """How many layers a pipeline divides."""
        return self.stack.layers

    @property
    def runs(self) -> tuple[Run, ...]:
        """The layers in order, each run of equal ones as its length and its block."""
        return self.stack.runs

    @property
    def kinds(self) -> tuple[Run, ...]:
        """Every different layer once, with how many in all are like it."""
        return self.stack.kinds

    @property
    def vocab(self) -> int:
        """Different tokens; 0 for a model without a token embedding."""
        return self.embedding.vocab

    @property
    def positions(self) -> Positions:
        """How positions are told."""
        return self.embedding.position_kind

    @property
    def tied_embeddings(self) -> bool:
        """Whether the output matrix is the token embedding's."""
        return self.head is not None and self.head.tied

    @cached_property
    def attention(self) -> Attention | LatentAttention | None:
        """The first attention there is (full attention before windowed), None without."""
        found = [block.attention for _, block in self.kinds if block.attention is not None]
        full = [part for part in found if part.core().window is None]
        return next(iter(full or found), None)

    @cached_property
    def mixture(self) -> Mixture | None:
        """The first mixture of experts there is, None in a dense model."""
        return next((block.mixture for _, block in self.kinds if block.mixture is not None), None)

    @cached_property
    def _feed_forward(self) -> FeedForward | None:
        """The first dense feed-forward there is, else an expert."""
        dense = (b.feed_forward for _, b in self.kinds if isinstance(b.feed_forward, FeedForward))
        return next(dense, None if self.mixture is None else self.mixture.expert)

    @property
    def heads(self) -> int:
        """Query heads; 0 without attention."""
        return 0 if self.attention is None else self.attention.heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values; 0 without attention."""
        return 0 if self.attention is None else self.attention.kv_heads

    @property
    def head_dim(self) -> int:
        """Elements of a query or key head; 0 without attention."""
        return 0 if self.attention is None else self.attention.head_dim

    @property
    def v_head_dim(self) -> int:
        """Elements of a value head; 0 without attention."""
        return 0 if self.attention is None else self.attention.v_head_dim

    @property
    def ffn(self) -> int:
        """Width of the feed-forward: of dense layers where there are any, else of an expert."""
        return 0 if self._feed_forward is None else self._feed_forward.ffn

    @property
    def gated_mlp(self) -> bool:
        """Whether the feed-forward has a gate."""
        return self._feed_forward is not None and self._feed_forward.gated

    @property
    def experts(self) -> int:
        """Experts of a mixture layer, shared ones aside; 0 in a dense model."""
        return 0 if self.mixture is None else self.mixture.experts

    @property
    def experts_per_token(self) -> int:
        """Experts that a token is sent to; 0 in a dense model."""
        return 0 if self.mixture is None else self.mixture.experts_per_token

    @property
    def expert_ffn(self) -> int:
        """Width of an expert; 0 in a dense model."""
        return 0 if self.mixture is None else self.mixture.expert.ffn

    @property
    def shared_ffn(self) -> int:
        """Width of the network that every token of a mixture passes; 0 without one."""
        return 0 if self.mixture is None or self.mixture.shared is None else self.mixture.shared.ffn

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding."""
        return self.embedding.vocab * self.embedding.token_width

    @property
    def position_parameters(self) -> int:
        """Parameters of learned positions."""
        return self.embedding.position_parameters

    @property
    def norm_parameters(self) -> int:
        """Parameters of the final norm."""
        return self.stack.norm_parameters

    def block(self, layer: int) -> Block:
        """The block of a layer, counted from 0."""
        ((_, found),) = self.stack.between(layer, layer + 1)
        return found

    def layer_parameters(self, tp: int = 1, ep: int = 1, layer: int = 0) -> int:
        """Parameters of one layer on one of `tp` x `ep` ranks."""
        return self.block(layer).parameters(tp, ep)

    def mlp_parameters(self, tp: int = 1) -> int:
        """Parameters of one feed-forward (of one expert in a mixture) on one of `tp` ranks."""
        return 0 if self._feed_forward is None else self._feed_forward.dense_parameters(tp)
