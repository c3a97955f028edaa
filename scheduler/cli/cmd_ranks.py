"""`railweave ranks JOB`: how its ranks look at this moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.live import Live
from rich.table import Table

from ..client import JobHandle
from ..job_ranks import RankView, in_short, most_telling
from ..timeline import duration_text
from .main import Failed
from .output import console, json_option, print_json, table
from .session import connected

_COLUMNS = ("rank", "node", "device", "state", "step", "a step", "computes", "loss", "cpu", "quiet")
_EVERY_S = 1.0


@click.command("ranks")
@click.argument("job_id", metavar="JOB")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Ranks to show: those that failed, are quiet, behind or slow come first.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on, a look a second, until the job is over.")
@json_option
def command(job_id: str, most: int, follow: bool, as_json: bool) -> None:
    """Show the state of a job's ranks: steps and times that they reported, activity, silence.

    A job tells its steps with railweave.agents.report(step, loss, compute_s).
    """
    if follow and as_json:
        raise click.UsageError("--follow is for people; programs call `railweave ranks --json`")
    with connected() as client:
        job = client.job(job_id)
        found = _look(job)
        if as_json:
            print_json([asdict(each) for each in found])
            return
        if not follow:
            console().print(_table(found, most))
            return
        with Live(_table(found, most), console=console(), auto_refresh=False) as screen:
            while not job.state.final:
                time.sleep(_EVERY_S)
                screen.update(_table(_look(job), most), refresh=True)


def _look(job: JobHandle) -> list[RankView]:
    try:
        return job.ranks()
    except LookupError as error:
        raise Failed(str(error.args[0] if error.args else error)) from error


def _table(ranks: Sequence[RankView], most: int) -> Table:
    shown = most_telling(ranks, most)
    built = table(_COLUMNS, [_row(each) for each in shown], right=["rank", "device", *_COLUMNS[4:]])
    left_out = len(ranks) - len(shown)
    built.title = in_short(ranks) + (f"; {left_out} not shown" if left_out else "")
    built.title_justify = "left"
    return built


def _row(each: RankView) -> list[object]:
    return [
        each.rank,
        each.node,
        each.device,
        f"{each.state}: {each.why}" if each.why else each.state,
        _or_dash(each.step, "{}"),
        "-" if each.step_s is None else duration_text(each.step_s),
        "-" if each.compute_s is None else duration_text(each.compute_s),
        _or_dash(each.loss, "{:.4g}"),
        _or_dash(each.cpu_share, "{:.0%}"),
        "-" if each.quiet_s is None else duration_text(each.quiet_s),
    ]


def _or_dash(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)
