"""`railweave topology`: the cluster's tree and state, from a file or from the running daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from ...placement.cluster import Cluster
from ...placement.ctg import Link
from ...placement.files import write_text_atomically
from ...placement.inference.health_effects import link_health
from ..health_news import told
from ..views import Network
from .main import Failed
from .output import check_outputs, console, json_option, print_json
from .tree import MOST_NODES, cluster_tree

_MOST_LISTED = 20


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

    Of the running daemon, with what is in use and out of service now, and with the links and nodes
    that its re-probes found degraded or dead. `--out` and `--json` give the cluster file
    (railweave.cluster/1) as probed; `--json` with what is not well as `x-health`.
    """
    check_outputs(svg, html, graphml, graph_json, out)
    if cluster_path is None:
        network = _running()
    else:
        cluster = Cluster.load(cluster_path)
        network = Network(cluster, cluster)
    now, findings = network.now, network.findings
    health = link_health(now, findings)
    if svg:
        from ...placement.drawing.drawing_fabric import draw_fabric

        write_text_atomically(svg, draw_fabric(now, health))
    if html:
        from ..topology_page import topology_page

        write_text_atomically(html, topology_page(now, health, findings))
    if graphml or graph_json:
        _write_graph(now, health, graphml, graph_json)
    if out:
        network.probed.save(out)
    if as_json:
        noted = {"x-health": [each.to_data() for each in findings]} if findings else {}
        print_json(network.probed.to_data() | noted)
        return
    screen = console()
    screen.print(cluster_tree(now, all_nodes, findings))
    for each in findings[:_MOST_LISTED]:
        screen.print(f"not well: {told(each)}", style="yellow")
    if len(findings) > _MOST_LISTED:
        screen.print(f"and {len(findings) - _MOST_LISTED} more; `--json` has them all")
    screen.print("■ free  □ in use  - drained  x faulty", style="dim")
    for path in filter(None, (svg, html, graphml, graph_json, out)):
        screen.print(f"written: {path}")


def _write_graph(
    cluster: Cluster,
    health: Mapping[Link, float],
    graphml: str | None,
    graph_json: str | None,
) -> None:
    from ...placement.ctg import build_ctg, to_graphml, to_node_link

    graph = build_ctg(cluster, health)
    if graphml:
        write_text_atomically(graphml, to_graphml(graph))
    if graph_json:
        write_text_atomically(graph_json, json.dumps(to_node_link(graph), allow_nan=False) + "\n")


def _running() -> Network:
    from .session import connected

    with connected() as client:
        try:
            return client.network()
        except LookupError as error:
            raise Failed(f"{error.args[0] if error.args else error}; look again later") from error
