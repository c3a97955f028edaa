"""The feed-forwards of a config: dense ones, mixtures of experts, and which layers have which."""

from __future__ import annotations

from .feed_forward import FeedForward, Mixture
from .hf_families import Family
from .hf_keys import Keys
from .hf_mixers import biases_of

FFN = (
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "ffn_embed_dim",
    "d_ff",
    "inner_hidden_size",
    "ffn_config.ffn_hidden_size",
    "decoder_ffn_dim",
)
EXPERTS = (
    "n_routed_experts",
    "num_local_experts",
    "num_experts",
    "moe_num_experts",
    "ffn_config.moe_num_experts",
)
EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_k",
    "moe_top_k",
    "moe_topk",
    "top_k_experts",
    "num_selected_experts",
    "ffn_config.moe_top_k",
)
_EXPERT_FFN = ("moe_intermediate_size", "expert_intermediate_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_FFN = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)


def experts_of(keys: Keys) -> int:
    """Experts of a mixture; 0 for a dense model (a single expert is none)."""
    experts = keys.count(*EXPERTS, least=0) or 0
    return experts if experts > 1 else 0


def gated_of(keys: Keys, family: Family) -> bool:
    """Whether feed-forwards have a gate."""
    projection = keys.text("feed_forward_proj")
    if projection is not None:
        return projection.startswith("gated")
    named = ("mlp_gated_linear_units", "is_gated_act", "use_swiglu_ffn", "gated_mlp")
    return keys.flag(*named, default=family.gated)


def dense_of(keys: Keys, name: str, family: Family, hidden: int) -> FeedForward:
    """The feed-forward of dense layers."""
    special = {"llama4": "intermediate_size_mlp", "minimax_m3": "dense_intermediate_size"}
    names = (special[name], *FFN) if name in special and keys.has(special[name]) else FFN
    quiet = Keys(keys.data, keys.place, keys.problems, []) if name in special else keys
    ffn = quiet.count(*names)
    ratio = keys.number("expansion_ratio", "mlp_ratio")
    if ffn is None and not keys.has(*names):
        if ratio is not None:
            ffn = int(ratio * hidden)
        elif family.ffn_multiple is not None:
            ffn = family.ffn_multiple * hidden
    if ffn is None:
        ffn = keys.need("the width of the feed-forward", *names)
    if name == "qwen":
        ffn = max(ffn // 2, 1)
    return FeedForward(
        hidden=hidden,
        ffn=ffn,
        gated=gated_of(keys, family),
        bias=biases_of(keys, name, family).mlp,
    )


def mixture_of(keys: Keys, name: str, family: Family, hidden: int) -> Mixture:
    """The mixture of sparse layers."""
    experts = experts_of(keys)
    chosen = keys.need("the experts that a token is sent to", *EXPERTS_PER_TOKEN)
    if chosen > experts:
        keys.fault(EXPERTS_PER_TOKEN[0], f"{chosen} of {experts} experts", f"give 1 to {experts}")
        chosen = experts
    width = keys.count(*_EXPERT_FFN)
    if width is None:
        width = keys.need("the width of an expert", *FFN)
    bias = biases_of(keys, name, family).mlp
    gated = gated_of(keys, family)
    latent = keys.count("moe_latent_size", "routed_expert_hidden_size") or hidden

    def network(inputs: int, ffn: int) -> FeedForward:
        return FeedForward(hidden=inputs, ffn=ffn, gated=gated, bias=bias)

    shared = _shared_width(keys, name, family, width)
    return Mixture(
        hidden=hidden,
        experts=experts,
        experts_per_token=chosen,
        expert=network(latent, width),
        shared=network(hidden, shared) if shared else None,
        shared_gate=family.shared_gate and shared > 0,
        router_bias=keys.flag(
            "use_routing_bias",
            "use_moe_router_bias",
            "moe_router_enable_expert_bias",
            "moe_use_aux_free",
            default=family.router_bias,
        ),
    )


def _shared_width(keys: Keys, name: str, family: Family, expert: int) -> int:
    """Width of the shared experts together; 0 when there are none."""
    if name == "gemma4":
        # Its dense feed-forward runs beside the experts.
        return keys.count(*FFN) or 0
    count = keys.count(*_SHARED, least=0)
    width = keys.count(*_SHARED_FFN, least=0)
    if count is None and not keys.has(*_SHARED):
        if width is None and family.shared_experts:
            keys.note(f"{family.shared_experts} shared expert a layer, as every {name} has")
        count = family.shared_experts if width is None else 1
    # Of Nemotron-H the width is that of one shared expert, elsewhere of all together.
    if width is not None and name != "nemotron_h":
        return width
    return (count or 0) * (expert if width is None else width)


def sparse_layers(keys: Keys, layers: int) -> list[bool]:
    """Of each layer, whether its feed-forward is a mixture."""
    if not experts_of(keys):
        return [False] * layers
    first = keys.count("first_k_dense_replace", "num_dense_layers", least=0) or 0
    start = keys.count("moe_layer_start_index", least=0) or 0
    end = keys.count("moe_layer_end_index")
    found = [first <= layer and start <= layer for layer in range(layers)]
    if end is not None:
        found = [sparse and layer <= end for layer, sparse in enumerate(found)]
    listed = isinstance(keys.data.get("moe_layer_freq"), list)
    if listed:
        pattern = keys.items("moe_layer_freq") or []
        if len(pattern) != layers or any(entry not in (0, 1) for entry in pattern):
            fix = f"give {layers} numbers, 1 for layers with experts and 0 for dense ones"
            keys.fault("moe_layer_freq", f"{len(pattern)} entries", fix)
            return found
        return [bool(entry) for entry in pattern]
    # DeepSeek counts from the first layer, Qwen and Llama 4 so that the last one is sparse.
    every = 1 if listed else keys.count("moe_layer_freq", "moe_frequency") or 1
    step = keys.count("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or 1
    period = keys.count("expert_layer_period") or 1
    offset = keys.count("expert_layer_offset", least=0) or 0
    only = keys.indices("mlp_only_layers")
    named = keys.indices("moe_layers") if keys.has("moe_layers") else None
    for layer in range(layers):
        inside = (
            layer % every == 0 and (layer + 1) % step == 0 and layer % period == offset % period
        )
        found[layer] = found[layer] and inside and layer not in only
        if named is not None:
            found[layer] = layer in named
    return found
