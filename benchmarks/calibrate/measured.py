"""Published step times and collectives, read from ../shared/facts, as workloads on clusters.

What a source does not say is filled in the same way for every row of it, and said here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from railweave.placement import Cluster, InvalidInput, Model, Parallelism, Workload

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts"
Row = dict[str, str]

NIC_BYTES_PER_S = {"vtrain": 12.5e9, "dgx-a100": 25e9, "dgx-h100": 50e9}
"""Bytes/s of the network a device: vTrain has 800 Gb/s a node of 8, DGX A100 8 x HDR200, H100
8 x NDR400."""
CAPPED_H100 = {
    "memory_bytes": 96 * 2**30,
    "peak_flops": {"bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12},
    "memory_bandwidth": 2.4e12,
    "scale_up_bandwidth": 450e9,
    "switch_reduces": True,
}
"""The H100 of the torchtitan tables: 96 GB HBM2e, 500 W."""
LLAMA = {
    "8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336},
    "70b": {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28672},
    "405b": {"hidden": 16384, "layers": 126, "heads": 128, "kv_heads": 8, "ffn": 53248},
}


@dataclass(frozen=True)
class Step:
    """A measured step: its family, what ran, where, and how long it took (or peak memory)."""

    family: str
    label: str
    workload: Workload
    cluster: Cluster
    step_s: float
    memory_bytes: float | None = None


@dataclass(frozen=True)
class AllReduce:
    """A measured all-reduce inside one node."""

    family: Literal["nccl-a100", "nccl-h100"]
    ranks: int
    size: int
    seconds: float


@dataclass
class Measured:
    """All rows, and those that could not be read, with the reason."""

    steps: list[Step]
    left_out: list[str]


def load(facts: Path = FACTS) -> Measured:
    """Every step of the tables."""
    found = Measured([], [])
    readers: list[Callable[[Path], Iterator[tuple[str, Callable[[], Step]]]]] = [
        _vtrain,
        _megatron,
        _dgxc,
        _torchtitan,
        _megatron_core,
        _bridge,
    ]
    for reader in readers:
        for label, make in reader(facts):
            try:
                found.steps.append(make())
            except InvalidInput as error:
                found.left_out.append(f"{label}: {error.problems[0]}")
    return found


def all_reduces(facts: Path = FACTS) -> list[AllReduce]:
    """The NCCL tables; of the H100's the in-place times, since its out-of-place ones have jumps."""
    found = [
        AllReduce("nccl-a100", int(r["gpus"]), int(r["bytes"]), float(r["out_of_place_us"]) * 1e-6)
        for r in _rows(facts / "nccl_allreduce_a100_intranode_thinned.csv")
    ]
    found += [
        AllReduce("nccl-h100", int(r["gpus"]), int(r["bytes"]), float(r["in_place_us"]) * 1e-6)
        for r in _rows(facts / "nccl_allreduce_h100_8gpu.csv")
    ]
    return found


@cache
def cluster(accelerator: str, nodes: int, nic: float, numbers: str = "") -> Cluster:
    """Nodes of 8 devices with a NIC each on one switch; `numbers`: the accelerator's, as JSON."""
    data: dict[str, Any] = {
        "format": "railweave.cluster/1",
        "name": f"{nodes} x 8 {accelerator}",
        "rails": 8,
        "tiers": [{"name": "spine", "bandwidth": nic, "latency": 2e-6}],
        "nodes": [
            {"name": f"n{n:04d}", "accelerator": accelerator, "devices": 8, "domains": {}}
            for n in range(nodes)
        ],
    }
    if numbers:
        data["accelerators"] = {accelerator: json.loads(numbers)}
    return Cluster.parse(data)


@cache
def gpt(hidden: int, layers: int, heads: int, vocab: int, sequence: int) -> Model:
    """A GPT."""
    return Model.transformer(
        hidden=hidden, layers=layers, heads=heads, vocab=vocab, sequence=sequence
    )


@cache
def llama(size: str, sequence: int) -> Model:
    """A Llama 3 of this size."""
    return Model.transformer(**LLAMA[size], vocab=128256, sequence=sequence, gated_mlp=True)


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _number(row: Row, name: str, default: int = 1) -> int:
    return int(row.get(name) or default)


def _label(row: Row) -> str:
    degrees = " ".join(f"{name}{_number(row, name)}" for name in ("tp", "pp", "cp", "ep", "dp"))
    return f"{row['model']} {row['gpus']} x {row['accelerator'][:4]} {degrees} {row['precision']}"


def _step(
    family: str,
    row: Row,
    model: Model,
    place: Cluster,
    step_s: float,
    split: dict[str, Any],
    memory_bytes: float | None = None,
    **given: Any,
) -> Step:
    degrees = {name: _number(row, name) for name in ("tp", "pp", "dp", "cp", "ep", "virtual_pp")}
    fields = {
        "global_batch": _number(row, "global_batch"),
        "micro_batch": _number(row, "micro_batch"),
        "sequence": _number(row, "sequence"),
    }
    workload = Workload(
        model=model, parallelism=Parallelism(**(degrees | split)), **(fields | given)
    )
    return Step(family, _label(row), workload, place, step_s, memory_bytes)


