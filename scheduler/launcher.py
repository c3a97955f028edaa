"""Starting an attempt: place it, take hold of its devices, reserve, find its checkpoint, launch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from ray.exceptions import RayError

from ..agents.checkpoint_nodes import Peers, is_node_place
from ..agents.checkpoint_pace import mtbf_s
from ..agents.fence import new_run_id
from ..placement.drawing.svg import bytes_text
from ..placement.names import some
from ..placement.placement import Placement
from .controller import ensure_controller
from .copies import Copies, peers_environment
from .core import Core, Refusal
from .job import Job
from .launching import Attempt, launches
from .ledger import Ledger
from .lifecycle import JobEvent, JobState, Outcome
from .link import off_loop, reason, within
from .messages import AttemptPlan
from .nodes import Nodes
from .patience import Patience
from .placing import Found, find_placement, moved_ranks
from .preflight import NotFit, Preflight
from .records import DoubleBooking, JobRecord, NewAttempt
from .reservation import Bundle, NotReserved, release, reservation_name, reserve
from .watch import NodeGone

# How long a refusal of Ray, or of a node, is believed at first before the job is tried again; twice
# as long after each further one.
_TRY_AGAIN_S = 10.0
_UNPLACEABLE_S = 300.0
_CONTROLLER_S = 60.0
_LATER = 1.5
_log = logging.getLogger(__name__)


class NotLaunched(Exception):
    """The attempt could not be brought to its controller; nothing of it runs."""


class Launcher:
    """Brings waiting jobs onto free devices, one placement at a time."""

    def __init__(self, core: Core, nodes: Nodes) -> None:
        self._core = core
        self._nodes = nodes
        self.copies = Copies(core, nodes)
        self._preflight = Preflight(core, nodes)
        self._patience = Patience(core, nodes)
        self.under_way: dict[str, asyncio.Task[None]] = {}
        self._refusals: dict[str, tuple[int, float]] = {}

    async def start(self, record: JobRecord, devices: int) -> None:
        """Place a waiting job on so many devices, and when it fits begin to launch it."""
        core, job_id = self._core, record.job_id
        ledger = self._nodes.ledger()
        spec = core.store.spec(job_id)
        before = self._placement_before(record, devices)
        unheard = self._nodes.unheard(str(node) for node, _ in before.devices) if before else []
        if unheard:
            # It is looked at again as soon as a node joins.
            why = f"the daemon has just begun and has not heard yet of {some(unheard)}"
            core.unplaceable[job_id] = Refusal(why, core.tick_s() + core.settings.settle_s)
            return
        verdict = core.verdict(record)
        kept = core.store.kept_spares(but=job_id) | set(verdict.avoid if verdict else ())
        job, found = await asyncio.to_thread(lambda: _solve(spec, devices, ledger, before, kept))
        whole = devices == record.devices
        if found.never and whole and self._nodes.settled:
            core.advance(job_id, JobEvent.REJECT, found.never)
            return
        if found.placement is None:
            wait_s = core.settings.settle_s if found.never and whole else _UNPLACEABLE_S
            why = found.not_now or found.never
            core.unplaceable[job_id] = Refusal(why, core.tick_s() + wait_s, devices)
            return
        if before and await self._patience.waits(record, job, ledger, before, found.placement):
            return
        number = record.life.attempt + 1
        moved = moved_ranks(before.devices, found.placement.devices) if before else None
        placement = found.placement
        try:
            taken = core.advance(
                job_id,
                JobEvent.LAUNCH,
                _placed(placement, moved) + _avoided(found.avoided),
                attempt=number,
                launch=NewAttempt(placement.to_data(), tuple(placement.devices), moved or 0),
                data={
                    "took_s": found.took_s,
                    "method": placement.method,
                    "moved_ranks": moved,
                    "traffic_bytes": placement.traffic_bytes,
                    "lower_bound_bytes": placement.lower_bound_bytes,
                    "avoided": list(found.avoided),
                },
            )
        except DoubleBooking as error:
            _log.error("placed on devices that are held: %s", error)
            core.unplaceable[job_id] = Refusal(str(error), core.tick_s() + _TRY_AGAIN_S)
            return
        if taken.outcome is Outcome.CHANGED:
            work = self._launch(job, job_id, number, taken.life.faults, placement)
            self.under_way[job_id] = asyncio.create_task(work)

    async def fits(self, record: JobRecord) -> bool:
        """Whether a job that runs with fewer devices has a place with all that it wants."""
        core, job_id = self._core, record.job_id
        if core.refused_size(job_id) is not None:
            return False
        ledger = self._nodes.ledger()
        others = {device: who for device, who in ledger.held.items() if who.job_id != job_id}
        ledger = Ledger(ledger.cluster, others, ledger.away, ledger.effects)
        spec, kept = core.store.spec(job_id), core.store.kept_spares(but=job_id)
        solve = partial(_solve, spec, record.devices, ledger, None, kept)
        _, found = await asyncio.to_thread(solve)
        if found.placement is None:
            why = found.not_now or found.never
            until_s = core.tick_s() + _UNPLACEABLE_S
            core.unplaceable[job_id] = Refusal(why, until_s, record.devices)
        return found.placement is not None

    def _placement_before(self, record: JobRecord, devices: int) -> Placement | None:
        """Where the job's last attempt was; None where it has had none, or one of another size."""
        last = self._core.store.attempt(record.job_id, record.life.attempt)
        if last is None or len(last.placement["devices"]) != devices:
            return None
        return Placement.parse(last.placement, record.job_id)

    async def _launch(
        self, job: Job, job_id: str, number: int, restarts: int, placement: Placement
    ) -> None:
        core = self._core
        try:
            await self._start_controller(job_id)
            plan = await self._prepare(job, job_id, number, restarts, placement)
            await self._hand_over(job_id, plan)
        except NotFit as error:
            await call_off(core, job_id, number, str(error))
            if not error.set_aside:
                self._refused(job_id, str(error))
        except (NotReserved, NotLaunched, NodeGone, RayError, TimeoutError, OSError) as error:
            await call_off(core, job_id, number, reason(error))
            self._refused(job_id, reason(error))
        else:
            self._refusals.pop(job_id, None)
        finally:
            core.doing.pop(job_id, None)
            self.under_way.pop(job_id, None)

    def _refused(self, job_id: str, why: str) -> None:
        """Let a job wait for a while; longer each time in a row that it has waited for.

        One that was tried again early, because devices came free, is no further one: several within
        a second, as while a disk is full, must not keep the job waiting for minutes.
        """
        now_s = self._core.tick_s()
        count, until_s = self._refusals.get(job_id, (0, now_s))
        count += now_s >= until_s
        until_s = now_s + min(_TRY_AGAIN_S * 2 ** (count - 1), _UNPLACEABLE_S)
        self._refusals[job_id] = (count, until_s)
        self._core.unplaceable[job_id] = Refusal(why, until_s)

    async def _start_controller(self, job_id: str) -> None:
        """Begin to start the job's controller, which takes longer than all the rest."""
        await off_loop(ensure_controller, job_id)

    async def _hand_over(self, job_id: str, plan: AttemptPlan) -> None:
        """Give the plan to the controller; from here on only that can end the attempt."""
        try:
            await hand_over(job_id, plan)
            life = self._core.store.job(job_id).life
            if life.state is JobState.STOPPING and life.attempt == plan.attempt:
                await hand_over(job_id, plan, stopping=True)
        except (RayError, TimeoutError, ValueError) as error:
            # It may have arrived all the same; `Recovery.tend` looks after it.
            _log.warning("attempt %d of %s not handed over yet: %s", plan.attempt, job_id, error)

    async def _prepare(
        self, job: Job, job_id: str, number: int, restarts: int, placement: Placement
    ) -> AttemptPlan:
        """Everything up to the plan in the store; nothing is launched before it is there."""
        core = self._core
        counts: dict[str, int] = {}
        for node, _ in placement.devices:
            counts[node] = counts.get(node, 0) + 1
        facts = {node: self._nodes.facts(node) for node in counts}
        core.doing[job_id] = "checking its nodes and reserving its devices in Ray"
        bundles = [
            Bundle(node, facts[node].node_id, facts[node].resource, count)
            for node, count in counts.items()
        ]
        checking = asyncio.ensure_future(self._check(job, job_id, number, placement))
        try:
            await reserve(reservation_name(job_id, number), bundles, core.settings.reserve_s)
            await checking
        finally:
            checking.cancel()
        core.doing[job_id] = "looking for its last checkpoint"
        first = placement.devices[0][0]
        where = job.checkpoint_dir or core.settings.checkpoint_dir(job_id)
        peers: dict[str, Peers] = {}
        if is_node_place(where):
            peers = await self.copies.arrange(job_id, number, where, placement.devices)
        told = peers[first].to_text() if peers else ""
        # A job that has had another size goes on from whatever number of ranks has saved.
        size = None if self._sizes_differ(job_id) else job.world_size
        resume_from = await self._resume_from(first, where, job_id, number, size, told)
        core.doing[job_id] = f"starting its ranks on {len(counts)} nodes"
        attempt = Attempt(
            job_id=job_id,
            number=number,
            restarts=restarts,
            master_addr=facts[first].address,
            master_port=await self._nodes.free_port(first),
            checkpoint_dir=where,
            run_id=new_run_id(job_id, number),
            resume_from=resume_from,
            mtbf_s=self._mtbf_s(job, job_id, restarts),
            node_env={node: peers_environment(found) for node, found in peers.items()},
        )
        plan = AttemptPlan(
            job_id=job_id,
            attempt=number,
            launches=tuple(launches(job, attempt, placement.devices)),
            node_ids={node: found.node_id for node, found in facts.items()},
            # The daemon, which knows more of the node, is to speak first.
            agent_silent_s=_LATER * core.settings.silent_s,
        )
        life = core.store.job(job_id).life
        if life.state is not JobState.LAUNCHING or life.attempt != number:
            raise NotLaunched("the job was cancelled meanwhile")
        core.store.set_plan(job_id, number, plan.model_dump(mode="json"), resume_from)
        core.note("launched", "given to its controller", job_id=job_id, attempt=number)
        return plan

    async def _check(self, job: Job, job_id: str, number: int, placement: Placement) -> None:
        """See that the nodes of a placement are well. Raises NotFit, NodeGone."""
        if job.preflight:
            await self._preflight.check(job_id, number, placement.devices)

    def _sizes_differ(self, job_id: str) -> bool:
        sizes = {len(each.placement["devices"]) for each in self._core.store.attempts(job_id)}
        return len(sizes) > 1

    def _mtbf_s(self, job: Job, job_id: str, faults: int) -> float:
        """Mean time between faults, from what its attempts have run so far."""
        attempts = self._core.store.attempts(job_id)
        spans = [(each.running_s, each.fault_seen_s) for each in attempts]
        run_s = sum(max(0.0, end - start) for start, end in spans if start and end)
        return mtbf_s(job.world_size, faults, run_s)

    async def _resume_from(
        self, node: str, where: str, job_id: str, number: int, world_size: int | None, peers: str
    ) -> str:
        """The checkpoint to go on from, or empty; older attempts are fenced out of the folder."""
        found = await self._nodes.latest_checkpoint(node, where, number, world_size, peers)
        passed = [f"{path}: {reason}" for path, reason in found["passed_over"]]
        if found["path"] is None:
            message = f"no complete checkpoint in {where}: it begins anew"
        else:
            message = f"resumes from step {found['step']}: {found['path']}"
        if passed:
            message += f"; passed over {'; '.join(passed)}"
        self._core.note("resume", message, job_id=job_id, attempt=number, data=found)
        return found["path"] or ""


