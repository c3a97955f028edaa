"""Slurm's topology.yaml: the default becomes the cluster, every kind is read or named."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

MANY = """\
---
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "l[1-2]"}
      - switch: l1
        nodes: n[01-02]
      - switch: l2
        nodes: [n03, n04]
- topology: racks
  block:
    block_sizes: [2, 4]
    blocks:
      - block: 7
        nodes: n[01-02]
      - block: b2
        nodes: n[03-04]
- topology: "flat one"
  flat: true
- topology: round
  ring:
    rings:
      - ring: r
        nodes: n[01-04]
- topology: cube
  torus3d:
    toruses:
      - name: pod
        dims: {x: 2, y: 2, z: 1}
        nodes: n[01-04]
        placements:
          - dims: {x: 2, y: 1, z: 1}
          - dims: {x: 4, y: 1, z: 1}
"""


def facts_of(text: str) -> Facts:
    source = Source.of_text("topology.yaml", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "slurm-topology-yaml"
    return read_source(source)


def test_the_default_topology_is_the_cluster_and_the_others_are_named() -> None:
    facts = facts_of(MANY)
    assert facts.network is not None
    assert facts.network.domains["n03"] == {"leaf": "l2"}
    assert facts.summary["default"] == "fabric"
    told = facts.summary["described"]
    assert {name: each["kind"] for name, each in told.items()} == {
        "fabric": "tree",
        "racks": "block",
        "flat one": "flat",
        "round": "ring",
        "cube": "torus3d",
    }
    assert told["racks"]["nodes_of_block"] == {"7": "n[01-02]", "b2": "n[03-04]"}
    assert told["cube"]["toruses_described"][0]["dims"] == "2x2x1"
    warned = "\n".join(facts.warnings)
    assert "not in it: racks, flat one, round, cube" in warned
    assert "4x1x1 does not fit into 2x2x1" in warned


def test_without_a_default_the_first_is_taken_and_said_to_be() -> None:
    facts = facts_of(MANY.replace("  cluster_default: true\n", ""))
    assert facts.summary["default"] == "fabric"
    assert any("the first, 'fabric', is taken" in warning for warning in facts.warnings)


def test_a_default_that_is_flat_needs_another_file() -> None:
    facts = facts_of("- topology: a\n  cluster_default: true\n  flat: {alpha_step_rank: true}\n")
    assert facts.network is None
    assert facts.not_alone is not None and "line 1" in str(facts.not_alone)


def test_a_kind_that_is_not_known_is_named() -> None:
    text = "- topology: a\n  flat: true\n- topology: b\n  dragonfly:\n    groups: []\n"
    facts = facts_of(text)
    assert facts.summary["described"]["b"] == {"kind": "dragonfly"}
    assert any("line 3" in warning and "'dragonfly'" in warning for warning in facts.warnings)
    with pytest.raises(InvalidInput, match="kind that is not read: dragonfly"):
        facts_of(text.replace("  dragonfly", "  cluster_default: true\n  dragonfly"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MANY.replace("z: 1}\n        nodes", "z: 3}\n        nodes"), "holds 12 nodes, and 4"),
        (MANY.replace("nodes: [n03, n04]", "nodes: [n02, n04]"), "node 'n02' lies under 'l2'"),
        (MANY.replace("l[1-2]", "l[1-3]"), "'l3' is named under 'top' and described nowhere"),
        (MANY.replace("racks", "fabric"), "topology 'fabric' is described twice"),
        (MANY.replace("n[01-04]", "n[1-99999999]", 1), "at most 262144"),
        (
            MANY.replace("  flat: true", "  flat: true\n  block: {blocks: []}"),
            "both block and flat",
        ),
        (MANY.replace("  flat: true\n", "  tre: {}\n"), "did you mean tree?"),
        (MANY.replace("  flat: true\n", ""), "has no kind"),
        (MANY.replace("[2, 4]", "[2, x]"), "no whole numbers"),
        (MANY.replace("x: 2, y: 2", "x: 2, y: 1.5"), "dims.y"),
        (MANY[: MANY.index("nodes: n[03-04]") - 30] + "{", "line"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text)
    assert told in str(caught.value)
