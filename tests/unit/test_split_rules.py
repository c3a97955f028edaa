"""The rules of a split: each one broken by itself, told with its number and what to change."""

from __future__ import annotations

import time
from typing import Any

import pytest
from railweave.placement import InvalidInput, Model, Parallelism, Workload, broken_rules
from railweave.placement.models import Embedding, Stack
from railweave.placement.strategies.rules import RULES

DENSE = {"hidden": 48, "layers": 8, "heads": 12, "vocab": 64, "sequence": 96}
GROUPED = DENSE | {"heads": 24, "kv_heads": 6, "gated_mlp": True, "ffn": 48}
MIXTURE = GROUPED | {"experts": 8, "experts_per_token": 2, "expert_ffn": 12}
T5 = {
    "model_type": "t5",
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "vocab_size": 128,
    "n_positions": 64,
}


def shared_layers() -> Model:
    model = Model.transformer(**GROUPED)
    data = {name: getattr(model, name) for name in Model.model_fields}
    stack = {name: getattr(model.stack, name) for name in Stack.model_fields}
    return Model(**data | {"stack": Stack(**stack | {"shared": True})})


def with_tower() -> Model:
    model = Model.transformer(**GROUPED)
    embedding = Embedding(hidden=48, positions=9)
    tower = {"name": "vision", "embedding": embedding, "stack": model.stack}
    data = {name: getattr(model, name) for name in Model.model_fields}
    return Model(**data | {"towers": (tower,)})


def make(model: Any = GROUPED, **given: Any) -> Workload:
    split = {key: given.pop(key) for key in list(given) if key in Parallelism.model_fields}
    return Workload(
        model=Model.transformer(**model) if isinstance(model, dict) else model,
        parallelism=Parallelism(**split),
        **{"global_batch": 48} | given,
    )


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("tensor_divides", {"tp": 16, "sequence_parallel": False, "model": DENSE | {"heads": 16}},
     []),
    ("tensor_divides", {"tp": 8, "model": DENSE | {"hidden": 96, "kv_heads": 4}},
     ["tp: tp 8 does not divide heads 12 (1.5 a rank); use one of 1, 2, 3, 4, 6, 12"]),
    ("tensor_divides", {"tp": 2, "etp": 8, "dp": 4, "model": MIXTURE},
     ["etp: etp 8 does not divide expert ffn 12 (1.5 a rank)"]),
    ("key_value_heads_divide", {"tp": 4},
     ["tp: tp 4 and kv_heads 6: neither divides the other"]),
    ("experts_divide", {"ep": 3, "dp": 3, "model": MIXTURE},
     ["ep: ep 3 does not divide experts 8 (2.66667 a rank); use one of 1, 2, 4, 8"]),
    ("experts_divide", {"ep": 2, "dp": 2}, ["ep: ep 2, but the model has no experts; use ep 1"]),
    ("expert_ranks_divide", {"ep": 4, "dp": 6, "model": MIXTURE},
     ["ep: ep 4 does not divide cp x dp = 6 (1.5 groups); use one of 1, 2, 3, 6"]),
    ("expert_ranks_divide", {"ep": 4, "etp": 1, "tp": 2, "dp": 3, "model": MIXTURE},
     ["etp 1 x ep 4 = 4 does not divide the tp x cp x dp = 6 ranks of a stage (1.5 groups)"]),
    ("expert_tensor_needs_experts", {"etp": 1, "tp": 2},
     ["etp: etp 1, but the model has no experts; leave it out"]),
    ("experts_need_split_sequence",
     {"ep": 2, "tp": 2, "dp": 2, "sequence_parallel": False, "model": MIXTURE},
     ["ep 2 and tp 2 without sequence_parallel: tokens sent 2x"]),
    ("context_divides_heads", {"cp": 4, "context_form": "all-to-all"},
     ["cp: cp 4 does not divide the 6 kv_heads of a tensor-parallel rank (1.5 each)",
      'or context_form "ring"']),
    ("one_copy_of_shared_layers", {"pp": 2, "model": shared_layers()},
     ["pp: pp 2, but all layers share one set of parameters: 2 copies a replica; use pp 1"]),
    ("sharding_is_whole", {"reshard_parameters": True}, ["with zero 1; use zero 3"]),
    ("sharding_is_whole", {"dp": 6, "shard": 4},
     ["shard: shard 4 does not divide dp x cp = 6 (1.5 replicas); use one of 1, 2, 3, 6"]),
    ("sharding_is_whole", {"dp": 4, "shard": 2, "zero": 0},
     ["shard: shard 2, but zero 0 shares nothing out"]),
    ("sharding_is_whole", {"dp": 8, "shard": 2, "ep": 4, "model": MIXTURE},
     ["shard: etp x ep = 4 does not divide shard x tp = 2 (0.5); use a larger shard"]),
    ("tower_tokens_known", {"tower_inputs": 1},
     ["tower_inputs: 1 inputs, but the model has no towers; leave it out"]),
    ("tower_tokens_known", {"tower_inputs": 1, "model": with_tower()},
     ["model.towers[0].sequence: unknown; give the tower's sequence, or tower_inputs 0"]),
    ("layers_divide", {"pp": 3},
     ["pp: 8 layers over pp 3 x virtual_pp 1 = 3 stages is 2.66667 a stage",
      "make pp x virtual_pp one of 1, 2, 4, 8, or give stage_layers"]),
    ("layers_divide", {"pp": 4, "head_as_layer": True},
     ["8 layers and 1 at the ends over pp 4 x virtual_pp 1 = 4 stages is 2.25 a stage"]),
    ("layers_divide", {"head_as_layer": True}, ["8 layers and 1 at the ends on one stage"]),
    ("layers_divide", {"pp": 2, "stage_layers": (4, 3, 1)},
     ["stage_layers: 3 numbers for pp x virtual_pp = 2 stages; give one a stage"]),
    ("layers_divide", {"pp": 2, "stage_layers": (4, 3)},
     ["stage_layers: 7 layers in all, but the model has 8; make them add up to 8"]),
    ("layers_divide", {"pp": 3, "stage_layers": (4, 0, 4)},
     ["stage_layers[1]: a stage without layers; give it one or more"]),
    ("layers_divide", {"pp": 2, "stage_layers": (4, 4), "head_as_layer": True},
     ["layers of each stage are given, and ends that count as layers"]),
    ("virtual_stages_need_a_pipeline", {"virtual_pp": 2}, ["virtual_pp 2 with pp 1"]),
    ("virtual_stages_need_a_pipeline", {"schedule": "zero-bubble"}, ["zero-bubble with pp 1"]),
    ("schedule_fits_stages", {"pp": 2, "schedule": "interleaved"},
     ["schedule: interleaved with virtual_pp 1; use virtual_pp 2 or more, or 1f1b"]),
    ("schedule_fits_stages", {"pp": 2, "virtual_pp": 2, "schedule": "zero-bubble"},
     ["schedule: zero-bubble with virtual_pp 2; use interleaved, or virtual_pp 1"]),
    ("sequence_divides", {"cp": 5}, ["cp: cp 5 does not divide sequence 96 (19.2 a rank)"]),
    ("sequence_divides", {"tp": 2, "cp": 3, "sequence": 90, "context_form": "all-to-all"}, []),
    ("sequence_divides", {"tp": 2, "cp": 3, "sequence": 93, "context_form": "all-to-all"},
     ["tp: tp 2 does not divide sequence 93 / cp 3 (15.5 a rank)"]),
    ("sequence_divides", {"tp": 4, "sequence": 66, "model": Model.from_hf(T5)},
     ["does not divide sequence 66", "does not divide encoder sequence 66"]),
    ("causal_rings_are_even", {"cp": 3, "sequence": 93},
     ["sequence: cp 3: sequence 93 is not 6 equal pieces (15.5 each)",
      "make the sequence a multiple of 6"]),
    ("positions_suffice", {"sequence": 192, "model": DENSE},
     ["sequence: sequence 192 over the model's 96 learned positions; give 96 at most"]),
    ("batch_divides", {"dp": 5, "micro_batch": 2},
     ["global_batch 48 over dp 5 x micro_batch 2 is 4.8 micro-batches",
      "make it a multiple of 10, such as 40 or 50"]),
    ("interleaving_rounds", {"pp": 4, "virtual_pp": 2, "dp": 8},
     ["6 micro-batches over pp 4; the interleaved schedule works in rounds of pp",
      "make global_batch a multiple of 32, or use virtual_pp 1"]),
    ("order_names_dimensions", {"pp": 2, "rank_order": "tp-dp"},
     ["rank_order: found 'tp-dp'; name each of tp, cp, ep, dp, pp once"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "given", "messages"), CASES, ids=lambda v: str(v)[:60])
