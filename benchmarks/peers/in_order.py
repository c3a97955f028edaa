"""Pack in order: ranks as numbered onto free devices as listed. What most launchers do."""

from __future__ import annotations

from collections.abc import Iterator

from ..job import Device, Job
from . import Candidate

NAME = "pack in order"


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """The first free devices of the cluster file, in its order."""

    def place() -> list[Device]:
        nodes = job.cluster.nodes
        free = ((nodes[n].name, index) for n, devices in job.free for index in devices)
        return [device for device, _ in zip(free, range(job.pcg.world_size), strict=False)]

    yield Candidate("", place)
