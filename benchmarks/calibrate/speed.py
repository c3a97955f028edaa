"""How many estimates a second one core makes of workloads that it has not seen."""

from __future__ import annotations

import time
from collections.abc import Iterator

from railweave.placement import InvalidInput, Model, Parallelism, Workload
from railweave.placement.cost import Estimator

from .measured import cluster

ROUNDS = 3
DEGREES = (1, 2, 4, 8, 16, 32)


def measure() -> None:
    """CPU time of every split of a model on a cluster, the first time and again."""
    for title, model, place, batch, devices in (
        ("175B on 1,024 A100", _gpt(), cluster("A100-80G", 128, 25e9), 3072, 1024),
        (
            "a mixture of 47B on 256 H100",
            Model.from_catalog("mixtral-8x7b"),
            cluster("H100-SXM", 32, 50e9),
            1024,
            256,
        ),
    ):
        work = list(workloads(model, devices, batch))
        first = min(_seconds(Estimator(place), work) for _ in range(ROUNDS))
        estimator = Estimator(place)
        _seconds(estimator, work)
        again = min(_seconds(estimator, work) for _ in range(ROUNDS))
        print(
            f"{title}: {len(work):,} different splits, {len(work) / first:,.0f} estimates/s of CPU "
            f"the first time, {len(work) / again:,.0f} again"
        )


def workloads(model: Model, devices: int, batch: int) -> Iterator[Workload]:
    """Splits of a model over as many devices."""
    for split in _splits(model, devices):
        for micro_batch in (1, 2, 4, 8):
            for recompute in ("none", "selective", "full"):
                try:
                    yield Workload(
                        model=model,
                        parallelism=split,
                        global_batch=batch,
                        micro_batch=micro_batch,
                        sequence=2048,
                        recompute=recompute,
                    )
                except InvalidInput:
                    continue


def _splits(model: Model, devices: int) -> Iterator[Parallelism]:
    experts = (1, 2, 4, 8) if model.experts else (1,)
    for tp in DEGREES[:4]:
        for pp in DEGREES:
            for virtual_pp in (1, 2, 3) if pp > 1 else (1,):
                for ep in experts:
                    for zero in (0, 1, 2, 3):
                        yield Parallelism(
                            tp=tp,
                            pp=pp,
                            dp=devices // tp // pp,
                            ep=ep,
                            virtual_pp=virtual_pp,
                            zero=zero,
                        )


def _gpt() -> Model:
    return Model.transformer(hidden=12288, layers=96, heads=96, vocab=51200, sequence=2048)


def _seconds(estimator: Estimator, work: list[Workload]) -> float:
    start = time.process_time()
    for workload in work:
        estimator(workload)
    return time.process_time() - start
