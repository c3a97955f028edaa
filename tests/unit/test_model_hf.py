"""Configs as people have them: what is read, what is noted, and what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput, Model
from railweave.placement.models import DeltaNet, Mamba2
from railweave.placement.models.hf_families import ALIASES, FAMILIES, family_of

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}

# File of the reference material: total and active parameters, then attributes.
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": "64"}, "hidden_size: found '64'; give a whole number"),
        ({"hidden_size": 64.0}, "hidden_size: found 64.0; give a whole number"),
        ({"hidden_size": -64}, "hidden_size: found -64; give a number of 1"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers: found 1000000000; give a number of 1 to",
        ),
        ({"hidden_size": True}, "hidden_size: found True"),
        ({"num_attention_heads": 7}, "num_attention_heads: 7 heads do not divide 64"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide 8 heads"),
        ({"vocab_size": None}, "vocab_size: missing"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: found 'no'; give true or false"),
        ({"layer_types": ["full_attention"]}, "layer_types: 1 entries; give one for each of 4"),
        ({"layer_types": ["spiral"] * 4}, "layer_types: layers of the kind spiral"),
        ({"layer_types": 4}, "layer_types: found 4; give a list"),
        ({"num_local_experts": 8}, "num_experts_per_tok: missing"),
        (
            {"num_local_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok: 9 of 8 experts; give 1 to 8",
        ),
        (
            {"num_experts": 4, "num_experts_per_tok": 1, "moe_layer_freq": [1, 1]},
            "moe_layer_freq: 2 entries; give 4 numbers",
        ),
        ({"block_configs": [{}]}, "block_configs: 1 entries; give one for each of 4 layers"),
        ({"block_configs": [3] * 4}, "block_configs[0]: no object"),
        ({"model_type": 5}, "model_type: found 5; give text"),
        ({"kv_lora_rank": 16}, "qk_nope_head_dim: missing"),
        ({"model_type": "rwkv"}, "model_type: rwkv: its time mixing is not described"),
        (
            {"model_type": "what", "architectures": None, "is_encoder_decoder": True},
            "model_type: model_type 'what' is not known; known are albert",
        ),
    ],
)
def test_a_wrong_key_is_named_with_what_it_holds(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(LLAMA | change)
    assert message in str(caught.value)


def test_all_faults_of_a_config_are_told_together() -> None:
    faults = {"hidden_size": None, "vocab_size": "many", "num_hidden_layers": 0}
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(LLAMA | faults)
    assert [problem.place for problem in caught.value.problems] == [
        "hidden_size",
        "vocab_size",
        "num_hidden_layers",
    ]


def test_a_fault_inside_a_wrapper_has_its_whole_place() -> None:
    with pytest.raises(InvalidInput, match=r"text_config\.vocab_size: missing"):
        Model.from_hf({"model_type": "llava", "text_config": LLAMA | {"vocab_size": None}})


def test_other_names_of_keys_mean_the_same() -> None:
    renamed = {
        "n_embd": LLAMA["hidden_size"],
        "n_layer": LLAMA["num_hidden_layers"],
        "n_head": LLAMA["num_attention_heads"],
        "n_kv_heads": LLAMA["num_key_value_heads"],
        "ffn_dim": LLAMA["intermediate_size"],
        "vocab_size": LLAMA["vocab_size"],
        "n_positions": LLAMA["max_position_embeddings"],
        "model_type": "llama",
        "tie_word_embeddings": False,
    }
    assert Model.from_hf(renamed) == Model.from_hf(LLAMA)


def test_names_that_disagree_are_noted_and_the_first_counts() -> None:
    model = Model.from_hf(LLAMA | {"n_layer": 5})
    assert model.layers == 4
    assert model.notes == ("num_hidden_layers 4 is used, not n_layer 5",)


def test_an_unknown_type_with_all_dimensions_is_read_with_a_note() -> None:
    strange = LLAMA | {"model_type": "newest", "architectures": ["NewestForCausalLM"]}
    model = Model.from_hf(strange)
    assert model.parameters == Model.from_hf(LLAMA).parameters
    assert "model_type 'newest' is not known: read like Llama" in model.notes[0]
    older = {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": 100, "n_positions": 32}
    model = Model.from_hf(older | {"model_type": "older", "n_inner": 256})
    assert "read like GPT-2" in model.notes[0]
    assert model.tied_embeddings and not model.gated_mlp


def test_an_architecture_stands_in_for_a_missing_type() -> None:
    bare = {key: value for key, value in LLAMA.items() if key != "model_type"}
    model = Model.from_hf(bare)
    assert model.notes == ()
    assert model.parameters == Model.from_hf(LLAMA).parameters
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    named = Model.from_hf(bare | moe | {"architectures": ["Qwen3MoeForCausalLM"]})
    assert named.block(0).attention == Model.from_hf(LLAMA | {"model_type": "qwen3"}).attention


def test_a_model_without_output_head_and_a_classifier_are_counted_as_such() -> None:
    whole = Model.from_hf(LLAMA)
    bare = Model.from_hf(LLAMA | {"architectures": ["LlamaModel"]})
    assert whole.parameters - bare.parameters == 64 * 1000
    assert bare.notes == ("LlamaModel has no output head",)
    labels = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "", "1": ""}}
    assert Model.from_hf(LLAMA | labels).parameters - bare.parameters == 64 * 2


def test_a_tower_that_cannot_be_read_is_noted_and_the_text_is_read() -> None:
    wrapper = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 32}}
    model = Model.from_hf(wrapper)
    assert model.parameters == Model.from_hf(LLAMA).parameters
    assert model.towers == ()
    assert any("the vision tower is left out: vision_config." in note for note in model.notes)


def test_what_some_members_of_a_family_have_besides_is_refused_or_noted() -> None:
    shared = LLAMA | {"model_type": "gemma4_text", "num_kv_shared_layers": 2}
    with pytest.raises(InvalidInput, match="num_kv_shared_layers: above 0; such layers are not"):
        Model.from_hf(shared)
    noted = LLAMA | {"attn_res_block_size": 2}
    assert "attn_res" in Model.from_hf(noted).notes[0]


def test_windows_follow_the_rule_of_the_family() -> None:
    def seen(**changes: Any) -> list[int | None]:
        model = Model.from_hf(LLAMA | {"num_hidden_layers": 6} | changes)
        return [
            block.attention.core().window
            for count, block in model.runs
            for _ in range(count)
            if block.attention is not None
        ]

    assert seen(model_type="mistral", sliding_window=16) == [16] * 6
    assert seen(model_type="qwen2", sliding_window=16, use_sliding_window=False) == [None] * 6
    assert seen(model_type="qwen2", sliding_window=16, max_window_layers=4) == [None] * 4 + [16] * 2
    assert seen(model_type="gemma2", sliding_window=16) == [16, None] * 3
    assert seen(model_type="gemma3_text", sliding_window=16) == [16] * 5 + [None]
    assert (
        seen(model_type="exaone4", sliding_window=16, sliding_window_pattern="LLG")
        == [
            16,
            16,
            None,
        ]
        * 2
    )


def test_a_file_a_folder_and_its_content_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    by_file, by_folder = Model.from_hf(folder / "config.json"), Model.from_hf(str(folder))
    assert by_file == by_folder
    assert by_file.name == "my-model"
    assert by_file.stack == Model.from_hf(LLAMA).stack


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n"hidden_size": 64,\n}', "line 3 column 1: not JSON"),
        (b"", "line 1 column 1: not JSON"),
        (b"hidden_size: 64", "line 1 column 1: not JSON"),
        (b"\xff\xfe\x00{", "byte 0: not UTF-8 text"),
        (b"[1, 2]", "holds a list, not an object"),
        (b"[" * 100_000, "not usable JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not usable JSON"),
        (b" " * (8 * 2**20 + 1), "larger than 8388608 bytes"),
    ],
)
def test_what_is_no_config_is_refused_with_the_place(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        Model.from_hf(tmp_path / "absent.json")


def test_a_key_given_twice_is_noted(tmp_path: Path) -> None:
    text = json.dumps(LLAMA)[:-1] + ', "vocab_size": 2000, "time_step_limit": [0.0, Infinity]}'
    (tmp_path / "config.json").write_text(text)
    model = Model.from_hf(tmp_path)
    assert model.vocab == 2000
    assert model.notes == ("'vocab_size' is given twice; the last one counts",)


def test_every_other_name_leads_to_a_family() -> None:
    assert set(ALIASES.values()) <= set(FAMILIES)
    for name in (*FAMILIES, *ALIASES):
        assert family_of(name) is not None, name


SCALARS = st.none() | st.booleans() | st.integers(-2, 70) | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *LLAMA,
        "n_embd",
        "text_config",
        "vision_config",
        "layer_types",
        "block_configs",
        "hybrid_override_pattern",
        "hybrid_layer_pattern",
        "num_experts",
        "num_experts_per_tok",
        "moe_layer_freq",
        "mlp_only_layers",
        "sliding_window",
        "sliding_window_pattern",
        "attention_types",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "v_head_dim",
        "mamba_d_head",
        "linear_num_value_heads",
        "num_nextn_predict_layers",
        "id2label",
        "attn_config",
        "expansion_ratio",
        "d_model",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    base=st.sampled_from([{}, LLAMA]),
    changes=st.dictionaries(KEYS, VALUES, max_size=6),
)
def test_any_object_is_a_model_or_refused_by_name(
    family: str, base: dict[str, Any], changes: dict[str, Any]
) -> None:
    config = base | {"model_type": family} | changes
    try:
        model = Model.from_hf(config)
    except InvalidInput as error:
        assert error.problems
    else:
        assert model.parameters >= model.active_parameters > 0
        assert Model.model_validate_json(model.model_dump_json()) == model


def test_what_an_unknown_family_leaves_out_is_missing_and_not_guessed() -> None:
    older = {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": 100}
    with pytest.raises(InvalidInput) as caught:
        Model.from_hf(older)
    places = [problem.place for problem in caught.value.problems]
    assert places == ["intermediate_size", "model_type"]
    with pytest.raises(InvalidInput, match="intermediate_size: missing"):
        Model.from_hf(older | {"name": "bloom-new"})
    # GPT-2 itself means 4 x hidden by leaving it out.
    assert Model.from_hf(older | {"model_type": "gpt2", "n_positions": 32}).ffn == 256
    model = Model.from_hf(older | {"n_inner": 128})
    assert (model.sequence, model.position_parameters) == (None, 0)
