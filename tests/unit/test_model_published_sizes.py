"""Configs of many families, as published, give the published number of parameters to the unit.

The keys are those of each checkpoint's config.json that say something of its shape; the numbers are
the sizes of the checkpoints (sums of their tensors).
"""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import Model


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


TIED = {"tie_word_embeddings": True}

DECODERS: dict[str, tuple[int, dict[str, Any]]] = {
    "gpt-j-6b": (
        6_050_882_784,
        gpt(4096, 28, 16, 50400, n_positions=2048, n_inner=None, tie_word_embeddings=False),
    ),
    "gpt-neox-20b": (
        20_554_567_680,
        plain(6144, 44, 64, 24576, 50432, max_position_embeddings=2048, use_parallel_residual=True),
    ),
    "gpt-neo-1.3b": (
        1_315_575_808,
        {
            "hidden_size": 2048,
            "num_layers": 24,
            "num_heads": 16,
            "intermediate_size": None,
            "vocab_size": 50257,
            "max_position_embeddings": 2048,
            "attention_types": [[["global", "local"], 12]],
            "window_size": 256,
        },
    ),
    "opt-125m": (
        125_239_296,
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "ffn_dim": 3072,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 768,
            "do_layer_norm_before": True,
        },
    ),
    "opt-350m": (
        331_196_416,
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        },
    ),
    "bloom": (176_247_271_424, gpt(14336, 70, 112, 250880)),
    "falcon-7b": (
        6_921_720_704,
        plain(
            4544,
            32,
            71,
            18176,
            65024,
            multi_query=True,
            parallel_attn=True,
            bias=False,
            new_decoder_architecture=False,
            tie_word_embeddings=True,
        )
        | {"intermediate_size": None},
    ),
    "falcon-40b": (
        41_303_293_952,
        {
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "vocab_size": 65024,
            "new_decoder_architecture": True,
            "bias": False,
        },
    ),
    "falcon-rw-1b": (
        1_311_625_216,
        {
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "vocab_size": 50304,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "alibi": True,
        },
    ),
    "mpt-7b": (
        6_649_286_656,
        {
            "d_model": 4096,
            "n_layers": 32,
            "n_heads": 32,
            "expansion_ratio": 4,
            "vocab_size": 50432,
            "max_seq_len": 2048,
            "no_bias": True,
            "attn_config": {"alibi": True},
        },
    ),
    "phi-2": (2_779_683_840, plain(2560, 32, 32, 10240, 51200, max_position_embeddings=2048)),
    "phi-3-mini-4k": (3_821_079_552, llama(3072, 32, 32, 32, 8192, 32064)),
    "phi-3.5-moe": (
        41_873_153_344,
        llama(4096, 32, 32, 8, 6400, 32064)
        | {
            "num_local_experts": 16,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "lm_head_bias": True,
        },
    ),
    "stablelm-3b-4e1t": (
        2_795_443_200,
        llama(2560, 32, 32, 32, 6912, 50304) | {"use_qkv_bias": False},
    ),
    "stablelm-2-1_6b": (
        1_644_515_328,
        llama(2048, 24, 32, 32, 5632, 100352) | {"use_qkv_bias": True},
    ),
    "gemma-2b": (2_506_172_416, llama(2048, 18, 8, 1, 16384, 256000) | TIED | {"head_dim": 256}),
    "gemma-7b": (8_537_680_896, llama(3072, 28, 16, 16, 24576, 256000) | TIED | {"head_dim": 256}),
    "gemma-2-9b": (
        9_241_705_984,
        llama(3584, 42, 16, 8, 14336, 256000) | TIED | {"head_dim": 256, "sliding_window": 4096},
    ),
    "gemma-3-1b": (
        999_885_952,
        llama(1152, 26, 4, 1, 6912, 262144) | TIED | {"head_dim": 256, "sliding_window": 512},
    ),
    "qwen-7b": (
        7_721_324_544,
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 22016,
            "vocab_size": 151936,
            "seq_length": 8192,
            "no_bias": True,
            "kv_channels": 128,
        },
    ),
    "qwen2-0.5b": (494_032_768, llama(896, 24, 14, 2, 4864, 151936) | TIED),
    "qwen2-7b": (
        7_615_616_512,
        llama(3584, 28, 28, 4, 18944, 152064)
        | {"sliding_window": 131072, "max_window_layers": 28, "use_sliding_window": False},
    ),
    "qwen1.5-moe-a2.7b": (
        14_315_784_192,
        llama(2048, 24, 16, 16, 5632, 151936)
        | {
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "decoder_sparse_step": 1,
        },
    ),
    "qwen3-coder-480b": (
        480_154_875_392,
        llama(6144, 62, 96, 8, 8192, 151936)
        | {
            "head_dim": 128,
            "num_experts": 160,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 0,
            "mlp_only_layers": [],
        },
    ),
    "command-r": (
        34_980_831_232,
        plain(8192, 40, 64, 22528, 256000, num_key_value_heads=64, use_qk_norm=False),
    ),
    "command-r-plus": (
        103_810_674_688,
        plain(12288, 64, 96, 33792, 256000, num_key_value_heads=8, use_qk_norm=True),
    ),
    "olmo-7b": (6_888_095_744, llama(4096, 32, 32, 32, 11008, 50304)),
    "olmo-1b": (1_176_764_416, llama(2048, 16, 16, 16, 8192, 50304) | TIED),
    "olmoe-1b-7b": (
        6_919_161_856,
        llama(2048, 16, 16, 16, 1024, 50304) | {"num_experts": 64, "num_experts_per_tok": 8},
    ),
    "starcoder": (
        15_517_456_384,
        gpt(6144, 40, 48, 49152, n_positions=8192, n_inner=24576, multi_query=True),
    ),
    "starcoder2-3b": (
        3_030_371_328,
        plain(
            3072,
            30,
            24,
            12288,
            49152,
            num_key_value_heads=2,
            use_bias=True,
            max_position_embeddings=16384,
        ),
    ),
    "deepseek-moe-16b": (
        16_375_728_128,
        llama(2048, 28, 16, 16, 10944, 102400)
        | {
            "n_routed_experts": 64,
            "num_experts_per_tok": 6,
            "n_shared_experts": 2,
            "moe_intermediate_size": 1408,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
        },
    ),
    "kimi-k2": (
        1_026_408_232_448,
        llama(7168, 61, 64, 64, 18432, 163840)
        | {
            "n_routed_experts": 384,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "moe_intermediate_size": 2048,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_nextn_predict_layers": 0,
        },
    ),
    "gpt-oss-20b": (
        20_914_757_184,
        llama(2880, 24, 64, 8, 2880, 201088)
        | {
            "head_dim": 64,
            "num_local_experts": 32,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "attention_bias": True,
        },
    ),
    "mamba-2.8b": (
        2_768_345_600,
        {
            "hidden_size": 2560,
            "num_hidden_layers": 64,
            "intermediate_size": 5120,
            "state_size": 16,
            "conv_kernel": 4,
            "time_step_rank": 160,
            "vocab_size": 50280,
        },
    ),
    "jamba-v0.1": (
        51_570_323_328,
        llama(4096, 32, 32, 8, 14336, 65536)
        | {
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": 256,
        },
    ),
    "nemotron-3-nano-30b": (
        31_577_940_288,
        plain(2688, 52, 32, 1856, 131072, num_key_value_heads=2, head_dim=128)
        | {
            "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_num_heads": 64,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
            "n_routed_experts": 128,
            "num_experts_per_tok": 6,
            "n_shared_experts": 1,
            "moe_intermediate_size": 1856,
            "moe_shared_expert_intermediate_size": 3712,
        },
    ),
}
TYPES = {
    "gpt-j-6b": "gptj",
    "gpt-neox-20b": "gpt_neox",
    "gpt-neo-1.3b": "gpt_neo",
    "opt-125m": "opt",
    "opt-350m": "opt",
    "bloom": "bloom",
    "falcon-7b": "falcon",
    "falcon-40b": "falcon",
    "falcon-rw-1b": "falcon",
    "mpt-7b": "mpt",
    "phi-2": "phi",
    "phi-3-mini-4k": "phi3",
    "phi-3.5-moe": "phimoe",
    "stablelm-3b-4e1t": "stablelm",
    "stablelm-2-1_6b": "stablelm",
    "gemma-2b": "gemma",
    "gemma-7b": "gemma",
    "gemma-2-9b": "gemma2",
    "gemma-3-1b": "gemma3_text",
    "qwen-7b": "qwen",
    "qwen2-0.5b": "qwen2",
    "qwen2-7b": "qwen2",
    "qwen1.5-moe-a2.7b": "qwen2_moe",
    "qwen3-coder-480b": "qwen3_moe",
    "command-r": "cohere",
    "command-r-plus": "cohere",
    "olmo-7b": "olmo",
    "olmo-1b": "olmo",
    "olmoe-1b-7b": "olmoe",
    "starcoder": "gpt_bigcode",
    "starcoder2-3b": "starcoder2",
    "deepseek-moe-16b": "deepseek",
    "kimi-k2": "kimi_k2",
    "gpt-oss-20b": "gpt_oss",
    "mamba-2.8b": "mamba",
    "jamba-v0.1": "jamba",
    "nemotron-3-nano-30b": "nemotron_h",
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_has_its_published_size(name: str) -> None:
    size, config = DECODERS[name]
    assert Model.from_hf(config | {"model_type": TYPES[name]}).parameters == size


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


QWEN3_NEXT = llama(2048, 48, 16, 2, 5120, 151936) | {
    "model_type": "qwen3_next",
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
ERNIE_4_5 = llama(2560, 28, 20, 4, 12288, 103424) | {
    "model_type": "ernie4_5_moe",
    "tie_word_embeddings": True,
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_intermediate_size": 1536,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "moe_layer_interval": 1,
}
DOTS_1 = llama(4096, 62, 32, 32, 10944, 152064) | {
    "model_type": "dots1",
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}
MAMBA_2 = {
    "model_type": "mamba2",
    "hidden_size": 2560,
    "num_hidden_layers": 64,
    "num_heads": 80,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "conv_kernel": 4,
    "vocab_size": 50288,
    "tie_word_embeddings": True,
}
CHATGLM_3 = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "num_layers": 28,
    "num_attention_heads": 32,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "kv_channels": 128,
    "ffn_hidden_size": 13696,
    "padded_vocab_size": 65024,
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "seq_length": 8192,
}
KIMI_FULL_LAYERS = [4, 8, 12, 16, 20, 24, 27]
KIMI_LINEAR = llama(2304, 27, 32, 32, 9216, 163840) | {
    "model_type": "kimi_linear",
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1024,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "linear_attn_config": {
        "full_attn_layers": KIMI_FULL_LAYERS,
        "kda_layers": [layer for layer in range(1, 28) if layer not in KIMI_FULL_LAYERS],
        "head_dim": 128,
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}
FURTHER: dict[str, tuple[int, dict[str, Any]]] = {
    "qwen3-next-80b": (79_674_391_296, QWEN3_NEXT),
    "kimi-linear-48b": (49_122_681_728, KIMI_LINEAR),
    "ernie-4.5-21b": (21_825_437_888, ERNIE_4_5),
    "dots.llm1": (142_774_381_696, DOTS_1),
    "mamba2-2.7b": (2_702_599_680, MAMBA_2),
    "chatglm3-6b": (6_243_584_000, CHATGLM_3),
    "internlm2-7b": (
        7_737_708_544,
        llama(4096, 32, 32, 8, 14336, 92544) | {"model_type": "internlm2", "bias": False},
    ),
    "seed-oss-36b": (
        36_151_104_512,
        llama(5120, 64, 80, 8, 27648, 155136)
        | {"model_type": "seed_oss", "head_dim": 128}
        | {"attention_bias": True, "attention_out_bias": False},
    ),
    "command-r7b": (
        8_028_033_024,
        plain(4096, 32, 32, 14336, 256000, num_key_value_heads=8, sliding_window=4096)
        | {"model_type": "cohere2"},
    ),
    "codegen-350m": (
        356_712_448,
        gpt(1024, 20, 16, 51200, n_positions=2048, tie_word_embeddings=False)
        | {"model_type": "codegen"},
    ),
    "openai-gpt": (
        116_534_784,
        gpt(768, 12, 12, 40478, n_positions=512) | {"model_type": "openai-gpt"},
    ),
    "xglm-564m": (
        564_463_616,
        {
            "model_type": "xglm",
            "d_model": 1024,
            "num_layers": 24,
            "attention_heads": 16,
            "ffn_dim": 4096,
            "vocab_size": 256008,
        },
    ),
}


@pytest.mark.parametrize("name", FURTHER)
def test_a_further_decoder_has_its_published_size(name: str) -> None:
    size, config = FURTHER[name]
    assert Model.from_hf(config).parameters == size


GEMMA_4 = {
    "model_type": "gemma4_text",
    "head_dim": 256,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "sliding_window": 1024,
    "tie_word_embeddings": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
}


def gemma_4_layers(count: int) -> dict[str, Any]:
    kinds = (5 * ["sliding_attention"] + ["full_attention"]) * (count // 6)
    return GEMMA_4 | {"layer_types": kinds}


def test_gemma_4_has_its_printed_sizes() -> None:
    dense = llama(5376, 60, 32, 16, 21504, 262144) | gemma_4_layers(60)
    model = Model.from_hf(dense | {"num_global_key_value_heads": 4})
    assert round(model.parameters / 1e9, 1) == 30.7
    mixed = llama(2816, 30, 16, 8, 2112, 262144) | gemma_4_layers(30)
    experts = {"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}
    model = Model.from_hf(mixed | experts | {"num_global_key_value_heads": 2})
    assert round(model.parameters / 1e9, 1) == 25.2
    assert round(model.active_parameters / 1e9, 1) == 3.8


BERT = {"max_position_embeddings": 512, "type_vocab_size": 2}
CLIP_TEXT = plain(512, 12, 8, 2048, 49408, max_position_embeddings=77)
OTHERS: dict[str, tuple[int, dict[str, Any]]] = {
    "bert-base-uncased": (
        109_514_298,
        plain(768, 12, 12, 3072, 30522, **BERT)
        | {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    ),
    "bert-base-uncased without its head": (
        109_482_240,
        plain(768, 12, 12, 3072, 30522, **BERT)
        | {"model_type": "bert", "architectures": ["BertModel"]},
    ),
    "bert-large-uncased": (
        335_174_458,
        plain(1024, 24, 16, 4096, 30522, **BERT)
        | {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    ),
    "roberta-base": (
        124_697_433,
        plain(768, 12, 12, 3072, 50265, max_position_embeddings=514, type_vocab_size=1)
        | {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]},
    ),
    "distilbert-base-uncased": (
        66_985_530,
        {
            "model_type": "distilbert",
            "architectures": ["DistilBertForMaskedLM"],
            "dim": 768,
            "hidden_dim": 3072,
            "n_layers": 6,
            "n_heads": 12,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
    ),
    "albert-base-v2": (
        11_221_680,
        plain(768, 12, 12, 3072, 30000, **BERT, embedding_size=128)
        | {"model_type": "albert", "architectures": ["AlbertForMaskedLM"]},
    ),
    "modernbert-base": (
        149_655_232,
        plain(768, 22, 12, 1152, 50368, max_position_embeddings=8192)
        | {"local_attention": 128, "global_attn_every_n_layers": 3}
        | {"model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"]},
    ),
    "electra-base-discriminator without its head": (
        108_891_648,
        plain(768, 12, 12, 3072, 30522, **BERT, embedding_size=768)
        | {"model_type": "electra", "architectures": ["ElectraModel"]},
    ),
    "mt5-base": (
        582_401_280,
        t5(768, 12, 12, 64, 2048, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        | {"model_type": "mt5", "vocab_size": 250112},
    ),
    "m2m100-418m": (
        483_905_536,
        bart(1024, 12, 16, 4096, vocab_size=128112) | {"model_type": "m2m_100"},
    ),
    "mbart-large-50": (
        610_879_488,
        bart(1024, 12, 16, 4096, vocab_size=250054, max_position_embeddings=1024)
        | {"model_type": "mbart"},
    ),
    "pegasus-large": (
        568_699_904,
        bart(1024, 16, 16, 4096, vocab_size=96103) | {"model_type": "pegasus"},
    ),
    "dinov2-base": (
        86_580_480,
        {
            "model_type": "dinov2",
            "architectures": ["Dinov2Model"],
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "mlp_ratio": 4,
            "image_size": 518,
            "patch_size": 14,
        },
    ),
    "t5-small": (60_506_624, t5(512, 6, 8, 64, 2048) | {"model_type": "t5"}),
    "t5-base": (222_903_552, t5(768, 12, 12, 64, 3072) | {"model_type": "t5"}),
    "t5-11b": (11_307_321_344, t5(1024, 24, 128, 128, 65536) | {"model_type": "t5"}),
    "flan-t5-base": (
        247_577_856,
        t5(768, 12, 12, 64, 2048, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        | {"model_type": "t5"},
    ),
    "flan-t5-xxl": (
        11_135_332_352,
        t5(4096, 24, 64, 64, 10240, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
        | {"model_type": "t5"},
    ),
    "bart-base": (
        139_420_416,
        bart(768, 6, 12, 3072, vocab_size=50265, max_position_embeddings=1024)
        | {"model_type": "bart"},
    ),
    "bart-large": (
        406_291_456,
        bart(1024, 12, 16, 4096, vocab_size=50265, max_position_embeddings=1024)
        | {"model_type": "bart"},
    ),
    "whisper-tiny": (
        37_760_640,
        bart(384, 4, 6, 1536, vocab_size=51865, num_mel_bins=80)
        | {"model_type": "whisper", "max_source_positions": 1500, "max_target_positions": 448},
    ),
    "whisper-large-v2": (
        1_543_304_960,
        bart(1280, 32, 20, 5120, vocab_size=51865, num_mel_bins=80)
        | {"model_type": "whisper", "max_source_positions": 1500, "max_target_positions": 448},
    ),
    "whisper-large-v3": (
        1_543_490_560,
        bart(1280, 32, 20, 5120, vocab_size=51866, num_mel_bins=128)
        | {"model_type": "whisper", "max_source_positions": 1500, "max_target_positions": 448},
    ),
    "vit-base-patch16-224": (
        86_567_656,
        plain(768, 12, 12, 3072, 0, image_size=224, patch_size=16, num_channels=3)
        | {
            "model_type": "vit",
            "architectures": ["ViTForImageClassification"],
            "id2label": {str(label): "" for label in range(1000)},
        },
    ),
    "clip-vit-base-patch32": (
        151_277_313,
        {
            "model_type": "clip",
            "projection_dim": 512,
            "text_config": CLIP_TEXT,
            "vision_config": plain(768, 12, 12, 3072, 0, image_size=224, patch_size=32),
        },
    ),
    "siglip-base-patch16-224": (
        203_155_970,
        {
            "model_type": "siglip",
            "text_config": plain(768, 12, 12, 3072, 32000, max_position_embeddings=64),
            "vision_config": plain(768, 12, 12, 3072, 0, image_size=224, patch_size=16),
        },
    ),
    "gemma-3-4b": (
        4_300_079_472,
        {
            "model_type": "gemma3",
            "mm_tokens_per_image": 256,
            "text_config": llama(2560, 34, 8, 4, 10240, 262208)
            | TIED
            | {"head_dim": 256, "sliding_window": 1024, "model_type": "gemma3_text"},
            "vision_config": plain(1152, 27, 16, 4304, 0, image_size=896, patch_size=14)
            | {"model_type": "siglip_vision_model"},
        },
    ),
    "llava-1.5-7b": (
        7_063_427_072,
        {
            "model_type": "llava",
            "text_config": llama(4096, 32, 32, 32, 11008, 32064) | {"model_type": "llama"},
            "vision_config": plain(1024, 24, 16, 4096, 0, image_size=336, patch_size=14)
            | {"model_type": "clip_vision_model"},
        },
    ),
    "qwen3-vl-2b": (
        2_127_532_032,
        {
            "model_type": "qwen3_vl",
            "text_config": llama(2048, 28, 16, 8, 6144, 151936)
            | TIED
            | {"head_dim": 128, "model_type": "qwen3_vl_text"},
            "vision_config": {
                "hidden_size": 1024,
                "depth": 24,
                "num_heads": 16,
                "intermediate_size": 4096,
                "patch_size": 16,
                "temporal_patch_size": 2,
                "spatial_merge_size": 2,
                "num_position_embeddings": 2304,
                "out_hidden_size": 2048,
                "deepstack_visual_indexes": [5, 11, 17],
            },
        },
    ),
    "llama-4-scout": (
        108_641_793_536,
        {
            "model_type": "llama4",
            "text_config": llama(5120, 48, 40, 8, 8192, 202048)
            | {
                "head_dim": 128,
                "num_local_experts": 16,
                "num_experts_per_tok": 1,
                "interleave_moe_layer_step": 1,
                "intermediate_size_mlp": 16384,
                "attention_chunk_size": 8192,
                "use_qk_norm": True,
                "model_type": "llama4_text",
            },
            "vision_config": plain(1408, 34, 16, 5632, 0, image_size=336, patch_size=14)
            | {"model_type": "llama4_vision_model", "projector_input_dim": 4096},
        },
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_encoders_pairs_and_towers_have_their_published_size(name: str) -> None:
    size, config = OTHERS[name]
    model = Model.from_hf(config)
    assert model.parameters + model.tower_parameters == size
