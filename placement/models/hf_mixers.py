"""The mixers of a config: attention of its kinds, delta-net, Mamba."""

from __future__ import annotations

from dataclasses import dataclass

from .attention import Attention, LatentAttention, QKNorm
from .hf_families import Family
from .hf_keys import Keys
from .recurrent import DeltaNet, KimiDelta, Mamba, Mamba2

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "attn_config.kv_n_heads",
    "multi_query_group_num",
    "num_query_groups",
)
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "d_kv")
# Over all heads at once, with a weight for each.
_WHOLE_NORMS = {"cohere", "stablelm", "minimax_m2", "olmo2", "olmo3", "olmoe"}


@dataclass(frozen=True)
class Biases:
    """Which linear layers of a model have biases."""

    qkv: bool
    output: bool
    mlp: bool


def biases_of(keys: Keys, name: str, family: Family) -> Biases:
    """What the keys about biases say, else what the family has."""
    qkv, output, mlp = family.qkv_bias, family.bias, family.mlp_bias
    attention_only = name in ("internlm", "internlm2")
    if keys.has("use_bias", "bias", "enable_bias", "add_bias_linear") and name != "nemotron_h":
        named = ("use_bias", "bias", "enable_bias", "add_bias_linear")
        every = keys.flag(*named, default=False)
        qkv, output = every, every
        mlp = family.mlp_bias if attention_only else every
    if keys.has("no_bias"):
        output = mlp = not keys.flag("no_bias", default=True)
        qkv = qkv or output
    if keys.has("attention_bias"):
        qkv = keys.flag("attention_bias", default=qkv)
        output = qkv if family.output_bias_follows else output
    qkv = keys.flag("qkv_bias", "use_qkv_bias", "add_qkv_bias", default=qkv)
    output = keys.flag("attention_out_bias", default=output)
    return Biases(qkv, output, keys.flag("mlp_bias", default=mlp))


def kv_heads_of(keys: Keys, name: str, heads: int) -> int:
    """Heads of keys and values: as many as heads, or one, where the file gives no number."""
    if name == "falcon" and not keys.flag("new_decoder_architecture", default=False):
        return 1 if keys.flag("multi_query", default=True) else heads
    if name == "gpt_bigcode":
        return 1 if keys.flag("multi_query", default=True) else heads
    if keys.has("multi_query_attention") and not keys.flag("multi_query_attention", default=True):
        return heads
    return keys.count(*KV_HEADS) or heads


def qk_norm_of(keys: Keys, name: str, family: Family) -> QKNorm:
    """The norm of queries and keys; that of Llama 4 has no parameters."""
    has = family.qk_norm != "none"
    if name == "llama4" or not keys.flag("use_qk_norm", "qk_layernorm", "qk_norm", default=has):
        return "none"
    return "whole" if name in _WHOLE_NORMS else "head"


