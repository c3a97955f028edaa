"""Where ranks may go in a repair, as numbers: what constraints say of nodes, domains and ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Ints

UNLIMITED = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class SeatRules:
    """What limits the places of ranks beside room and kind.

    inside_level, inside: by rank, the level and the label there (a node's number at level 0, else
        numbered through all levels from 1 on) that it must stay in; inside is -1 for any.
    part: by rank; ranks of one part that were on one node are never taken apart. -1 for none.
    quota_label, quota: domain of each node, and ranks of the job that each may hold in all.
    crowd_label, crowd: domain of each node, and nodes of the job that each may hold in all.
    """

    inside_level: Ints
    inside: Ints
    part: Ints
    quota_label: Ints
    quota: Ints
    crowd_label: Ints
    crowd: Ints

    @classmethod
    def none(cls, ranks: int, nodes: int) -> SeatRules:
        """No limits."""
        return cls(
            inside_level=np.zeros(ranks, dtype=np.int64),
            inside=np.full(ranks, -1, dtype=np.int64),
            part=np.full(ranks, -1, dtype=np.int64),
            quota_label=np.zeros(nodes, dtype=np.int64),
            quota=np.array([UNLIMITED]),
            crowd_label=np.zeros(nodes, dtype=np.int64),
            crowd=np.array([UNLIMITED]),
        )

    @property
    def free(self) -> bool:
        """Whether nothing is limited."""
        limited = (self.inside >= 0).any() or (self.part >= 0).any()
        return bool(not limited and min(self.quota.min(), self.crowd.min()) == UNLIMITED)