async def call_off(core: Core, job_id: str, number: int, why: str) -> None:
    """Give up an attempt of which nothing has been launched, and let go of what it held."""
    await release(reservation_name(job_id, number))
    core.advance(job_id, JobEvent.CALL_OFF, f"called off: {why}", attempt=number)


async def hand_over(
    job_id: str,
    plan: AttemptPlan,
    *,
    started: bool = False,
    stopping: bool = False,
) -> None:
    """Give an attempt to the job's controller, which is started where there is none."""
    controller = await off_loop(ensure_controller, job_id)
    call = controller.take_up.remote(plan.model_dump_json(), started, stopping)
    await within(call, _CONTROLLER_S)


def _solve(
    spec: str, devices: int, ledger: Ledger, before: Placement | None, kept: set[str]
) -> tuple[Job, Found]:
    job = Job.parse(spec).with_devices(devices)
    return job, find_placement(job, ledger, before, kept=kept)


def _avoided(nodes: Sequence[str]) -> str:
    """Which nodes a placement went around because of their network, for people."""
    return f", away from {some(nodes)} whose links are not well" if nodes else ""


def _placed(placement: Placement, moved: int | None) -> str:
    nodes = len({node for node, _ in placement.devices})
    text = f"{len(placement.devices)} ranks placed on {nodes} nodes"
    if moved is not None:
        text += f", {moved} of them moved"
    text += f", {bytes_text(placement.cross_spine_bytes)} a step over the spine"
    if placement.spares:
        text += f", spares {', '.join(placement.spares)}"
    if placement.proved_optimal:
        return f"{text} (proved the fewest)"
    return f"{text} (at least {bytes_text(placement.lower_bound_bytes)} are needed)"
