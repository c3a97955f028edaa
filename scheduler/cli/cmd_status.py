"""`railweave status`: the daemon, its nodes, and the queue in numbers."""

from __future__ import annotations

import time

import click
from rich.text import Text

from ..timeline import duration_text
from ..views import DaemonStatus, NodeView
from .data import status_data
from .main import Failed
from .output import console, json_option, print_json, state_text, table
from .session import connected

_STYLE = {"ok": "green", "joining": "yellow"}


@click.command("status")
@json_option
def command(as_json: bool) -> None:
    """Show the daemon, the nodes with their devices, and how many jobs are in each state."""
    with connected() as client:
        status = client.status()
    if as_json:
        print_json(status_data(status))
    else:
        screen = console()
        screen.print(_daemon(status))
        screen.print(_jobs(status))
        screen.print()
        screen.print(_nodes(status))
    if status.fenced:
        raise Failed(f"this daemon may not act any more: {status.fenced}")


def _daemon(status: DaemonStatus) -> str:
    since = duration_text(max(0.0, time.time() - status.started_s))
    probing = ", probing the network" if status.probing else ""
    return f"daemon: pid {status.pid}, up for {since}{probing}"


def _jobs(status: DaemonStatus) -> Text:
    counts = [
        Text.assemble(f"{count} ", state_text(state))
        for state, count in status.jobs.items()
        if count
    ]
    return Text.assemble("jobs: ", Text(", ").join(counts or [Text("none")]))


def _nodes(status: DaemonStatus) -> object:
    columns = ["node", "state", "domains", "accelerator", "devices", "free", "held by", "reason"]
    return table(columns, [_row(node) for node in status.nodes], right=["devices", "free"])


def _row(node: NodeView) -> list[object]:
    domains = " ".join(f"{tier}={domain}" for tier, domain in node.domains.items())
    return [
        node.name,
        Text(node.state, _STYLE.get(node.state, "red")),
        domains,
        node.accelerator,
        node.devices,
        node.free,
        " ".join(f"{job}:{count}" for job, count in node.held.items()),
        node.reason,
    ]
