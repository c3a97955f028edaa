"""Published configs of models: the dimensions and sizes that they must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from railweave.placement import InvalidInput, Model
from railweave.placement.models import DeltaNet, Mamba2

EXPECTED: dict[str, tuple[int | None, int | None, dict[str, Any]]] = {
    "Qwen--Qwen3-0.6B": (
        596_049_920,
        None,
        {"layers": 28, "hidden": 1024, "heads": 16, "kv_heads": 8, "head_dim": 128, "ffn": 3072}
        | {"gated_mlp": True, "vocab": 151936, "tied_embeddings": True},
    ),
    "Qwen--Qwen3-VL-30B-A3B-Instruct": (
        30_532_122_624,
        3_353_032_704,
        {"layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128}
        | {"expert_ffn": 768, "experts": 128, "experts_per_token": 8, "shared_ffn": 0}
        | {"vocab": 151936, "tied_embeddings": False},
    ),
    "Qwen--Qwen3.5-35B-A3B": (
        None,
        None,
        {"layers": 40, "hidden": 2048, "heads": 16, "kv_heads": 2, "head_dim": 256}
        | {"expert_ffn": 512, "experts": 256, "experts_per_token": 8, "shared_ffn": 512}
        | {"vocab": 248320},
    ),
    "XiaomiMiMo--MiMo-V2-Flash": (
        None,
        None,
        {"layers": 48, "hidden": 4096, "heads": 64, "kv_heads": 4, "head_dim": 192}
        | {"v_head_dim": 128, "ffn": 16384, "expert_ffn": 2048, "experts": 256}
        | {"experts_per_token": 8, "shared_ffn": 0, "vocab": 152576},
    ),
    "bert-base-uncased": (
        124_696_665,
        None,
        {"layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 3072}
        | {"gated_mlp": False, "vocab": 50265, "sequence": 512, "tied_embeddings": True},
    ),
    "dbrx_16x13b": (
        131_596_523_520,
        36_469_708_800,
        {"layers": 40, "hidden": 6144, "heads": 48, "kv_heads": 8, "expert_ffn": 10752}
        | {"experts": 16, "experts_per_token": 4, "vocab": 100352, "sequence": 32768}
        | {"gated_mlp": True, "tied_embeddings": False},
    ),
    "deepseek-ai--DeepSeek-V3": (
        671_026_419_200,
        37_552_297_472,
        {"layers": 61, "hidden": 7168, "heads": 128, "kv_heads": 128, "ffn": 18432}
        | {"expert_ffn": 2048, "shared_ffn": 2048, "experts": 256, "experts_per_token": 8}
        | {"vocab": 129280},
    ),
    "llama2_13b": (
        13_016_028_160,
        None,
        {"layers": 40, "hidden": 5120, "heads": 40, "kv_heads": 40, "ffn": 13824, "vocab": 32016},
    ),
    "llmanalysis_bloom-175b": (
        None,
        None,
        {"layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "vocab": 250880}
        | {"sequence": None},
    ),
    "llmanalysis_gpt2": (
        124_439_808,
        None,
        {"layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 3072}
        | {"gated_mlp": False, "vocab": 50257, "positions": "learned", "sequence": 1024}
        | {"tied_embeddings": True},
    ),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (
        107_769_861_120,
        17_172_894_720,
        {"layers": 48, "hidden": 5120, "heads": 40, "kv_heads": 8, "head_dim": 128}
        | {"expert_ffn": 8192, "experts": 16, "experts_per_token": 1, "shared_ffn": 8192}
        | {"vocab": 202048},
    ),
    "meta-llama--Meta-Llama-3.1-405B": (
        405_853_388_800,
        None,
        {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248}
        | {"vocab": 128256, "tied_embeddings": False},
    ),
    "mistralai--Mixtral-8x7B-v0.1": (
        46_702_792_704,
        12_879_925_248,
        {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "expert_ffn": 14336}
        | {"experts": 8, "experts_per_token": 2, "vocab": 32000},
    ),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": (
        49_867_145_216,
        None,
        {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "vocab": 128256},
    ),
    "nvidia--Nemotron-H-56B-Base-8K": (
        None,
        None,
        {"layers": 118, "hidden": 8192, "heads": 64, "kv_heads": 8, "head_dim": 128}
        | {"ffn": 32768, "gated_mlp": False, "vocab": 131072},
    ),
    "openai--gpt-oss-120b": (
        116_829_156_672,
        None,
        {"layers": 36, "hidden": 2880, "heads": 64, "kv_heads": 8, "head_dim": 64}
        | {"expert_ffn": 2880, "experts": 128, "experts_per_token": 4, "vocab": 201088},
    ),
}


def config_of(shared: Path, name: str) -> Path:
    folder = shared / "inputs" / "hf_config"
    [path] = [p for p in folder.iterdir() if p.stem.removesuffix("_config") == name]
    return path


@pytest.mark.parametrize("name", EXPECTED)
def test_a_config_gives_the_dimensions_and_sizes_that_it_must(name: str, shared: Path) -> None:
    total, active, attributes = EXPECTED[name]
    model = Model.from_hf(config_of(shared, name))
    assert {key: getattr(model, key) for key in attributes} == attributes
    assert total in (None, model.parameters)
    assert active in (None, model.active_parameters)
    assert Model.model_validate_json(model.model_dump_json()) == model


def windows(model: Model) -> dict[tuple[int, int | None], int]:
    """Layers by their heads of keys and values and by their window."""
    found: dict[tuple[int, int | None], int] = {}
    for count, block in model.kinds:
        if block.attention is not None:
            core = block.attention.core()
            key = core.kv_heads, core.window
            found[key] = found.get(key, 0) + count
    return found


def test_layers_of_hybrids_are_told_apart(shared: Path) -> None:
    model = Model.from_hf(config_of(shared, "Qwen--Qwen3.5-35B-A3B"))
    linear = {b.mixer: n for n, b in model.kinds if isinstance(b.mixer, DeltaNet)}
    [(net, count)] = linear.items()
    assert (count, net.key_heads, net.value_heads, net.value_head_dim) == (30, 16, 32, 128)
    assert sum(windows(model).values()) == 10
    assert model.prediction is not None and model.prediction.tokens == 1
    [tower] = model.towers
    assert (tower.layers, tower.hidden, tower.heads) == (27, 1152, 16)

    model = Model.from_hf(config_of(shared, "XiaomiMiMo--MiMo-V2-Flash"))
    assert windows(model) == {(4, None): 9, (8, 128): 39}
    assert sum(count for count, block in model.kinds if block.mixture is None) == 1

    model = Model.from_hf(config_of(shared, "openai--gpt-oss-120b"))
    assert windows(model) == {(8, None): 18, (8, 128): 18}
    assert round(model.active_parameters / 1e9, 2) == 5.71

    model = Model.from_hf(config_of(shared, "nvidia--Nemotron-H-56B-Base-8K"))
    mamba = [(n, b.mixer) for n, b in model.kinds if isinstance(b.mixer, Mamba2)]
    assert [(n, m.heads, m.head_dim, m.state, m.groups) for n, m in mamba] == [
        (54, 256, 64, 256, 8)
    ]
    assert windows(model) == {(8, None): 10}
    assert "118 layers of one part each" in model.notes[0]


def test_layers_changed_one_by_one_are_read_one_by_one(shared: Path) -> None:
    model = Model.from_hf(config_of(shared, "nvidia--Llama-3_3-Nemotron-Super-49B-v1"))
    widths: dict[int, int] = {}
    for count, block in model.kinds:
        assert block.feed_forward is not None and block.feed_forward.kind == "dense"
        widths[block.feed_forward.ffn] = widths.get(block.feed_forward.ffn, 0) + count
    assert widths == {28672: 49, 7168: 10, 5632: 8, 14336: 6, 2816: 6, 17920: 1}
    assert windows(model) == {(8, None): 49}


def test_a_key_value_cache_of_latent_attention_is_its_latent(shared: Path) -> None:
    model = Model.from_hf(config_of(shared, "deepseek-ai--DeepSeek-V3"))
    down = {m.name: m.n for m in model.block(0).matmuls()}
    assert down["key_value_down"] == 512 + 64
    assert [(n, b.mixture is None) for n, b in model.runs] == [(3, True), (58, False)]
    assert model.prediction is not None and model.prediction.tokens == 1


def test_what_a_file_leaves_open_is_noted(shared: Path) -> None:
    notes = Model.from_hf(config_of(shared, "llmanalysis_bloom-175b")).notes
    assert any("no model_type" in note for note in notes)
    assert "the longest sequence is unknown" in notes
    notes = Model.from_hf(config_of(shared, "meta-llama--Llama-4-Scout-17B-16E-Instruct")).notes
    assert notes == ("1 shared expert a layer, as every llama4 has",)


def test_a_fixture_without_dimensions_is_refused(shared: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(config_of(shared, "dummy-fixture"))
    assert "no dimensions of a model in it" in str(caught.value)
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert f"{name}: missing" in str(caught.value)


def test_a_fragment_is_refused_with_what_is_missing_alone(shared: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(config_of(shared, "neuron_moe_test"))
    places = [problem.place for problem in caught.value.problems]
    assert places == ["vocab_size", "intermediate_size", "model_type"]
