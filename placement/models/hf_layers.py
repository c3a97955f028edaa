"""Which mixer each layer of a config has: full, windowed, linear, and the marks of hybrids."""

from __future__ import annotations

import re
from typing import Literal

from .hf_keys import Keys

Kind = Literal["full", "window", "chunk", "linear", "mamba", "none", "dense", "mixture"]

# The words of layer_types, layers_block_type and the like, and the letters of patterns.
_WORDS: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "full": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "window",
    "local": "window",
    "local_attention": "window",
    "chunked_attention": "chunk",
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "hybrid": "full",
    "mlp": "dense",
    "moe": "mixture",
    "M": "mamba",
    "*": "full",
    "-": "dense",
    "E": "mixture",
}

# Layers of one kind in a row before one that sees everything, where the file leaves it out.
_PATTERNS = {"gemma3": 6, "cohere2": 4, "modernbert": 3, "exaone4": 4, "llama4": 4}


def mixer_kinds(keys: Keys, name: str, layers: int) -> list[Kind]:
    """Of each layer, the kind of its mixer."""
    listed = _listed(keys, "layer_types", layers) or _listed(keys, "layers_block_type", layers)
    if listed is not None:
        return listed
    if keys.has("hybrid_layer_pattern"):
        return _numbered(keys, layers)
    if name == "jamba":
        period = keys.count("attn_layer_period") or 8
        offset = keys.count("attn_layer_offset", least=0) or 0
        return ["full" if i % period == offset % period else "mamba" for i in range(layers)]
    if name == "bamba" and keys.has("attn_layer_indices"):
        attends = keys.indices("attn_layer_indices")
        return ["full" if i in attends else "mamba" for i in range(layers)]
    if name == "kimi_linear":
        linear = keys.indices("linear_attn_config.kda_layers")
        return ["linear" if layer + 1 in linear else "full" for layer in range(layers)]
    if name in ("mamba", "mamba2", "falcon_mamba"):
        return ["mamba"] * layers
    if keys.has("full_attention_interval"):
        every = keys.count("full_attention_interval") or 1
        return ["linear" if (i + 1) % every else "full" for i in range(layers)]
    if keys.has("linear_num_value_heads"):
        return ["linear" if (i + 1) % 4 else "full" for i in range(layers)]
    if name == "gpt_neo":
        return _gpt_neo(keys, layers)
    return _windowed(keys, name, layers)


def window_of(keys: Keys) -> int | None:
    """Keys that a query of a windowed layer sees."""
    return keys.count(
        "sliding_window",
        "sliding_window_size",
        "window_size",
        "local_attention",
        "attention_window",
    )


def chunk_of(keys: Keys) -> int | None:
    """Tokens of a chunk in layers that attend inside chunks."""
    return keys.count("attention_chunk_size")


def block_marks(keys: Keys, pattern: str, listed: str) -> list[Kind] | None:
    """The blocks of a hybrid whose layers are single parts: by a pattern of letters, or a list."""
    letters = keys.text(pattern)
    if letters is not None:
        unknown = sorted(set(letters) - set("M*-E|"))
        if unknown:
            fix = "use M (Mamba), * (attention), - (feed-forward), E (experts)"
            keys.fault(pattern, f"the letters {' '.join(unknown)[:60]}", fix)
            return None
        return [_WORDS[letter] for letter in letters if letter != "|"]
    entries = keys.items(listed)
    return None if entries is None else _listed(keys, listed, len(entries))


def _listed(keys: Keys, name: str, layers: int) -> list[Kind] | None:
    entries = keys.items(name)
    if entries is None:
        return None
    unknown = sorted({str(e)[:40] for e in entries if not isinstance(e, str) or e not in _WORDS})
    if unknown:
        known = ", ".join(word for word in _WORDS if len(word) > 1)
        keys.fault(name, f"layers of the kind {', '.join(unknown[:5])}", f"known are {known}")
        return None
    if len(entries) < layers:
        keys.fault(name, f"{len(entries)} entries", f"give one for each of {layers} layers")
        return None
    if len(entries) > layers:
        keys.note(f"{name} has {len(entries)} entries, of which the first {layers} count")
    return [_WORDS[entry] for entry in entries[:layers]]


def _numbered(keys: Keys, layers: int) -> list[Kind]:
    entries = keys.items("hybrid_layer_pattern") or []
    if len(entries) != layers or any(entry not in (0, 1) for entry in entries):
        fix = f"give {layers} numbers, 0 for full attention and 1 for a sliding window"
        keys.fault("hybrid_layer_pattern", f"{len(entries)} entries", fix)
        return ["full"] * layers
    return ["window" if entry else "full" for entry in entries]


def _gpt_neo(keys: Keys, layers: int) -> list[Kind]:
    found: list[Kind] = []
    for entry in keys.items("attention_types") or [[["global", "local"], layers]]:
        match entry:
            case [list(words), int(times)] if set(map(str, words)) <= {"global", "local"}:
                if len(words) * times <= 2 * layers:
                    found += [_WORDS[word] for word in words] * times
            case _:
                keys.fault("attention_types", "no such list", 'give [[["global", "local"], n]]')
                break
    return (found + ["full"] * layers)[:layers]


def _windowed(keys: Keys, name: str, layers: int) -> list[Kind]:
    """Where only a window is given: the family's rule for which layers slide."""
    if name == "llama4" and keys.has("attention_chunk_size"):
        every = keys.count("no_rope_layer_interval") or _PATTERNS[name]
        return ["chunk" if (i + 1) % every else "full" for i in range(layers)]
    if window_of(keys) is None or not keys.flag("use_sliding_window", default=True):
        return ["full"] * layers
    pattern = keys.data.get("sliding_window_pattern")
    if isinstance(pattern, str):
        letters = re.sub("[^LG]", "", pattern) or "G"
        return ["window" if letters[i % len(letters)] == "L" else "full" for i in range(layers)]
    if name in ("gemma2", "gpt_oss"):
        return ["full" if i % 2 else "window" for i in range(layers)]
    if name == "modernbert":
        every = keys.count("global_attn_every_n_layers") or _PATTERNS[name]
        return ["window" if i % every else "full" for i in range(layers)]
    if name in _PATTERNS or keys.has("sliding_window_pattern"):
        every = keys.count("sliding_window_pattern") or _PATTERNS.get(name, 1)
        return ["window" if (i + 1) % every else "full" for i in range(layers)]
    if keys.has("max_window_layers"):
        first = keys.count("max_window_layers", least=0) or 0
        return ["full" if i < first else "window" for i in range(layers)]
    return ["window"] * layers
