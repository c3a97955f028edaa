"""The tools that the solver is compared with, one module each.

A peer offers candidates: settings a careful user would try, each with a function that places the
job. The benchmark times every candidate, scores it with `evaluate()`, and keeps the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ..job import Device, Job


class Unavailable(RuntimeError):
    """A peer's program or library is not installed; the message says how to get it."""


Place = Callable[[], list[Device]]


class Candidate(NamedTuple):
    """One setting of a peer and the function that places the job with it."""

    setting: str
    place: Place


class Peer(Protocol):
    """What a peer's module offers."""

    NAME: str

    def candidates(self, job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
        """Settings to try, from `starts` random starts where it has any. Raises Unavailable."""
        ...


def pure_python() -> dict[str, Peer]:
    """Peers that need nothing beyond the project's own dependencies, by short name."""
    from . import arnold, in_order, kueue, random_order, slurm

    modules = (random_order, in_order, slurm, kueue, arnold)
    return {module.__name__.rpartition(".")[2]: module for module in modules}


def all_peers() -> dict[str, Peer]:
    """Every peer, also those that need other programs, by short name."""
    from . import mtkahypar, scotch

    external = (scotch, mtkahypar)
    return pure_python() | {m.__name__.rpartition(".")[2]: m for m in external}
