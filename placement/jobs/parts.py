"""Which ranks belong together: the stages of a pipeline, or the separate groups of a job."""

from __future__ import annotations

from ..pcg import PCG, Op


def rank_parts(pcg: PCG) -> list[int]:
    """For each rank the number of its part, from 0 in the order of the parts' lowest ranks.

    Ranks joined by point-to-point transfers are one pipeline. A collective between different
    pipelines joins its ranks into one part, which is how tensor- and data-parallel groups make up
    a stage; a collective within a single pipeline, such as that of tied embeddings, does not.
    """
    pipelines = _Sets(pcg.world_size)
    for group in pcg.groups:
        if group.op is Op.SEND_RECV:
            pipelines.join(group.ranks)
    parts = _Sets(pcg.world_size)
    for group in pcg.groups:
        if group.op is Op.SEND_RECV or len(group.ranks) == 1:
            continue
        first = pipelines.find(group.ranks[0])
        if any(pipelines.find(rank) != first for rank in group.ranks):
            parts.join(group.ranks)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(parts.find(rank), len(numbers)) for rank in range(pcg.world_size)]


class _Sets:
    """Disjoint sets of ranks."""

    def __init__(self, count: int) -> None:
        self._leader = list(range(count))

    def find(self, rank: int) -> int:
        leader = self._leader
        while leader[rank] != rank:
            leader[rank] = leader[leader[rank]]
            rank = leader[rank]
        return rank

    def join(self, ranks: tuple[int, ...]) -> None:
        first = self.find(ranks[0])
        for rank in ranks[1:]:
            self._leader[self.find(rank)] = first
