"""`railweave demo`: what `make run` runs."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.drawing.svg import bytes_text
from ...placement.placement import Placement
from ..demo import SAVE_EVERY, STEPS_BEYOND_CHECKPOINT, DemoResult, run_demo
from ..timeline import duration_text
from .demo_screen import LiveScreen, PlainScreen
from .output import console, state_text, table

_FEWEST_STEPS = SAVE_EVERY + STEPS_BEYOND_CHECKPOINT + SAVE_EVERY


@click.command("demo")
@click.option(
    "--report",
    "report",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("railweave-demo/report.html"),
    show_default=True,
    help="Where the HTML report goes.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=_FEWEST_STEPS),
    default=80,
    show_default=True,
    help="Training steps.",
)
@click.option("--keep", is_flag=True, help="Leave the cluster running; end it with: railweave down")
def command(report: Path, steps: int, keep: bool) -> None:
    """Watch a real training job being placed, losing a node, and finishing.

    Starts an embedded Ray cluster, probes it, places and launches the training of a small GPT on
    it, kills one of its nodes, and shows how the job recovers and ends. Nothing it started is left,
    also after Ctrl-C.
    """
    report.parent.mkdir(parents=True, exist_ok=True)
    screen = console()
    view = LiveScreen(screen) if screen.is_terminal else PlainScreen(screen)
    with view:
        result = run_demo(view, report.resolve(), steps, keep)
    screen.print(summary(result))


def summary(result: DemoResult) -> RenderableType:
    """The end of the demo in numbers."""
    first = Placement.parse(result.attempts[0].placement)
    last = Placement.parse(result.attempts[-1].placement)
    spine = list(first.traffic_bytes)[-1]
    bound = (
        "proved the fewest"
        if first.proved_optimal
        else (f"at least {bytes_text(first.lower_bound_bytes)} needed")
    )
    rows: list[tuple[str, object]] = [
        ("attempts", len(result.attempts)),
        ("recoveries", len(result.recoveries)),
    ]
    for fault in result.recoveries:
        rows += [
            ("broken by", fault.message),
            ("time to detect", _seconds(fault.detect_s)),
            ("time to restart", _seconds(fault.restart_s)),
            ("resumed from step", fault.resumed_step),
            ("steps lost", fault.lost_steps),
            ("ranks moved", fault.moved_ranks),
        ]
    rows += [
        (f"{spine} bytes a step, packed in order", bytes_text(result.packed_traffic_bytes[spine])),
        (f"{spine} bytes a step, as placed", f"{bytes_text(first.cross_spine_bytes)}, {bound}"),
        (f"{spine} bytes a step, after recovery", bytes_text(last.cross_spine_bytes)),
        ("all of it took", duration_text(result.took_s)),
    ]
    return Group(
        Text(),
        Text.assemble(f"{result.job_id}  ", state_text(result.state)),
        table(["", ""], rows),
        Text(f"report: {result.report}"),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration_text(value)
