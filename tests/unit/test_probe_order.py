"""Nodes stand in the order in which they are likely near each other before anything is probed."""

from __future__ import annotations

import random
from typing import Any

from railweave.agents.assemble import DOMAIN_LABEL
from railweave.agents.fleet import NodeAgent, by_domain


def agents(where: dict[str, tuple[str, dict[str, str]]]) -> dict[str, NodeAgent]:
    actor: Any = None
    names = random.Random(0).sample(sorted(where), len(where))
    return {
        name: NodeAgent(name, name, where[name][0], {}, where[name][1], actor) for name in names
    }


def test_nodes_without_labels_stand_by_address() -> None:
    found = agents({"b": ("10.0.2.9", {}), "z": ("10.0.2.10", {}), "a": ("10.0.10.1", {})})
    assert by_domain(found, None) == ["b", "z", "a"]


def test_nodes_of_one_address_or_none_stand_by_name_as_people_count() -> None:
    found = agents({"n10": ("host", {}), "n9": ("host", {}), "n1": ("host", {})})
    assert by_domain(found, None) == ["n1", "n9", "n10"]


def test_labels_come_before_addresses() -> None:
    rack = f"{DOMAIN_LABEL}rack"
    found = agents(
        {
            "a": ("10.0.0.1", {rack: "r2"}),
            "b": ("10.0.0.2", {rack: "r1"}),
            "c": ("10.0.0.3", {rack: "r2"}),
            "d": ("10.0.0.4", {rack: "r1"}),
        }
    )
    assert by_domain(found, ["rack"]) == ["b", "d", "a", "c"]
