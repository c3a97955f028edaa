"""Keeping ranks of an attempt that is over out of the rendezvous of the next one.

Every attempt has a port of its own that no other attempt on that node had before, so a rank that
wakes up late dials a port where nobody listens. Where ranks meet in a store that outlives attempts,
as one that the user runs, `admit` tells them apart: each attempt has a run id that cannot be
guessed, the first rank that comes writes it into the store, and whoever has another is refused.
"""

from __future__ import annotations

import os
import secrets
from typing import Protocol

from .checkpoint_history import FencedAttempt

RUN_ID_VARIABLE = "RAILWEAVE_RUN_ID"
"""Environment variable of every rank: job, attempt and a token, the same for all of an attempt."""
_KEY = "railweave/run"


class Store(Protocol):
    """What `admit` needs of torch.distributed's stores."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set a key that has the expected value, or that is missing where that is empty."""


def new_run_id(job_id: str, attempt: int) -> str:
    """The run id of an attempt that is about to be launched."""
    return f"{job_id}/{attempt}/{secrets.token_hex(16)}"


def admit(store: Store, run_id: str | None = None) -> None:
    """See that a store belongs to this rank's attempt; the first one there takes it.

    run_id: by default that of the environment; without one, as under plain torchrun, everybody is
    admitted. A later attempt takes the store over from an earlier one of its job. Raises
    FencedAttempt where the store belongs to a later attempt, or to another job.
    """
    own = os.environ.get(RUN_ID_VARIABLE, "") if run_id is None else run_id
    if not own:
        return
    found = store.compare_set(_KEY, "", own).decode()
    while found != own:
        if not _follows(own, found):
            raise FencedAttempt(
                f"this rank is of run {own.rpartition('/')[0]}, the ranks that meet here are of "
                f"{found.rpartition('/')[0]}: its attempt is over"
            )
        found = store.compare_set(_KEY, found, own).decode()


def _follows(own: str, found: str) -> bool:
    """Whether a run is a later attempt of the same job than another."""
    job_id, attempt, _ = own.rsplit("/", 2)
    parts = found.rsplit("/", 2)
    return len(parts) == 3 and parts[0] == job_id and int(parts[1]) < int(attempt)
