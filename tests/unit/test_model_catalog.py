"""The catalog: published sizes to the unit, every measured shape, and help with a wrong name."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from railweave.placement import InvalidInput, Model
from railweave.placement.models.catalog import CATALOG, OTHER_NAMES, catalog_name

# Parameters in all and active for a token, embeddings included; sources: the sums of the tensors of
# the published checkpoints, and for Megatron's shapes the formula of Narayanan 2021.
SIZES = {
    "gpt2": (124_439_808, 124_439_808),
    "gpt2-medium": (354_823_168, 354_823_168),
    "gpt2-large": (774_030_080, 774_030_080),
    "gpt2-xl": (1_557_611_200, 1_557_611_200),
    "gpt3-175b": (174_604_259_328, 174_604_259_328),
    "gpt3-175b-megatron-v51200": (174_615_846_912, 174_615_846_912),
    "bloom-176b": (176_247_271_424, 176_247_271_424),
    "llama-7b": (6_738_415_616, 6_738_415_616),
    "llama-30b": (32_528_943_616, 32_528_943_616),
    "llama-65b": (65_285_660_672, 65_285_660_672),
    "llama-2-7b": (6_738_415_616, 6_738_415_616),
    "llama-2-13b": (13_015_864_320, 13_015_864_320),
    "llama-2-70b": (68_976_648_192, 68_976_648_192),
    "llama-3-8b": (8_030_261_248, 8_030_261_248),
    "llama-3-70b": (70_553_706_496, 70_553_706_496),
    "llama-3.1-405b": (405_853_388_800, 405_853_388_800),
    "llama-3.2-1b": (1_235_814_400, 1_235_814_400),
    "mistral-7b-v0.1": (7_241_732_096, 7_241_732_096),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "mixtral-8x22b-v0.1": (140_620_634_112, 39_152_031_744),
    "qwen2-57b-a14b": (57_408_658_944, 14_249_270_784),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704),
    "qwen3-235b-a22b": (235_093_634_560, 22_190_763_520),
    "deepseek-v2-lite": (15_706_484_224, 2_661_150_208),
    "deepseek-v2": (235_741_434_880, 21_375_800_320),
    "deepseek-v3": (671_026_419_200, 37_552_297_472),
    "kimi-k2": (1_026_408_232_448, 32_861_500_928),
    "grok-1": (315_684_820_992, 83_756_587_008),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704),
    "gpt-oss-120b": (116_829_156_672, 5_711_982_912),
    "nemotron-3-nano": (31_577_940_288, 3_580_076_352),
    "bert-base-uncased": (109_514_298, 109_514_298),
    "bert-large-uncased": (335_174_458, 335_174_458),
    "t5-base": (222_903_552, 222_903_552),
    "t5-11b": (11_307_321_344, 11_307_321_344),
    "vit-b-16": (86_567_656, 86_567_656),
    "vit-l-16": (304_326_632, 304_326_632),
    "vit-h-14": (632_045_800, 632_045_800),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_published_model_has_its_size_to_the_unit(name: str) -> None:
    model = Model.from_catalog(name)
    assert (model.parameters, model.active_parameters) == SIZES[name]


# Billions, as printed: Narayanan 2021 Table 1, Megatron-LM README, NVIDIA's model cards.
PRINTED = {
    "gpt-1.7b": 1.7,
    "gpt-3.6b": 3.6,
    "gpt-7.5b": 7.5,
    "gpt-18.4b": 18.4,
    "gpt-39.1b": 39.1,
    "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6,
    "gpt-310.1b": 310.1,
    "gpt-530b": 529.6,
    "gpt-1t": 1008.0,
    "gpt-22b": 22,
    "gpt-16b": 16,
    "gpt-70b": 70,
    "gpt-177b": 177,
    "gpt-462b": 462,
    "opt-175b": 175,
    "nemotron-3-super": 121,
}
TO_A_TENTH = set(list(PRINTED)[:10])


@pytest.mark.parametrize("name", PRINTED)
def test_a_measured_shape_has_its_printed_size(name: str) -> None:
    printed = PRINTED[name]
    found = Model.from_catalog(name).parameters / 1e9
    assert abs(found - printed) <= (0.05 if name in TO_A_TENTH else 0.6)


def test_every_entry_is_a_model_that_bears_its_name() -> None:
    for name in CATALOG:
        model = Model.from_catalog(name)
        assert model.name == name
        assert model.notes == ()
        assert Model.model_validate_json(model.model_dump_json()) == model


def test_other_names_and_spellings_lead_to_the_entry() -> None:
    assert set(OTHER_NAMES.values()) <= set(CATALOG)
    assert not set(OTHER_NAMES) & set(CATALOG)
    for spelling, name in {
        "LLAMA3.1_405B": "llama-3.1-405b",
        "DeepSeekV3": "deepseek-v3",
        "GPT OSS 120B": "gpt-oss-120b",
        "Qwen3_30B_a3B": "qwen3-30b-a3b",
        "mistral-7b": "mistral-7b-v0.1",
    }.items():
        assert Model.from_catalog(spelling).name == name


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("llama3-80b", "llama-3-8b"), ("gpt4", "gpt2"), ("deepseek-v4", "deepseek-v3")],
)
def test_a_wrong_name_is_answered_with_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"no model '{wrong}'; did you mean .*{meant}"):
        Model.from_catalog(wrong)


def test_a_name_like_none_is_answered_with_all_there_are() -> None:
    with pytest.raises(InvalidInput, match="known are gpt2, "):
        Model.from_catalog("§§§")


def test_sizes_equal_those_counted_independently(shared: Path) -> None:
    entries = json.loads((shared / "facts/models.json").read_text())
    for name, entry in entries.items():
        if not name.startswith("_"):
            model = Model.from_catalog(name)
            assert model.parameters == entry["counted_total"], name
            active = entry.get("counted_active_incl_embeddings", model.active_parameters)
            assert model.active_parameters == active, name


def test_every_model_that_was_measured_is_in_the_catalog(shared: Path) -> None:
    seen = 0
    for table in sorted((shared / "facts").glob("*.csv")):
        with table.open(newline="") as stream:
            for row in csv.DictReader(stream):
                if not row.get("model"):
                    continue
                name = row["model"]
                # Two published shapes bear this name.
                if name == "gpt-1.7b" and row["hidden"] == "2048":
                    name = "gpt-1.7b-v131072"
                assert catalog_name(name) is not None, (table.name, name)
                model = Model.from_catalog(name)
                for key in ("layers", "hidden", "heads"):
                    assert row.get(key) in (None, "", str(getattr(model, key))), (table.name, name)
                seen += 1
    assert seen > 800


def test_a_config_unlike_the_model_it_is_named_after_is_noted() -> None:
    config = {
        "name": "NousResearch_Llama-2-7b-hf",
        "model_type": "llama",
        "num_layers": 32,
        "n_head": 32,
        "hidden_dim": 4096,
        "vocab_size": 32000,
        "max_seq_len": 4096,
        "ffn_embed_dim": 16384,
    }
    assert Model.from_hf(config).notes == ("the published llama-2-7b has ffn 11008, not 16384",)
    assert Model.from_hf(config | {"ffn_embed_dim": 11008}).notes == ()
    invented = config | {"name": "bloom-175b", "model_type": None}
    [_, odd] = Model.from_hf(invented).notes
    assert odd.startswith("no published model 'bloom-175b' is known; nearest: bloom-176b (70 ")


@pytest.mark.parametrize(
    ("name", "sequence", "whole_square", "gflops"),
    [
        ("llama-2-7b", 4096, True, 46.06),
        ("llama-2-70b", 4096, True, 444.6),
        ("llama-3-8b", 8192, True, 57.9),
        ("llama-3-8b", 8192, False, 51.5),
        ("llama-3-70b", 8192, True, 481.5),
        ("gpt3-175b", 2048, True, 1077),
    ],
)
def test_flops_a_token_are_those_that_training_frameworks_print(
    name: str, sequence: int, whole_square: bool, gflops: float
) -> None:
    """Forward and backward; frameworks count the whole square of scores or its causal half."""
    model = Model.from_catalog(name)
    square = 2 * sequence / (sequence + 1) if whole_square else 1
    assert model.head is not None
    forward = sum(matrix.flops_per_token for matrix in model.head.matmuls())
    for count, block in model.kinds:
        forward += count * sum(matrix.flops_per_token for matrix in block.matmuls())
        forward += count * sum(square * core.flops_per_token(sequence) for core in block.cores())
    assert 3 * forward / 1e9 == pytest.approx(gflops, rel=1e-3)
