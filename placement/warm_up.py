"""Compiling the solver's loops before the first job waits for them."""

from __future__ import annotations

import numpy as np


def warm_up(ranks: int | None = None) -> None:
    """Compile, or load from the cache, the loops that `place` and `repair` may run.

    ranks: for jobs of at most so many; without it, of any size. What the first job is likely to
    need comes first. Takes up to a minute of a processor where nothing is cached. Placing by time,
    and splitting blocks that fit nowhere whole, compile what they need when they are first used.
    """
    # Imported here because compiled loops take half a second that reading a file does not need.
    from .place import MOST_EXACT_RANKS
    from .repairs.relocation import warm_up_relocation

    large = ranks is None or ranks > MOST_EXACT_RANKS
    _place_one_job()
    if large:
        _warm_up_counts()
    warm_up_relocation()
    if large:
        # What `place_large` loads with its first job.
        from .jobs import wide as wide
        from .rails import rail_jobs as rail_jobs
        from .rails.rail_walk import warm_up_rails
        from .timed.link_tables import warm_up_links

        _warm_up_divisions()
        warm_up_links()
        warm_up_rails()


def _place_one_job() -> None:
    """Place a job of a few devices that the exact model proves best, for what only a job loads."""
    from .cluster import Cluster
    from .pcg import PCG
    from .place import place

    tiers = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in ("pod", "spine")]
    nodes = [
        {"name": f"n{i}", "accelerator": "A", "devices": 2, "domains": {"pod": f"p{i}"}}
        for i in range(2)
    ]
    cluster = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    # Packed in order, both pairs are apart.
    groups = [
        {"name": f"g{i}", "op": "send_recv", "ranks": [i, i + 2], "bytes": 1.0} for i in range(2)
    ]
    job = {"format": "railweave.pcg/1", "world_size": 4, "groups": groups}
    place(PCG.parse(job), Cluster.parse(cluster), time_limit_s=0.05)


def _warm_up_counts() -> None:
    """What jobs of equal blocks in chains need."""
    from .bounds.bound import spread_bound
    from .bounds.shape_bound import shape_bound
    from .exact.exact_counts import best_spread
    from .spread.anneal import walk
    from .spread.class_pairs import share_classes
    from .spread.counts import Counts
    from .spread.pairing import share_all

    link = np.array([1.0, 0.0])
    cost = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    kind = np.full(2, -1, dtype=np.int64)
    none = np.zeros((3, 0), dtype=np.int64)
    room = np.array([3, 2, 2])
    problem = Counts(np.array([2, 2]), cost, link, room, kind, none)
    start = np.array([[1, 1, 0], [1, 0, 1]])
    every = np.arange(3)
    walk(problem, cost, link, start, every, 300, 1, 1.0)
    share_all(start.copy(), cost, link, room, every, np.ones(3, dtype=np.int64), 1, 1000)
    share_classes(start.copy(), cost, link, room, every, np.ones(3, dtype=np.int64), 1, 1000)
    # A goal that is out of reach, so that no step is left out.
    spread_bound(problem, problem.bytes_of(start) + 1.0, 0.01)
    shape_bound(problem, 2.0, 3.0, 0.01)
    best_spread(problem, start, 0.05)


def _warm_up_divisions() -> None:
    """What jobs of any other shape need, and the inner tiers of all."""
    from .bounds.spectral_bound import spectral_bound
    from .division.local import Local
    from .division.partition import partitioned
    from .division.polish import polished
    from .jobs.index import PAIRS, RING, Demand
    from .jobs.units import unit_graph

    # A ring and a path of pairs, long enough for the dividing to make it coarser.
    ranks = 160
    demand = Demand(
        ranks=ranks,
        form=np.array([RING] + [PAIRS] * (ranks - 1)),
        weight=np.ones(ranks),
        start=np.concatenate([[0], np.arange(3, 2 * ranks + 2, 2)]),
        member=np.concatenate([[0, 1, 2], np.repeat(np.arange(ranks), 2)[1:-1]]),
        kind=np.full(ranks, -1, dtype=np.int64),
    )
    graph, halves = unit_graph(demand), np.array([ranks // 2, ranks // 2 + 1])
    local = Local.of(graph, np.arange(ranks), halves, np.zeros((2, 0), dtype=np.int64))
    # Neighbours apart, so that there is something to improve.
    apart = np.arange(ranks) % 2
    polished(local, apart, 300, 1)
    partitioned(local, [apart], 0.2, 1)
    spectral_bound(graph, halves, 3.0, 0.05, 1)
