"""`railweave topology`: the cluster's tree and state, from a file or from the running daemon."""

from __future__ import annotations

import click

from ...placement.cluster import Cluster
from ...placement.files import write_text_atomically
from .main import Failed
from .output import check_outputs, console, json_option, print_json
from .tree import MOST_NODES, cluster_tree


@click.command("topology")
@click.option("--cluster", "cluster_path", help="A cluster file, instead of the running daemon.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Write a drawing here.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the cluster file here.")
@click.option(
    "--all", "all_nodes", is_flag=True, help=f"Show every node of more than {MOST_NODES}, too."
)
@json_option
def command(
    cluster_path: str | None, svg: str | None, out: str | None, all_nodes: bool, as_json: bool
) -> None:
    """Draw the network of a cluster as a tree: tiers, domains, nodes and free devices.

    `--json` prints the cluster file (railweave.cluster/1).
    """
    check_outputs(svg, out)
    cluster = _running() if cluster_path is None else Cluster.load(cluster_path)
    if svg:
        from ...placement.drawing_fabric import draw_fabric

        write_text_atomically(svg, draw_fabric(cluster))
    if out:
        cluster.save(out)
    if as_json:
        print_json(cluster.to_data())
        return
    screen = console()
    screen.print(cluster_tree(cluster, all_nodes))
    screen.print("■ free  □ in use  - drained  x faulty", style="dim")
    for path in filter(None, (svg, out)):
        screen.print(f"written: {path}")


def _running() -> Cluster:
    from .session import connected

    with connected() as client:
        cluster = client.cluster()
    if cluster is None:
        raise Failed("the daemon has not seen a node yet; look again when an agent is up")
    return cluster
