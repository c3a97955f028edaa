"""`rocm-smi --showtopo` and `amd-smi topology`, as text and as JSON, say how GPUs are joined."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

Matrix = list[list[str]]
TYPES = [["0", "XGMI", "PCIE"], ["XGMI", "0", "PCIE"], ["PCIE", "PCIE", "0"]]
HOPS = [["0", "1", "3"], ["1", "0", "2"], ["3", "2", "0"]]
WEIGHTS = [["0", "30", "72"], ["30", "0", "40"], ["72", "40", "0"]]


def table(title: str, cells: Matrix, labels: list[str]) -> str:
    lines = [f"============ {title} ============"]
    lines.append("       " + "".join(f"{label:<13}" for label in labels))
    lines += [
        f"{label + ' ':<7}" + "".join(f"{cell:<13}" for cell in row)
        for label, row in zip(labels, cells, strict=True)
    ]
    return "\n".join(lines) + "\n"


def rocm(types: Matrix = TYPES, hops: Matrix = HOPS, weights: Matrix = WEIGHTS) -> str:
    labels = [f"GPU{i}" for i in range(len(types))]
    return "\n".join(
        [
            "====== ROCm System Management Interface ======",
            table("Weight between two GPUs", weights, labels),
            table("Hops between two GPUs", hops, labels),
            table("Link Type between two GPUs", types, labels),
            "====== Numa Nodes ======",
            *(
                f"GPU[{i}]\t\t: (Topology) Numa {what}: {i // 2}"
                for i in range(len(types))
                for what in ("Node", "Affinity")
            ),
            "====== End of ROCm SMI Log ======\n",
        ]
    )


def read(text: str) -> Facts:
    return read_source(Source.of_text("rocm.txt", text))


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    return str(caught.value)


def test_types_weights_hops_and_numa_nodes_are_read() -> None:
    facts = read(rocm())
    machine = facts.machines[ANY_NODE]
    assert (machine.devices, machine.numa_nodes) == (3, (0, 0, 1))
    assert facts.summary["links"]["GPU0-GPU1"] == {
        "type": "XGMI",
        "weight": 30,
        "hops": 1,
        "bytes_per_s": None,
    }
    assert facts.summary["xgmi_groups"] == [["GPU0", "GPU1"]]
    assert facts.warnings == ()


def test_weight_tells_the_links_of_an_xgmi_path_and_hops_the_socket_of_a_pcie_one() -> None:
    links = read(rocm()).machines[ANY_NODE].links
    assert links is not None
    assert links.matrix == (
        ("X", "XGMI/2", "SYS"),
        ("XGMI/2", "X", "NODE"),
        ("SYS", "NODE", "X"),
    )
    assert links.bytes_per_s[0][1] == 25e9


def test_amd_smi_tables_are_read_by_bus_address_with_their_rates() -> None:
    labels = ["0000:0c:00.0", "0000:22:00.0"]
    text = (
        table("ACCESS TABLE:", [["ENABLED", "ENABLED"]] * 2, labels).replace("=", "")
        + "\nLINK TYPE TABLE:\n"
        + table("x", [["SELF", "XGMI"], ["XGMI", "SELF"]], labels).partition("\n")[2]
        + "\nNUMA BW TABLE:\n"
        + table("x", [["N/A", "50000-200000"], ["50000-200000", "N/A"]], labels).partition("\n")[2]
        + "\nDMA TABLE:\n"
        + table("x", [["SELF", "T"], ["T", "SELF"]], labels).partition("\n")[2]
    )
    facts = read(text)
    assert facts.summary["links"]["0000:0c:00.0-0000:22:00.0"]["bytes_per_s"] == 200e9
    links = facts.machines[ANY_NODE].links
    assert links is not None
    assert links.bytes_per_s[0][1] == 200e9


def amd_json(count: int = 2, **changed: Any) -> list[dict[str, Any]]:
    return [
        {
            "gpu": a,
            "bdf": f"0000:{a:02x}:00.0",
            "links": [
                {
                    "gpu": b,
                    "weight": 0 if a == b else 15,
                    "link_type": "SELF" if a == b else "XGMI",
                    "num_hops": int(a != b),
                    "bandwidth": "N/A" if a == b else "64000-64000",
                    **changed,
                }
                for b in range(count)
            ],
        }
        for a in range(count)
    ]


def test_both_tools_are_read_as_json() -> None:
    facts = read(json.dumps(amd_json()))
    assert facts.summary["links"]["GPU0-GPU1"]["bytes_per_s"] == 64e9
    system = {
        "(Topology) Weight between DRM devices 0 and 1": "15",
        "(Topology) Hops between DRM devices 0 and 1": "1",
        "(Topology) Link type between DRM devices 0 and 1": "XGMI",
    }
    cards = {
        f"card{i}": {
            "(Topology) Numa Node": str(i),
            "(Topology) Numa Affinity": "-1",
            "Card Series": "AMD Instinct MI300X",
        }
        for i in range(2)
    }
    machine = read(json.dumps({"system": system, **cards})).machines[ANY_NODE]
    assert machine.accelerator == "MI300X"
    assert machine.numa_nodes == (0, 1)
    assert machine.links is not None


def test_a_missing_numa_line_is_unknown_with_a_warning() -> None:
    text = rocm().replace("GPU[2]\t\t: (Topology) Numa Affinity: 1\n", "GPU 2    \n")
    facts = read(text)
    assert facts.summary["numa_affinity"]["GPU2"] is None
    assert any("NUMA affinity of GPU 2 missing" in warning for warning in facts.warnings)


def test_a_link_of_unknown_type_leaves_the_links_unknown() -> None:
    types = [["0", "XXXX"], ["XXXX", "0"]]
    two = [["0", "15"], ["15", "0"]]
    facts = read(rocm(types, two, two))
    assert facts.machines[ANY_NODE].links is None
    assert "link type between GPU0 and GPU1 is 'XXXX': unknown" in facts.warnings[0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("GPU1   XGMI         0            PCIE         \n", "", "rows GPU1 are missing"),
        ("GPU1   XGMI         0            PCIE", "GPU1   XGMI         0", "has 2 of 3 cells"),
        ("GPU1   30", "GPU1   15", "weight from GPU1 to GPU0 is 15, but from GPU0 to GPU1 30"),
        ("GPU2   72           40           0", "GPU2   72   40   7", "GPU2 with itself is '7'"),
        ("GPU2   72", "GPU1   72", "a second row of GPU1"),
        ("GPU2   72", "GPU9   72", "a row of GPU9, which has no column"),
        ("Numa Affinity: 0\nGPU[1]", "Numa Node: 5\nGPU[1]", "GPU0 on NUMA node 5, before on 0"),
    ],
)
def test_damage_is_refused_by_line(old: str, new: str, reason: str) -> None:
    assert old in rocm()
    message = refusal(rocm().replace(old, new))
    assert reason in message
    assert "line" in message


def test_tables_side_by_side_and_of_two_nodes_are_refused() -> None:
    side = "Weight between two GPUs   Hops between two GPUs\n   GPU0 GPU1   GPU0 GPU1\n"
    assert "line 1: two matrices on the same lines" in refusal(side)
    assert "a second table 'weight between two gpus'" in refusal(rocm() + rocm())


def test_incomplete_json_is_refused() -> None:
    data = amd_json()
    del data[1]["links"][0]
    assert "no weight from GPU1 to GPU0" in refusal(json.dumps(data))
    assert "to GPU7, which is not described" in refusal(json.dumps(amd_json(gpu=7)))


@given(
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.randoms(use_true_random=False)))
)
def test_random_tables_are_read_back(case: tuple[int, Any]) -> None:
    count, random = case
    types, hops, weights = ([["0"] * count for _ in range(count)] for _ in range(3))
    for a in range(count):
        for b in range(a + 1, count):
            types[a][b] = types[b][a] = random.choice(["XGMI", "PCIE"])
            hops[a][b] = hops[b][a] = str(random.randint(1, 3))
            weights[a][b] = weights[b][a] = str(random.choice([15, 30, 40, 72]))
    facts = read(rocm(types, hops, weights))
    assert facts.summary["gpus"] == count
    for a in range(count):
        for b in range(a + 1, count):
            link = facts.summary["links"][f"GPU{a}-GPU{b}"]
            assert [link["type"], str(link["hops"]), str(link["weight"])] == [
                types[a][b],
                hops[a][b],
                weights[a][b],
            ]


@given(st.text(alphabet="GPU01234XPCIEMN/A \n[]:=", max_size=200))
def test_any_text_gives_facts_or_a_refusal(text: str) -> None:
    source = Source.of_text("t", "== Link Type between two GPUs ==\n  GPU0 GPU1\n" + text)
    importer = recognised(source)
    if importer is not None:
        try:
            importer.read(source)
        except InvalidInput as error:
            assert "1 problem" in str(error)
