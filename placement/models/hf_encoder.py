"""Encoders of a config: BERT and its like, ViT, and the two halves of T5, BART and Whisper."""

from __future__ import annotations

import re
from typing import Any

from .attention import Attention
from .block import Block, Stack
from .ends import Embedding, Head, Projection, Tower
from .feed_forward import FeedForward
from .hf_decoder import HIDDEN, LAYERS, SEQUENCE, VOCAB, architecture_of, label_count
from .hf_families import Family
from .hf_feed_forward import FFN, gated_of
from .hf_keys import Keys
from .hf_layers import mixer_kinds, window_of
from .hf_mixers import HEADS
from .sizes import MOST_LAYERS, Norm


def layer_of(
    hidden: int,
    heads: int,
    ffn: int,
    *,
    norm: Norm = "layer",
    norms: int = 2,
    bias: bool = True,
    key_bias: bool = True,
    gated: bool = False,
    causal: bool = False,
    head_dim: int | None = None,
    source: int | None = None,
    window: int | None = None,
    extra: int = 0,
) -> Block:
    """A layer of plain multi-head attention, with cross-attention to `source` elements if given."""
    size = head_dim or max(hidden // heads, 1)
    own = Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=size,
        v_head_dim=size,
        causal=causal,
        window=window,
        bias=bias,
        qkv_bias=bias,
        key_bias=key_bias,
    )
    update = {"causal": False, "source_hidden": source}
    return Block(
        hidden=hidden,
        mixer=own,
        cross=None if source is None else own.model_copy(update=update),
        feed_forward=FeedForward(hidden=hidden, ffn=ffn, gated=gated, bias=bias),
        norm=norm,
        norms=norms,
        extra=extra,
    )


def heads_of(keys: Keys, hidden: int, *names: str) -> int:
    """The number of heads, which must divide the width."""
    heads = keys.need("the number of attention heads", *(names or HEADS))
    if hidden % heads and not keys.problems:
        keys.fault((names or HEADS)[0], f"{heads} do not divide {hidden}", "give a divisor")
    return heads


def layers_of(keys: Keys, *names: str) -> int:
    """The number of layers."""
    return keys.need("the number of layers", *(names or LAYERS), most=MOST_LAYERS)


def encoder_parts(keys: Keys, name: str, family: Family) -> dict[str, Any]:
    """The fields of a Model for an encoder alone."""
    own_names = name == "distilbert"
    hidden = keys.need("the width of the model", *(("dim", "hidden_size") if own_names else HIDDEN))
    ffn = keys.need("the width of the feed-forward", *(("hidden_dim",) if own_names else FFN))
    heads, layers = heads_of(keys, hidden), layers_of(keys)
    vocab = keys.need("the size of the vocabulary", *VOCAB)
    sequence = keys.count(*SEQUENCE)
    width = keys.count("embedding_size") if name in ("albert", "electra") else None
    rotary = family.positions == "rotary"
    if rotary:
        stack = _modern_layers(keys, name, family, layer_sizes=(hidden, heads, ffn), layers=layers)
    else:
        keys.need("the number of positions", *SEQUENCE)
        block = layer_of(hidden, heads, ffn)
        stack = Stack.of([(layers, block)], final_norm=None, shared=name == "albert")
    types = keys.count("type_vocab_size", least=0)
    if types is None and name in ("bert", "albert", "electra"):
        types = 2
        keys.note(f"no type_vocab_size: two token types, as every {name} has")
    embedding = Embedding(
        hidden=hidden,
        vocab=vocab,
        width=None if width == hidden else width,
        projection_bias=True,
        positions=0 if rotary else sequence or 1,
        position_kind=family.positions,
        position_width=None if width == hidden else width,
        token_types=0 if own_names or rotary else types or 0,
        norm=family.norm,
    )
    return {
        "sequence": sequence,
        "embedding": embedding,
        "stack": stack,
        "head": _head(keys, name, family, embedding),
        "dropout": family.dropout,
    }


