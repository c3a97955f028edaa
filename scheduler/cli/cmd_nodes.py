"""`railweave nodes`: what is held against the nodes; setting one aside, and releasing one."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import click
from rich.text import Text

from ...placement.domains import Domain
from ...placement.inference.health import Between, Finding
from ..client import Client
from ..health_news import told
from ..quarantine import NodeRecord
from ..timeline import duration_text
from ..views import NodeView
from .data import node_data, node_record_data
from .main import Failed
from .output import clock_text, console, json_option, print_json, table
from .session import connected

_STYLE = {"ok": "green", "joining": "yellow"}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds of a text such as `90s`, `30m`, `2h` or `7d`."""
    if value is None:
        return None
    try:
        seconds = float(value[:-1]) * _UNITS_S[value[-1:]]
    except (KeyError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"found {value!r}; give a number and s, m, h or d, as in 2h")
    return seconds


@click.group("nodes", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the nodes, which of them are kept out and until when, and the faults that count."""
    if context.invoked_subcommand is not None:
        return
    with connected() as client:
        views = {view.name: view for view in client.status().nodes}
        records = client.node_records()
        findings = _findings(client)
    if as_json:
        print_json([_data(record, views.get(record.name), findings) for record in records])
        return
    now_s = time.time()
    columns = ["node", "state", "kept out", "faults", "reason"]
    rows = [_row(record, views.get(record.name), now_s) for record in records]
    screen = console()
    screen.print(table(columns, rows))
    for each in findings:
        share = "" if each.paths == 1 else f", on {each.paths} paths"
        past = duration_text(max(0.0, now_s - each.since_s))
        screen.print(f"not well: {told(each)}, for {past}{share}", style="yellow")


def _findings(client: Client) -> tuple[Finding, ...]:
    """What of the network is not well; nothing before the cluster is known."""
    try:
        return client.network().findings
    except LookupError:
        return ()


@command.command("set-aside")
@click.argument("node", metavar="NODE")
@click.option("--reason", required=True, help="Why, for whoever looks at the node later.")
@click.option(
    "--for", "for_s", metavar="TIME", callback=_seconds, help="90s, 30m, 2h, 7d. [no end]"
)
def set_aside(node: str, reason: str, for_s: float | None) -> None:
    """Keep NODE out of placements; what runs there goes on."""
    with connected() as client:
        try:
            client.set_aside(node, reason, for_s)
        except LookupError as error:
            raise Failed(str(error.args[0] if error.args else error)) from error
    until = "until it is released" if for_s is None else f"for {duration_text(for_s)}"
    console().print(f"{node} is set aside {until}")


@command.command("release")
@click.argument("node", metavar="NODE")
def release(node: str) -> None:
    """Use NODE again, and forget its faults. Fails when it was not kept out."""
    with connected() as client:
        if not client.release(node):
            raise Failed(f"{node} is not set aside; `railweave nodes` lists those that are")
    console().print(f"{node} is used again")


def _data(
    record: NodeRecord, view: NodeView | None, findings: Sequence[Finding]
) -> dict[str, object]:
    known = node_data(view) if view else {"name": record.name, "state": "away"}
    domains = view.domains if view else {}
    network = [each.to_data() for each in findings if _concerns(each, record.name, domains)]
    return {**known, **node_record_data(record), "network": network}


def _concerns(finding: Finding, node: str, domains: Mapping[str, str]) -> bool:
    """Whether a finding is of a node, of a path of it, or of links that its traffic takes."""
    subject = finding.subject
    if isinstance(subject, str):
        return subject == node
    if isinstance(subject, Domain | Between):
        every = isinstance(subject, Between) and subject.tier == subject.name
        return every or domains.get(subject.tier) == subject.name
    return node in subject


def _row(record: NodeRecord, view: NodeView | None, now_s: float) -> Sequence[object]:
    state = view.state if view else "away"
    reason = record.reason or (view.reason if view else "")
    return [
        record.name,
        Text(state, _STYLE.get(state, "red")),
        _kept_out(record, now_s),
        ", ".join(f"{count} {why}" for why, count in _counts(record).items()),
        reason,
    ]


def _counts(record: NodeRecord) -> Counter[str]:
    return Counter(fault.why.value for fault in record.faults)


def _kept_out(record: NodeRecord, now_s: float) -> str:
    if record.out is None:
        return (
            f"on probation until {clock_text(record.trial_until_s)}"
            if (record.trial_until_s > now_s)
            else ""
        )
    if record.until_s is not None:
        return f"{record.out}, until {clock_text(record.until_s)}"
    return f"{record.out}, until {'it is back' if record.out == 'lost' else 'it is released'}"
