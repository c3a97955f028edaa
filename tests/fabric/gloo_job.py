"""A training-like job on torch's gloo: one rank a host, its traffic exactly that of a PCG.

A crew's work. Groups of ranks all-reduce with gloo's own ring; every other group is a send from its
first rank to its second. Groups that share a phase run at the same time, phases one after another.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_WAIT = timedelta(seconds=60)


def main(arguments: Sequence[str]) -> None:
    """Run jobs one after another; `arguments` are the file that describes them.

    The file holds a list of jobs: `master` (the address of rank 0), `port`, `ranks` (by host),
    `steps`, and `phases`, each a list of groups {"op", "ranks", "bytes"} whose ranks are in ring
    order. In each job in which it has a rank, a process prints "ready" once connected, waits for a
    line in the pipe `go-<host>` beside the file, prints the seconds of every step as JSON, and
    waits for another line, so that nothing moves while others count.
    """
    path, host = Path(arguments[0]), os.environ["FABRIC_HOST"]
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    for job in json.loads(path.read_text()):
        rank = job["ranks"].get(host)
        if rank is None:
            continue
        size = len(job["ranks"])
        store = dist.TCPStore(job["master"], job["port"], size, rank == 0, _WAIT)
        work = _Work(store, job["phases"], rank, size)
        work.step()
        print("ready")
        _wait(path, host)
        print(json.dumps([work.step() for _ in range(job["steps"])]))
        _wait(path, host)


def _wait(path: Path, host: str) -> None:
    with (path.parent / f"go-{host}").open() as pipe:
        pipe.readline()


class _Work:
    """What one rank does in a step: by phase, its rings and its sends and receives."""

    def __init__(
        self, store: dist.Store, phases: list[list[dict[str, Any]]], rank: int, size: int
    ) -> None:
        self._all = _connect(dist.PrefixStore("all", store), rank, size)
        self._phases = []
        for number, phase in enumerate(phases):
            rings, sends, receipts = [], [], []
            for place, group in enumerate(phase):
                if rank not in group["ranks"]:
                    continue
                data = torch.ones(int(group["bytes"]) // 4)
                if group["op"] == "all_reduce":
                    # A group of its own numbers its ranks as the ring goes.
                    named = dist.PrefixStore(f"{number}/{place}", store)
                    ranks = group["ranks"]
                    rings.append((_connect(named, ranks.index(rank), len(ranks)), data))
                elif rank == group["ranks"][0]:
                    sends.append((group["ranks"][1], data, place))
                else:
                    receipts.append((group["ranks"][0], data, place))
            self._phases.append((rings, sends, receipts))

    def step(self) -> float:
        """Do all phases; how long that took, in seconds."""
        began = time.perf_counter()
        for rings, sends, receipts in self._phases:
            pending = [self._all.recv([data], peer, tag) for peer, data, tag in receipts]
            pending += [self._all.send([data], peer, tag) for peer, data, tag in sends]
            pending += [ring.allreduce([data]) for ring, data in rings]
            for each in pending:
                each.wait()
        return time.perf_counter() - began


def _connect(store: dist.Store, rank: int, size: int) -> dist.ProcessGroupGloo:
    return dist.ProcessGroupGloo(store, rank, size, _WAIT)
