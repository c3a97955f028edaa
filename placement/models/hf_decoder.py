"""Decoders of a config: dimensions, layers, embeddings and output head put together."""

from __future__ import annotations

import re
from typing import Any

from .attention import Attention, LatentAttention
from .block import Block, Mixer, Stack
from .ends import Embedding, Head, Prediction, Projection
from .feed_forward import FeedForward, Mixture
from .hf_families import Family
from .hf_feed_forward import dense_of, mixture_of, sparse_layers
from .hf_keys import Keys
from .hf_layers import Kind, block_marks, chunk_of, mixer_kinds, window_of
from .hf_mixers import (
    attention_of,
    biases_of,
    delta_net_of,
    global_of,
    kimi_delta_of,
    mamba2_of,
    mamba_of,
    windowed_of,
)
from .sizes import MOST_LAYERS, Norm, Positions

HIDDEN = ("hidden_size", "n_embd", "d_model", "hidden_dim", "n_embed", "model_dim", "dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
VOCAB = ("vocab_size", "padded_vocab_size", "n_vocab")
SEQUENCE = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "max_seq_length",
    "seq_length",
    "seq_len",
    "model_max_length",
)
# Published models predict one to three tokens ahead.
_MOST_PREDICTED = 100
_PREDICTED = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


def decoder_parts(keys: Keys, name: str, family: Family) -> dict[str, Any]:
    """The fields of a Model for a decoder; faults and notes gather in `keys`."""
    hidden = keys.need("the width of the model", *HIDDEN)
    vocab = keys.need("the size of the vocabulary", *VOCAB)
    norm = _norm(keys, name, family)
    if name == "nemotron_h":
        layers, ahead = _hybrid_layers(keys, name, family, hidden)
    else:
        count = keys.need("the number of layers", *LAYERS, most=MOST_LAYERS)
        if keys.has("block_configs"):
            layers = _varied_layers(keys, name, family, hidden, count)
        else:
            layers = _layers(keys, name, family, hidden, count)
        ahead = [next((layer for layer in reversed(layers) if _attends(layer)), layers[-1])]
    embedding = _embedding(keys, name, family, hidden, vocab)
    stack = Stack.of(layers, final_norm=_final_norm(keys, family, norm))
    predicted = keys.count(*_PREDICTED, least=0, most=_MOST_PREDICTED) or 0
    prediction = (
        Prediction(stack=Stack.of(ahead * predicted, final_norm=norm), tokens=predicted)
        if predicted
        else None
    )
    return {
        "sequence": keys.count(*SEQUENCE),
        "embedding": embedding,
        "stack": stack,
        "head": _head(keys, family, embedding),
        "prediction": prediction,
        "dropout": family.dropout,
    }


def _note_what_is_left_out(keys: Keys, name: str) -> None:
    """Faults and notes of parts that some members of a family have besides."""
    for key in ("num_kv_shared_layers", "hidden_size_per_layer_input"):
        if name == "gemma4" and (keys.count(key, least=0) or 0) > 0:
            fix = "give its sizes to Model.transformer, or capture the module"
            keys.fault(key, "above 0", f"such layers are not described here; {fix}")
    if keys.has("attn_res_block_size"):
        keys.note("the residual attention over blocks of layers (attn_res) is not counted")


def _attends(block: Block) -> bool:
    return block.attention is not None and block.attention.core().window is None


def _norm(keys: Keys, name: str, family: Family) -> Norm:
    if name == "mpt":
        return "layer-unbiased" if keys.flag("no_bias", default=True) else "layer"
    return family.norm


def _final_norm(keys: Keys, family: Family, norm: Norm) -> Norm | None:
    before = keys.flag("do_layer_norm_before", default=family.final_norm)
    return norm if before else None


def _layers(keys: Keys, name: str, family: Family, hidden: int, count: int) -> list[Block]:
    kinds = mixer_kinds(keys, name, count)
    sparse = sparse_layers(keys, count)
    _note_what_is_left_out(keys, name)
    norm, norms, parallel = _norm(keys, name, family), family.norms, family.parallel
    if name == "falcon":
        norms, parallel = _falcon_norms(keys)
    elif keys.has("use_parallel_residual"):
        parallel = keys.flag("use_parallel_residual", default=parallel)
        # GPT-NeoX keeps both norms of its parallel layers; StableLM does not.
        norms = 1 if parallel and name == "stablelm" else 2
    mixers: dict[Kind, Mixer] = {}
    halves: dict[bool, FeedForward | Mixture] = {}
    alone = name in ("mamba", "mamba2", "falcon_mamba")
    found: dict[tuple[Kind, bool], Block] = {}
    for kind, mixed in zip(kinds, sparse, strict=True):
        if (kind, mixed) in found:
            continue
        if kind not in mixers:
            mixers[kind] = _mixer(keys, name, family, hidden, kind)
        if mixed not in halves and not alone:
            build = mixture_of if mixed else dense_of
            halves[mixed] = build(keys, name, family, hidden)
        found[kind, mixed] = Block(
            hidden=hidden,
            mixer=mixers[kind],
            feed_forward=halves.get(mixed),
            norm=norm,
            norms=norms + (3 if mixed and name == "gemma4" else 0),
            parallel=parallel,
            extra=_beside_experts(keys, name, halves.get(mixed)),
        )
    return [found[pair] for pair in zip(kinds, sparse, strict=True)]