def attention_of(keys: Keys, name: str, family: Family, hidden: int) -> Attention | LatentAttention:
    """Full attention as a config describes it; windows are set by layer."""
    heads = keys.need("the number of attention heads", *HEADS)
    biases = biases_of(keys, name, family)
    if keys.has("kv_lora_rank"):
        return LatentAttention(
            hidden=hidden,
            heads=heads,
            q_lora_rank=keys.count("q_lora_rank", least=0) or 0,
            kv_lora_rank=keys.need("the rank of keys and values", "kv_lora_rank"),
            qk_nope_head_dim=keys.need("the part of a head without positions", "qk_nope_head_dim"),
            qk_rope_head_dim=keys.count("qk_rope_head_dim", least=0) or 0,
            v_head_dim=keys.need("the size of a value head", "v_head_dim"),
            bias=keys.flag("attention_bias", default=False),
            output_gate=keys.flag("mla_use_output_gate", default=False),
            indexer_heads=keys.count("index_n_heads", least=0) or 0,
            indexer_head_dim=keys.count("index_head_dim", least=0) or 0,
            indexer_top=keys.count("index_topk", least=0) or 0,
        )
    head_dim = keys.count(*HEAD_DIM)
    if head_dim is None:
        if hidden % heads and not keys.problems:
            found = f"{heads} heads do not divide {hidden}"
            keys.fault(HEADS[0], found, "add head_dim")
        head_dim = max(hidden // heads, 1)
    kv_heads = kv_heads_of(keys, name, heads)
    if heads % kv_heads:
        keys.fault(KV_HEADS[0], f"{kv_heads} does not divide {heads} heads", "give a divisor")
        kv_heads = heads
    return Attention(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=keys.count("v_head_dim") or head_dim,
        causal=family.shape == "decoder",
        bias=biases.output,
        qkv_bias=biases.qkv,
        qk_norm=qk_norm_of(keys, name, family),
        norm="layer-unbiased" if name in ("cohere", "stablelm") else family.norm,
        sinks=family.sinks,
        output_gate=keys.flag(
            "attn_output_gate", "attention_output_gate", default=family.output_gate
        ),
    )


def windowed_of(keys: Keys, full: Attention) -> Attention:
    """The attention of layers that slide, where it has heads of its own (`swa_` keys)."""
    heads = keys.count("swa_num_attention_heads") or full.heads
    head_dim = keys.count("swa_head_dim") or full.head_dim
    return full.model_copy(
        update={
            "heads": heads,
            "kv_heads": keys.count("swa_num_key_value_heads") or full.kv_heads,
            "head_dim": head_dim,
            "v_head_dim": keys.count("swa_v_head_dim") or full.v_head_dim,
            "sinks": keys.flag("add_swa_attention_sink_bias", default=full.sinks),
        }
    )


def global_of(keys: Keys, full: Attention) -> Attention:
    """The attention of Gemma 4's layers that see everything, which has heads of its own."""
    equal = keys.flag("attention_k_eq_v", default=False)
    head_dim = keys.count("global_head_dim") or full.head_dim
    kv_heads = keys.count("num_global_key_value_heads") if equal else None
    if full.heads % (kv_heads or 1):
        found = f"{kv_heads} does not divide {full.heads} heads"
        keys.fault("num_global_key_value_heads", found, "give a divisor")
    update = {"head_dim": head_dim, "v_head_dim": head_dim, "key_is_value": equal}
    return full.model_copy(update=update | {"kv_heads": kv_heads or full.kv_heads})


def kimi_delta_of(keys: Keys, hidden: int) -> KimiDelta:
    """The linear attention of Kimi Linear, from its own object."""
    return KimiDelta(
        hidden=hidden,
        heads=keys.need("the heads of linear attention", "linear_attn_config.num_heads"),
        head_dim=keys.need("the size of its heads", "linear_attn_config.head_dim"),
        conv_kernel=keys.count("linear_attn_config.short_conv_kernel_size") or 4,
        full_gate=keys.flag("linear_attn_config.use_full_rank_gate", default=False),
    )


def delta_net_of(keys: Keys, hidden: int) -> DeltaNet:
    """The gated delta-net of Qwen3-Next and its like."""
    return DeltaNet(
        hidden=hidden,
        key_heads=keys.need("the linear attention's key heads", "linear_num_key_heads"),
        value_heads=keys.need("the linear attention's value heads", "linear_num_value_heads"),
        key_head_dim=keys.need("the size of its key heads", "linear_key_head_dim"),
        value_head_dim=keys.need("the size of its value heads", "linear_value_head_dim"),
        conv_kernel=keys.count("linear_conv_kernel_dim") or 4,
    )


def mamba2_of(keys: Keys, hidden: int) -> Mamba2:
    """Mamba-2 by any of the sets of keys in use."""
    heads = keys.need("the number of Mamba heads", "mamba_num_heads", "mamba_n_heads", "num_heads")
    inner = int(hidden * (keys.number("mamba_expand", "expand") or 2))
    given: tuple[str, ...] = ("mamba_head_dim", "mamba_d_head")
    given = given if keys.has(*given) else ("head_dim",)
    automatic = keys.data.get("mamba_d_head") == "auto"
    return Mamba2(
        hidden=hidden,
        heads=heads,
        head_dim=max(inner // heads, 1) if automatic else keys.count(*given) or inner // heads,
        state=keys.need("the state's size", "ssm_state_size", "mamba_d_state", "state_size"),
        groups=keys.count("n_groups", "mamba_n_groups") or 1,
        conv_kernel=keys.count("conv_kernel", "mamba_d_conv") or 4,
        chunk=keys.count("chunk_size", "mamba_chunk_size") or 256,
        bias=keys.flag("mamba_proj_bias", "use_bias", default=False),
        conv_bias=keys.flag("use_conv_bias", "mamba_conv_bias", default=True),
    )


def mamba_of(keys: Keys, hidden: int, dt_norms: bool) -> Mamba:
    """Mamba (the first) by any of the sets of keys in use."""
    expand = keys.number("mamba_expand", "expand") or 2
    given = None if dt_norms else keys.count("intermediate_size", "d_inner")
    automatic = keys.data.get("mamba_dt_rank", keys.data.get("time_step_rank")) == "auto"
    rank = None if automatic else keys.count("time_step_rank", "mamba_dt_rank")
    return Mamba(
        hidden=hidden,
        inner=given or int(hidden * expand),
        state=keys.need("the state's size", "state_size", "mamba_d_state", "ssm_state_size"),
        dt_rank=rank or -(-hidden // 16),
        conv_kernel=keys.count("conv_kernel", "mamba_d_conv") or 4,
        bias=keys.flag("use_bias", "mamba_proj_bias", default=False),
        conv_bias=keys.flag("use_conv_bias", "mamba_conv_bias", default=True),
        dt_norms=dt_norms,
    )
