"""`railweave topology`: the cluster's tree and state, from a file or from the running daemon."""

from __future__ import annotations

import json

import click

from ...placement.cluster import Cluster
from ...placement.files import write_text_atomically
from .main import Failed
from .output import check_outputs, console, json_option, print_json
from .tree import MOST_NODES, cluster_tree


@click.command("topology")
@click.option(
    "--cluster",
    "cluster_path",
    help="A cluster file, or any file that `import` reads, instead of the running daemon.",
)
@click.option("--svg", type=click.Path(dir_okay=False), help="Write a drawing here.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page about it here.")
@click.option(
    "--graphml", type=click.Path(dir_okay=False), help="Write its graph of links here, as GraphML."
)
@click.option(
    "--graph-json",
    type=click.Path(dir_okay=False),
    help="Write its graph of links here, as networkx's node-link JSON.",
)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the cluster file here.")
@click.option(
    "--all", "all_nodes", is_flag=True, help=f"Show every node of more than {MOST_NODES}, too."
)
@json_option
def command(
    cluster_path: str | None,
    svg: str | None,
    html: str | None,
    graphml: str | None,
    graph_json: str | None,
    out: str | None,
    all_nodes: bool,
    as_json: bool,
) -> None:
    """Draw the network of a cluster as a tree: tiers, domains, nodes and free devices.

    `--json` prints the cluster file (railweave.cluster/1).
    """
    check_outputs(svg, html, graphml, graph_json, out)
    cluster = _running() if cluster_path is None else Cluster.load(cluster_path)
    if svg:
        from ...placement.drawing_fabric import draw_fabric

        write_text_atomically(svg, draw_fabric(cluster))
    if html:
        from ..topology_page import topology_page

        write_text_atomically(html, topology_page(cluster))
    if graphml or graph_json:
        _write_graph(cluster, graphml, graph_json)
    if out:
        cluster.save(out)
    if as_json:
        print_json(cluster.to_data())
        return
    screen = console()
    screen.print(cluster_tree(cluster, all_nodes))
    screen.print("■ free  □ in use  - drained  x faulty", style="dim")
    for path in filter(None, (svg, html, graphml, graph_json, out)):
        screen.print(f"written: {path}")


def _write_graph(cluster: Cluster, graphml: str | None, graph_json: str | None) -> None:
    from ...placement.ctg import build_ctg, to_graphml, to_node_link

    graph = build_ctg(cluster)
    if graphml:
        write_text_atomically(graphml, to_graphml(graph))
    if graph_json:
        write_text_atomically(graph_json, json.dumps(to_node_link(graph), allow_nan=False) + "\n")


def _running() -> Cluster:
    from .session import connected

    with connected() as client:
        cluster = client.cluster()
    if cluster is None:
        raise Failed("the daemon has not seen a node yet; look again when an agent is up")
    return cluster
