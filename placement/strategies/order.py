"""Rank orders: which dimension's ranks are next to each other."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidInput, Problem

DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")

_MESH_NAMES = {
    "tp": "tp",
    "cp": "cp",
    "ep": "ep",
    "dp": "dp",
    "dp_replicate": "dp",
    "dp_shard": "dp",
    "pp": "pp",
}
"""Names of torch's device meshes (torchtitan) and the dimension that each belongs to."""


def dimension_order(rank_order: str) -> tuple[str, ...]:
    """All five dimensions of an order such as "tp-cp-ep-dp-pp", those of neighbouring ranks first.

    Dimensions that are not named come last, in the usual order.
    """
    named = tuple(rank_order.split("-"))
    return named + tuple(dim for dim in DIMENSIONS if dim not in named)


def mesh_order(names: Sequence[str]) -> str:
    """The rank order of a torch DeviceMesh by its `mesh_dim_names`, outermost first.

    dp_replicate and dp_shard are together dp, of which the shard is the inner part
    (`Parallelism.shard`). Experts, which a mesh need not name, are spread over the innermost ranks
    of each stage, as torchtitan does. Raises InvalidInput for other names.
    """
    problems = []
    order: list[str] = []
    for place, name in enumerate(reversed(names)):
        dimension = _MESH_NAMES.get(name)
        where = f"names[{len(names) - 1 - place}]"
        if dimension is None:
            fix = f"use {', '.join(_MESH_NAMES)}"
            problems.append(Problem(where, f"found {name!r}", fix))
        elif dimension not in order:
            order.append(dimension)
        elif (name, order[-1]) != ("dp_replicate", "dp") or "dp_shard" not in names:
            found = f"{name!r} where {dimension} is named already"
            fix = "name each once; dp_replicate stands just before dp_shard"
            problems.append(Problem(where, found, fix))
    if problems:
        raise InvalidInput("mesh_order", problems)
    if "ep" not in order:
        order.insert(order.index("dp") if "dp" in order else len(order), "ep")
    return "-".join(order)
