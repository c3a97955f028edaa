"""Whether a job that could start at once on other devices waits for a node that is soon back."""

from __future__ import annotations

import asyncio
from functools import partial

from ..placement.errors import InvalidInput
from ..placement.placement import Placement
from ..placement.timed.link_time import communication_time
from .core import Core, Refusal
from .decided import Decided
from .decision import Choice, move_or_wait
from .job import Job
from .ledger import Ledger
from .nodes import Nodes
from .outlook import Outlook, start_s
from .records import JobRecord


class Patience:
    """Weighs a slower placement against the wait for the one before; each decision is an event.

    A node is waited for only where nodes of this cluster were away before and came back, and no
    longer than they usually were: one that is broken for good keeps no job waiting.
    """

    def __init__(self, core: Core, nodes: Nodes) -> None:
        self._core = core
        self._nodes = nodes
        self._outlook = Outlook(core)
        self._decided = Decided(core)

    async def waits(
        self, record: JobRecord, job: Job, ledger: Ledger, before: Placement, found: Placement
    ) -> bool:
        """Whether to wait rather than to start on what was found; then the job is held back."""
        lost = self._lost(ledger, before)
        step_s = self._outlook.step_s(record.job_id) if lost else None
        usual_s = self._outlook.usual_absence_s() if step_s is not None else None
        if step_s is None or usual_s is None:
            return False
        back_s = self._outlook.back_s(lost)
        if back_s > usual_s:
            return False
        slower_s = await asyncio.to_thread(partial(_slower_s, job, ledger, before, found))
        if slower_s <= 0.0:
            return False
        attempts = self._core.store.attempts(record.job_id)
        decided = move_or_wait(
            record.devices,
            back_s=back_s,
            start_s=start_s(attempts),
            horizon_s=self._outlook.horizon_s(record, attempts),
            step_s=step_s,
            slower_s=slower_s,
        )
        self._decided.tell(record, decided, nodes=sorted(lost))
        if decided.chosen.choice is not Choice.WAIT:
            return False
        why = f"waits {back_s:.0f} s for {', '.join(sorted(lost))}: {decided}"
        # It is looked at again as soon as a node joins.
        until_s = self._core.tick_s() + max(1.0, back_s)
        self._core.unplaceable[record.job_id] = Refusal(why, until_s)
        return True

    def _lost(self, ledger: Ledger, before: Placement) -> set[str]:
        """Lost nodes of the placement before; none where something else stands in its way."""
        away = self._nodes.standings.lost()
        free = {
            (node.name, device) for node in ledger.cluster.nodes for device in node.usable_devices
        } - ledger.held.keys()
        used = {str(node) for node, _ in before.devices}
        lost = used & away
        reachable = used & ledger.away.keys() <= lost
        kept = all((str(node), device) in free for node, device in before.devices)
        return lost if reachable and kept else set()


def _slower_s(job: Job, ledger: Ledger, before: Placement, found: Placement) -> float:
    """By how much a step is predicted to take longer; 0 where that cannot be predicted."""
    graph = job.graph()
    try:
        then, now = (
            communication_time(graph, ledger.cluster, each.devices, ledger.effects.link_health)
            for each in (before, found)
        )
    except InvalidInput:
        return 0.0
    return now.total_s - then.total_s
