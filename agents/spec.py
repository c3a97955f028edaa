"""launch.json: what a guard is asked to start, and how its processes and its socket are found."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from ..placement.files import write_text_atomically
from .attempt import NodeLaunch, Refused
from .guard import SPEC_NAME
from .journal import sync_folder

_SOCKET_PATH_BYTES = 107


def socket_folder() -> Path:
    """A folder for sockets that only this user can enter, with a path short enough for them.

    Raises PermissionError when someone else got hold of its name.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(os.fsencode(runtime)) < 60 and os.access(runtime, os.W_OK):
        folder = Path(runtime) / "railweave"
    else:
        folder = Path("/tmp") / f"railweave-{os.geteuid()}"  # TMPDIR may be too long for a socket
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{folder} is not a folder that only uid {os.geteuid()} can enter; remove it"
        )
    return folder


def remove_dead_sockets(older_than_s: float = 60.0) -> None:
    """Remove sockets that guards which were killed have left, whatever node they were of."""
    for path in socket_folder().glob("*.sock"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime < older_than_s:
                continue  # its guard may be between binding and listening
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                try:
                    connection.connect(str(path))
                except ConnectionRefusedError:
                    path.unlink()
                except OSError:
                    continue


@dataclass(frozen=True)
class Spec:
    """launch.json: the launch, and what finds its processes."""

    launch: NodeLaunch
    marker: str
    socket: str
    umask: int

    @classmethod
    def create(cls, folder: Path, launch: NodeLaunch) -> Spec:
        """Write launch.json for a new attempt. Raises Refused, OSError."""
        run = secrets.token_hex(8)
        path = socket_folder() / f"{run}.sock"
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
            raise Refused(f"{path} is too long for a Unix socket; shorten XDG_RUNTIME_DIR")
        marker = f"{launch.job_id}/{launch.attempt}/{launch.node}/{run}"
        spec = cls(launch, marker, str(path), _umask())
        data = {**spec.__dict__, "launch": launch.model_dump(mode="json")}
        folder.mkdir(mode=0o700, exist_ok=True)
        write_text_atomically(folder / SPEC_NAME, json.dumps(data, indent=1) + "\n")
        sync_folder(folder)
        return spec

    @classmethod
    def read(cls, folder: Path) -> Spec | None:
        """The attempt's launch.json; None when nothing was launched."""
        try:
            data = json.loads((folder / SPEC_NAME).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**data, "launch": NodeLaunch.model_validate(data["launch"])})


def _umask() -> int:
    """This process's umask, read without changing it for other threads."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022
