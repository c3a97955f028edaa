"""Configs of decoders, as published, give the published number of parameters to the unit.

The keys are those of each checkpoint's config.json that say something of its shape; the numbers are
the sizes of the checkpoints (sums of their tensors).
"""

from __future__ import annotations

from typing import Any

import pytest
from model_keys import TIED, gpt, llama, plain
from railweave.placement import Model

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
