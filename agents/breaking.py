"""Breaking things on one node on purpose: what `railweave chaos` has its agent do.

Only what belongs to Railweave is touched: ranks and guards of the job that is named, Ray's
processes of this node, files of a job's checkpoints. Whatever lasts is mended by a process of its
own when its time is over. Raises Refused for everything else.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import hold
from .attempt import Refused
from .checkpoint_history import newest_first, read_manifest, storage_at
from .checkpoint_manifest import MANIFEST_NAME
from .processes import Process, below, process, send_signal, table
from .rehearsal import socket_name

LARGEST_DISK_BYTES = 1 << 30
"""The largest file system that is filled: a larger one is sure to be somebody else's, too."""
_GUARD_NAME = "railweave-guard"
_FILLER = "railweave-chaos-filler"
# An order that was not carried out in this time is none any more; who gave it gives it again.
_ORDER_S = 5.0
_DIES_S = 10.0
_REPLY_S = 0.5
_real_time = time.time
_clock: list[threading.Timer] = []


def signal_rank(job_id: str, pid: int, number: int) -> dict[str, Any]:
    """Send a rank a signal."""
    return _sent(_rank(job_id, pid), number)


def signal_guard(job_id: str, pid: int, number: int) -> dict[str, Any]:
    """Send the guard of a rank a signal."""
    return _sent(_guard(job_id, pid), number)


def signal_ray(pid: int, number: int) -> dict[str, Any]:
    """Send one of Ray's workers of this node a signal: an agent, a controller, the daemon."""
    return _sent(_worker(pid), number)


def stop_rank(job_id: str, pid: int, for_s: float) -> dict[str, Any]:
    """Stop a rank for a time."""
    return _held([_rank(job_id, pid)], for_s)


def stop_guard(job_id: str, pid: int, for_s: float) -> dict[str, Any]:
    """Stop the guard of a rank for a time; the rank goes on."""
    return _held([_guard(job_id, pid)], for_s)


def stop_ray(pid: int, for_s: float) -> dict[str, Any]:
    """Stop one of Ray's workers of this node for a time."""
    return _held([_worker(pid)], for_s, delay_s=_REPLY_S)


def stop_gcs(for_s: float) -> dict[str, Any]:
    """Stop Ray's control store for a time; only on the head."""
    return _held([_gcs()], for_s, delay_s=_REPLY_S)


def kill_gcs() -> dict[str, Any]:
    """Kill Ray's control store; only on the head."""
    return _sent(_gcs(), signal.SIGKILL)


def stop_node(ranks: list[int], for_s: float) -> dict[str, Any]:
    """Stop everything of this node for a time: its raylet, its workers, its guards and ranks.

    ranks: pids of all that run here.
    """
    processes = table()
    raylet = _raylet()
    found = {entry.pid: entry for entry in [raylet, *below([raylet.pid], processes)]}
    for pid in ranks:
        guard = _guard("", pid)
        found |= {entry.pid: entry for entry in [guard, *below([guard.pid], processes)]}
    return _held(list(found.values()), for_s, delay_s=_REPLY_S)


