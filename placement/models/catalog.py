"""Models by name: published checkpoints, and the shapes of published measurements.

Rows are in the words of `Dimensions` or, with a model_type, of Hugging Face configs. Sources: the
checkpoints' config.json; GPT shapes: Narayanan 2021 (Table 1), Korthikanti 2022 (Table 3), Brown
2020 (Table 2.1), the Megatron-LM README (weak scaling on H100), Bang et al. 2024 (vTrain).
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import Any

from ..errors import InvalidInput, Problem
from ..explained import shown

Row = dict[str, Any]


def _gpt(hidden: int, layers: int, heads: int, vocab: int, sequence: int) -> Row:
    return {
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "vocab": vocab,
        "sequence": sequence,
    }


def _llama(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocab: int,
    sequence: int,
    **more: Any,
) -> Row:
    return {
        **_gpt(hidden, layers, heads, vocab, sequence),
        "kv_heads": kv_heads,
        "ffn": ffn,
        "gated_mlp": True,
        **more,
    }


def _experts(count: int, chosen: int, ffn: int, **more: Any) -> Row:
    return {"experts": count, "experts_per_token": chosen, "expert_ffn": ffn, **more}


def _latent(query_rank: int) -> Row:
    return {
        "q_lora_rank": query_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }


def _config(
    model_type: str, hidden: int, layers: int, heads: int, ffn: int, vocab: int, **more: Any
) -> Row:
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **more,
    }


def _vit(hidden: int, layers: int, heads: int, ffn: int, patch: int) -> Row:
    more = {"image_size": 224, "patch_size": patch, "num_channels": 3, "num_labels": 1000}
    return _config("vit", hidden, layers, heads, ffn, 0, **more)


def _bert(hidden: int, layers: int, heads: int) -> Row:
    more = {"max_position_embeddings": 512, "type_vocab_size": 2}
    kind = {"architectures": ["BertForMaskedLM"]}
    return _config("bert", hidden, layers, heads, 4 * hidden, 30522, **more, **kind)


def _t5(hidden: int, layers: int, heads: int, head_dim: int, ffn: int) -> Row:
    return {
        "model_type": "t5",
        "d_model": hidden,
        "num_layers": layers,
        "num_heads": heads,
        "d_kv": head_dim,
        "d_ff": ffn,
        "vocab_size": 32128,
        "relative_attention_num_buckets": 32,
        "n_positions": 512,
    }


def _gpt_oss(layers: int, experts: int) -> Row:
    return _config(
        "gpt_oss",
        2880,
        layers,
        64,
        2880,
        201088,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=experts,
        num_experts_per_tok=4,
        sliding_window=128,
        attention_bias=True,
        max_position_embeddings=131072,
        tie_word_embeddings=False,
    )


def _nemotron_3(
    hidden: int, pattern: str, heads: int, mamba_heads: int, sequence: int, **experts: Any
) -> Row:
    return {
        "model_type": "nemotron_h",
        "hidden_size": hidden,
        "hybrid_override_pattern": pattern,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": sequence,
        "mamba_num_heads": mamba_heads,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "chunk_size": 128,
        "n_shared_experts": 1,
        "tie_word_embeddings": False,
        **experts,
    }


_NANO = {
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
_NANO_PATTERN = "MEMEM*E" + 4 * "MEMEM*E" + "MEMEMEM*E" + "MEMEMEME"
_SUPER_PATTERN = "MEMEMEM*E" + 2 * "MEMEMEM*E" + 4 * "MEMEMEMEM*E" + "MEMEMEM*E" + "MEMEMEME"
# The sizes printed for these shapes are met with an output head of its own alone.
_UNTIED = {"tied_embeddings": False}
_QK = {"qk_norm": True, "head_dim": 128}
_SHARED_V3 = {"shared_experts": 1, "dense_layers": 3, "router_bias": True, "prediction_layers": 1}

CATALOG: dict[str, Row] = {
    "gpt2": _gpt(768, 12, 12, 50257, 1024),
    "gpt2-medium": _gpt(1024, 24, 16, 50257, 1024),
    "gpt2-large": _gpt(1280, 36, 20, 50257, 1024),
    "gpt2-xl": _gpt(1600, 48, 25, 50257, 1024),
    "gpt3-175b": _gpt(12288, 96, 96, 50257, 2048),
    "gpt3-175b-megatron-v51200": _gpt(12288, 96, 96, 51200, 2048),
    "gpt-1.7b": _gpt(2304, 24, 24, 51200, 2048),
    "gpt-3.6b": _gpt(3072, 30, 32, 51200, 2048),
    "gpt-7.5b": _gpt(4096, 36, 32, 51200, 2048),
    "gpt-18.4b": _gpt(6144, 40, 48, 51200, 2048),
    "gpt-22b": _gpt(6144, 48, 64, 51200, 2048),
    "gpt-39.1b": _gpt(8192, 48, 64, 51200, 2048),
    "gpt-76.1b": _gpt(10240, 60, 80, 51200, 2048),
    "gpt-145.6b": _gpt(12288, 80, 96, 51200, 2048),
    "gpt-310.1b": _gpt(16384, 96, 128, 51200, 2048),
    "gpt-530b": _gpt(20480, 105, 128, 51200, 2048),
    "gpt-1t": _gpt(25600, 128, 160, 51200, 2048),
    "gpt-1.7b-v131072": _gpt(2048, 24, 16, 131072, 4096) | _UNTIED,
    "gpt-16b": _gpt(6144, 32, 48, 131072, 4096) | _UNTIED,
    "gpt-70b": _gpt(8192, 84, 64, 131072, 4096) | _UNTIED,
    "gpt-177b": _gpt(12288, 96, 96, 131072, 4096) | _UNTIED,
    "gpt-462b": _gpt(18432, 112, 144, 131072, 4096) | _UNTIED,
    **{
        f"gpt-h{hidden}-l{layers}": _gpt(hidden, layers, 16, 51200, 1024)
        for hidden in (1024, 2048)
        for layers in (12, 16, 20, 24)
    },
    "opt-175b": _config(
        "opt", 12288, 96, 96, 49152, 50272, ffn_dim=49152, max_position_embeddings=2048
    ),
    "bloom-176b": _config("bloom", 14336, 70, 112, 57344, 250880, seq_length=2048),
    "llama-7b": _llama(4096, 32, 32, 32, 11008, 32000, 2048),
    "llama-13b": _llama(5120, 40, 40, 40, 13824, 32000, 2048),
    "llama-30b": _llama(6656, 60, 52, 52, 17920, 32000, 2048),
    "llama-65b": _llama(8192, 80, 64, 64, 22016, 32000, 2048),
    "llama-2-7b": _llama(4096, 32, 32, 32, 11008, 32000, 4096),
    "llama-2-13b": _llama(5120, 40, 40, 40, 13824, 32000, 4096),
    "llama-2-70b": _llama(8192, 80, 64, 8, 28672, 32000, 4096),
    "llama-3-8b": _llama(4096, 32, 32, 8, 14336, 128256, 8192),
    "llama-3-70b": _llama(8192, 80, 64, 8, 28672, 128256, 8192),
    "llama-3.1-8b": _llama(4096, 32, 32, 8, 14336, 128256, 131072),
    "llama-3.1-70b": _llama(8192, 80, 64, 8, 28672, 128256, 131072),
    "llama-3.1-405b": _llama(16384, 126, 128, 8, 53248, 128256, 131072),
    "llama-3.2-1b": _llama(2048, 16, 32, 8, 8192, 128256, 131072, tied_embeddings=True),
    "mistral-7b-v0.1": _llama(4096, 32, 32, 8, 14336, 32000, 32768, sliding_window=4096),
    "mixtral-8x7b": _llama(4096, 32, 32, 8, 14336, 32000, 32768, **_experts(8, 2, 14336)),
    "mixtral-8x22b-v0.1": _llama(6144, 56, 48, 8, 16384, 32000, 65536, **_experts(8, 2, 16384)),
    "qwen2-57b-a14b": _llama(
        3584, 28, 28, 4, 18944, 151936, 131072, qkv_bias=True, shared_expert_gate=True,
        **_experts(64, 8, 2560, shared_ffn=20480),
    ),
    "qwen3-30b-a3b": _llama(
        2048, 48, 32, 4, 6144, 151936, 40960, **_QK, **_experts(128, 8, 768)
    ),
    "qwen3-235b-a22b": _llama(
        4096, 94, 64, 4, 12288, 151936, 40960, **_QK, **_experts(128, 8, 1536)
    ),
    "deepseek-v2-lite": _llama(
        2048, 27, 16, 16, 10944, 102400, 163840, dense_layers=1, **_latent(0),
        **_experts(64, 6, 1408, shared_experts=2),
    ),
    "deepseek-v2": _llama(
        5120, 60, 128, 128, 12288, 102400, 163840, dense_layers=1, **_latent(1536),
        **_experts(160, 6, 1536, shared_experts=2),
    ),
    "deepseek-v3": _llama(
        7168, 61, 128, 128, 18432, 129280, 163840, **_SHARED_V3, **_latent(1536),
        **_experts(256, 8, 2048),
    ),
    "kimi-k2": _llama(
        7168, 61, 64, 64, 18432, 163840, 131072, shared_experts=1, dense_layers=1,
        router_bias=True, **_latent(1536), **_experts(384, 8, 2048),
    ),
    "grok-1": _llama(
        6144, 64, 48, 8, 32768, 131072, 8192, norms_per_layer=4, tied_embeddings=True,
        **_experts(8, 2, 32768),
    ),
    "gpt-oss-20b": _gpt_oss(24, 32),
    "gpt-oss-120b": _gpt_oss(36, 128),
    "nemotron-3-nano": _nemotron_3(2688, _NANO_PATTERN, 32, 64, 262144, **_NANO),
    "nemotron-3.5-lightning": _nemotron_3(
        2688, _NANO_PATTERN, 32, 64, 1048576, **_NANO, num_nextn_predict_layers=1,
        mtp_hybrid_override_pattern="*E",
    ),
    "nemotron-3-super": _nemotron_3(
        4096, _SUPER_PATTERN, 32, 128, 262144, n_routed_experts=512, num_experts_per_tok=22,
        moe_intermediate_size=2688, moe_shared_expert_intermediate_size=5376,
        moe_latent_size=1024, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E",
    ),
    "bert-base-uncased": _bert(768, 12, 12),
    "bert-large-uncased": _bert(1024, 24, 16),
    "t5-base": _t5(768, 12, 12, 64, 3072),
    "t5-11b": _t5(1024, 24, 128, 128, 65536),
    "vit-b-16": _vit(768, 12, 12, 3072, 16),
    "vit-l-16": _vit(1024, 24, 16, 4096, 16),
    "vit-h-14": _vit(1280, 32, 16, 5120, 14),
}  # fmt: skip

# Other names under which tables and people have them.
OTHER_NAMES: dict[str, str] = {
    "gpt-174.6b": "gpt3-175b-megatron-v51200",
    "gpt-175b": "gpt3-175b-megatron-v51200",
    "gpt-529.6b": "gpt-530b",
    "gpt-1008b": "gpt-1t",
    "mt-nlg-530b": "gpt-530b",
    "bloom": "bloom-176b",
    "mistral-7b": "mistral-7b-v0.1",
    "mixtral-8x22b": "mixtral-8x22b-v0.1",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "deepseek-r1": "deepseek-v3",
    "nemotron-3-5-lightning": "nemotron-3.5-lightning",
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "grok": "grok-1",
}


def plain_name(name: str) -> str:
    """A name without what spellings differ in: `LLAMA3_70B` and `llama-3-70b` are one."""
    return re.sub(r"[-_\s]", "", name.strip().lower())


_BY_PLAIN_NAME = {plain_name(name): name for name in CATALOG} | {
    plain_name(other): name for other, name in OTHER_NAMES.items()
}


def catalog_name(name: str) -> str | None:
    """The catalog's own spelling of a name, None when it has no such model."""
    return _BY_PLAIN_NAME.get(plain_name(name))


def catalog_row(name: str) -> tuple[str, Row]:
    """The catalog's spelling of a name, and its row.

    Raises InvalidInput with the nearest names when there is no such model.
    """
    found = catalog_name(name)
    if found is None:
        near = nearest_names(name)
        fix = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(CATALOG)}"
        raise InvalidInput("Model.from_catalog", [Problem("", f"no model {shown(name)}", fix)])
    return found, CATALOG[found]


@lru_cache(maxsize=256)
def nearest_names(name: str) -> tuple[str, ...]:
    """Up to three names of the catalog that are most like a name."""
    close = difflib.get_close_matches(plain_name(name)[:100], list(_BY_PLAIN_NAME), n=6, cutoff=0.5)
    return tuple(dict.fromkeys(_BY_PLAIN_NAME[match] for match in close))[:3]
