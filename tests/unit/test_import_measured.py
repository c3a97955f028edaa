"""Logs of NCCL and of its tests say what was measured and chosen, and claim no more than that."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
CONFIG = "# nThread 1 nGpus 4 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20\n"


def row(size: int, alg: float, factor: float, redop: str = "sum", root: str = "-1") -> str:
    half = f"{10.5:9.2f} {alg:7.2f} {alg * factor:7.2f}      0"
    return f"{size:12d} {size // 4:12d} float {redop:>7} {root:>6} {half} {half}\n"


def read(text: str) -> Facts:
    return read_source(Source.of_text("job.log", text))


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    return str(caught.value)


def test_the_ratio_of_bandwidths_tells_operation_and_ranks() -> None:
    for factor, redop, operations, ranks in (
        (1.75, "sum", ["all-reduce"], 8),
        (1.9375, "sum", ["all-reduce"], 32),
        (0.875, "sum", ["reduce-scatter"], 8),
        (0.75, "none", ["all-gather", "all-to-all", "gather", "scatter"], 4),
        (1.0, "none", ["broadcast", "send-recv"], None),
    ):
        facts = read(
            CONFIG + HEADER + row(8, 0.0, factor, redop) + row(2**30, 200.0, factor, redop)
        )
        (run,) = facts.summary["runs"]
        assert (run["operations"], run["ranks"]) == (operations, ranks)
        assert run["peak_algorithm_gbyte_per_s"] == 200.0
        assert run["peak_bytes"] == 2**30


def test_runs_are_told_apart_by_headers_labels_and_sizes() -> None:
    tail = "".join(f"0: {row(size, 1.0, 1.5)}" for size in (2**20, 2**21))
    fresh = "0: " + HEADER + "".join(f"0: {row(size, 9.0, 1.5)}" for size in (8, 2**21))
    facts = read(tail + fresh + "1: " + row(8, 1.0, 1.5) + "0: " + row(8, 2.0, 1.5))
    assert [(run["rows"], run["with_header"]) for run in facts.summary["runs"]] == [
        (2, False),
        (2, True),
        (1, False),
        (1, False),
    ]
    text = " | ".join(facts.warnings)
    assert "line 1: results without a header" in text
    assert "line 7: sizes begin anew" in text


def test_ranks_hosts_and_averages_are_read_where_they_are_listed() -> None:
    ranks = "".join(
        f"#  Rank {r:2d} Group  0 Pid {100 + r} on node-{r // 2} device {r % 2} [0000:07:00] "
        "NVIDIA H100 80GB HBM3\n"
        for r in range(4)
    )
    text = (
        "# Collective test starting: all_reduce_perf\n"
        + CONFIG
        + ranks
        + HEADER
        + row(2**20, 50.0, 1.5)
        + "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 75.5\n"
    )
    facts = read(text)
    (run,) = facts.summary["runs"]
    assert (run["ranks_listed"], run["nodes"], run["processes"]) == (4, 2, 4)
    assert run["accelerators"] == ["H100-SXM"]
    assert run["average_bus_gbyte_per_s"] == 75.5
    assert "3 values out of bounds" in facts.warnings[0]
    assert facts.not_alone is not None
    measured = facts.measurements["collectives"][0]["rows"][0]
    assert measured["bus_bytes_per_s"] == 75e9


def test_old_columns_without_root_and_without_validation_are_read() -> None:
    old = "  1048576  262144  float  sum  135.3  7.75  15.02  7e-07  132.7  7.90  15.31"
    facts = read(HEADER + old + "    N/A\n" + "   2097152   524288   float     sum    161.5\n")
    assert facts.summary["runs"][0]["rows"] == 1
    assert "line 3: cut or no whole line" in facts.warnings[0]


def test_a_log_without_results_is_refused() -> None:
    assert "no line of results" in refusal(CONFIG + HEADER + "# algbw busbw\n")


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20).map(sorted))
def test_every_row_is_counted(sizes: list[int]) -> None:
    facts = read(CONFIG + HEADER + "".join(row(size, 3.0, 1.5) for size in sizes))
    (run,) = facts.summary["runs"]
    assert run["rows"] == len(sizes)
    assert run["rows_of_some_bytes"] == sum(size > 0 for size in sizes)


def info(text: str, pid: int = 7, number: int = 0, host: str = "n1") -> str:
    return f"{host}:{pid}:{pid + 1} [{number}] NCCL INFO {text}\n"


SYSTEM = [
    "=== System : maxBw 24.0 totalBw 240.0 ===",
    "CPU/0-0 (1/1/2)",
    "+ PCI[24.0] - PCI/0-16000 (1000c0301000100b)",
    "              + PCI[24.0] - GPU/0-18000 (0)",
    "                            + NVL[240.0] - NVS/0",
    "              + PCI[24.0] - NIC/0-19000",
    "                            + NET[50.0] - NET/0-3 (0/aa/1/50.000000)",
    "CPU/0-1 (1/1/2)",
    "+ SYS[10.0] - CPU/0-0",
    "==========================================",
]


def test_a_bandwidth_of_dots_is_unknown() -> None:
    facts = read(info("=== System : maxBw .. totalBw 1.2.3 ===") + "".join(map(info, SYSTEM[1:])))
    (block,) = facts.summary["blocks"]
    assert block["system"]["max_gbyte_per_s"] is None
    assert block["system"]["total_gbyte_per_s"] is None


def test_interleaved_processes_are_told_apart() -> None:
    text = "".join(
        info(line, 7, 0) + info(f"line of another {i}", 8, 1) for i, line in enumerate(SYSTEM)
    )
    text += info(
        "Pattern 4, crossNic 1, nChannels 2, speed 24.0/12.0, type NVL/PXB, sameChannels 1", 8, 1
    )
    text += info("NCCL_IB_HCA set by environment to mlx5_0.", 7, 0)
    text += info(" 0 : NET/3 GPU/0 GPU/1 NET/2", 8, 1) + "other words\n"
    facts = read(text)
    one, other = facts.summary["blocks"]
    assert one["system"]["cpus"] == ["CPU/0-0", "CPU/0-1"]
    assert one["system"]["links"][1:4] == [
        {"from": "PCI/0-16000", "to": "GPU/0-18000", "kind": "PCI", "gbyte_per_s": 24.0},
        {"from": "GPU/0-18000", "to": "NVS/0", "kind": "NVL", "gbyte_per_s": 240.0},
        {"from": "PCI/0-16000", "to": "NIC/0-19000", "kind": "PCI", "gbyte_per_s": 24.0},
    ]
    assert one["settings"] == {"NCCL_IB_HCA": "mlx5_0"}
    assert other["graphs"][0]["channels"] == {"0": ["NET/3", "GPU/0", "GPU/1", "NET/2"]}
    assert other["graphs"][0]["gbyte_per_s_inter"] == 12.0
    assert facts.warnings == ()


def test_a_cut_dump_is_named_partial_and_loose_lines_are_left_out() -> None:
    text = "".join(info(line) for line in SYSTEM[:3]) + info("    + NET[1.0] - NET/9")
    facts = read(text)
    joined = " | ".join(facts.warnings)
    assert "line 4: it hangs on nothing that is shown" in joined
    assert "line 1: the system of [0] is partial: the dump is cut, only CPU/0-0 shown" in joined


def test_faults_versions_and_ranks_are_listed() -> None:
    text = (
        info("NCCL version 2.21.5+cuda12.4")
        + info("comm 0x1 rank 3 nranks 16 cudaDev 3 busId 1 - Init COMPLETE")
        + "2024-01-01 n1:7:8 [3] transport/net_ib.cc:100 NCCL WARN NET/IB : Got completion error\n"
        + info("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
        + info("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>")
    )
    facts = read(text)
    assert facts.summary["nccl_versions"] == ["2.21.5+cuda12.4"]
    assert (facts.summary["ranks_in_job"], facts.summary["ranks_seen"]) == (16, 1)
    assert facts.summary["faults"][0].startswith("line 3: NET/IB : Got completion error")
    assert facts.summary["blocks"][0]["nets"] == ["mlx5_0:1", "mlx5_1:1"]
    assert facts.summary["blocks"][0]["transports"] == {"P2P/CUMEM": 1}


RAS = """\
NCCL version 2.26.2 compiled with CUDA 12.4

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING      OK
    1         2         2       1-2         3         6   RUNNING  MISMATCH

