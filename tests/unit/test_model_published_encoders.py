"""Configs of encoders, pairs and towers give the published number of parameters to the unit.

The keys are those of each checkpoint's config.json that say something of its shape; the numbers are
the sizes of the checkpoints (sums of their tensors).
"""

from __future__ import annotations

from typing import Any

import pytest
from model_keys import TIED, bart, llama, plain, t5
from railweave.placement import Model

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
