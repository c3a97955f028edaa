"""The process that forks a crew: loads a module once, then runs its `main` on every host."""

from __future__ import annotations

import importlib
import io
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from railweave.agents import processes

from . import namespaces


def main(module: str) -> int:
    """Fork, then wait for the children or for the end of the standard input, which ends them."""
    run: Callable[[Sequence[str]], None] = importlib.import_module(module).main
    children = []
    for host, namespace, arguments in json.loads(sys.stdin.readline()):
        child = os.fork()
        if child == 0:
            os._exit(_work(run, host, namespace, arguments))
        children.append(child)
    handles = {os.pidfd_open(child): child for child in children}
    failed = 0
    poller = select.poll()
    for handle in (*handles, sys.stdin.fileno()):
        poller.register(handle, select.POLLIN)
    while handles:
        for ready, _ in poller.poll():
            if ready == sys.stdin.fileno():
                for child in handles.values():
                    os.kill(child, signal.SIGKILL)
                poller.unregister(ready)
            elif ready in handles:
                poller.unregister(ready)
                _, status = os.waitpid(handles.pop(ready), 0)
                failed |= status
                os.close(ready)
    return 1 if failed else 0


def _work(
    run: Callable[[Sequence[str]], None], host: str, namespace: str, arguments: Sequence[str]
) -> int:
    processes.die_with(os.getppid())
    os.environ["FABRIC_HOST"] = host
    sys.stdout = _Lines(host)
    try:
        namespaces.enter(namespace)
        run(arguments)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


class _Lines(io.TextIOBase):
    """Standard output a whole line at a time, each with the host's name before it.

    A pipe takes a line of up to 4096 bytes in one piece, so that those of hosts do not mix.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._unwritten = ""

    def write(self, text: str) -> int:
        *whole, self._unwritten = (self._unwritten + text).split("\n")
        for line in whole:
            os.write(1, f"{self._host}\t{line}\n".encode())
        return len(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
