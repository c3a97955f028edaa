"""`railweave up`: the daemon and the agents, on a Ray cluster or on an embedded one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from ...placement.errors import InvalidInput
from ..embedded import EMBEDDED_SILENT_S, EmbeddedCluster, EmbeddedNode, Progress
from ..home import background_cluster, home, record_path
from ..service import start_daemon
from ..settings import SILENT_S, Reprobe
from ..views import DaemonStatus
from .data import status_data
from .main import Failed
from .output import console, json_option, print_json
from .session import connected, use_cluster, wait_for_agents


@click.command("up")
@click.option("--embedded", is_flag=True, help="Start a Ray cluster on this machine, too.")
@click.option(
    "--nodes", type=click.IntRange(1, 64), default=4, show_default=True, help="Of an embedded one."
)
@click.option(
    "--devices-per-node",
    "devices",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Declared on each node of an embedded cluster.",
)
@click.option(
    "--pods",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Pods that the nodes of an embedded cluster are in, by turns.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The daemon's folder on the head node; `daemon` in $RAILWEAVE_HOME by default.",
)
@click.option("--store", default="", help="Database URL of the store, instead of a file there.")
@click.option("--tier", "tiers", multiple=True, help="A tier's name; give all, nearest first.")
@click.option(
    "--silent",
    "silent_s",
    type=click.FloatRange(min=1),
    help="Seconds without a sign of life after which a node counts as lost; 8 by default, 30 for "
    "the nodes of an embedded cluster, which share one machine.",
)
@click.option(
    "--reprobe",
    "reprobe_s",
    type=click.FloatRange(min=0),
    metavar="S",
    help="How often the daemon measures the network again by itself, in seconds, to find links "
    "that are not well any more; 0 is never. 300 by default, 0 for an embedded cluster.",
)
@click.option(
    "--reprobe-seconds",
    "reprobe_budget_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="How long one such measuring may take. [20]",
)
@click.option(
    "--reprobe-bytes",
    "reprobe_bytes",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="What one such measuring may move, both directions together. [no limit]",
)
@click.option(
    "--reprobe-busy", is_flag=True, help="Measure nodes that run jobs again, too, not only others."
)
@json_option
def command(
    embedded: bool,
    nodes: int,
    devices: int,
    pods: int,
    state_dir: Path | None,
    store: str,
    tiers: tuple[str, ...],
    silent_s: float | None,
    reprobe_s: float | None,
    reprobe_budget_s: float | None,
    reprobe_bytes: int | None,
    reprobe_busy: bool,
    as_json: bool,
) -> None:
    """Start the daemon and an agent on every node of the Ray cluster at RAY_ADDRESS.

    With --embedded, a Ray cluster is started on this machine first, and stays in the background
    until `railweave down`; the other commands find it without RAY_ADDRESS. Where its head has
    ended, it is started again, and jobs go on. Where the daemon runs already, it is left as it is.
    """
    told = console(error=True)
    with contextlib.ExitStack() as undo:
        cluster = None
        if embedded:
            cluster = _with_its_head(told.print)
            if cluster is None:
                cluster = _started(nodes, devices, pods, told.print)
                undo.callback(cluster.stop)
            cluster.use()
        else:
            use_cluster()
        told.print("starting the daemon and the agents")
        silent_s = silent_s or (EMBEDDED_SILENT_S if embedded else SILENT_S)
        try:
            start_daemon(
                state_dir or home() / "daemon",
                store=store,
                tiers=tiers,
                silent_s=silent_s,
                reprobe=_reprobe(
                    0.0 if embedded and reprobe_s is None else reprobe_s,
                    reprobe_budget_s,
                    reprobe_bytes,
                    reprobe_busy,
                ),
            )
        except InvalidInput:
            raise
        except (RuntimeError, ValueError) as error:
            raise Failed(str(error)) from error
        with connected() as client:
            status = wait_for_agents(client)
        if cluster is not None:
            cluster.detach(record_path())
        undo.pop_all()
    if as_json:
        print_json(status_data(status))
    else:
        console().print(_text(status))


def _reprobe(
    every_s: float | None, budget_s: float | None, budget_bytes: int | None, busy: bool
) -> Reprobe:
    """The daemon's own measuring, by default where nothing is given."""
    usual = Reprobe()
    given = {"budget_s": budget_s, "budget_bytes": budget_bytes, "include_busy": busy or None}
    changed = {name: value for name, value in given.items() if value is not None}
    return Reprobe(
        every_s=usual.every_s if every_s is None else every_s,
        probes=usual.probes.model_copy(update=changed),
    )


def _with_its_head(say: Progress) -> EmbeddedCluster | None:
    """The embedded cluster that runs without its head, once that is back; None if there is none."""
    cluster = background_cluster()
    if cluster is None or cluster.head_runs or os.environ.get("RAY_ADDRESS"):
        return None
    if not cluster.durable:
        raise Failed(
            "the head of the embedded cluster has ended, and its control store with it; end the "
            "rest with: railweave down"
        )
    say("starting the head of the embedded cluster again")
    cluster.restart_head()
    return cluster


def _started(nodes: int, devices: int, pods: int, say: Progress) -> EmbeddedCluster:
    if os.environ.get("RAY_ADDRESS"):
        raise click.UsageError(
            f"RAY_ADDRESS is set to {os.environ['RAY_ADDRESS']}; unset it to start a cluster here, "
            "or leave --embedded out to use that one"
        )
    if background_cluster() is not None:
        raise Failed("an embedded cluster is running already; end it with: railweave down")
    plan = [
        EmbeddedNode(f"n{index}", devices, domains={"pod": f"p{index % pods}"})
        for index in range(nodes)
    ]
    return EmbeddedCluster(plan, state_dir=home() / "embedded", durable=True).start(say)


def _text(status: DaemonStatus) -> str:
    devices = sum(node.devices for node in status.nodes)
    return (
        f"the daemon (pid {status.pid}) sees {len(status.nodes)} nodes with {devices} devices\n"
        "next: railweave probe, railweave submit, railweave status"
    )
