"""The links inside a node: what a cluster file may say of them and what it is told when wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import Cluster, InvalidInput

DGX1 = """
X NV1 NV1 NV2 NV2 SYS SYS SYS
NV1 X NV2 NV1 SYS NV2 SYS SYS
NV1 NV2 X NV2 SYS SYS NV1 SYS
NV2 NV1 NV2 X SYS SYS SYS NV1
NV2 SYS SYS SYS X NV1 NV1 NV2
SYS NV2 SYS SYS NV1 X NV2 NV1
SYS SYS NV1 SYS NV1 NV2 X NV2
SYS SYS SYS NV1 NV2 NV1 NV2 X
"""


def matrix(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def cluster(described: dict[str, Any], devices: int = 8, **node: Any) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "c",
            "tiers": [{"name": "spine", "bandwidth": 1e9, "latency": 1e-6}],
            "links": described,
            "nodes": [{"name": "n0", "accelerator": "A", "devices": devices, **node}],
        }
    )


def problems(described: dict[str, Any], devices: int = 8, **node: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        cluster(described, devices, **node)
    return str(caught.value)


def test_names_of_links_have_the_bandwidth_of_their_class_or_the_one_given() -> None:
    found = cluster({"dgx1": {"matrix": matrix(DGX1)}}, links="dgx1").links["dgx1"].bytes_per_s
    assert found[0][1] == 25e9
    assert found[0][3] == 50e9
    assert found[0][5] == 10e9
    assert found[4][4] == 0.0
    own = {"matrix": matrix(DGX1), "bandwidth": {"NV": 20e9, "NV2": 41e9, "SYS": 7e9}}
    found = cluster({"dgx1": own}, links="dgx1").links["dgx1"].bytes_per_s
    assert (found[0][1], found[0][3], found[0][5]) == (20e9, 41e9, 7e9)


def test_bandwidths_may_be_given_as_numbers_and_survive_a_round_trip(tmp_path: Path) -> None:
    links = {"pair": {"matrix": [["X", 5e10], [5e10, 0]]}}
    before = cluster(links, devices=2, links="pair")
    before.save(tmp_path / "c.yaml")
    assert Cluster.load(tmp_path / "c.yaml") == before
    assert "links" not in cluster({}, devices=2).to_data()


@pytest.mark.parametrize(
    ("rows", "devices", "say"),
    [
        ("X NV1\nNV1", 2, r"links.kind.matrix\[1\]: 1 entries in a matrix of 2 rows"),
        ("X NV1\nNV2 X", 2, r"links.kind.matrix\[1\]\[0\]: 'NV2' from 1 to 0, but 'NV1' from 0"),
        ("X NV1\nNV1 X", 8, r"nodes\[0\].links: links 'kind' join 2 devices and n0 has 8"),
        ("X PIY\nPIY X", 2, r"links.kind.matrix\[0\]\[1\]: no bandwidth for 'PIY'; did you mean"),
        ("X NV\nNV X", 2, r"links.kind.matrix\[0\]\[1\]: no bandwidth for 'NV'"),
        ("NV1 NV1\nNV1 X", 2, r"links.kind.matrix\[0\]\[0\]: device 0 with itself: 'NV1'"),
    ],
)
def test_a_matrix_that_cannot_be_is_told_where_and_what_to_change(
    rows: str, devices: int, say: str
) -> None:
    found = problems({"kind": {"matrix": matrix(rows)}}, devices, links="kind")
    assert re.search(say, found), found


def test_links_that_are_not_described_are_named() -> None:
    found = problems({"dgx1": {"matrix": matrix(DGX1)}}, links="dgx2")
    assert "nodes[0].links: no links 'dgx2'; did you mean 'dgx1'?" in found


def test_what_is_no_link_is_refused() -> None:
    found = problems({"pair": {"matrix": [["X", None], [True, "X"]]}}, 2, links="pair")
    assert "links.pair.matrix[0][1]" in found
    assert "links.pair.matrix[1][0]" in found
    found = problems({"pair": {"matrix": [["X", 0], [0, "X"]]}}, 2, links="pair")
    assert "above 0" in found
