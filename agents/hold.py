"""Holds something broken for a time and then mends it, whatever became of who broke it.

A process of its own, in a session of its own: that the command, the agent or the driver which
broke something is killed must not leave ranks stopped or a disk full. SIGTERM mends at once.
Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .processes import Process, process, send_signal, set_name

LONGEST_S = 600.0
"""Nothing is held for longer."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UP_S = 20.0
_BOOTSTRAP = """\
import sys, types
for name, path in (("railweave", []), ("railweave.agents", [sys.argv[1]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from railweave.agents.hold import main
main(sys.argv[2])
"""


@dataclass(frozen=True)
class Hold:
    """What holds something broken: a process."""

    pid: int
    start_ticks: int


def hold(
    for_s: float,
    *,
    stopped: Iterable[Process] = (),
    files: Iterable[str] = (),
    delay_s: float = 0.0,
) -> Hold:
    """Keep processes stopped (SIGSTOP), and files in being, for a time.

    The processes are stopped after `delay_s` and resumed at the end; the files are there already
    and removed at the end. Raises ValueError for a time beyond LONGEST_S, OSError.
    """
    if not 0 < for_s <= LONGEST_S:
        raise ValueError(f"nothing is held broken for {for_s:g} s; give up to {LONGEST_S:g} s")
    order = {
        "for_s": for_s,
        "delay_s": delay_s,
        "stopped": [[entry.pid, entry.start_ticks] for entry in stopped],
        "files": list(files),
    }
    here = str(Path(__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, here, json.dumps(order)]
    starter = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/", start_new_session=True
    )
    assert starter.stdout is not None
    try:
        told, _ = starter.communicate(timeout=_UP_S)
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()
        raise OSError(f"what is to mend it again was not up within {_UP_S:g} s") from None
    if not told:
        raise OSError("what is to mend it again could not be started; nothing was broken")
    pid, start_ticks = json.loads(told)
    return Hold(pid, start_ticks)


def mend(pid: int, start_ticks: int, deadline_s: float = 5.0) -> bool:
    """Have a hold mend now. Whether it has, or had already, within `deadline_s`."""
    give_up = time.monotonic() + deadline_s
    while True:
        found = process(pid)
        if found is None or found.start_ticks != start_ticks or found.state == "Z":
            return True
        send_signal(found, signal.SIGTERM)
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)


def main(text: str) -> None:
    """The holding process: says who it is, breaks, waits, mends."""
    # SIGTERM counts from before anyone can know this process.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    order = json.loads(text)
    if os.fork():
        os._exit(0)
    os.setsid()
    set_name("rw-hold")
    own = process(os.getpid())
    assert own is not None
    entries = [Process(pid, 0, "", ticks) for pid, ticks in order["stopped"]]
    try:
        os.write(1, json.dumps([own.pid, own.start_ticks]).encode())
        os.close(1)
        if signal.sigtimedwait(_ENDING, order["delay_s"]) is None:
            for entry in entries:
                send_signal(entry, signal.SIGSTOP)
            signal.sigtimedwait(_ENDING, order["for_s"])
    finally:
        for entry in entries:
            send_signal(entry, signal.SIGCONT)
        for path in order["files"]:
            with suppress(OSError):
                os.unlink(path)
    os._exit(0)
