"""`railweave explain`: why a job is where it is or cannot be, and where its traffic comes from."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import click

from ...placement.cluster import Cluster
from ...placement.constraints import Constraints
from ...placement.constraints_file import constraints_data
from ...placement.drawing.svg import bytes_text, plural
from ...placement.errors import Infeasible
from ...placement.evaluate import Evaluation, evaluate
from ...placement.explain import explain_infeasible, explain_traffic
from ...placement.feasibility import check_feasible
from ...placement.jobs.index import Fabric
from ...placement.pcg import PCG
from ...placement.placement import Placement
from ..client import Client, JobHandle
from ..constraint_text import constraint_texts
from .constraint_options import constraint_options
from .output import console, json_option, print_json, table
from .ranges import ranges_text
from .session import connected


@click.command("explain")
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option("--cluster", "cluster_path", help="A cluster file, with --pcg instead of JOB.")
@click.option("--pcg", "pcg_path", help="A communication graph file.")
@click.option("--placement", "placement_path", help="Where it is placed; else: whether it can be.")
@click.option("--tier", help="Of which tier to explain the traffic; the spine by default.")
@constraint_options
@json_option
def command(
    job_id: str | None,
    cluster_path: str | None,
    pcg_path: str | None,
    placement_path: str | None,
    tier: str | None,
    constraints: Constraints | None,
    as_json: bool,
) -> None:
    """Say why a job waits, runs or ended, and which of its groups send what at which tier.

    With --cluster and --pcg, of files and without a daemon: where the traffic of a placement comes
    from, group by group; without --placement, whether the job can be placed under the constraints,
    and if not, what is in the way and what can be had instead.
    """
    _check_usage(job_id, cluster_path, pcg_path, placement_path, tier, constraints)
    if job_id is not None:
        _explain_job(job_id, as_json)
        return
    assert cluster_path and pcg_path
    cluster, pcg = Cluster.load(cluster_path), PCG.load(pcg_path)
    if placement_path:
        if tier is not None and tier not in cluster.tier_names:
            known = ", ".join(cluster.tier_names)
            raise click.UsageError(f"no tier {tier!r} in {cluster_path}; its tiers are {known}")
        _explain_sources(pcg, cluster, Placement.load(placement_path), tier, as_json)
    else:
        _explain_feasibility(pcg, cluster, constraints or Constraints(), as_json)


def _check_usage(
    job_id: str | None,
    cluster_path: str | None,
    pcg_path: str | None,
    placement_path: str | None,
    tier: str | None,
    constraints: Constraints | None,
) -> None:
    files = [cluster_path, pcg_path, placement_path, tier, constraints]
    if job_id is not None and any(files):
        raise click.UsageError("give a JOB of the daemon, or files, not both")
    if job_id is None and not (cluster_path and pcg_path):
        raise click.UsageError("give a JOB, or --cluster and --pcg for files")
    if tier and not placement_path:
        raise click.UsageError("--tier says of which traffic; give --placement too")
    if placement_path and constraints:
        raise click.UsageError("constraints are of a job to be placed; leave --placement out")


def _explain_job(job_id: str, as_json: bool) -> None:
    with connected() as client:
        job = client.job(job_id)
        text, placement, constraints = job.explain(), job.placement, job.spec.constraints
        traffic = _traffic(client, job)
    spares = placement.spares if placement else []
    if as_json:
        data = {
            "job": job_id,
            "explanation": text,
            "constraints": constraints_data(constraints) if constraints else None,
            "spares": spares,
            "traffic_bytes_by_kind": traffic,
        }
        print_json(data)
        return
    screen = console()
    screen.print(text)
    if constraints:
        screen.print(f"constraints: {'; '.join(constraint_texts(constraints)) or 'none'}")
    if spares:
        screen.print(f"spares: {', '.join(spares)}")
    if traffic:
        tiers = list(next(iter(traffic.values())))[::-1]
        rows = [
            [kind, *(bytes_text(sizes[tier]) for tier in tiers)] for kind, sizes in traffic.items()
        ]
        screen.print()
        screen.print(table(["bytes a step of", *(f"at {t}" for t in tiers)], rows))


def _explain_sources(
    pcg: PCG, cluster: Cluster, placement: Placement, tier: str | None, as_json: bool
) -> None:
    sources = explain_traffic(pcg, cluster, placement.devices, tier)
    at = tier or cluster.spine
    total = sum(source.bytes for source in sources)
    if as_json:
        rows = [dataclasses.asdict(source) | {"op": source.op.value} for source in sources]
        print_json({"tier": at, "bytes": total, "sources": rows})
        return
    screen = console()
    screen.print(f"{bytes_text(total)} a step meet at {at}")
    if sources:
        columns = ["groups of", "how many", "operation", "stages", "spread over", "bytes a step"]
        cells = [
            [
                source.name,
                source.groups,
                source.op.value,
                ranges_text(source.parts),
                plural(source.domains, source.below),
                bytes_text(source.bytes),
            ]
            for source in sources
        ]
        screen.print(table(columns, cells, right=["how many", "bytes a step"]))


def _explain_feasibility(
    pcg: PCG, cluster: Cluster, constraints: Constraints, as_json: bool
) -> None:
    unmet: list[str] = []
    weaker: list[tuple[str, Constraints]] = []
    try:
        check_feasible(pcg, Fabric.of(cluster))
        obstacle = explain_infeasible(pcg, cluster, constraints)
        if obstacle is not None:
            unmet, weaker = obstacle.unmet, obstacle.relaxations
    except Infeasible as error:
        unmet = [str(error)]
    if as_json:
        told = [{"says": say, "constraints": constraints_data(wish)} for say, wish in weaker]
        print_json({"possible": not unmet, "unmet": unmet, "relaxations": told})
        return
    screen = console()
    screen.print("it cannot be placed:" if unmet else "it can be placed")
    for why in unmet:
        screen.print(f"  {why}")
    if weaker:
        screen.print("it can be placed with:")
        for say, _ in weaker:
            screen.print(f"  {say}")


def _traffic(client: Client, job: JobHandle) -> dict[str, dict[str, float]]:
    """Bytes a step by kind of group and tier; empty while there is no placement."""
    placement, cluster = job.placement, client.cluster()
    if placement is None or cluster is None:
        return {}
    known = {node.name for node in cluster.nodes}
    if not all(node in known for node, _ in placement.devices):
        return {}
    return by_kind(evaluate(job.spec.graph(), cluster, placement.devices))


def by_kind(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Traffic summed over the groups whose names begin alike (`dp/...`) and that do the same."""
    sums: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for group in evaluation.by_group:
        kind = f"{group.name.partition('/')[0]} {group.op.value}"
        for tier, size in group.bytes_by_tier.items():
            sums[kind][tier] += size
    return {kind: dict(sizes) for kind, sizes in sums.items()}
