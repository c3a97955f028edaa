"""What the demo shows: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ..timeline import duration_text

_LINES_SHOWN = 5


class PlainScreen:
    """A line a phase, an event and every tenth step, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = time.monotonic()
        self._shown = (0, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def phase(self, title: str) -> None:
        """A new phase begins."""
        self._line(f"== {title}")

    def say(self, line: str) -> None:
        """Something worth a line happened."""
        self._line(f"   {line}")

    def training(self, attempt: int, step: int, steps: int, loss: float | None) -> None:
        """A line for every tenth step of an attempt."""
        if loss is None or (attempt, step // 10) == self._shown:
            return
        self._shown = (attempt, step // 10)
        self._line(f"   attempt {attempt}: step {step} of {steps}, loss {loss:.4f}")

    def _line(self, text: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.1f} s  {text}", flush=True)


class LiveScreen:
    """Phases with their times, the last events of the current one, and training as a bar."""

    def __init__(self, console: Console) -> None:
        self._done: list[tuple[str, float]] = []
        self._title = ""
        self._since_s = time.monotonic()
        self._lines: list[str] = []
        self._training: tuple[int, int, int, float | None] | None = None
        self._spinner = Spinner("dots")
        self._failed = False
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._drawn)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._failed = error is not None
        self._close_phase()
        self._live.stop()

    def phase(self, title: str) -> None:
        """A new phase begins; the one before is shown with the time it took."""
        self._close_phase()
        self._title, self._since_s, self._lines = title, time.monotonic(), []

    def say(self, line: str) -> None:
        """Something worth a line happened; the last few are shown."""
        self._lines = [*self._lines, line][-_LINES_SHOWN:]

    def training(self, attempt: int, step: int, steps: int, loss: float | None) -> None:
        """How far training is."""
        self._training = (attempt, step, steps, loss)

    def _close_phase(self) -> None:
        if self._title and not self._failed:
            self._done.append((self._title, time.monotonic() - self._since_s))
            self._title = ""

    def _drawn(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        for title, took_s in self._done:
            grid.add_row(Text("✓", "green"), title, Text(duration_text(took_s), "dim"))
        if self._title:
            mark: RenderableType = Text("✗", "red") if self._failed else self._spinner
            took_s = time.monotonic() - self._since_s
            grid.add_row(mark, Text(self._title, "bold"), Text(duration_text(took_s), "dim"))
        parts: list[RenderableType] = [grid]
        parts += [
            Text(f"    {line}", "dim", overflow="ellipsis", no_wrap=True) for line in self._lines
        ]
        if self._training is not None and (self._title or self._failed):
            parts.append(_bar(*self._training))
        return Group(*parts)


def _bar(attempt: int, step: int, steps: int, loss: float | None) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    shown = "" if loss is None else f"loss {loss:.4f}"
    bar = ProgressBar(total=steps, completed=step, width=40)
    row.add_row(f"  attempt {attempt}", bar, f"step {step} of {steps}", shown)
    return row