def _vtrain(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Megatron-LM on A100, fp16 with full recomputation; no sharded optimizer then."""
    for family in ("vtrain_single", "vtrain_multi"):
        for row in _rows(facts / f"{family}.csv"):

            def make(family: str = family, row: Row = row) -> Step:
                shape = (_number(row, name) for name in ("hidden", "layers", "heads"))
                model = gpt(*shape, 51200, _number(row, "sequence"))
                place = cluster("A100-80G", _number(row, "nodes"), NIC_BYTES_PER_S["vtrain"])
                split = {"zero": 0, "sequence_parallel": False}
                return _step(
                    family,
                    row,
                    model,
                    place,
                    float(row["step_s"]),
                    split,
                    recompute="full",
                    precision="fp16",
                )

            yield _label(row), make


def _megatron(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Narayanan 2021 and Korthikanti 2022; the ZeRO-3 rows of the former are a family of their own.

    Selective recomputation came with sequence parallelism.
    """
    for table in ("korthikanti_table5", "megatron_sc21_table1", "megatron_sc21_table2"):
        for row in _rows(facts / f"{table}.csv"):
            sharded = row["note"].startswith("ZeRO-3") if "note" in row else False

            def make(row: Row = row, sharded: bool = sharded) -> Step:
                shape = (_number(row, name) for name in ("hidden", "layers", "heads", "vocab"))
                model = gpt(*shape, _number(row, "sequence"))
                place = cluster("A100-80G", _number(row, "nodes"), NIC_BYTES_PER_S["dgx-a100"])
                selective = row["recompute"].startswith("selective")
                return _step(
                    "sc21_zero3" if sharded else "megatron",
                    row,
                    model,
                    place,
                    float(row["step_s"]),
                    {"zero": 3 if sharded else 0, "sequence_parallel": selective},
                    recompute="selective" if selective else "full",
                    precision="fp16",
                )

            yield _label(row), make


def _h100(row: Row) -> Cluster:
    return cluster("H100-SXM", _number(row, "nodes"), NIC_BYTES_PER_S["dgx-h100"])


def _dgxc(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """NeMo on H100: sharded optimizer, sequence parallelism, nothing repeated."""
    for row in _rows(facts / "dgxc_h100_step_time.csv"):

        def make(row: Row = row) -> Step:
            sequence = _number(row, "sequence")
            if row["model"].startswith("llama"):
                model = llama(row["model"].split("-")[1], sequence)
            else:
                model = gpt(12288, 96, 96, 51200, sequence)
            precision = row["precision"].lower()
            return _step(
                "dgxc", row, model, _h100(row), float(row["step_s"]), {}, precision=precision
            )

        yield _label(row), make


def _torchtitan(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """FSDP2 on capped H100s. Under pipeline parallelism the local batch goes by single samples."""
    numbers = json.dumps(CAPPED_H100)
    for row in _rows(facts / "torchtitan_h100.csv"):

        def make(row: Row = row) -> Step:
            sequence, local = _number(row, "sequence"), _number(row, "micro_batch")
            batch = _number(row, "global_batch", local * _number(row, "dp"))
            rate = float(row["tokens_per_s_per_gpu"]) * _number(row, "gpus")
            gib = row["memory_gib"]
            return _step(
                "torchtitan",
                row,
                llama(row["model"].split("-")[1], sequence),
                cluster("H100-96G", _number(row, "nodes"), NIC_BYTES_PER_S["dgx-h100"], numbers),
                batch * sequence / rate,
                {"zero": 3},
                memory_bytes=float(gib) * 2**30 if gib else None,
                global_batch=batch,
                micro_batch=1 if _number(row, "pp") > 1 else local,
                recompute="full" if row["recompute"] == "full" else "selective",
                precision="fp8" if row["precision"].startswith("FP8") else "bf16",
            )

        yield _label(row), make


def _megatron_core(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Megatron Core's weak scaling. Micro-batches of one; FLOPs with full attention, as its code
    of that release counts them. Neither the batch nor virtual stages are told.
    """
    for row in _rows(facts / "megatron_h100_weak_scaling.csv"):

        def make(row: Row = row) -> Step:
            h, layers, vocab = (_number(row, name) for name in ("hidden", "layers", "vocab"))
            s = _number(row, "sequence")
            model = gpt(h, layers, _number(row, "heads"), vocab, s)
            flops_per_token = 3 * (2 * (12 * layers * h * h + h * vocab) + 4 * layers * h * s)
            flops = flops_per_token * s * _number(row, "global_batch")
            rate = float(row["tflops_per_gpu_reported"]) * 1e12 * _number(row, "gpus")
            return _step("megatron_core", row, model, _h100(row), flops / rate, {})

        yield _label(row), make


def _bridge(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Megatron Bridge on H100, pre-training of dense models."""
    sizes = {"LLAMA3_8B": "8b", "LLAMA3_70B": "70b", "LLAMA3.1_405B": "405b"}
    for row in _rows(facts / "megatron_bridge_h100_gb200.csv"):
        dense = row["model"] in sizes and row["accelerator"] == "H100"
        if not dense or row["note"].startswith(("LoRA", "SFT")):
            continue

        def make(row: Row = row) -> Step:
            sequence = _number(row, "sequence")
            rate = float(row["tokens_per_s_per_gpu"]) * _number(row, "gpus")
            seconds = _number(row, "global_batch") * sequence / rate
            model = llama(sizes[row["model"]], sequence)
            return _step("bridge", row, model, _h100(row), seconds, {}, precision="fp8")

        yield _label(row), make
