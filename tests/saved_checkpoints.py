"""Small checkpoints of a few ranks, for tests to save and load."""

from __future__ import annotations

from typing import Any

from railweave.agents.checkpoint import Checkpointer

WORLD_SIZE = 3


def shard(step: int, rank: int) -> bytes:
    return f"state of rank {rank} at step {step} ".encode().ljust(200, b".")


def write(directory: Any, step: int, attempt: int = 1, world_size: int = WORLD_SIZE) -> str:
    ranks = [Checkpointer(directory, rank, world_size, attempt) for rank in range(world_size)]
    for rank in ranks:
        rank.save(step, shard(step, rank.rank))
    return ranks[0].commit(step, timeout_s=5)


def load(directory: Any, path: str, world_size: int = WORLD_SIZE) -> list[bytes]:
    return [Checkpointer(directory, rank, world_size, 99).load(path) for rank in range(world_size)]