def order_rank(job_id: str, pid: int, order: Mapping[str, Any]) -> dict[str, Any]:
    """Have a rehearsed rank do something to itself; returns once it does. See `rehearsal`.

    Without "at_s" in the answer it was not done: the rank ended, or its step did not come in time.
    """
    _rank(job_id, pid)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ORDER_S)
            connection.connect(socket_name(pid))
            connection.sendall(json.dumps(dict(order)).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline()
                answer: dict[str, Any] = json.loads(line) if line else {}
    except ConnectionRefusedError:
        raise Refused(
            f"rank process {pid} of {job_id} takes no orders; start the job's program with: "
            "python -m railweave.agents.rehearsal PROGRAM ..."
        ) from None
    except (TimeoutError, ConnectionError):
        return {}
    except (OSError, ValueError) as error:
        raise Refused(f"rank process {pid} of {job_id} has not answered: {error}") from error
    if "error" in answer:
        raise Refused(f"rank process {pid} of {job_id}: {answer['error']}")
    return answer


def fill_disk(directory: str, for_s: float) -> dict[str, Any]:
    """Fill the file system of a directory for a time."""
    if not os.path.isdir(directory):
        raise Refused(f"{directory} is no folder of this node, so its disk cannot be filled")
    found = os.statvfs(directory)
    size_bytes = found.f_blocks * found.f_frsize
    if size_bytes > LARGEST_DISK_BYTES:
        raise Refused(
            f"the file system of {directory} has {size_bytes / 2**30:.1f} GiB; only one of up to "
            f"{LARGEST_DISK_BYTES / 2**30:.0f} GiB is filled. Put the job's checkpoints on a small "
            "one for this, such as a tmpfs with size=64m"
        )
    path = os.path.join(directory, f"{_FILLER}-{os.getpid()}-{time.monotonic_ns()}")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # The hold comes first, so that the file goes whatever happens to this process.
        held = hold.hold(for_s, files=[path])
        at_s = _real_time()
        block, offset = 1 << 20, 0
        while block >= 512:
            try:
                os.posix_fallocate(descriptor, offset, block)
                offset += block
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise Refused(f"{directory} cannot be filled: {error}") from error
                block //= 2
    finally:
        os.close(descriptor)
    return {"at_s": at_s, "hold": asdict(held)}


def damage_checkpoint(
    job_id: str, pid: int, directory: str, part: str, how: str, seed: int
) -> dict[str, Any]:
    """Kill rank 0, which commits checkpoints, then damage the newest one.

    part: "shard" or "manifest". how: "torn" cuts the file off, "flipped" changes a bit of it.
    """
    storage = storage_at(directory)
    committed = [f for f in newest_first(storage) if MANIFEST_NAME in storage.files(f)]
    if not committed:
        raise Refused(f"{job_id} has no checkpoint in {directory} yet that could be damaged")
    sent = _sent(rank := _rank(job_id, pid), signal.SIGKILL)
    give_up = time.monotonic() + _DIES_S
    while _same(rank) and time.monotonic() < give_up:
        time.sleep(0.002)
    # A newer one may have been committed until then.
    newest = next(f for f in newest_first(storage) if MANIFEST_NAME in storage.files(f))
    folder, chance = Path(storage.path(newest)), random.Random(seed)
    if not folder.is_dir():
        raise Refused(f"the checkpoints in {directory} are no files of this node")
    if part == "manifest":
        path = folder / MANIFEST_NAME
    else:
        manifest = read_manifest(storage, newest, None)
        path = folder / chance.choice(manifest.shards).name
    size_bytes = path.stat().st_size
    place = chance.randrange(size_bytes)
    if how == "torn":
        os.truncate(path, place)
    else:
        with path.open("r+b") as stream:
            stream.seek(place)
            (byte,) = stream.read(1)
            stream.seek(place)
            stream.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return {**sent, "path": str(path), "at_byte": place, "size_bytes": size_bytes}


def shift_clock(offset_s: float, for_s: float) -> dict[str, Any]:
    """Have this agent's wall clock jump, and jump back after a time."""
    if not 0 < for_s <= hold.LONGEST_S:
        raise Refused(f"for {for_s:g} s; give up to {hold.LONGEST_S:g} s")
    unshift_clock()
    at_s = _real_time()
    vars(time)["time"] = lambda: _real_time() + offset_s
    timer = threading.Timer(for_s, unshift_clock)
    timer.daemon = True
    timer.start()
    _clock.append(timer)
    return {"at_s": at_s}


def unshift_clock() -> dict[str, Any]:
    """Have this agent's clock be right again."""
    vars(time)["time"] = _real_time
    while _clock:
        _clock.pop().cancel()
    return {"mended": True}


def mend(pid: int, start_ticks: int) -> dict[str, Any]:
    """Mend now what is held broken."""
    return {"mended": hold.mend(pid, start_ticks)}


ACTS: dict[str, Callable[..., dict[str, Any]]] = {
    act.__name__: act
    for act in (
        *(signal_rank, signal_guard, signal_ray),
        *(stop_rank, stop_guard, stop_ray, stop_gcs, kill_gcs, stop_node),
        *(order_rank, fill_disk, damage_checkpoint, shift_clock, unshift_clock, mend),
    )
}
"""All that an agent can be told to break, by name."""


def act(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Do one thing of ACTS. Raises Refused."""
    if name not in ACTS:
        raise Refused(f"this version cannot break {name!r}; it knows {', '.join(ACTS)}")
    try:
        return ACTS[name](**arguments)
    except TypeError as error:
        raise Refused(f"{name} cannot be done with {sorted(arguments)}: {error}") from error


def _sent(target: Process, number: int) -> dict[str, Any]:
    at_s = _real_time()
    if not send_signal(target, number):
        raise Refused(f"process {target.pid} is gone already")
    return {"at_s": at_s, "pid": target.pid}


def _held(targets: list[Process], for_s: float, delay_s: float = 0.0) -> dict[str, Any]:
    try:
        held = hold.hold(for_s, stopped=targets, delay_s=delay_s)
    except (OSError, ValueError) as error:
        raise Refused(str(error)) from error
    return {"at_s": _real_time() + delay_s, "hold": asdict(held), "processes": len(targets)}


def _rank(job_id: str, pid: int) -> Process:
    found = process(pid)
    told = _environment(pid)
    if found is None or found.state == "Z" or "RAILWEAVE_ATTEMPT_ID" not in told:
        raise Refused(f"process {pid} is no rank that runs here")
    if job_id and told.get("RAILWEAVE_JOB_ID") != job_id:
        raise Refused(f"process {pid} belongs to {told.get('RAILWEAVE_JOB_ID')}, not to {job_id}")
    return found


def _gcs() -> Process:
    """Ray's control store beside the raylet above this process. Raises Refused."""
    raylet = _raylet()
    for entry in table().values():
        if entry.parent_pid == raylet.parent_pid and _comm(entry.pid) == "gcs_server":
            return entry
    raise Refused("Ray's control store is not on this node; it runs on the head")


def _guard(job_id: str, pid: int) -> Process:
    found = process(_rank(job_id, pid).parent_pid)
    if found is None or _comm(found.pid) != _GUARD_NAME:
        raise Refused(f"rank process {pid} has no guard above it")
    return found


def _worker(pid: int) -> Process:
    raylet = _raylet()
    for entry in below([raylet.pid], table()):
        if entry.pid == pid:
            return entry
    raise Refused(f"process {pid} is none of Ray's workers on this node")


def _raylet() -> Process:
    """The raylet above this process."""
    pid = os.getppid()
    while pid > 1 and (found := process(pid)) is not None:
        if _comm(pid) == "raylet":
            return found
        pid = found.parent_pid
    raise Refused("there is no raylet above this process, so it is no agent's")


def _same(target: Process) -> bool:
    found = process(target.pid)
    return found is not None and found.start_ticks == target.start_ticks and found.state != "Z"


def _comm(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _environment(pid: int) -> dict[str, str]:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    words = (word.decode(errors="replace").partition("=") for word in data.split(b"\0"))
    return {name: value for name, _, value in words}
