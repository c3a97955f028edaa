"""`nvidia-smi topo -m` is read in every layout that people hand in, or refused by line."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.node_paths import PATHS, nearest
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

WHOLE = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV4\tPXB\tSYS\t0-15,32-47\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tPIX\t16-31,48-63\t1\t\tN/A
NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_1
"""


def read(text: str) -> Facts:
    return read_source(Source.of_text("topo.txt", text))


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    return str(caught.value)


def test_links_affinities_and_the_nic_of_each_gpu_are_read() -> None:
    facts = read(WHOLE)
    machine = facts.machines[ANY_NODE]
    assert facts.format == "nvidia-smi-topo"
    assert machine.devices == 2
    assert machine.links is not None
    assert machine.links.matrix == (("X", "NV4"), ("NV4", "X"))
    assert machine.nics == ("mlx5_0", "mlx5_bond_1")
    assert machine.nearest_nics == (("mlx5_0",), ("mlx5_bond_1",))
    assert machine.numa_nodes == (0, 1)
    assert machine.cpus == ("0-15,32-47", "16-31,48-63")
    assert machine.accelerator is None
    assert facts.summary["nearest_nics"]["GPU0"] == {"path": "PXB", "nics": ["NIC0"]}
    assert facts.summary["gpu_numa_ids"] == {"GPU0": None, "GPU1": None}
    assert facts.warnings == ()


def test_an_empty_affinity_is_unknown_and_moves_no_column() -> None:
    header = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    for row, cpus, numa in (
        ("GPU0\t X \t\t\t\tN/A\n", "", None),
        ("GPU0\t X \t0-7\t\tN/A\t\tN/A\n", "0-7", None),
        ("GPU0\t X \t0-7\t3\t\t2\n", "0-7", 3),
    ):
        facts = read(header + row)
        machine = facts.machines[ANY_NODE]
        assert (machine.cpus, machine.numa_nodes) == ((cpus,), (numa,))
        assert facts.summary["gpu_numa_ids"]["GPU0"] == (2 if row.endswith("2\n") else None)
    assert "MIG" in str(facts.summary["not_told"])


def test_a_gpu_number_beyond_nvlink_shows_switches_and_a_lone_gpu_has_no_known_links() -> None:
    direct = read("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV6\tNV6\nGPU1\tNV6\tX\tNV6\nGPU2\tNV6\tNV6\tX\n")
    assert direct.summary["nvlinks_per_gpu"]["GPU0"] == 12
    switched = read(
        "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV18\tNV18\nGPU1\tNV18\tX\tNV18\nGPU2\tNV18\tNV18\tX\n"
    )
    assert switched.summary["nvlinks_per_gpu"]["GPU0"] == 18
    assert "NVLink domain" in str(switched.summary["not_told"])
    alone = read("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    assert alone.summary["nvlinks_per_gpu"]["GPU0"] is None


def test_several_hosts_of_a_parallel_shell_are_several_machines() -> None:
    text = "".join(f"{host}: {line}\n" for host in ("n1", "n2") for line in WHOLE.splitlines())
    facts = read(text)
    assert sorted(facts.machines) == ["n1", "n2"]
    assert facts.summary["hosts"] == 2
    assert facts.machines["n2"].nics == ("mlx5_0", "mlx5_bond_1")


def test_task_labels_and_mail_quotes_before_each_line_are_passed_over() -> None:
    for prefix in ("0: ", "> ", "> > "):
        facts = read("".join(f"{prefix}{line}\n" for line in WHOLE.splitlines()))
        assert facts.machines[ANY_NODE] == read(WHOLE).machines[ANY_NODE]


def test_the_list_of_gpus_beside_the_matrix_names_their_kind() -> None:
    listed = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-2)\n"
    )
    assert read(listed + WHOLE).machines[ANY_NODE].accelerator == "A100-80G"


def test_words_of_old_drivers_are_read_with_a_warning_that_names_the_line() -> None:
    facts = read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n")
    assert facts.summary["links"] == {"GPU0-GPU1": "SYS"}
    assert facts.warnings[0] == "line 2: SOC is read as SYS"


def test_a_cut_affinity_is_unknown_with_a_warning() -> None:
    facts = read("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tPIX\t0-7\nGPU1\tPIX\tX\t8-")
    assert facts.machines[ANY_NODE].cpus == ("0-7", "")
    assert facts.warnings == ("line 3: CPU affinity '8-' of GPU1 is cut or no list; unknown",)


def test_a_truncated_matrix_is_refused_with_what_is_missing() -> None:
    lines = WHOLE.splitlines()
    message = refusal("\n".join(lines[:3]))
    assert "line 3: truncated matrix" in message
    assert "2 GPUs and 2 NICs, rows NIC0, NIC1 are missing" in message
    assert "rows GPU0, GPU1" in refusal(lines[0])
    assert "row GPU1 has 2 of 4 cells" in refusal(
        "\n".join([*lines[:2], "GPU1\tNV4\t X", *lines[3:]])
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("NV4\t X ", "NV2\t X ", "line 3: GPU1-GPU0 is NV2, but GPU0-GPU1 is NV4"),
        ("PXB\tSYS\t0", "PXC\tSYS\t0", "line 2: GPU0-NIC0 is 'PXC', which is no link class"),
        ("GPU1\tNV4\t X ", "GPU1\t X \tNV4", "line 3: GPU1-GPU0 is 'X'"),
        ("GPU0\tGPU1", "GPU0\tGPU0", "line 1: two columns GPU0"),
        ("NIC1\tSYS\tPIX", "NIC0\tSYS\tPIX", "line 5: a second row NIC0"),
        ("NV4", "NV0", "'NV0', which is no link class"),
    ],
)
def test_contradictions_are_refused_by_line(old: str, new: str, reason: str) -> None:
    assert reason in refusal(WHOLE.replace(old, new))


