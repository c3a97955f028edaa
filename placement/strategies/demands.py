"""What each strategy of a workload asks of a cluster: which operation, among how many ranks, how
often, how many bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..cluster import Cluster
from ..cost import estimate
from ..group import Kind, Op
from ..group_table import KINDS, OPS, Floats, GroupTable
from ..transformer_pcg import build_pcg
from ..workload import Workload

_STRATEGIES: dict[Kind, str] = {
    Kind.TP: "tensor",
    Kind.SP: "tensor",
    Kind.CP: "context",
    Kind.PP: "pipeline",
    Kind.EP: "expert",
    Kind.ETP: "expert tensor",
    Kind.DP: "data",
    Kind.EDP: "expert data",
    Kind.EMBEDDING: "embedding",
}
_TURNS: dict[Op, int] = {Op.ALL_REDUCE: 2}
"""How often the bytes of a collective go round, where it is not once."""


class StrategyDemand(NamedTuple):
    """What a strategy sends.

    operations: in the order of `Op`. ranks: in one operation. groups: how many sets of ranks do
    them, at once or in turn. bytes_a_rank: what the busiest rank sends in a step, on the wire of an
    algorithm that sends least (ring or direct). bytes_a_call: what the tensor of a call has, on
    average. calls: of that rank in a step. between_s: its computation from one call to the next,
    None without a cluster.
    """

    strategy: str
    operations: tuple[Op, ...]
    ranks: int
    groups: int
    bytes_a_rank: float
    bytes_a_call: float
    calls: float
    between_s: float | None


def strategy_demands(
    workload: Workload, cluster: Cluster | None = None
) -> tuple[StrategyDemand, ...]:
    """What each strategy of a workload sends, the one that sends most first.

    Sharded parameters (zero 3) are told as "sharding", apart from the gradients that data-parallel
    ranks sum. With a cluster, its estimate tells the computation between calls.
    """
    pcg = build_pcg(workload)
    table, ranks = pcg.table, pcg.world_size
    compute = None
    if cluster is not None:
        breakdown = estimate(workload, cluster).breakdown
        compute = breakdown["compute"] + breakdown["recompute"]
    names = np.array([_STRATEGIES[kind] for kind in KINDS])[table.kind]
    if workload.parallelism.zero == 3:
        names = np.where((names == "data") & table.is_op(Op.ALL_GATHER), "sharding", names)
    found = [
        _demand(str(name), table.taken(np.flatnonzero(names == name)), ranks, compute)
        for name in dict.fromkeys(names.tolist())
    ]
    return tuple(sorted(found, key=lambda one: -one.bytes_a_rank))


def _demand(
    strategy: str, table: GroupTable, ranks: int, compute_s: float | None
) -> StrategyDemand:
    turns = np.array([_TURNS.get(op, 1) for op in OPS], dtype=np.float64)[table.op]
    part = np.where(table.is_op(Op.SEND_RECV), 1.0, (table.size - 1) / table.size)
    sent = _by_rank(table, turns * part * table.bytes, ranks)
    calls = _by_rank(table, table.count, ranks)
    busiest = int(np.argmax(sent))
    between = None if compute_s is None else compute_s / calls[busiest]
    return StrategyDemand(
        strategy=strategy,
        operations=tuple(op for place, op in enumerate(OPS) if (table.op == place).any()),
        ranks=int(table.size.max()),
        groups=len(set(table.ranks())),
        bytes_a_rank=float(sent[busiest]),
        bytes_a_call=float(_by_rank(table, table.bytes, ranks)[busiest] / calls[busiest]),
        calls=float(calls[busiest]),
        between_s=between,
    )


def _by_rank(table: GroupTable, value: Floats, ranks: int) -> Floats:
    """The sum of a value over the groups of each rank; of a send_recv, over those it sends in."""
    each = np.repeat(value, table.size)
    receives = np.repeat(table.is_op(Op.SEND_RECV), table.size)
    first = np.zeros(len(each), dtype=bool)
    first[table.start[:-1]] = True
    each = np.where(receives & ~first, 0.0, each)
    return np.bincount(table.rank, weights=each, minlength=ranks).astype(np.float64)
