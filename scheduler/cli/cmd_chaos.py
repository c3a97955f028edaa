"""`railweave chaos JOB...`: break one's own jobs on purpose, and see whether it is noticed."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence

import click

from ...placement.files import write_text_atomically
from ..chaos.driver import Driver
from ..chaos.evidence import Done, Finding, Report
from ..chaos.histories import judged, last_event
from ..chaos.kinds import DAMAGES, FACTS, Facts, Kind, Where
from ..chaos.machines import EmbeddedMachines
from ..chaos.reach import OutOfReach, Reach
from ..chaos.schedule import Schedule, Target, drawn
from ..client import Client, JobHandle
from ..embedded import EmbeddedCluster
from ..home import background_cluster, record_path
from ..timeline import duration_text
from .main import Failed
from .output import check_outputs, console, json_option, print_json, table
from .session import connected

_NEEDS = {
    Where.OUTSIDE: "",
    Where.INSIDE: "python -m railweave.agents.rehearsal PROGRAM",
    Where.STORAGE: "checkpoints in a folder",
    Where.NODE: "an embedded cluster",
    Where.HEAD: "an embedded cluster whose head can be started again",
    Where.NETWORK: "an emulated network",
}

# Only for who asks for them: they damage what a job needs, concern others on the cluster, or need a
# small disk or a limit to slow ranks.
_ONLY_ASKED_FOR = frozenset(
    {
        *DAMAGES,
        Kind.DISK_FULL,
        Kind.GCS_STOP,
        Kind.GCS_KILL,
        Kind.HEAD_KILL,
        Kind.NODE_HANG,
        Kind.RANK_SLOW,
    }
)


@click.command("chaos")
@click.argument("job_ids", metavar="[JOB]...", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="List what can be broken, and stop.")
@click.option(
    "--faults",
    "given",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Bring the faults of a file about (railweave.chaos/1), as one written by --write.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in Kind]),
    help="Draw from these kinds alone; give it several times. By default from all that these jobs "
    "allow and that damage nothing.",
)
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), help="Draw the faults of this seed again.")
@click.option(
    "--over",
    "over",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    metavar="STEPS",
    help="Draw faults within so many of each job's next steps.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask whether this is meant.")
@click.option("--write", "write", type=click.Path(dir_okay=False), help="Keep the faults in FILE.")
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait in the end for the jobs to run again.",
)
@json_option
def command(
    job_ids: tuple[str, ...],
    only_list: bool,
    given: str | None,
    kinds: tuple[str, ...],
    count: int,
    seed: int | None,
    over: int,
    dry_run: bool,
    yes: bool,
    write: str | None,
    settle_s: float,
    as_json: bool,
) -> None:
    """Break running jobs on purpose, and report what Railweave noticed of it, and when.

    Only what belongs to the JOBs is broken: their ranks, guards, controllers and checkpoints, the
    agents of their nodes, the daemon. What lasts is mended in the end, also after Ctrl-C. Exits 1
    when something was not noticed for what it was.
    """
    if only_list:
        _list(as_json)
        return
    if not job_ids:
        raise click.UsageError("name the jobs to break; `railweave jobs` lists them")
    if given and (kinds or seed is not None):
        raise click.UsageError("--faults brings given faults about; leave --kind and --seed out")
    check_outputs(write)
    with connected() as client:
        jobs = _running(client, job_ids)
        schedule = Schedule.load(given) if given else _drawn(client, jobs, kinds, count, seed, over)
        if write:
            write_text_atomically(write, schedule.to_json() + "\n")
        if given and len(schedule.jobs) > len(jobs):
            named = ", ".join(schedule.jobs)
            raise Failed(f"the faults are for {len(schedule.jobs)} jobs ({named}); name as many")
        # A file names the jobs of its own time; they are taken in the order of the arguments.
        ids = dict(zip(schedule.jobs, (job.id for job in jobs), strict=False)) if given else {}
        ids = ids or {job.id: job.id for job in jobs}
        screen = console(error=True)
        with Driver(
            client,
            schedule,
            ids,
            machines=_machines(),
            told=lambda done: screen.print(_line(done)),
        ) as driver:
            refused = driver.refusals()
            if dry_run:
                _plan(schedule, refused, as_json)
                return
            if len(refused) == len(schedule.faults):
                raise Failed(f"none of the faults can be brought about here: {refused[0]}")
            if not yes:
                _confirm(schedule, len(refused), jobs)
            after, since_s = last_event(client), time.time()
            done = driver.run()
            settled = driver.settle(settle_s)
        report = judged(client, done, jobs, after, since_s)
    for why in driver.unmended:
        screen.print(f"not mended: {why}")
    _print_report(report, schedule.seed, settled, as_json)
    if report.missed or report.unexplained:
        raise Failed(
            f"{len(report.missed)} of {len(report.done)} faults were not noticed for what they "
            f"were, {len(report.unexplained)} attempts broke for no reason given here"
        )
    if not settled:
        raise Failed(f"after {settle_s:g} s not every job runs again; see `railweave explain JOB`")


def _running(client: Client, job_ids: Sequence[str]) -> list[JobHandle]:
    jobs = [client.job(job_id) for job_id in dict.fromkeys(job_ids)]
    over = [job.id for job in jobs if job.state.final]
    if over:
        raise Failed(f"{', '.join(over)} is over; break jobs that run")
    return jobs


def _drawn(
    client: Client,
    jobs: Sequence[JobHandle],
    kinds: Sequence[str],
    count: int,
    seed: int | None,
    over: int,
) -> Schedule:
    """Faults drawn for the next steps of jobs, of those kinds that these jobs allow."""
    targets = []
    reach = Reach(client)
    for job in jobs:
        spec = job.spec
        inside = "railweave.agents.rehearsal" in spec.entrypoint
        try:
            step = reach.aim(job, 0).step or 0
        except OutOfReach as error:
            raise Failed(f"{error}; break jobs that run") from error
        targets.append(Target(job.id, spec.world_size, step + 1, step + over, inside))
    possible = [
        kind
        for kind in Kind
        if FACTS[kind].where is not Where.NETWORK
        and (FACTS[kind].where is not Where.INSIDE or all(each.inside for each in targets))
        and (FACTS[kind].where is not Where.NODE or _embedded() is not None)
        and kind not in _ONLY_ASKED_FOR
    ]
    chosen = [Kind(kind) for kind in kinds] or possible
    return drawn(secrets.randbelow(2**31) if seed is None else seed, count, chosen, targets)


def _machines() -> EmbeddedMachines | None:
    """The machines of the embedded cluster that the command talks to; None for another one."""
    if (cluster := _embedded()) is None:
        return None
    return EmbeddedMachines(cluster, lambda: cluster.detach(record_path()))


def _embedded() -> EmbeddedCluster | None:
    address, cluster = os.environ.get("RAY_ADDRESS"), background_cluster()
    return cluster if cluster is not None and address in (None, "", cluster.address) else None


def _confirm(schedule: Schedule, refused: int, jobs: Sequence[JobHandle]) -> None:
    names = ", ".join(job.id for job in jobs)
    click.confirm(
        f"{len(schedule.faults) - refused} faults will be brought about in {names}: processes of "
        "theirs and of Railweave's are killed and stopped, checkpoints may be damaged. Go on?",
        abort=True,
        err=True,
    )


def _list(as_json: bool) -> None:
    if as_json:
        print_json([_kind_data(kind, FACTS[kind]) for kind in Kind])
        return
    rows = [
        [kind.value, kind.what, _expected(FACTS[kind]), _NEEDS[FACTS[kind].where]] for kind in Kind
    ]
    console().print(table(["kind", "what is done", "what is to be noticed", "needs"], rows))


def _plan(schedule: Schedule, refused: dict[int, str], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {**fault.model_dump(mode="json", exclude_none=True), "refused": refused.get(index)}
                for index, fault in enumerate(schedule.faults)
            ]
        )
        return
    rows = [
        [index + 1, fault.text(), refused.get(index, "")]
        for index, fault in enumerate(schedule.faults)
    ]
    console().print(table(["", "would be done", "but"], rows, right=[""]))
    if schedule.seed is not None:
        console().print(f"drawn with --seed {schedule.seed}; nothing was done")


def _line(done: Done) -> str:
    if done.error:
        return f"not done: {done.fault.text()}: {done.error}"
    return f"done: {done.fault.text()}: attempt {done.attempt}, on {done.node}"


def _print_report(report: Report, seed: int | None, settled: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "seed": seed,
                "settled": settled,
                "faults": [_finding_data(each) for each in report.findings],
                "unexplained": list(report.unexplained),
            }
        )
        return
    screen = console()
    rows: list[list[object]] = [
        [
            each.done.fault.text(),
            each.outcome.value,
            _seconds(each.detect_s),
            _seconds(each.recover_s),
            each.told,
        ]
        for each in report.findings
    ]
    columns = ["fault", "outcome", "seen after", "going again after", "what was told"]
    screen.print(table(columns, rows, right=columns[2:4]))
    for text in report.unexplained:
        screen.print(f"broke for no reason given here: {text}")
    if seed is not None:
        screen.print(f"the same faults again: --seed {seed}")


def _seconds(value: float | None) -> str:
    return "" if value is None else duration_text(value)


def _expected(facts: Facts) -> str:
    told = [*sorted(facts.causes), *sorted(f"event {name}" for name in facts.events)]
    return ", ".join(told) or "nothing: no attempt may break"


def _kind_data(kind: Kind, facts: Facts) -> dict[str, object]:
    return {
        "kind": kind.value,
        "what": kind.what,
        "causes": sorted(facts.causes),
        "events": sorted(facts.events),
        "for_s": facts.for_s,
        "needs": facts.where.value,
    }


def _finding_data(found: Finding) -> dict[str, object]:
    done = found.done
    return {
        "fault": done.fault.model_dump(mode="json", exclude_none=True),
        "job": done.job_id,
        "attempt": done.attempt,
        "node": done.node,
        "at_s": done.at_s,
        "until_s": done.until_s,
        "step": done.step,
        "detail": dict(done.detail),
        "outcome": found.outcome.value,
        "detect_s": found.detect_s,
        "recover_s": found.recover_s,
        "told": found.told,
    }
