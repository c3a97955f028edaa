"""Keys of published model configs that many families share."""

from __future__ import annotations

from typing import Any


def llama(hidden: int, layers: int, heads: int, kv: int, ffn: int, vocab: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }


def gpt(hidden: int, layers: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {"n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocab} | more


def plain(
    hidden: int, layers: int, heads: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
    } | more


def bart(width: int, layers: int, heads: int, ffn: int, **more: Any) -> dict[str, Any]:
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", ffn))
    }
    return {"d_model": width, **sides, **more}


def t5(width: int, layers: int, heads: int, size: int, ffn: int, **more: Any) -> dict[str, Any]:
    return {
        "d_model": width,
        "num_layers": layers,
        "num_heads": heads,
        "d_kv": size,
        "d_ff": ffn,
        "vocab_size": 32128,
        "relative_attention_num_buckets": 32,
    } | more


TIED = {"tie_word_embeddings": True}
