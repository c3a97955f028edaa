"""What a family of models has that its config does not say: norms, biases, positions and the like.

Each row holds for the published checkpoints of that `model_type`; keys of a config that say
otherwise go first. Names are those of Hugging Face transformers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from .attention import QKNorm
from .sizes import Norm, Positions

Shape = Literal["decoder", "encoder", "encoder-decoder", "vision", "contrastive", "speech"]


@dataclass(frozen=True)
class Family:
    """Traits of a family of models.

    qkv_bias, bias, mlp_bias: of query, key and value; of the attention's output; of feed-forwards.
    output_bias_follows: whether the key attention_bias speaks of the output projection too.
    position_offset: rows of learned positions beside the longest sequence. ffn_multiple: the
    feed-forward's width over hidden where none is given. tied: where tie_word_embeddings is absent.
    norms: norms of a layer.
    router_bias, shared_experts, shared_gate: of mixtures. odd: why this family's layers cannot be
    described.
    """

    shape: Shape = "decoder"
    norm: Norm = "rms"
    gated: bool = True
    qkv_bias: bool = False
    bias: bool = False
    mlp_bias: bool = False
    output_bias_follows: bool = True
    positions: Positions = "rotary"
    position_offset: int = 0
    ffn_multiple: int | None = None
    tied: bool = False
    head_bias: bool = False
    qk_norm: QKNorm = "none"
    norms: int = 2
    parallel: bool = False
    embedding_norm: bool = False
    dropout: bool = False
    router_bias: bool = False
    shared_experts: int = 0
    shared_gate: bool = False
    sinks: bool = False
    output_gate: bool = False
    final_norm: bool = True
    odd: str | None = None


_LLAMA = Family()
_GPT = Family(
    norm="layer",
    gated=False,
    qkv_bias=True,
    bias=True,
    mlp_bias=True,
    positions="learned",
    ffn_multiple=4,
    tied=True,
    dropout=True,
)
_QWEN = Family(qkv_bias=True, output_bias_follows=False)
_GEMMA = Family(tied=True)
_DEEPSEEK = replace(_LLAMA, router_bias=True)
_COHERE = Family(norm="layer-unbiased", tied=True, parallel=True, norms=1)
_BERT = Family(
    shape="encoder",
    norm="layer",
    gated=False,
    qkv_bias=True,
    bias=True,
    mlp_bias=True,
    positions="learned",
    tied=True,
    dropout=True,
)
_BART = replace(_BERT, shape="encoder-decoder", position_offset=2)
_T5 = Family(shape="encoder-decoder", gated=False, positions="relative", tied=True, dropout=True)
_VIT = Family(
    shape="vision",
    norm="layer",
    gated=False,
    qkv_bias=True,
    bias=True,
    mlp_bias=True,
    positions="learned",
    dropout=True,
)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": replace(_LLAMA),
    "mixtral": replace(_LLAMA),
    "deci": _LLAMA,
    "internlm": _LLAMA,
    "internlm2": _LLAMA,
    "baichuan": _LLAMA,
    "yi": _LLAMA,
    "aquila": _LLAMA,
    "minicpm": replace(_LLAMA, tied=True),
    "granite": replace(_LLAMA, tied=True),
    "granitemoe": replace(_LLAMA, tied=True),
    "granitemoeshared": replace(_LLAMA, tied=True),
    "granitemoehybrid": replace(_LLAMA, tied=True),
    "bamba": _LLAMA,
    "smollm3": replace(_LLAMA, tied=True),
    "seed_oss": replace(_QWEN, output_bias_follows=True),
    "exaone4": replace(_LLAMA, qk_norm="head"),
    "ernie4_5": replace(_LLAMA, tied=True),
    "ernie4_5_moe": replace(_LLAMA, tied=True, router_bias=True),
    "hunyuan_v1_dense": replace(_LLAMA, qk_norm="head"),
    "llama4": replace(_LLAMA, shared_experts=1),
    "arcee": replace(_LLAMA, gated=False),
    "qwen": replace(_LLAMA, qkv_bias=True, output_bias_follows=False),
    "qwen2": _QWEN,
    "qwen2_moe": replace(_QWEN, shared_gate=True),
    "qwen3": replace(_LLAMA, qk_norm="head"),
    "qwen3_moe": replace(_LLAMA, qk_norm="head"),
    "qwen3_next": replace(_LLAMA, qk_norm="head", output_gate=True, shared_gate=True),
    "mimo": replace(_QWEN),
    "mimo_v2_flash": replace(_DEEPSEEK),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4),
    "gemma3": replace(_GEMMA, norms=4, qk_norm="head"),
    "phi": Family(
        norm="layer",
        gated=False,
        qkv_bias=True,
        bias=True,
        mlp_bias=True,
        parallel=True,
        norms=1,
        head_bias=True,
        dropout=True,
        ffn_multiple=4,
    ),
    "phi3": replace(_LLAMA),
    "phimoe": Family(norm="layer", head_bias=True),
    "gpt2": _GPT,
    "gpt_neo": replace(_GPT, qkv_bias=False),
    "gpt_neox": replace(_GPT, positions="rotary", parallel=True, tied=False),
    "gptj": Family(
        norm="layer",
        gated=False,
        mlp_bias=True,
        parallel=True,
        norms=1,
        head_bias=True,
        dropout=True,
        ffn_multiple=4,
    ),
    "gpt_bigcode": _GPT,
    "starcoder2": replace(_GPT, positions="rotary"),
    "opt": replace(_GPT, position_offset=2),
    "xglm": replace(_GPT, positions="fixed"),
    "openai-gpt": replace(_GPT, final_norm=False),
    "biogpt": replace(_GPT, position_offset=2),
    "bloom": replace(_GPT, positions="alibi", embedding_norm=True),
    "falcon": replace(
        _GPT, qkv_bias=False, bias=False, mlp_bias=False, positions="rotary", parallel=True, norms=1
    ),
    "mpt": Family(norm="layer-unbiased", gated=False, positions="alibi", ffn_multiple=4, tied=True),
    "dbrx": Family(norm="layer-unbiased"),
    "stablelm": Family(norm="layer"),
    "persimmon": replace(_GPT, positions="rotary", tied=False, qk_norm="head"),
    "nemotron": Family(norm="layer", gated=False),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE),
    "olmo": Family(norm="plain"),
    "olmo2": replace(_LLAMA, qk_norm="whole"),
    "olmo3": replace(_LLAMA, qk_norm="whole"),
    "olmoe": replace(_LLAMA, qk_norm="whole"),
    "grok-1": replace(_LLAMA, norms=4, tied=True),
    "glm": replace(_QWEN),
    "glm4": replace(_QWEN, norms=4),
    "chatglm": replace(_QWEN),
    "glm4_moe": replace(_DEEPSEEK, output_bias_follows=False),
    "deepseek": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "dots1": replace(_DEEPSEEK, qk_norm="head"),
    "minimax_m2": replace(_DEEPSEEK, qk_norm="whole"),
    "minimax_m3": replace(_DEEPSEEK, qk_norm="head"),
    "step3p7": _DEEPSEEK,
    "gpt_oss": Family(
        qkv_bias=True,
        bias=True,
        mlp_bias=True,
        router_bias=True,
        sinks=True,
    ),
    "nemotron_h": replace(_LLAMA, gated=False, router_bias=True),
    "jamba": replace(_LLAMA),
    "mamba": replace(_LLAMA, tied=True, norms=1),
    "falcon_mamba": replace(_LLAMA, tied=True, norms=1),
    "mamba2": replace(_LLAMA, norms=1),
    "gemma3n": Family(odd="layers share keys and values and have embeddings of their own"),
    "gemma4": replace(_GEMMA, norms=4, qk_norm="head"),
    "deepseek_v4": Family(odd="attention is compressed in ways not described here"),
    "kimi_linear": _DEEPSEEK,
    "rwkv": Family(odd="its time mixing is not described here"),
    "recurrent_gemma": Family(odd="its gated recurrence is not described here"),
    "zamba2": Family(odd="layers share an attention with adapters"),
    "falcon_h1": Family(odd="attention and Mamba run side by side in a layer"),
    "minimax_m1": Family(odd="its lightning attention is not described here"),
    "bert": _BERT,
    "roberta": _BERT,
    "electra": _BERT,
    "distilbert": _BERT,
    "albert": _BERT,
    "modernbert": Family(shape="encoder", norm="layer-unbiased", positions="rotary", tied=True),
    "deberta-v2": Family(odd="its disentangled attention is not described here"),
    "t5": _T5,
    "bart": _BART,
    "m2m_100": replace(_BART, positions="fixed", position_offset=0),
    "marian": replace(_BART, positions="fixed", position_offset=0),
    "pegasus": replace(_BART, positions="fixed", position_offset=0),
    "whisper": replace(_BART, shape="speech", position_offset=0),
    "vit": _VIT,
    "siglip_vision": _VIT,
    "clip_vision": _VIT,
    "dinov2": _VIT,
    "clip": replace(_VIT, shape="contrastive"),
    "siglip": replace(_VIT, shape="contrastive"),
    "mllama": Family(odd="its cross-attention to images is not described here"),
    "switch_transformers": Family(odd="its mixtures in encoder and decoder are not described here"),
    "longt5": Family(odd="its local and global attention is not described here"),
    "swin": Family(odd="its layers change width along the way"),
    "xlnet": Family(odd="its two-stream attention is not described here"),
}

# Other names of the same layers.
ALIASES: dict[str, str] = {
    "llama2": "llama",
    "llama3": "llama",
    "codellama": "llama",
    "vicuna": "llama",
    "tinyllama": "llama",
    "deepseek_llm": "llama",
    "internlm3": "llama",
    "nemotron-nas": "deci",
    "decilm": "deci",
    "llama4_text": "llama4",
    "ministral": "mistral",
    "mistral3": "mistral",
    "pixtral": "mistral",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_omni_moe": "qwen3_moe",
    "qwen3_omni_moe_thinker": "qwen3_moe",
    "qwen3_5": "qwen3_next",
    "qwen3_5_moe": "qwen3_next",
    "yuan": "llama",
    "gpt-2": "gpt2",
    "gpt_neox_japanese": "gpt_neox",
    "pythia": "gpt_neox",
    "gpt-neox": "gpt_neox",
    "gpt-neo": "gpt_neo",
    "gpt-j": "gptj",
    "codegen": "gptj",
    "megatron-gpt": "gpt2",
    "gpt": "gpt2",
    "gpt3": "gpt2",
    "refinedweb": "falcon",
    "refinedwebmodel": "falcon",
    "command-r": "cohere",
    "kimi_k2": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
    "pangu_ultra_moe": "deepseek_v3",
    "deepseek_ref": "deepseek_v4",
    "deepseek_vl_v2": "deepseek_v2",
    "grok": "grok-1",
    "phi-msft": "phi",
    "phi4": "phi3",
    "phi3_v": "phi3",
    "xlm-roberta": "roberta",
    "xlm_roberta": "roberta",
    "camembert": "roberta",
    "ernie": "bert",
    "nezha": "bert",
    "megatron-bert": "bert",
    "mt5": "t5",
    "umt5": "t5",
    "flan-t5": "t5",
    "mbart": "bart",
    "plbart": "bart",
    "nllb": "m2m_100",
    "seamless_m4t": "m2m_100",
    "deit": "vit",
    "clip_vision_model": "clip_vision",
    "siglip_vision_model": "siglip_vision",
    "siglip2": "siglip",
    "deberta": "deberta-v2",
    "swinv2": "swin",
    "gemma3n_text": "gemma3n",
    "kimi_k3": "kimi_linear",
    "rwkv5": "rwkv",
    "rwkv6": "rwkv",
    "minimax_text_01": "minimax_m1",
    "minimax": "minimax_m1",
    "minimax_m3_vl": "minimax_m3",
    "zamba": "zamba2",
}


def family_of(model_type: str) -> tuple[str, Family] | None:
    """The family a model_type names, by its own name or another; None when it is unknown."""
    name = re.sub(r"[-_](text|language_model|lm)$", "", model_type.strip().lower())
    for candidate in (name, name.replace("-", "_"), name.replace("_", "-")):
        candidate = ALIASES.get(candidate, candidate)
        if candidate in FAMILIES:
            return candidate, FAMILIES[candidate]
    return None


def family_in(name: str) -> tuple[str, Family] | None:
    """The family whose name a model's own name begins with, the longest such; None without."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().rsplit("/", 1)[-1])
    known = {re.sub(r"[^a-z0-9]", "", key): key for key in (*ALIASES, *FAMILIES)}
    found = max((key for key in known if plain.startswith(key)), key=len, default=None)
    return None if found is None else family_of(known[found])
