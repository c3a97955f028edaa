"""The links between leaves and spines: a process that holds each frame for its link's delay.

Frames travel between pairs of TAP interfaces, whose descriptors the process is started with. It
does what a kernel's netem would (which many kernels lack): delay, loss, and partitions, which drop
frames by source and destination without a word. Faults come as lines of JSON on standard input,
each answered with one line; the end of the input ends the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TUNSETIFF = 0x400454CA
_IFF_TAP_NO_PI = 0x0002 | 0x1000
_FRAME_BYTES = 65536
_BATCH = 32
_IPV4 = b"\x08\x00"


def open_tap(name: str) -> int:
    """A TAP interface's descriptor, made in the calling thread's network namespace."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP_NO_PI))
    return descriptor


class DelayLine:
    """The process, seen from who started it.

    wires: for each link its number, its two descriptors (closed here: the process has them), and
    its delay one way in seconds.
    """

    def __init__(
        self,
        wires: Sequence[tuple[int, int, int, float]],
        seed: int,
        environment: Mapping[str, str],
    ) -> None:
        ends = [end for _, one, other, _ in wires for end in (one, other)]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__)), json.dumps(wires), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=ends,
            env=dict(environment),
        )
        for end in ends:
            os.close(end)
        self._answer()

    def set_wire(
        self, wire: int, *, delay_s: float | None = None, loss: float | None = None
    ) -> None:
        """Change a link: its delay one way, and the part of frames that it loses."""
        self._ask({"wire": wire, "delay_s": delay_s, "loss": loss})

    def set_partition(self, cut: Sequence[tuple[str, str]]) -> None:
        """Drop frames from one to the other of each pair of /24 subnets, given as "10.77.0"."""
        self._ask({"cut": list(cut)})

    def close(self) -> None:
        """End the process; its TAP interfaces vanish with it."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin
        print(json.dumps(order), file=self._process.stdin, flush=True)
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout
        if self._process.stdout.readline() != "ok\n":
            raise RuntimeError(f"the delay line ended with status {self._process.wait()}")


@dataclass
class _Way:
    """One direction of a link. held: frames with the time at which each is due."""

    sink: int
    delay_s: float
    loss: float = 0.0
    held: deque[tuple[float, bytes]] = field(default_factory=deque)


class _Line:
    """The process's state: ways by the descriptor they are read from."""

    def __init__(self, wires: Sequence[tuple[int, int, int, float]], seed: int) -> None:
        self.ways: dict[int, _Way] = {}
        self._wires: dict[int, tuple[_Way, _Way]] = {}
        for number, one, other, delay_s in wires:
            pair = _Way(other, delay_s), _Way(one, delay_s)
            self.ways[one], self.ways[other] = pair
            self._wires[number] = pair
        self._cut: set[bytes] = set()
        self._chance = random.Random(seed)

    def obey(self, order: Mapping[str, Any]) -> None:
        """Take a fault in."""
        if "cut" in order:
            self._cut = {
                bytes(int(octet) for octet in f"{source}.{sink}".split("."))
                for source, sink in order["cut"]
            }
            return
        for way in self._wires[order["wire"]]:
            if order["delay_s"] is not None:
                way.delay_s = order["delay_s"]
            if order["loss"] is not None:
                way.loss = order["loss"]

    def take(self, source: int) -> None:
        """Read the frames that wait on a descriptor."""
        way = self.ways[source]
        for _ in range(_BATCH):
            try:
                frame = os.read(source, _FRAME_BYTES)
            except OSError:  # nothing more, or the interface is down
                return
            if way.loss and self._chance.random() < way.loss:
                continue
            if self._cut and frame[12:14] == _IPV4 and frame[26:29] + frame[30:33] in self._cut:
                continue
            way.held.append((time.monotonic() + way.delay_s, frame))

    def give(self) -> float | None:
        """Write the frames that are due; seconds until the next is, None where none waits."""
        next_due: float | None = None
        for way in self.ways.values():
            held = way.held
            while held:
                due, frame = held[0]
                if due > time.monotonic():
                    next_due = due if next_due is None else min(next_due, due)
                    break
                held.popleft()
                with contextlib.suppress(OSError):  # the other end is down: the frame is lost
                    os.write(way.sink, frame)
        return None if next_due is None else max(0.0, next_due - time.monotonic())


def main(wires: Sequence[tuple[int, int, int, float]], seed: int) -> None:
    """Carry frames until the standard input ends."""
    # A wire's delay does not depend on what else the machine does.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    line = _Line(wires, seed)
    poller = select.epoll()
    for source in line.ways:
        poller.register(source, select.EPOLLIN)
    orders = sys.stdin.fileno()
    os.set_blocking(orders, False)
    print("ok", flush=True)
    unread = b""
    wait_s: float | None = None
    while True:
        # An epoll waits in whole milliseconds; select on it, to the microsecond.
        ready, _, _ = select.select([poller.fileno(), orders], [], [], wait_s)
        for source, _ in poller.poll(0) if poller.fileno() in ready else ():
            line.take(source)
        if orders in ready:
            read = os.read(orders, _FRAME_BYTES)
            if not read:
                return
            *whole, unread = (unread + read).split(b"\n")
            for order in whole:
                line.obey(json.loads(order))
                print("ok", flush=True)
        wait_s = line.give()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
