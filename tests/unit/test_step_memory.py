"""Memory of a rank: published formulas to three decimals, and measured peaks."""

from __future__ import annotations

import json

import pytest
from railweave.placement import Cluster, Model, Parallelism, Workload, estimate
from railweave.placement.cost.constants import CONSTANTS
from railweave.placement.cost.memory import BlockMemory, state_bytes
from railweave.placement.cost.schedule import in_flight
from railweave.placement.cost.slices import Slice

GIB = 2**30
SHAPES = [(2048, 4, 6144, 64), (2048, 1, 12288, 96), (1024, 2, 2048, 16)]
OLD = CONSTANTS.software["megatron-2021"]
FLASH = CONSTANTS.software["megatron"]


def gpt(hidden: int, heads: int, layers: int = 1, sequence: int = 2048) -> Model:
    return Model.transformer(
        hidden=hidden, layers=layers, heads=heads, vocab=51200, sequence=sequence
    )


@pytest.mark.parametrize(("s", "b", "h", "a"), SHAPES)
@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_gpt_layer_follow_the_published_table(
    s: int, b: int, h: int, a: int, t: int
) -> None:
    """Korthikanti 2022, table 2, in units of sbh."""
    block = gpt(h, a).stack.blocks[0]
    sbh, scores = s * b * h, 5 * a * s / h

    def kept(recompute: str, split_sequence: bool) -> float:
        part = Slice(s, b, tp=t, split_sequence=split_sequence, recompute=recompute)
        return BlockMemory(block, part, OLD, dropout=True).bytes(part).kept / sbh

    assert kept("none", False) == pytest.approx(10 + 24 / t + scores / t, abs=5e-4)
    assert kept("none", True) == pytest.approx((34 + scores) / t, abs=5e-4)
    assert kept("selective", False) == pytest.approx(10 + 24 / t, abs=5e-4)
    assert kept("selective", True) == pytest.approx(34 / t, abs=5e-4)
    assert kept("full", False) == pytest.approx(2, abs=5e-4)
    assert kept("full", True) == pytest.approx(2 / t, abs=5e-4)


def test_fused_attention_keeps_as_much_as_selective_recomputation() -> None:
    block = gpt(6144, 64).stack.blocks[0]
    part = Slice(2048, 4, tp=8)
    fused = BlockMemory(block, part, FLASH, dropout=False).bytes(part)
    again = part._replace(recompute="selective")
    selective = BlockMemory(block, again, OLD, dropout=False).bytes(again)
    assert fused.kept == selective.kept


def test_context_parallel_ranks_keep_their_part_of_the_sequence() -> None:
    block = gpt(6144, 64).stack.blocks[0]
    memory = BlockMemory(block, Slice(8192, 1), FLASH, dropout=False)
    assert memory.bytes(Slice(8192, 1, cp=4)).kept == memory.bytes(Slice(8192, 1)).kept / 4


@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "tp", "pp", "virtual_pp", "batch", "expected"),
    [(6144, 64, 48, 8, 1, 1, 4, 9.5625), (12288, 96, 96, 8, 8, 3, 1, 12.3515625)],
)
def test_activations_of_the_first_stage_are_the_published_gib(
    hidden: int,
    heads: int,
    layers: int,
    tp: int,
    pp: int,
    virtual_pp: int,
    batch: int,
    expected: float,
) -> None:
    """Korthikanti 2022, table 5: sequence parallelism and selective recomputation."""
    block = gpt(hidden, heads).stack.blocks[0]
    part = Slice(2048, batch, tp=tp, split_sequence=True, recompute="selective")
    held = in_flight(pp, virtual_pp, 64, 0) * layers / pp
    gib = held * BlockMemory(block, part, OLD, dropout=True).bytes(part).kept / GIB
    assert gib == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("d", [1, 2, 64])
def test_state_bytes_a_parameter_are_those_of_the_sharding_stages(d: int) -> None:
    def total(zero: int, fp32_gradients: bool = False) -> float:
        return sum(state_bytes(1, d, zero, fp32_gradients))

    assert total(0) == 16
    assert total(1) == pytest.approx(4 + 12 / d)
    assert total(2) == pytest.approx(2 + 14 / d)
    assert total(3) == pytest.approx(16 / d)
    assert total(0, True) == 18
    assert total(1, True) == pytest.approx(6 + 12 / d)


def test_plain_stages_hold_what_is_between_them_and_the_end() -> None:
    assert [in_flight(4, 1, 16, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [in_flight(4, 1, 2, stage) for stage in range(4)] == [2, 2, 2, 1]


def test_interleaved_stages_hold_more_by_the_published_factor() -> None:
    p, v = 8, 3
    assert in_flight(p, v, 64, 0) == pytest.approx(p * (1 + (p - 1) / (p * v)))


CAPPED = {
    "memory_bytes": 96 * GIB,
    "peak_flops": {"bf16": 989.4e12, "fp8": 1978.9e12},
    "memory_bandwidth": 2.4e12,
    "scale_up_bandwidth": 450e9,
}
PEAKS = [
    # torchtitan on H100 96 GB, Llama 3.1: size, nodes, split, samples, sequence, recompute, GiB.
    ("8b", 1, {"dp": 8}, 2, 8192, "selective", 82.4),
    ("8b", 16, {"dp": 128}, 2, 8192, "selective", 62.0),
    ("8b", 1, {"dp": 4, "cp": 2}, 1, 65536, "full", 84.2),
    ("8b", 1, {"dp": 1, "cp": 8}, 1, 262144, "full", 84.5),
    ("70b", 32, {"dp": 32, "tp": 8}, 16, 8192, "full", 71.9),
]
LLAMA = {
    "8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336},
    "70b": {"hidden": 8192, "layers": 80, "heads": 64, "kv_heads": 8, "ffn": 28672},
}


@pytest.mark.parametrize("row", PEAKS, ids=lambda row: json.dumps(row[2]) + f" {row[0]}")
def test_measured_peaks_are_met_within_a_tenth(
    row: tuple[str, int, dict[str, int], int, int, str, float],
) -> None:
    size, nodes, split, samples, sequence, recompute, gib = row
    model = Model.transformer(**LLAMA[size], vocab=128256, sequence=sequence, gated_mlp=True)
    workload = Workload(
        model=model,
        parallelism=Parallelism(zero=3, **split),
        global_batch=samples * split["dp"],
        micro_batch=samples,
        recompute=recompute,
    )
    cluster = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "capped",
            "accelerators": {"H100-96G": CAPPED},
            "rails": 8,
            "tiers": [{"name": "spine", "bandwidth": 50e9, "latency": 2e-6}],
            "nodes": [
                {"name": f"n{n}", "accelerator": "H100-96G", "devices": 8} for n in range(nodes)
            ],
        }
    )
    found = estimate(workload, cluster)
    assert found.memory_bytes / GIB == pytest.approx(gib, rel=0.10)
    assert sum(found.memory.values()) == pytest.approx(found.memory_bytes)
    assert found.fits
