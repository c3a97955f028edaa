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

from railweave.placement import Cluster, InvalidInput, Model, Op, Parallelism, Workload
from railweave.placement.cost.collective_time import Links
from railweave.placement.cost.spans import Span

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts"
Row = dict[str, str]
FORMAT = "railweave.cluster/1"

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
class Exchange:
    """A measured collective: what of how many bytes, between which ranks over which links.

    old: by a program of 2021, which decides what its launch takes.
    """

    family: Literal["nccl-a100", "nccl-h100", "nccl-points"]
    label: str
    op: Op
    size: float
    span: Span
    links: Links
    seconds: float
    old: bool = False


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


def exchanges(facts: Path = FACTS) -> list[Exchange]:
    """The NCCL tables and single points; of the H100's table the in-place times, since its
    out-of-place ones have jumps.
    """
    found = []
    for row in _rows(facts / "nccl_allreduce_a100_intranode_thinned.csv"):
        n, size, seconds = int(row["gpus"]), int(row["bytes"]), float(row["out_of_place_us"]) * 1e-6
        place = Span(n, 1, n, -1, ())
        found.append(
            Exchange("nccl-a100", f"{n} A100", Op.ALL_REDUCE, size, place, A100, seconds, True)
        )
    for row in _rows(facts / "nccl_allreduce_h100_8gpu.csv"):
        size, seconds = int(row["bytes"]), float(row["in_place_us"]) * 1e-6
        place = Span(8, 1, 8, -1, ())
        found.append(Exchange("nccl-h100", "8 H100", Op.ALL_REDUCE, size, place, H100, seconds))
    return found + list(_points(facts))


A100 = Links(300e9, (25e9,), (2e-6,), (1.0,), False, (False,))
H100 = Links(450e9, (50e9,), (2e-6,), (1.0,), True, (False,))
_RING_H100 = H100._replace(switch_reduces=False)
_H800 = H100._replace(scale_up=200e9)
_SHARP = A100._replace(network_reduces=(True,))
_FOUR_NICS = _SHARP._replace(network=(12.5e9,))
_POINTS: dict[tuple[str, str], tuple[Op, Links, int, int, float]] = {
    # What and system: operation, links, ranks, nodes, bytes. Sizes that are not told are large.
    ("all_reduce busbw ring intra", "8xH100 SXM"): (Op.ALL_REDUCE, _RING_H100, 8, 1, 8e9),
    ("all_reduce busbw NVLS 8", "8xH100 SXM"): (Op.ALL_REDUCE, H100, 8, 1, 8e9),
    ("effective NVLink4 per direction (non-allreduce)", "H100"): (Op.ALL_GATHER, H100, 8, 1, 8e9),
    ("reduce_scatter busbw 2GiB", "H100"): (Op.REDUCE_SCATTER, H100, 8, 1, 2.0**31),
    ("all_reduce busbw 16GiB", "H100"): (Op.ALL_REDUCE, H100, 8, 1, 2.0**34),
    ("all_reduce busbw", "8xH200 NVLink4"): (Op.ALL_REDUCE, H100, 8, 1, 8e9),
    ("all_reduce busbw 8GiB", "8xH100"): (Op.ALL_REDUCE, H100, 8, 1, 2.0**33),
    ("all_reduce busbw", "8xH800 (NVLink 400GB/s)"): (Op.ALL_REDUCE, _H800, 8, 1, 8e9),
    ("all_reduce busbw 2xDGX-A100 8x200Gb HDR", "DGX A100"): (Op.ALL_REDUCE, A100, 16, 2, 8e9),
    ("all_reduce busbw 512MB 248 nodes H200", "H200 8xNDR"): (
        Op.ALL_REDUCE,
        H100,
        1984,
        248,
        512e6,
    ),
    ("CollNet/SHARP algbw rule of thumb 4 NIC", "DGX A100"): (
        Op.ALL_REDUCE,
        _FOUR_NICS,
        64,
        8,
        8e9,
    ),
    ("CollNet/SHARP 8 NIC NVLink-limited", "DGX A100"): (Op.ALL_REDUCE, _SHARP, 64, 8, 8e9),
    ("EP dispatch intranode", "H800 (~160GB/s NVLink max)"): (Op.ALL_TO_ALL, _H800, 8, 1, 1e9),
    ("EP combine intranode", "H800"): (Op.ALL_TO_ALL, _H800, 8, 1, 1e9),
}
"""Points whose network is told; the rest of the file leaves NICs or what is counted open."""


