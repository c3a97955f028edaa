"""Processes of a node that outlive the agent which starts them: the guard and the copy server.

    start_detached("guard", [FOLDER, RAYLET_FD], log, raylet_fd, 20.0)

The module's `main` gets the arguments, and calls `detach()` of `processes` before it does anything
that takes long.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .environment import rank_environment

# It runs without site-packages, so it finds its package by this instead of an import path.
_BOOTSTRAP = """\
import importlib, sys, types
for name, path in (("railweave", []), ("railweave.agents", [sys.argv[1]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
importlib.import_module("railweave.agents." + sys.argv[2]).main(sys.argv[3:])
"""


def start_detached(
    module: str, arguments: Sequence[str], log: Path, raylet_fd: int, wait_s: float
) -> bool:
    """Start a module of this package as a process of its own; whether it says that it is ready.

    log: where what it says goes. raylet_fd: handed on to it. wait_s: how long it is waited for.
    """
    with log.open("ab") as said:
        starter = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _BOOTSTRAP, str(Path(__file__).parent)),
                *(module, *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=rank_environment(os.environ, sys.executable),
            pass_fds=(raylet_fd,),
            start_new_session=True,
            cwd="/",
        )
    try:
        return starter.wait(wait_s) == 0
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()
        return False
