"""Starting a rank: its environment, its log and its end with the guard, and why it did not start.

Standard library only, because the guard imports it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .journal import Record
from .logs import log_path
from .lookout import progress_path
from .processes import die_with
from .progress import VARIABLE as PROGRESS_VARIABLE
from .progress import create as create_progress


def start_rank(
    launch: dict[str, Any],
    rank: dict[str, Any],
    marks: Mapping[str, str],
    umask: int,
    folder: Path,
) -> tuple[int | None, Record]:
    """Start a rank as a child; its pid, None where it did not start, and what the journal is told.

    launch, rank: as `launch.json` has them. marks: environment variables that nothing overrides.
    folder: of the attempt. The rank ends when this process does.
    """
    number: int = rank["rank"]
    environment = {"PYTHONUNBUFFERED": "1", **os.environ, **launch["env"], **rank["env"], **marks}
    if create_progress(progress := progress_path(folder, number)):
        environment[PROGRESS_VARIABLE] = str(progress)
    guard_pid = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        die_with(guard_pid)

    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    try:
        log = os.open(log_path(folder, number), flags, 0o600)
    except OSError as error:
        return None, {"rank": number, "error": f"its log cannot be opened: {error}"}
    try:
        started = subprocess.Popen(
            launch["command"],
            cwd=launch["working_dir"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=umask,
            preexec_fn=prepare,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return None, {"rank": number, "error": _start_error(launch, environment, error)}
    finally:
        os.close(log)
    started.returncode = 0  # the guard's to reap, whatever Popen thinks
    return started.pid, {"rank": number, "pid": started.pid, "started_s": time.time()}


def _start_error(launch: dict[str, Any], environment: dict[str, str], error: Exception) -> str:
    """Why a rank could not be started, and what to change."""
    node, command, folder = launch["node"], launch["command"][0], launch["working_dir"]
    if not os.path.isdir(folder):
        return (
            f"working_dir {folder} is not a folder on node {node}; create it there, or use a path "
            "on a file system that every node mounts"
        )
    if isinstance(error, FileNotFoundError):
        found = os.path.join(folder, command) if "/" in command else ""
        if found and os.path.exists(found):
            return f"{command} exists on node {node}, but the interpreter in its #! line does not"
        where = "" if found else f" in PATH ({environment.get('PATH', os.defpath)})"
        return f"no command {command!r}{where} on node {node}; install it there or give its path"
    if isinstance(error, PermissionError):
        return (
            f"{command} may not be executed on node {node}: {error.strerror}; make it executable "
            "(chmod +x), start it with its interpreter, or give access to the working_dir"
        )
    if isinstance(error, OSError) and error.errno == 8:
        return f"{command} is not a program node {node} can run; add a #! line or its interpreter"
    return f"{command} cannot be started on node {node}: {error}"
