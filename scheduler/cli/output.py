"""How the commands print: tables for people, JSON for programs, and never both."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 160
_STATE_STYLE = {
    "PENDING": "cyan",
    "LAUNCHING": "blue",
    "RUNNING": "blue",
    "RECOVERING": "yellow",
    "STOPPING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "magenta",
}
Function = TypeVar("Function", bound=Callable[..., Any])

json_option: Callable[[Function], Function] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of a table."
)


def check_outputs(*paths: str | None) -> None:
    """Refuse files that could not be written, before there is anything to lose."""
    given = [path for path in paths if path is not None]
    for path in given:
        if not path:
            raise click.UsageError("the name of a file to write is empty; give one")
        folder = Path(path).parent
        if not folder.is_dir():
            raise click.UsageError(f"the folder {folder} does not exist; make it first")
    plain = [real for path in given if not _is_special(real := Path(path).resolve())]
    if len(set(plain)) < len(plain):
        raise click.UsageError(f"two outputs would be written to {plain[0]}; give each a file")


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(error: bool = False) -> Console:
    """A console as wide as the terminal; wide enough for whole lines where there is none."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns
    return _Screen(stderr=error, width=width, highlight=False, markup=False)


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(data, indent=1, allow_nan=False))


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()
) -> Table:
    """A plain table; `right` names the columns of numbers, which are aligned on the right.

    Columns without names have no header.
    """
    built = Table(
        box=None,
        pad_edge=False,
        show_header=any(columns),
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for column in columns:
        built.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        # Text, not markup: names and reasons may hold brackets.
        built.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return built


def state_text(state: str) -> Text:
    """A job's state in its colour."""
    return Text(state, _STATE_STYLE.get(state, ""))


def clock_text(epoch_s: float) -> str:
    """A moment for people, in local time: the time of today, or the date with it."""
    moment, today = time.localtime(epoch_s), time.localtime()
    same_day = moment[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", moment)
