"""How many estimates a second one core makes."""

from __future__ import annotations

import time

from railweave.placement import InvalidInput, Model, Parallelism, Workload
from railweave.placement.cost import Estimator

from .measured import cluster

ROUNDS = 5


def measure() -> None:
    """Estimates of every split of a 175B model on 1,024 A100, the first time and again."""
    place = cluster("A100-80G", 128, 25e9)
    work = workloads()
    estimator = Estimator(place)
    start = time.process_time()
    for workload in work:
        estimator(workload)
    first = time.process_time() - start
    start = time.process_time()
    for _ in range(ROUNDS):
        for workload in work:
            estimator(workload)
    again = (time.process_time() - start) / ROUNDS
    print(f"{len(work)} splits of 175B on 1,024 devices")
    print(f"first time {len(work) / first:,.0f} estimates/s, again {len(work) / again:,.0f}")


def workloads() -> list[Workload]:
    """Splits of a 175B model over 1,024 devices."""
    model = Model.transformer(hidden=12288, layers=96, heads=96, vocab=51200, sequence=2048)
    found = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8, 16, 32):
            for virtual_pp in (1, 3) if pp > 1 else (1,):
                for zero in (0, 1, 2, 3):
                    split = Parallelism(
                        tp=tp, pp=pp, dp=1024 // tp // pp, virtual_pp=virtual_pp, zero=zero
                    )
                    for micro_batch in (1, 2, 4, 8):
                        for recompute in ("none", "selective", "full"):
                            try:
                                found.append(
                                    Workload(
                                        model=model,
                                        parallelism=split,
                                        global_batch=3072,
                                        micro_batch=micro_batch,
                                        recompute=recompute,
                                    )
                                )
                            except InvalidInput:
                                continue
    return found
