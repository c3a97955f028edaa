"""Blocks on free nodes at random: what happens when nobody places."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..job import Device, Job
from . import Candidate

NAME = "random"


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """One draw of free nodes; ranks of a block still share a node."""

    def place() -> list[Device]:
        slots = [node.node for node in job.nodes for _ in range(node.capacity)]
        return job.devices(random.Random(seed).sample(slots, len(job.blocks)))

    yield Candidate("one draw", place)
