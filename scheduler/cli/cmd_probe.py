"""`railweave probe`: measure the network between the nodes."""

from __future__ import annotations

import click

from .main import Failed
from .output import check_outputs, console, json_option, print_json
from .session import connected
from .tree import cluster_tree


@click.command("probe")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the cluster file here.")
@json_option
def command(out: str | None, as_json: bool) -> None:
    """Measure latency and bandwidth between the nodes, and show the cluster that follows.

    Progress goes to standard error. `--json` prints the cluster file (railweave.cluster/1).
    """
    check_outputs(out)
    progress = console(error=True)
    with connected() as client:
        try:
            cluster = client.probe(progress.print)
        except RuntimeError as error:
            raise Failed(f"the probe failed: {error}") from error
    if out:
        cluster.save(out)
    if as_json:
        print_json(cluster.to_data())
        return
    console().print(cluster_tree(cluster))
    if out:
        console().print(f"written: {out}")
