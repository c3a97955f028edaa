"""`railweave repair`: other devices for the ranks of a placement that lost theirs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.cluster import Cluster
from ...placement.constraints import Constraints
from ...placement.drawing.svg import bytes_text, plural
from ...placement.pcg import PCG
from ...placement.placement import Placement
from ...placement.repair import Repair, repair
from .constraint_options import constraint_options
from .output import check_outputs, console, json_option, print_json, table
from .ranges import ranges_text

Device = tuple[str, int]
_SHOWN = 40


@click.command("repair")
@click.option("--placement", "placement_path", required=True, help="The placement file before.")
@click.option("--cluster", "cluster_path", required=True, help="The cluster file as it is now.")
@click.option("--pcg", "pcg_path", required=True, help="The communication graph file.")
@click.option("--lost", multiple=True, metavar="NODE[:DEVICE]", help="What is lost; may repeat.")
@click.option(
    "--max-moves",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Ranks that may move beside those that must, where that lowers the traffic.",
)
@click.option("--placed-on", "placed_on_path", help="The cluster file when it was placed.")
@click.option("--compare", is_flag=True, help="Also place the job anew, and show what that costs.")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds for placing anew.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the new placement file here.")
@constraint_options
@json_option
def command(
    placement_path: str,
    cluster_path: str,
    pcg_path: str,
    lost: tuple[str, ...],
    max_moves: int,
    placed_on_path: str | None,
    compare: bool,
    time_limit_s: float,
    seed: int,
    out: str | None,
    constraints: Constraints | None,
    as_json: bool,
) -> None:
    """Give the ranks on lost devices other ones; all other ranks stay where they are.

    Prints which ranks moved where to, and what the loss costs at each tier of the network. Give the
    constraints that the job was placed under again: they hold for the result too.
    """
    if not math.isfinite(time_limit_s):
        raise click.BadParameter("give a number of seconds", param_hint="'--time-limit'")
    check_outputs(out)
    cluster, pcg = Cluster.load(cluster_path), PCG.load(pcg_path)
    before = Placement.load(placement_path)
    known = {node.name for node in cluster.nodes} | {name for name, _ in before.devices}
    found = repair(
        before,
        pcg,
        cluster,
        devices_named(lost, known),
        max_moves=max_moves,
        seed=seed,
        compare=compare,
        time_limit_s=time_limit_s,
        constraints=constraints,
        placed_on=Cluster.load(placed_on_path) if placed_on_path else None,
    )
    if out:
        found.placement.save(out)
    if as_json:
        print_json(_data(found))
        return
    console().print(_summary(before, found))
    if out:
        console().print(f"written: {out}")


def devices_named(texts: Iterable[str], known: set[str]) -> list[str | Device]:
    """Nodes and single devices from NODE or NODE:DEVICE; a node's own name comes first."""
    found: list[str | Device] = []
    for text in texts:
        node, colon, index = text.rpartition(":")
        if text not in known and colon and index.isdecimal():
            found.append((node, int(index)))
        else:
            found.append(text)
    return found


def _data(found: Repair) -> dict[str, Any]:
    return found.placement.to_data() | {
        "moved": found.moved,
        "forced": found.forced,
        "before_bytes": found.before_bytes,
        "added_spine_bytes": found.added_spine_bytes,
        "fresh_bytes": found.fresh.traffic_bytes if found.fresh else None,
    }


def _summary(before: Placement, found: Repair) -> Group:
    after = found.placement
    columns = ["before", "repaired", *(["placed anew"] if found.fresh else [])]
    rows = [
        [
            tier,
            bytes_text(found.before_bytes.get(tier, 0.0)),
            bytes_text(size),
            *([bytes_text(found.fresh.traffic_bytes[tier])] if found.fresh else []),
        ]
        for tier, size in reversed(after.traffic_bytes.items())
    ]
    lines: list[RenderableType] = [
        Text(
            f"{plural(len(found.moved), 'rank')} of {len(after.devices)} moved, "
            f"{len(found.forced)} had to"
        )
    ]
    if found.moved:
        lines.append(_moves(before.devices, after.devices, found.moved))
    lines += [
        table(["bytes a step at", *columns], rows, right=columns),
        *(Text(f"note: {note}") for note in after.notes[1:]),
    ]
    if after.spares:
        lines.append(Text(f"spares: {', '.join(after.spares)}"))
    return Group(*lines)


def _moves(old: Sequence[Device], new: Sequence[Device], moved: Sequence[int]) -> RenderableType:
    """Ranks that moved, by the nodes they left and went to."""
    ways: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in moved:
        ways[old[rank][0], new[rank][0]].append(rank)
    rows = [[ranges_text(ranks), left, to] for (left, to), ranks in ways.items()]
    if len(rows) > _SHOWN:
        rows[_SHOWN:] = [[f"and {len(rows) - _SHOWN} more, see --json", "", ""]]
    return table(["ranks", "from", "to"], rows)
