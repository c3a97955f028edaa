"""Configs of hybrids and other late decoders give the published number of parameters to the unit.

The keys are those of each checkpoint's config.json that say something of its shape; the numbers are
the sizes of the checkpoints (sums of their tensors).
"""

from __future__ import annotations

from typing import Any

import pytest
from model_keys import gpt, llama, plain
from railweave.placement import Model

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
