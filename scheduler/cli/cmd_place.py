"""`railweave place`: a placement for a communication graph, beside packing in order."""

from __future__ import annotations

import math
from typing import Literal

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.cluster import Cluster
from ...placement.constraints import Constraints
from ...placement.drawing.svg import bytes_text, plural
from ...placement.files import write_text_atomically
from ...placement.pcg import PCG
from ...placement.placement import Placement
from ..comparison import Comparison, compare
from .constraint_options import constraint_options
from .output import check_outputs, console, json_option, print_json, table


@click.command("place")
@click.option("--cluster", "cluster_path", required=True, help="The cluster file.")
@click.option("--pcg", "pcg_path", required=True, help="The communication graph file.")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds the solver may take.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option(
    "--objective",
    type=click.Choice(["bytes", "time"]),
    default="bytes",
    show_default=True,
    help="Fewest bytes, spine first, or least predicted communication time.",
)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the placement file here.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write a drawing of it here.")
@constraint_options
@json_option
def command(
    cluster_path: str,
    pcg_path: str,
    time_limit_s: float,
    seed: int,
    objective: Literal["bytes", "time"],
    out: str | None,
    svg: str | None,
    constraints: Constraints | None,
    as_json: bool,
) -> None:
    """Place the ranks of a communication graph on the free devices of a cluster.

    Prints the bytes a step that meet at each tier of the network, beside those of packing the
    ranks in order, and how far from the fewest possible over the spine it can be at most.
    """
    if not math.isfinite(time_limit_s):
        raise click.BadParameter("give a number of seconds", param_hint="'--time-limit'")
    check_outputs(out, svg)
    cluster, pcg = Cluster.load(cluster_path), PCG.load(pcg_path)
    found = compare(pcg, cluster, time_limit_s, seed, constraints, objective)
    if out:
        found.placement.save(out)
    if svg:
        from ...placement.drawing.drawing_placement import draw_placement

        bound = found.placement.lower_bound_bytes
        drawing = draw_placement(pcg, cluster, found.placement.devices, lower_bound_bytes=bound)
        write_text_atomically(svg, drawing)
    if as_json:
        print_json(found.to_data())
        return
    console().print(summary(found))
    for path in filter(None, (out, svg)):
        console().print(f"written: {path}")


def summary(found: Comparison) -> Group:
    """A placement for people: where, the traffic beside packing in order, the bound."""
    placement = found.placement
    nodes = len({node for node, _ in placement.devices})
    rows = [
        (tier, bytes_text(size), bytes_text(found.packed_traffic_bytes[tier]))
        for tier, size in reversed(placement.traffic_bytes.items())
    ]
    counted = ["placed", "packed in order"]
    lines: list[RenderableType] = [
        Text(f"{plural(len(placement.devices), 'rank')} on {plural(nodes, 'node')}"),
        table(["bytes a step at", *counted], rows, right=counted),
        Text(f"over the spine: {_against_bound(found)}"),
        *_time_lines(placement),
        *([Text(f"spares: {', '.join(placement.spares)}")] if placement.spares else []),
        *(Text(f"note: {note}") for note in placement.notes),
    ]
    return Group(*lines)


def _time_lines(placement: Placement) -> list[Text]:
    if placement.communication_s is None or placement.communication_bound_s is None:
        return []
    line = f"communication: {placement.communication_s:.4g} s a step predicted"
    if placement.communication_s <= placement.communication_bound_s:
        return [Text(f"{line}, proved the least possible")]
    return [Text(f"{line}; at least {placement.communication_bound_s:.4g} s are needed")]


def _against_bound(found: Comparison) -> str:
    placement = found.placement
    size = bytes_text(placement.cross_spine_bytes)
    if placement.proved_optimal:
        return f"{size} a step, proved the fewest possible"
    bound = bytes_text(placement.lower_bound_bytes)
    if math.isinf(placement.gap):
        return f"{size} a step; nothing better than 0 is known to be needed"
    return f"{size} a step; at least {bound} are needed, so at most {placement.gap:.1%} too many"