def test_a_rule_that_is_broken_alone_is_told_alone(
    rule: str, given: dict[str, Any], messages: list[str]
) -> None:
    if not messages:
        assert broken_rules(make(**given)) == []
        return
    with pytest.raises(InvalidInput) as caught:
        make(**given)
    for message in messages:
        assert message in str(caught.value)
    workload = Workload.model_construct(
        **{name: field.default for name, field in Workload.model_fields.items()}
        | {"sequence": 96, "global_batch": 48}
        | {key: value for key, value in given.items() if key in Workload.model_fields}
        | {
            "model": _model(given.get("model", GROUPED)),
            "parallelism": Parallelism(
                **{k: v for k, v in given.items() if k in Parallelism.model_fields}
            ),
        }
    )
    assert [name for name, check in RULES.items() if list(check(workload))] == [rule]


def _model(model: Any) -> Model:
    return Model.transformer(**model) if isinstance(model, dict) else model


def test_every_rule_has_a_case_here() -> None:
    assert {rule for rule, _, _ in CASES} == set(RULES)


def test_rules_are_checked_for_many_candidates_in_little_time() -> None:
    workload = make(MIXTURE, tp=2, pp=2, dp=4, ep=4, cp=2)
    start = time.process_time()
    for _ in range(2000):
        assert not broken_rules(workload)
    assert (time.process_time() - start) / 2000 < 2e-3


def test_jobs_saved_before_a_field_was_there_are_read_as_they_were() -> None:
    old = {
        "model": DENSE,
        "parallelism": {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "virtual_pp": 1},
        "global_batch": 8,
        "micro_batch": 1,
        "rank_order": "tp-cp-ep-dp-pp",
    }
    workload = Workload(**old)
    assert workload == Workload.model_validate_json(workload.model_dump_json())
    split = workload.parallelism
    assert (split.expert_tp, split.pipeline_schedule, split.shard_size) == (2, "1f1b", 2)
    assert workload.piece_layers == (4, 4)