def _modern_layers(
    keys: Keys, name: str, family: Family, layer_sizes: tuple[int, int, int], layers: int
) -> Stack:
    """Layers of ModernBERT: gated, without biases, most windowed; the first lacks a norm."""
    hidden, heads, ffn = layer_sizes
    made = []
    for index, kind in enumerate(mixer_kinds(keys, name, layers)):
        made.append(
            layer_of(
                hidden,
                heads,
                ffn,
                norm=family.norm,
                norms=2 if index else 1,
                bias=False,
                gated=gated_of(keys, family),
                window=window_of(keys) if kind == "window" else None,
            )
        )
    return Stack.of(made, final_norm=family.norm)


def _head(keys: Keys, name: str, family: Family, embedding: Embedding) -> Head | None:
    """The head of the architecture named; that of masked language modelling when none is."""
    kind = architecture_of(keys)
    hidden, width = embedding.hidden, embedding.token_width
    pooler = Projection(name="pooler", inputs=hidden, outputs=hidden, bias=True)
    labels = label_count(keys)
    if re.search(r"^\w*Model$", kind):
        if name in ("distilbert", "electra", "modernbert"):
            return None
        return Head(inputs=1, outputs=1, tied=True, before=(pooler,))
    if kind.endswith("ForTokenClassification"):
        return Head(inputs=hidden, outputs=labels, bias=True)
    if kind.endswith("ForQuestionAnswering"):
        return Head(inputs=hidden, outputs=2, bias=True)
    if kind.endswith("ForSequenceClassification"):
        return Head(inputs=hidden, outputs=labels, bias=True, before=(pooler,))
    if kind == "ElectraForPreTraining":
        return Head(inputs=hidden, outputs=1, bias=True, before=(pooler,))
    if not kind:
        keys.note("no architectures: counted with a head for masked language modelling")
    norm = width if family.norm == "layer-unbiased" else 2 * width
    transform = Projection(
        name="transform",
        inputs=hidden,
        outputs=width,
        bias=family.norm == "layer",
        extra=norm,
    )
    tied = keys.flag("tie_word_embeddings", default=True)
    return Head(inputs=width, outputs=embedding.vocab, tied=tied, bias=True, before=(transform,))


