"""`railweave probe`: measure the network between the nodes."""

from __future__ import annotations

import click

from ...agents.prober import ProbeSettings
from .main import Failed
from .output import check_outputs, console, json_option, print_json
from .session import connected
from .tree import cluster_tree


@click.command("probe")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the cluster file here.")
@click.option(
    "--budget-bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="What the whole probing may move, both directions together; never exceeded.",
)
@click.option(
    "--budget-seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Begin no round after this time.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="BYTES_PER_S",
    help="What a node may send and receive on average; rounds wait for it.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="At most so many rounds.")
@click.option(
    "--transfer-bytes",
    type=click.IntRange(1, 2**36),
    metavar="BYTES",
    help="What one probe sends in each direction at most.",
)
@click.option(
    "--transfer-seconds",
    type=click.FloatRange(0, 60, min_open=True),
    metavar="S",
    help="How long one probe sends in each direction at most.",
)
@click.option(
    "--paths",
    type=click.IntRange(0, 256),
    default=0,
    metavar="PORTS",
    help="Trace each pair from this many source ports, and measure every path found.",
)
@click.option(
    "--rail",
    "rails",
    type=click.IntRange(min=0),
    multiple=True,
    help="Probe the NICs of this rail; may be given several times. Rail 0 by default.",
)
@click.option("--include-busy", is_flag=True, help="Probe nodes that run jobs as well.")
@json_option
def command(
    out: str | None,
    budget_bytes: int | None,
    budget_seconds: float | None,
    rate: float | None,
    rounds: int | None,
    transfer_bytes: int | None,
    transfer_seconds: float | None,
    paths: int,
    rails: tuple[int, ...],
    include_busy: bool,
    as_json: bool,
) -> None:
    """Measure latency, bandwidth and paths between the nodes, and show the cluster that follows.

    Probes run in rounds of pairs that share no node. Nodes that run jobs are left alone unless
    --include-busy is given. Progress goes to standard error. `--json` prints the cluster file
    (railweave.cluster/1).
    """
    check_outputs(out)
    limits = {"transfer_bytes": transfer_bytes, "transfer_s": transfer_seconds}
    settings = ProbeSettings(
        budget_bytes=budget_bytes,
        budget_s=budget_seconds,
        rate_bytes_per_s=rate,
        rounds=rounds,
        paths=paths,
        rails=tuple(dict.fromkeys(rails)) or (0,),
        include_busy=include_busy,
        **{name: value for name, value in limits.items() if value is not None},
    )
    progress = console(error=True)
    with connected() as client:
        try:
            cluster = client.probe(progress.print, settings)
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
