"""`railweave ports`: source ports that spread a placement's connections over equal-cost paths."""

from __future__ import annotations

from collections.abc import Mapping

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.cluster import Cluster
from ...placement.drawing.svg import bytes_text, plural
from ...placement.errors import InvalidInput, Problem
from ...placement.files import read_data
from ...placement.paths.ecmp_hash import Crc32Hash, RecordedHash, ToeplitzHash, UplinkHash, XorHash
from ...placement.paths.flows import Nic, network_flows
from ...placement.paths.port_plan import LayerLoads, LinkLoad, PortPlan
from ...placement.paths.ports import Method, Upper, plan_ports
from ...placement.pcg import PCG
from ...placement.placement import Placement
from .output import check_outputs, console, json_option, print_json, table


@click.command("ports")
@click.option("--placement", "placement_path", required=True, help="The placement file.")
@click.option("--cluster", "cluster_path", required=True, help="The cluster file.")
@click.option("--pcg", "pcg_path", required=True, help="The communication graph file.")
@click.option("--uplinks", type=click.IntRange(min=1), required=True, help="Of each first switch.")
@click.option(
    "--hash",
    "kind",
    type=click.Choice(["crc32", "xor", "toeplitz"]),
    default="crc32",
    show_default=True,
    help="How the switches choose an uplink.",
)
@click.option("--hash-seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--trace", "trace_path", help="A file of traced paths, instead of a hash.")
@click.option("--upper-uplinks", type=click.IntRange(min=1), help="Plan the next layer too.")
@click.option(
    "--upper-shift",
    type=click.IntRange(min=0, max=31),
    default=16,
    show_default=True,
    help="Bits of the CRC that the next layer's hash leaves out.",
)
@click.option("--addresses", "addresses_path", help="A file with the addresses of the NICs.")
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Queue pairs or channels where one is counted.",
)
@click.option("--one-switch", is_flag=True, help="The NICs of all rails of a node on one switch.")
@click.option(
    "--method",
    type=click.Choice([method.value for method in Method]),
    default=Method.COLOURING.value,
    show_default=True,
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the port plan here.")
@json_option
def command(
    placement_path: str,
    cluster_path: str,
    pcg_path: str,
    uplinks: int,
    kind: str,
    hash_seed: int,
    trace_path: str | None,
    upper_uplinks: int | None,
    upper_shift: int,
    addresses_path: str | None,
    connections: int,
    one_switch: bool,
    method: str,
    seed: int,
    out: str | None,
    as_json: bool,
) -> None:
    """Choose the source port of every connection between switches (RoCE over ECMP).

    Prints how full the fullest link gets with the planned ports, beside the least possible, the
    greedy rule, and the random ports that are usual. The plan itself is written with --out or
    printed with --json: one port a connection.
    """
    check_outputs(out)
    cluster, pcg = Cluster.load(cluster_path), PCG.load(pcg_path)
    devices = Placement.load(placement_path).devices
    addresses = _addresses(addresses_path, cluster) if addresses_path else None
    flows = network_flows(
        pcg,
        cluster,
        devices,
        addresses=addresses,
        connections=connections,
        rail_switches=not one_switch,
    )
    upper = None
    if upper_uplinks is not None:
        if len(cluster.tiers) < 3:
            raise click.UsageError(
                "--upper-uplinks needs switches between the first ones and the spine; "
                f"{cluster_path} has the tiers {', '.join(cluster.tier_names)}"
            )
        upper = Upper(upper_uplinks, Crc32Hash(upper_uplinks, hash_seed, upper_shift))
    plan = plan_ports(
        flows,
        uplinks,
        _recorded(trace_path) if trace_path else _hash(kind, uplinks, hash_seed),
        upper=upper,
        method=Method(method),
        seed=seed,
    )
    if out:
        plan.save(out)
    if as_json:
        print_json(plan.model_dump(mode="json"))
        return
    console().print(_summary(plan, len(flows), made_up=addresses is None))
    if out:
        console().print(f"written: {out}")


def _hash(kind: str, uplinks: int, seed: int) -> UplinkHash:
    if kind == "xor":
        return XorHash(uplinks, seed)
    if kind == "toeplitz":
        if seed:
            raise click.UsageError("the Toeplitz hash has a key and no seed; leave --hash-seed out")
        return ToeplitzHash(uplinks)
    return Crc32Hash(uplinks, seed)


def _addresses(path: str, cluster: Cluster) -> Mapping[Nic, str]:
    """`{node: [address of each rail]}` from a file. Raises InvalidInput."""
    data = read_data(path)
    nodes = {node.name for node in cluster.nodes}
    problems = []
    if not isinstance(data, dict):
        raise InvalidInput(path, [Problem("", "no mapping", "write NODE: [ADDRESS, ...] by rail")])
    for name, given in data.items():
        if name not in nodes:
            problems.append(Problem(str(name), "no such node", "name nodes of the cluster"))
        elif not isinstance(given, list) or len(given) != cluster.rails:
            fix = f"give a list of addresses, one for each of {plural(cluster.rails, 'rail')}"
            problems.append(Problem(str(name), f"found {str(given)[:40]}", fix))
    if problems:
        raise InvalidInput(path, problems)
    return {(str(n), rail): str(a) for n, given in data.items() for rail, a in enumerate(given)}


def _recorded(path: str) -> RecordedHash:
    """A traced hash from rows [source, destination, source port, destination port, uplink]."""
    data = read_data(path)
    rows: list[tuple[str, str, int, int, int]] = []
    problems = []
    for number, row in enumerate(data if isinstance(data, list) else [data]):
        if _is_traced(row):
            source, destination, port, to, uplink = row
            rows.append((source, destination, port, to, uplink))
        else:
            fix = "write [source, destination, source port, destination port, uplink]"
            problems.append(Problem(f"[{number}]", f"found {str(row)[:40]}", fix))
    if not problems:
        try:
            return RecordedHash.from_rows(rows)
        except ValueError as error:
            problems = [Problem("", str(error), "trace again")]
    raise InvalidInput(path, problems)


def _is_traced(row: object) -> bool:
    """Whether it is two addresses, two ports and the number of an uplink."""
    if not isinstance(row, list) or len(row) != 5:
        return False
    numbers_at = (range(1, 65536), range(1, 65536), range(1 << 31))
    return all(isinstance(address, str) for address in row[:2]) and all(
        type(number) is int and number in allowed
        for number, allowed in zip(row[2:], numbers_at, strict=True)
    )


def _summary(plan: PortPlan, flows: int, made_up: bool) -> Group:
    crossing = len(plan.connections)
    lines: list[RenderableType] = [
        Text(f"{plural(flows, 'connection')} between nodes, {crossing} leave their first switch"),
        _loads("out of first switches", plan.first),
    ]
    if plan.upper:
        lines.append(_loads("a layer further up", plan.upper))
    if made_up:
        lines.append(
            Text("note: the addresses are made up; a plan to use needs the real ones, --addresses")
        )
    return Group(*lines)


def _loads(where: str, layer: LayerLoads) -> RenderableType:
    def row(name: str, load: LinkLoad | None) -> list[object]:
        if load is None:
            return [name, "-", "-"]
        return [name, load.connections, bytes_text(load.bytes)]

    columns = ["connections", "bytes a step"]
    rows: list[list[object]] = [
        ["least possible", layer.least_connections, ""],
        row("planned", layer.planned),
        row("greedy rule", layer.greedy),
        row("random ports", layer.default),
    ]
    return table([f"fullest link {where}", *columns], rows, right=columns)
