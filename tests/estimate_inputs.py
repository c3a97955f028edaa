"""Clusters and workloads whose step is estimated in tests."""

from __future__ import annotations

from typing import Any

from railweave.placement import Cluster, Model, Parallelism, Workload

GPT3 = {"hidden": 12288, "layers": 96, "heads": 96, "vocab": 51200, "sequence": 2048}
SMALL = {"hidden": 1024, "layers": 8, "heads": 16, "vocab": 32000, "sequence": 1024}


def cluster(
    count: int, accelerator: str = "A100-80G", nic: float = 25e9, **changes: Any
) -> Cluster:
    data = {
        "format": "railweave.cluster/1",
        "name": "test",
        "rails": 8,
        "tiers": [{"name": "spine", "bandwidth": nic, "latency": 2e-6}],
        "nodes": [
            {"name": f"n{n:03d}", "accelerator": accelerator, "devices": 8} for n in range(count)
        ],
    }
    return Cluster.parse(data | changes)


def workload(model: Model | None = None, batch: int = 64, **given: Any) -> Workload:
    degrees = set(Parallelism.model_fields)
    split = {name: value for name, value in given.items() if name in degrees}
    rest = {name: value for name, value in given.items() if name not in degrees}
    return Workload(
        model=model or Model.transformer(**SMALL),
        parallelism=Parallelism(**split),
        global_batch=batch,
        **rest,
    )