def image_embedding(
    keys: Keys, hidden: int, class_tokens: int, bias: bool, channels: int = 3, frames: int = 1
) -> tuple[Embedding, int]:
    """Patches of square images, with a learned position each; and how many tokens they are."""
    image = keys.need("the side of an image in pixels", "image_size")
    patch = keys.need("the side of a patch in pixels", "patch_size")
    if image < patch and not keys.problems:
        keys.fault("patch_size", f"{patch} in an image of {image}", "give a smaller one")
    tokens = max(image // patch, 1) ** 2 + class_tokens
    inputs = (keys.count("num_channels", "in_channels", "in_chans") or channels) * frames * patch**2
    front = Projection(name="patches", inputs=inputs, outputs=hidden, bias=bias)
    embedding = Embedding(
        hidden=hidden,
        positions=tokens,
        position_kind="learned",
        class_tokens=class_tokens,
        front=(front,),
    )
    return embedding, tokens


def vision_parts(keys: Keys, name: str, family: Family) -> dict[str, Any]:
    """The fields of a Model for a vision transformer alone."""
    hidden = keys.need("the width of the model", *HIDDEN)
    distilled = keys.text("model_type") == "deit"
    embedding, tokens = image_embedding(keys, hidden, 2 if distilled else 1, bias=True)
    if name == "dinov2":
        embedding = embedding.model_copy(update={"extra": hidden})
    ratio = keys.number("mlp_ratio")
    ffn = int(ratio * hidden) if ratio and not keys.has(*FFN) else 0
    block = layer_of(
        hidden,
        heads_of(keys, hidden),
        ffn or keys.need("the width of the feed-forward", *FFN),
        extra=2 * hidden if name == "dinov2" else 0,
    )
    kind = architecture_of(keys)
    head: Head | None = None
    if re.search(r"^\w*Model$", kind):
        if name == "vit":
            pooler = Projection(name="pooler", inputs=hidden, outputs=hidden, bias=True)
            head = Head(inputs=1, outputs=1, tied=True, before=(pooler,))
    else:
        inputs = 2 * hidden if name == "dinov2" else hidden
        classes = keys.count("num_classes") or label_count(keys)
        head = Head(inputs=inputs, outputs=classes, bias=True)
    return {
        "sequence": tokens,
        "embedding": embedding,
        "stack": Stack.of([(layers_of(keys), block)], final_norm="layer"),
        "head": head,
        "dropout": family.dropout,
    }


def pair_parts(keys: Keys, name: str, family: Family) -> dict[str, Any]:
    """The fields of a Model for an encoder-decoder: T5, BART and its like, Whisper."""
    hidden = keys.need("the width of the model", "d_model", "hidden_size")
    vocab = keys.need("the size of the vocabulary", *VOCAB)
    encoder, decoder = (
        _t5_layers(keys, hidden) if name == "t5" else _bart_layers(keys, name, hidden)
    )
    learned = _learned(keys, name, family)
    normed: Norm | None = "layer" if name == "bart" else None
    embedding = Embedding(
        hidden=hidden,
        vocab=vocab,
        positions=learned,
        position_kind=family.positions,
        norm=normed,
    )
    if name == "whisper":
        inside, frames = _sound(keys, hidden)
    else:
        inside = embedding.model_copy(update={"vocab": 0})
        frames = None
    tied = keys.flag("tie_word_embeddings", default=family.tied)
    return {
        "sequence": keys.count("max_target_positions", *SEQUENCE),
        "embedding": embedding,
        "stack": decoder,
        "head": Head(inputs=hidden, outputs=vocab, tied=tied),
        "encoder": Tower(
            name="encoder", embedding=inside, stack=encoder, sequence=frames, outputs=frames
        ),
        "dropout": family.dropout,
    }


def _learned(keys: Keys, name: str, family: Family) -> int:
    if family.positions != "learned":
        return 0
    names = ("max_target_positions",) if name == "whisper" else SEQUENCE
    return keys.need("the number of positions", *names) + family.position_offset


def _sound(keys: Keys, hidden: int) -> tuple[Embedding, int]:
    """Whisper's two convolutions over a spectrogram; the second halves the frames."""
    frames = keys.need("the frames of a sample", "max_source_positions")
    bins = keys.need("the bands of the spectrogram", "num_mel_bins")
    front = (
        Projection(name="conv1", inputs=3 * bins, outputs=hidden, bias=True, rows=2.0),
        Projection(name="conv2", inputs=3 * hidden, outputs=hidden, bias=True),
    )
    fixed = Embedding(hidden=hidden, positions=frames, position_kind="learned", front=front)
    return fixed, frames


def _t5_layers(keys: Keys, hidden: int) -> tuple[Stack, Stack]:
    heads = keys.need("the number of attention heads", *HEADS)
    ffn = keys.need("the width of the feed-forward", *FFN)
    size = keys.need("the size of a head", "d_kv")
    gated = gated_of(keys, Family(gated=False))
    table = (keys.count("relative_attention_num_buckets") or 32) * heads
    # UMT5 has a table of relative positions in every layer, T5 one for all.
    own = keys.text("model_type") == "umt5"

    def layer(cross: bool) -> Block:
        return layer_of(
            hidden,
            heads,
            ffn,
            norm="rms",
            norms=3 if cross else 2,
            bias=False,
            gated=gated,
            causal=cross,
            head_dim=size,
            source=hidden if cross else None,
            extra=table if own else 0,
        )

    count = layers_of(keys, "num_layers", "num_hidden_layers")
    extra = 0 if own else table
    decoder = keys.count("num_decoder_layers", most=MOST_LAYERS) or count
    return (
        Stack.of([(count, layer(cross=False))], extra=extra),
        Stack.of([(decoder, layer(cross=True))], extra=extra),
    )


def _bart_layers(keys: Keys, name: str, hidden: int) -> tuple[Stack, Stack]:
    speech = name == "whisper"
    kind = keys.text("model_type") or name
    # BART and Marian norm after each part, the others before, and once more at the end.
    last: Norm | None = None if kind in ("bart", "marian", "plbart") else "layer"

    def stack(side: str, cross: bool) -> Stack:
        block = layer_of(
            hidden,
            heads_of(keys, hidden, f"{side}_attention_heads"),
            keys.need("the width of the feed-forward", f"{side}_ffn_dim"),
            norms=3 if cross else 2,
            key_bias=not speech,
            causal=cross,
            source=hidden if cross else None,
        )
        return Stack.of([(layers_of(keys, f"{side}_layers"), block)], final_norm=last)

    return stack("encoder", cross=False), stack("decoder", cross=True)