def _points(facts: Path) -> Iterator[Exchange]:
    for row in _rows(facts / "collective_points.csv"):
        known = _POINTS.get((row["what"], row["system"]))
        if known is None:
            continue
        op, links, ranks, nodes, size = known
        ends = [float(value) for value in row["gb_per_s"].split("-")]
        rate = sum(ends) / len(ends) * 1e9
        steps = 2 * (ranks - 1) if op is Op.ALL_REDUCE else ranks - 1
        carried = size if row["kind"].startswith("algbw") else size * steps / ranks
        inside = ranks // nodes
        alone = Span(ranks, 1, ranks, -1, ())
        place = alone if nodes == 1 else Span(ranks, nodes, inside, 0, (inside,))
        yield Exchange("nccl-points", row["what"], op, size, place, links, carried / rate)


@cache
def cluster(accelerator: str, nodes: int, nic: float, numbers: str = "") -> Cluster:
    """Nodes of 8 devices with a NIC each on one switch; `numbers`: the accelerator's, as JSON."""
    data: dict[str, Any] = {
        "format": FORMAT,
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
def racks(devices: int) -> Cluster:
    """GB200 in racks of 16 nodes of 4, joined by NVLink, of which jobs use 64 devices each."""
    tiers = [
        {"name": "rack", "bandwidth": 900e9, "latency": 1e-6, "scale_up": True},
        {"name": "spine", "bandwidth": 50e9, "latency": 2e-6},
    ]
    nodes = [
        {"name": f"n{n:03d}", "accelerator": "GB200", "devices": 4,
         "domains": {"rack": f"r{n // 16}"}}
        for n in range(-(-devices // 4))
    ]  # fmt: skip
    name = f"{devices} GB200"
    return Cluster.parse(
        {"format": FORMAT, "name": name, "rails": 4, "tiers": tiers, "nodes": nodes}
    )


@cache
def from_catalog(name: str) -> Model:
    """A published model."""
    return Model.from_catalog(name)


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
    stages = degrees["pp"] * degrees["virtual_pp"]
    if model.layers % stages and "stage_layers" not in split:
        # 126 layers in 8 or 64 stages: embedding and head stand for one each.
        split = split | {"embedding_as_layer": True, "head_as_layer": True}
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
    """FSDP2 on capped H100s. A pipeline cuts the local batch into as many parts as it has stages,
    torchtitan's default.
    """
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
                micro_batch=max(1, local // _number(row, "pp")),
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


_BRIDGE_MODELS = {
    "LLAMA3_8B": "llama-3.1-8b",
    "LLAMA3_70B": "llama-3.1-70b",
    "LLAMA3.1_405B": "llama-3.1-405b",
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Nemotron_3_Nano": "nemotron-3-nano",
    "Nemotron_3_5_Lightning": "nemotron-3.5-lightning",
    "Nemotron_3_Super": "nemotron-3-super",
}
_DEEPSEEK_STAGES = (3, *[4] * 14, 2)
"""Layers of DeepSeek-V3 in 16 stages; the last has the layer that predicts a further token."""


def _bridge(facts: Path) -> Iterator[tuple[str, Callable[[], Step]]]:
    """Megatron Bridge, pre-training. Experts whole on a rank; 4-bit steps are left out.

    Dense models on H100, mixtures and hybrids on H100, and everything on GB200 are families of
    their own; of GB200 nothing is fitted.
    """
    for row in _rows(facts / "megatron_bridge_h100_gb200.csv"):
        tuned = row["note"].startswith(("LoRA", "SFT"))
        if row["model"] not in _BRIDGE_MODELS or tuned or row["precision"] == "NVFP4":
            continue

        def make(row: Row = row) -> Step:
            model = from_catalog(_BRIDGE_MODELS[row["model"]])
            family = "bridge_sparse" if model.experts else "bridge"
            place = _h100(row)
            if row["accelerator"] == "GB200":
                family, place = "gb200", racks(_number(row, "gpus"))
            split: dict[str, Any] = {"etp": 1} if model.experts else {}
            if row["model"] == "DeepSeekV3":
                split["stage_layers"] = _DEEPSEEK_STAGES
            rate = float(row["tokens_per_s_per_gpu"]) * _number(row, "gpus")
            seconds = _number(row, "global_batch") * _number(row, "sequence") / rate
            precision = "bf16" if row["precision"] == "BF16" else "fp8"
            return _step(family, row, model, place, seconds, split, precision=precision)

        yield _label(row), make