def _beside_experts(keys: Keys, name: str, half: FeedForward | Mixture | None) -> int:
    """Parameters of a mixture that its family alone has."""
    if not isinstance(half, Mixture):
        return 0
    if name == "gemma4":
        # The router scales its input, and what each expert gives.
        return half.hidden + half.experts
    if name == "kimi_linear" and keys.flag("latent_moe_use_norm", default=False):
        return half.expert.hidden
    return 0


def _falcon_norms(keys: Keys) -> tuple[int, bool]:
    if keys.flag("new_decoder_architecture", default=False):
        return keys.count("num_ln_in_parallel_attn") or 2, True
    parallel = keys.flag("parallel_attn", default=True)
    return (1 if parallel else 2), parallel


def _mixer(keys: Keys, name: str, family: Family, hidden: int, kind: Kind) -> Mixer:
    if kind == "linear" and name == "kimi_linear":
        return kimi_delta_of(keys, hidden)
    if kind == "linear":
        return delta_net_of(keys, hidden)
    if kind == "mamba" and name in ("jamba", "mamba", "falcon_mamba"):
        return mamba_of(keys, hidden, dt_norms=name == "jamba")
    if kind == "mamba":
        return mamba2_of(keys, hidden)
    full = attention_of(keys, name, family, hidden)
    if name == "gemma4" and kind == "full" and isinstance(full, Attention):
        return global_of(keys, full)
    if isinstance(full, LatentAttention) or kind not in ("window", "chunk"):
        added = keys.flag("add_full_attention_sink_bias", default=family.sinks)
        return (
            full if isinstance(full, LatentAttention) else full.model_copy(update={"sinks": added})
        )
    reach = {"window": window_of(keys)} if kind == "window" else {"chunk": chunk_of(keys)}
    return windowed_of(keys, full).model_copy(update=reach)


def _hybrid_layers(
    keys: Keys, name: str, family: Family, hidden: int
) -> tuple[list[Block], list[Block]]:
    """Layers of one part each, as in Nemotron-H, and those of one predicted token."""
    marks = block_marks(keys, "hybrid_override_pattern", "layers_block_type")
    if marks is None:
        if not keys.problems:
            fix = "add the pattern of the layers (or layers_block_type)"
            keys.fault("hybrid_override_pattern", "missing", fix)
        marks = ["dense"]
    count = keys.count(*LAYERS)
    if count is not None and count != len(marks) and not keys.problems:
        found = f"{count}, but the pattern has {len(marks)} blocks"
        keys.fault(LAYERS[0], found, "make them equal")
    blocks = {kind: _part(keys, name, family, hidden, kind) for kind in dict.fromkeys(marks)}
    keys.note(f"{len(marks)} layers of one part each: {_tally(marks)}")
    ahead = block_marks(keys, "mtp_hybrid_override_pattern", "mtp_layers_block_type") or []
    extra = [blocks.get(kind) or _part(keys, name, family, hidden, kind) for kind in ahead]
    layers = [blocks[kind] for kind in marks]
    return layers, extra or layers[-1:]


def _tally(marks: list[Kind]) -> str:
    names = {"mamba": "Mamba-2", "full": "attention", "dense": "feed-forward"}
    return ", ".join(
        f"{marks.count(kind)} {names.get(kind, kind)}" for kind in dict.fromkeys(marks)
    )


def _part(keys: Keys, name: str, family: Family, hidden: int, kind: Kind) -> Block:
    if kind == "dense":
        return Block(hidden=hidden, feed_forward=dense_of(keys, name, family, hidden), norms=1)
    if kind == "mixture":
        return Block(hidden=hidden, feed_forward=mixture_of(keys, name, family, hidden), norms=1)
    return Block(hidden=hidden, mixer=_mixer(keys, name, family, hidden, kind), norms=1)


