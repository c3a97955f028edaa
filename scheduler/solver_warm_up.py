"""Making the solver ready before the first job waits for it, beside the daemon's own work."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress

from ..placement.warm_up import warm_up

_NICE = 10
_CODE = "import sys; from railweave.placement.warm_up import warm_up; warm_up(int(sys.argv[1]))"
_log = logging.getLogger(__name__)


async def warm_up_solver(devices: int) -> None:
    """Compile what the solver runs for so many devices in a process of its own, then load it.

    Compiling takes up to a minute of a processor and holds the interpreter, so it must not happen
    in a process that answers others; what it has made is kept on disk. Loading takes about a
    second. Failures are logged: the first large job then compiles what is missing.
    """
    began = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"import os; os.nice({_NICE}); {_CODE}",
        str(devices),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await child.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        raise
    if child.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        _log.warning("the solver is not warmed up: %s", *last or ["it ended without a word"])
        return
    await asyncio.to_thread(warm_up, devices)
    took_s = time.perf_counter() - began
    _log.info("the solver is ready for %d devices after %.1f s", devices, took_s)
