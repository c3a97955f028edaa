"""Place a training job on a cluster without running anything: no Ray, no network, no GPUs.

    python examples/place_offline.py

A job of 64 GPUs goes onto a cluster that other jobs have left in pieces. Printed are the bytes a
step that meet at each tier of the network, beside those of packing the ranks in order.
"""

from __future__ import annotations

import argparse

from railweave.placement import (
    Model,
    Parallelism,
    Workload,
    build_pcg,
    clos_8_rail,
    evaluate,
    occupied,
    place,
)


def main() -> None:
    """Build the cluster and the job, place it, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which nodes are busy")
    parser.add_argument("--time-limit-s", type=float, default=2.0)
    options = parser.parse_args()

    # 4 units of 4 nodes with 8 GPUs and 8 rails, two units a pod, and many of the nodes busy.
    fabric = clos_8_rail(4, nodes_per_unit=4, units_per_pod=2)
    cluster = occupied(fabric, 0.4, seed=options.seed, most_nodes_per_job=2)

    # 8-way tensor parallel fills a node; 4 replicas of a pipeline of 2 stages.
    workload = Workload(
        model=Model.transformer(hidden=4096, layers=32, heads=32, vocab=50_304, sequence=2048),
        parallelism=Parallelism(tp=8, dp=4, pp=2),
        global_batch=64,
        micro_batch=2,
    )
    pcg = build_pcg(workload)

    placement = place(pcg, cluster, time_limit_s=options.time_limit_s)
    free = [(node.name, device) for node in cluster.nodes for device in node.usable_devices]
    packed = evaluate(pcg, cluster, free[: pcg.world_size]).traffic_bytes

    print(f"{pcg.world_size} ranks on {len(free)} free devices of {cluster.name}")
    print(f"{'tier':<8}{'in order':>14}{'placed':>14}   GB a step")
    for tier, placed_bytes in placement.traffic_bytes.items():
        print(f"{tier:<8}{packed[tier] / 1e9:>14.2f}{placed_bytes / 1e9:>14.2f}")
    known = "proved the least possible" if placement.proved_optimal else f"gap {placement.gap:.1%}"
    print(f"over the {cluster.spine}: {placement.cross_spine_bytes / 1e9:.2f} GB, {known}")
    for stage in range(workload.parallelism.pp):
        ranks = range(stage * 32, (stage + 1) * 32, 8)
        nodes = ", ".join(placement.devices[rank][0] for rank in ranks)
        print(f"stage {stage} on {nodes}")


if __name__ == "__main__":
    main()