def _varied_layers(keys: Keys, name: str, family: Family, hidden: int, count: int) -> list[Block]:
    """Layers that a search has changed one by one (Nemotron NAS), by `block_configs`."""
    entries = keys.items("block_configs") or []
    if len(entries) != count:
        fix = f"give one for each of {count} layers"
        keys.fault("block_configs", f"{len(entries)} entries", fix)
        return [Block(hidden=hidden)]
    plain = {**keys.data, "num_key_value_heads": None}
    full = attention_of(Keys(plain, keys.place, keys.problems, keys.notes), name, family, hidden)
    found: dict[str, Block] = {}
    layers = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            keys.fault(f"block_configs[{index}]", "no object", "give attention and ffn")
            return [Block(hidden=hidden)]
        mark = repr(entry)
        if mark not in found:
            place = f"block_configs[{index}]"
            found[mark] = _varied(
                Keys(entry, place, keys.problems, keys.notes), keys, name, family, full
            )
        layers.append(found[mark])
    return layers


def _varied(
    own: Keys, keys: Keys, name: str, family: Family, full: Attention | LatentAttention
) -> Block:
    hidden = full.hidden
    for part in ("attention", "ffn"):
        if own.flag(f"{part}.replace_with_linear", default=False):
            own.fault(f"{part}.replace_with_linear", "true", "such layers are not described here")
    mixer = feed_forward = None
    if not own.flag("attention.no_op", default=False) and isinstance(full, Attention):
        group = own.count("attention.n_heads_in_group")
        kv = full.heads // group if group else own.count("attention.num_key_value_heads")
        kv = kv or keys.count("num_key_value_heads") or full.heads
        if full.heads % kv or (group and full.heads % group):
            own.fault("attention", f"{kv} groups of {full.heads} heads", "give a divisor")
            kv = full.heads
        window = own.count("attention.window_length")
        mixer = full.model_copy(update={"kv_heads": kv, "window": window})
    if not own.flag("ffn.no_op", default=False):
        multiple = own.number("ffn.ffn_mult")
        if multiple is not None and multiple < 1e4:
            # As its modelling code has it: two thirds of the multiple, up to a multiple of 256.
            width = -(-max(int(2 * multiple * hidden / 3), 1) // 256) * 256
        else:
            width = own.count("ffn.intermediate_size") or keys.need(
                "the width of the feed-forward", "intermediate_size"
            )
        bias = biases_of(keys, name, family).mlp
        feed_forward = FeedForward(hidden=hidden, ffn=width, gated=True, bias=bias)
    norms = (mixer is not None) + (feed_forward is not None)
    return Block(hidden=hidden, mixer=mixer, feed_forward=feed_forward, norms=norms)


def _embedding(keys: Keys, name: str, family: Family, hidden: int, vocab: int) -> Embedding:
    kind: Positions = family.positions
    if name in ("falcon", "mpt"):
        alibi = keys.flag("alibi", "attn_config.alibi", default=family.positions == "alibi")
        kind = "alibi" if alibi else "learned" if name == "mpt" else "rotary"
        if name == "mpt" and keys.flag("attn_config.rope", default=False):
            kind = "rotary"
    elif keys.text("position_embedding_type") in ("rope", "nope"):
        kind = "rotary"
    learned = 0
    if kind == "learned":
        learned = keys.need("the number of positions", *SEQUENCE) + family.position_offset
    width = keys.count("word_embed_proj_dim", "embedding_size")
    return Embedding(
        hidden=hidden,
        vocab=vocab,
        width=None if width == hidden else width,
        positions=learned,
        position_kind=kind,
        norm=family.norm if family.embedding_norm else None,
    )


def _head(keys: Keys, family: Family, embedding: Embedding) -> Head | None:
    hidden = embedding.hidden
    kind = architecture_of(keys)
    labels = label_count(keys)
    if re.search(r"For(Sequence|Token)Classification$", kind):
        return Head(inputs=hidden, outputs=labels, bias="Token" in kind)
    if re.search(r"^\w*Model$", kind) and "Head" not in kind:
        keys.note(f"{kind} has no output head")
        return None
    tied = keys.flag("tie_word_embeddings", "tie_embeddings", default=family.tied)
    before: tuple[Projection, ...] = ()
    if embedding.width is not None:
        before = (Projection(name="project_out", inputs=hidden, outputs=embedding.token_width),)
    return Head(
        inputs=embedding.token_width,
        outputs=embedding.vocab,
        tied=tied,
        bias=keys.flag("lm_head_bias", "use_lm_head_bias", default=family.head_bias),
        before=before,
    )


def architecture_of(keys: Keys) -> str:
    """The first of a config's architectures, without a text model's wrapping; may be empty."""
    given = keys.items("architectures") or []
    return given[0] if given and isinstance(given[0], str) else ""


def label_count(keys: Keys) -> int:
    """Classes of a classifier: transformers has two where none are named."""
    names = keys.data.get("id2label")
    return len(names) if isinstance(names, dict) and names else keys.count("num_labels") or 2
