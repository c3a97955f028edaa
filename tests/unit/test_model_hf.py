"""Configs as people have them: what is read, what is noted, and what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput, Model
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