Errors
======

DEAD
  1 process is considered dead

Warnings
========
"""


def test_a_ras_report_is_no_proof_of_health() -> None:
    facts = read(RAS)
    assert (facts.summary["nodes"], facts.summary["gpus"]) == (2, 8)
    assert [one["ranks_per_node"] for one in facts.summary["communicators"]] == [4, "1-2"]
    assert facts.summary["health"] is None
    assert any("no proof of health" in warning for warning in facts.warnings)
    assert any("considered dead" in warning for warning in facts.warnings)


def test_a_ras_report_that_is_cut_or_contradicts_itself_says_so() -> None:
    cut = read(RAS.partition("Communicators")[0])
    assert any("ends before the communicators" in warning for warning in cut.warnings)
    odd = read(RAS.replace("      8        8\n", "      9        8\n", 1))
    assert any("2 nodes of 4 processes are not 9" in warning for warning in odd.warnings)
    empty = RAS.replace("      2          4            1          8        8\n", "")
    assert "line 3: a job summary without numbers" in refusal(empty)


def test_a_ras_report_is_read_as_json() -> None:
    ranks = [{"rank": r, "host": f"n{r // 2}", "pid": r, "nvml_dev": r % 2} for r in range(4)]
    report = {
        "nccl_version": "2.28.0",
        "communicators": [{"size": 5, "ranks": ranks, "missing_ranks_count": 1}],
    }
    facts = read(json.dumps(report))
    assert (facts.summary["nodes"], facts.summary["gpus"]) == (2, 4)
    assert "communicators[0]: 1 ranks do not answer" in facts.warnings


@given(st.text(alphabet="n1:7 [0]NCLIFO+PCI/-.=SystemGPU#sizecountalgbw\n", max_size=300))
def test_any_text_gives_facts_or_a_refusal(text: str) -> None:
    for head in (CONFIG + HEADER, info(SYSTEM[0]) + info(SYSTEM[1]) + info("").strip(), RAS):
        source = Source.of_text("t", head + text)
        importer = recognised(source)
        assert importer is not None
        try:
            importer.read(source)
        except InvalidInput as error:
            assert "problem" in str(error)
