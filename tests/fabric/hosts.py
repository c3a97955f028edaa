"""Processes on the hosts of a fabric."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from . import namespaces
from .fabric import Fabric

TESTS = Path(__file__).parents[1]


def start(
    fabric: Fabric,
    host: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: int | IO[Any] | None = None,
    machine: bool = False,
) -> subprocess.Popen[str]:
    """Start a command on a host.

    machine: with a process table and a host name of its own, so that it is a machine of its own to
    whatever looks; killing the process that is returned then kills everything it started.
    """
    name = fabric.namespace(host)
    inside = ["ip", "netns", "exec", name]
    if machine:
        inside += ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside += ["sh", "-c", 'hostname "$0" && exec "$@"', host]
    return subprocess.Popen(
        [*inside, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        env={**fabric.environment(), **(environment or {})},
        text=True,
    )


def end_processes(fabric: Fabric, host: str) -> None:
    """Kill every process on a host."""
    name = fabric.namespace(host)
    namespaces.end(lambda: namespaces.inside(name))


class Crew:
    """One process a host, all forked from one that has loaded the module, as imports take long.

    Each calls the module's `main(arguments)` on its host. `lines` gives what they print, with the
    host's name first; `close` ends those that still run. They end with the process that made them.
    """

    def __init__(
        self,
        fabric: Fabric,
        module: str,
        arguments: Mapping[str, Sequence[str]],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        orders = [[h, fabric.namespace(h), list(given)] for h, given in arguments.items()]
        env = {**fabric.environment(), **(environment or {})}
        env["PYTHONPATH"] = f"{TESTS}:{env.get('PYTHONPATH', '')}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fabric.crew", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        assert self._process.stdin
        print(json.dumps(orders), file=self._process.stdin, flush=True)

    def line(self) -> tuple[str, str]:
        """The next line that a process of the crew prints, after its host. Raises EOFError."""
        assert self._process.stdout
        text = self._process.stdout.readline()
        if not text:
            raise EOFError(f"the crew has ended with status {self._process.wait()}")
        host, _, said = text.rstrip("\n").partition("\t")
        return host, said

    def each(self, count: int) -> dict[str, str]:
        """The next line of each of so many processes that print one now, by host."""
        return dict(self.line() for _ in range(count))

    def wait(self) -> int:
        """Wait until all have ended; 0 where all ended well."""
        return self._process.wait()

    def close(self) -> None:
        """End those that still run."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
