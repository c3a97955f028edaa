"""What a job was asked to satisfy is told in words, all of it."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import Constraints
from railweave.scheduler.constraint_text import constraint_texts

CASES: list[tuple[dict[str, Any], str]] = [
    ({"together": {"tier": "pod"}}, "all in one pod"),
    ({"together": {"tier": "pod", "required": False}}, "preferably all in one pod"),
    ({"at_most": {"nodes": 1, "tier": "rack"}}, "at most 1 node in one rack"),
    ({"at_most": {"nodes": 3, "tier": "rack"}}, "at most 3 nodes in one rack"),
    ({"balanced": {"tier": "pod"}}, "as many ranks in each pod as in any other"),
    (
        {"balanced": {"tier": "pod", "domains": 2}},
        "as many ranks in each pod as in any other, in exactly 2",
    ),
    ({"segments": {"ranks": 8}}, "every 8 ranks in a row in one node"),
    (
        {"pinned": [{"rank": 0, "node": "a"}, {"rank": 1, "node": "b", "device": 3}]},
        "rank 0 on a, rank 1 on device 3 of b",
    ),
    (
        {"excluded_nodes": [f"n{i}" for i in range(10)]},
        "not on n0, n1, n2, n3, n4, n5, n6, n7 and 2 more",
    ),
    ({"whole_nodes": True}, "only on nodes of which every device is free"),
    ({"spares": 1}, "1 spare node"),
    ({"spares": 2}, "2 spare nodes"),
    ({"same_kind": {"per": "job"}}, "one kind of accelerator for all ranks of the job"),
    ({"same_kind": {}}, "one kind of accelerator for all ranks that collectives join"),
    ({"split_tensor_groups": True}, "tensor-parallel groups may be split"),
]


@pytest.mark.parametrize(("asked", "said"), CASES)
def test_each_constraint_has_its_words(asked: dict[str, Any], said: str) -> None:
    assert constraint_texts(Constraints.model_validate(asked)) == [said]


def test_none_is_left_out() -> None:
    assert {name for asked, _ in CASES for name in asked} == set(Constraints.model_fields)
    every: dict[str, Any] = {}
    for asked, _ in CASES:
        every |= asked
    every["excluded_nodes"] = ["c"]
    assert len(constraint_texts(Constraints.model_validate(every))) == len(every)
