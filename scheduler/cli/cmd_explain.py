"""`railweave explain JOB`: why it is where it is, and where its traffic comes from."""

from __future__ import annotations

from collections import defaultdict

import click

from ...placement.evaluate import Evaluation, evaluate
from ...placement.svg import bytes_text
from ..client import Client, JobHandle
from .output import console, json_option, print_json, table
from .session import connected


@click.command("explain")
@click.argument("job_id", metavar="JOB")
@json_option
def command(job_id: str, as_json: bool) -> None:
    """Say why a job waits, runs or ended, and which of its groups send what at which tier."""
    with connected() as client:
        job = client.job(job_id)
        text = job.explain()
        traffic = _traffic(client, job)
    if as_json:
        print_json({"job": job_id, "explanation": text, "traffic_bytes_by_kind": traffic})
        return
    screen = console()
    screen.print(text)
    if traffic:
        tiers = list(next(iter(traffic.values())))[::-1]
        rows = [
            [kind, *(bytes_text(sizes[tier]) for tier in tiers)] for kind, sizes in traffic.items()
        ]
        screen.print()
        screen.print(table(["bytes a step of", *(f"at {t}" for t in tiers)], rows))


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
