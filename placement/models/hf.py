"""Models from Hugging Face `config.json` files: which reader takes it, its name, what was odd."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, Problem
from ..explained import shown
from .hf_decoder import HIDDEN, LAYERS, SEQUENCE, architecture_of, decoder_parts
from .hf_encoder import encoder_parts, pair_parts, vision_parts
from .hf_families import FAMILIES, Family, family_in, family_of
from .hf_keys import Keys, read_config
from .hf_towers import contrastive_parts, vision_tower
from .sizes import Positions

_TEXT = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
# Wrappers inside wrappers: Qwen Omni has its text two deep.
_DEEPEST = 4
_READERS = {
    "decoder": decoder_parts,
    "encoder": encoder_parts,
    "encoder-decoder": pair_parts,
    "speech": pair_parts,
    "vision": vision_parts,
    "contrastive": contrastive_parts,
}


def hf_parts(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Model for a config: a file, its folder, or what the file holds.

    Raises InvalidInput when it is no model config, when dimensions are missing (each by name), or
    when it is of a family whose layers cannot be described.
    """
    if isinstance(source, Mapping):
        wrapper, origin = Keys(dict(source)), "config"
    elif isinstance(source, str | os.PathLike):
        wrapper, origin = read_config(source), os.fspath(source)
    else:
        fix = "give the path of a config.json, its folder, or what it holds"
        raise InvalidInput("config", [Problem("", f"found {shown(source)}", fix)])
    text = _text_of(wrapper)
    name, family = _family(wrapper, text)
    if family.odd is not None:
        fix = "give its sizes to Model.transformer, or capture the module"
        raise InvalidInput(origin, [Problem("model_type", f"{name}: {family.odd}", fix)])
    keys = wrapper if family.shape == "contrastive" else text
    if family.shape != "contrastive":
        text.raise_faults(origin)
    try:
        parts = _READERS[family.shape](keys, name, family)
    except InvalidInput as error:
        # A part was refused because of what stands in for missing or faulty keys.
        keys.raise_faults(origin)
        raise InvalidInput(origin, error.problems) from error
    if keys.problems and not _named(wrapper, text):
        keys.fault("model_type", "missing", "add it, such as 'llama'")
    if family.shape != "contrastive" and not text.has(*HIDDEN) and not text.has(*LAYERS):
        nothing = Problem("", "no dimensions of a model in it", "give a model's config.json")
        keys.problems.insert(0, nothing)
    keys.raise_faults(origin)
    if keys is text and not text.has(*SEQUENCE) and parts["sequence"] is None:
        keys.note("the longest sequence is unknown")
    if text is not wrapper and keys is text:
        parts["towers"] = _towers(wrapper, parts["stack"].hidden)
    given = _name(wrapper, source)
    return {**parts, "name": given, "notes": tuple(keys.notes)}


def _text_of(wrapper: Keys) -> Keys:
    """The part that describes the text model: the whole, or an object inside a wrapper."""
    found = wrapper
    for _ in range(_DEEPEST):
        if found.has(*HIDDEN) or found.has(*LAYERS):
            break
        inside = next((s for name in _TEXT if (s := found.section(name)) is not None), None)
        if inside is None:
            break
        shared = {
            key: found.data[key]
            for key in ("tie_word_embeddings", "architectures", "model_type")
            if key in found.data and inside.data.get(key) is None
        }
        found = Keys({**shared, **inside.data}, inside.place, wrapper.problems, wrapper.notes)
    return found


def _named(wrapper: Keys, text: Keys) -> bool:
    return text.has("model_type") or wrapper.has("model_type") or bool(architecture_of(wrapper))


def _family(wrapper: Keys, text: Keys) -> tuple[str, Family]:
    """The family by model_type, architecture or the model's own name; else a guess, noted."""
    outer = wrapper.text("model_type")
    if outer is not None and (found := family_of(outer)) and found[1].shape == "contrastive":
        return found
    for model_type in (text.text("model_type"), outer):
        if model_type and (found := family_of(model_type)):
            return found
    architecture = architecture_of(text) or architecture_of(wrapper)
    stem = re.split(r"For[A-Z]|LMHead|WithLM|Model$", architecture)[0]
    if stem and (found := family_of(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem))):
        return found
    if stem and (found := family_of(stem)):
        return found
    named = text.text("model_type") or outer
    own = text.text("name") or ""
    if named is None and own and (found := family_in(own)):
        text.note(f"no model_type: read as {found[0]} by the name {shown(own)}")
        return found[0], replace(found[1], ffn_multiple=None)
    return _guessed(text, named, architecture)


def _guessed(text: Keys, named: str | None, architecture: str) -> tuple[str, Family]:
    given = f"model_type {shown(named)} is not known" if named else "no model_type"
    if text.flag("is_encoder_decoder", default=False):
        text.fault("model_type", given, f"known are {', '.join(sorted(FAMILIES))}")
    if architecture.endswith("ForMaskedLM"):
        text.note(f"{given}: read as an encoder like BERT")
        return "bert", FAMILIES["bert"]
    modern = text.has("rms_norm_eps", "num_key_value_heads", "rope_theta", "rope_parameters")
    activation = text.text("hidden_act", "activation_function") or ""
    if modern or "silu" in activation or "swi" in activation:
        text.note(f"{given}: read like Llama, gated with RMS norms and without biases")
        return "llama", FAMILIES["llama"]
    text.note(f"{given}: read like GPT-2, with biases, layer norms and tied embeddings")
    # What a known family leaves out has a meaning, what an unknown one leaves out is missing.
    positions: Positions = "learned" if text.has(*SEQUENCE) else "none"
    return "gpt2", replace(FAMILIES["gpt2"], ffn_multiple=None, positions=positions)


def _towers(wrapper: Keys, hidden: int) -> tuple[Any, ...]:
    """The vision tower of a wrapper; one that cannot be read is noted and left out."""
    for name in ("audio_config", "talker_config", "vq_config"):
        if wrapper.has(name):
            wrapper.note(f"{name} is left out: only text and vision are read")
    inner = wrapper.section("thinker_config") or wrapper
    vision = inner.section("vision_config")
    if vision is None:
        return ()
    apart = Keys(vision.data, vision.place)
    try:
        tower = vision_tower(apart, inner, hidden)
        apart.raise_faults("vision_config")
    except InvalidInput as error:
        wrapper.note(f"the vision tower is left out: {error.problems[0]}")
        return ()
    for note in apart.notes:
        wrapper.note(note)
    return (tower,)


def _name(wrapper: Keys, source: str | os.PathLike[str] | Mapping[str, Any]) -> str:
    for key in ("name", "_name_or_path"):
        given = wrapper.data.get(key)
        if isinstance(given, str) and (tail := given.rstrip("/").rsplit("/", 1)[-1].strip()):
            return tail[:200]
    if isinstance(source, Mapping):
        return wrapper.text("model_type") or "model"
    path = Path(source)
    stem = path.name if path.is_dir() else path.stem
    if stem == "config":
        stem = path.resolve().parent.name
    return re.sub(r"_config$", "", stem)[:200] or "model"