def test_a_second_matrix_and_a_matrix_of_too_many_are_refused() -> None:
    assert "line 16: a second matrix; the first is at 1" in refusal(WHOLE + WHOLE)
    wide = "\t" + "\t".join(f"GPU{i}" for i in range(65)) + "\nGPU0\t X \n"
    assert "65 GPUs; a node has at most 64" in refusal(wide)


def test_a_matrix_of_peer_to_peer_status_is_refused_by_its_name() -> None:
    message = refusal(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tCNS\tX\n")
    assert "peer-to-peer capability matrix (nvidia-smi topo -p2p)" in message
    assert "2 GPUs, no link classes" in message


def test_text_that_only_speaks_of_gpus_is_not_claimed() -> None:
    for text in ("GPU0 is hot\n", "GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n", "GPU 0: NVIDIA H100\n"):
        assert (
            recognised(Source.of_text("a", text)) is None
            or recognised(Source.of_text("a", text)).name != "nvidia-smi-topo"
        )  # type: ignore[union-attr]


def test_a_header_without_end_is_refused_in_bounded_time() -> None:
    wide = "\t" + "\t".join(f"GPU{i}" for i in range(100_000)) + "\n"
    began = time.process_time()
    assert "100000 columns" in refusal(wide + "GPU0\tX\n")
    assert time.process_time() - began < 30


@st.composite
def printed(draw: st.DrawFn) -> tuple[str, list[list[str]], list[str], list[str], list[int | None]]:
    """A random matrix in a random layout: text, cells, labels, CPUs and NUMA nodes of the GPUs."""
    gpus = draw(st.integers(1, 6))
    nics = draw(st.integers(0, 4))
    stem = draw(st.sampled_from(["NIC", "mlx5_", "bnxt_re"]))
    labels = [f"GPU{i}" for i in range(gpus)] + [f"{stem}{i}" for i in range(nics)]
    size = len(labels)
    cells = [["X"] * size for _ in range(size)]
    for a in range(size):
        for b in range(a + 1, size):
            words = [*PATHS, "NV1", "NV12"] if b < gpus else list(PATHS)
            cells[a][b] = cells[b][a] = draw(st.sampled_from(words))
    titles = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][: draw(st.integers(0, 3))]
    cpus = [
        draw(st.sampled_from(["0-7", "8-15,24-31", "1,3,5"])) if titles else "" for _ in range(gpus)
    ]
    numa = [
        draw(st.sampled_from([None, 0, 3, 12])) if len(titles) > 1 else None for _ in range(gpus)
    ]
    tabs = draw(st.booleans())
    lines = [["", *labels, *titles]]
    for a, label in enumerate(labels):
        told = [cpus[a], "N/A" if numa[a] is None else str(numa[a]), "N/A"] if a < gpus else []
        lines.append([label, *cells[a], *told[: len(titles)]])
    text = "\n".join(_line(line, tabs, draw(st.integers(8, 9))) for line in lines)
    if not tabs and draw(st.booleans()):
        text = text.lstrip()
    before = draw(st.sampled_from(["", "$ nvidia-smi topo -m\n", "\ufeff", "\n\n"]))
    after = draw(st.sampled_from(["", "\n", "\n\nLegend:\n\n  X    = Self\n", "\n```\n"]))
    text = before + text + after
    return draw(st.sampled_from([text, text.replace("\n", "\r\n")])), cells, labels, cpus, numa


def _line(cells: Sequence[str], tabs: bool, width: int) -> str:
    if tabs:
        return "\t".join(" X " if cell == "X" else cell for cell in cells)
    return "".join(cell.ljust(max(width, len(cell) + 2)) for cell in cells)


@given(printed())
def test_what_is_printed_in_any_layout_is_read_back(
    case: tuple[str, list[list[str]], list[str], list[str], list[int | None]],
) -> None:
    text, cells, labels, cpus, numa = case
    if len(labels) == 1 and "Affinity" not in text and not text.lstrip("\ufeff\r\n")[:1].isspace():
        return
    facts = read(text)
    machine = facts.machines[ANY_NODE]
    gpus = [label for label in labels if label.startswith("GPU")]
    assert machine.devices == len(gpus)
    assert machine.cpus == tuple(cpus)
    assert machine.numa_nodes == tuple(numa)
    for a, one in enumerate(gpus):
        paths = dict(zip(labels[len(gpus) :], cells[a][len(gpus) :], strict=True))
        path, names = nearest(paths)
        assert facts.summary["nearest_nics"][one] == {"path": path, "nics": list(names)}
        for b in range(a + 1, len(gpus)):
            assert facts.summary["links"][f"{one}-{gpus[b]}"] == cells[a][b]


@given(st.text(alphabet="GPUNIC01X SYSV\t\n-,mlx5_OK:>", max_size=300))
def test_any_text_gives_facts_or_a_refusal(text: str) -> None:
    source = Source.of_text("t", "\tGPU0\tGPU1\tCPU Affinity\n" + text)
    importer = recognised(source)
    if importer is not None:
        try:
            importer.read(source)
        except InvalidInput as error:
            assert "line" in str(error)
