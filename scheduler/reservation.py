"""Capacity of an attempt in Ray: one placement group, one bundle a node, pinned by node id.

Ray is only told to keep the capacity; which devices inside a node are used is the ledger's matter.
A placement group is never used for a second attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ray.util import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from .link import off_loop

_PREFIX = "railweave/"
_POLL_S = 0.05
_GONE_S = 30.0


class NotReserved(Exception):
    """Ray does not have the capacity now; the message says of which nodes."""


@dataclass(frozen=True)
class Bundle:
    """What an attempt takes of one node: `count` of a Ray resource (`GPU`, `railweave_device`)."""

    node: str
    node_id: str
    resource: str
    count: int


def reservation_name(job_id: str, attempt: int) -> str:
    """The name of an attempt's placement group."""
    return f"{_PREFIX}{job_id}/{attempt}"


async def reserve(name: str, bundles: Iterable[Bundle], timeout_s: float) -> None:
    """Take the capacity. Raises NotReserved when it is not to be had within `timeout_s`."""
    wanted = list(bundles)
    group = await off_loop(
        lambda: placement_group(
            [{bundle.resource: bundle.count} for bundle in wanted],
            strategy="PACK",
            name=name,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": bundle.node_id} for bundle in wanted],
        )
    )
    if await off_loop(group.wait, timeout_s, timeout_s=timeout_s + 5):
        return
    asked = ", ".join(f"{bundle.count} {bundle.resource} on {bundle.node}" for bundle in wanted)
    await release(name)
    raise NotReserved(
        f"Ray did not reserve {asked} within {timeout_s:g} s: something else in this Ray cluster "
        "holds them, or a node has just gone"
    )


async def release(name: str) -> None:
    """Give the capacity back and see that Ray has done so; nothing happens when there is none.

    Raises TimeoutError when Ray has not removed it in time.
    """
    try:
        group = await off_loop(get_placement_group, name)
    except ValueError:
        return
    await off_loop(remove_placement_group, group)
    give_up = time.monotonic() + _GONE_S
    while (await off_loop(placement_group_table, group)).get("state") != "REMOVED":
        if time.monotonic() > give_up:
            raise TimeoutError(f"Ray has not removed placement group {name} in {_GONE_S:g} s")
        await asyncio.sleep(_POLL_S)


async def reservations() -> list[str]:
    """Names of all placement groups of ours that Ray still has."""
    found: Mapping[str, Mapping[str, str]] = await off_loop(placement_group_table)
    return [
        group["name"]
        for group in found.values()
        if group["name"].startswith(_PREFIX) and group["state"] != "REMOVED"
    ]
