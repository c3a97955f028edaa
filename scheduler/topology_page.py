"""The HTML page of a cluster: its drawing, tiers, links that are not well, and node insides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..placement.cluster import NODE_TIER, Cluster, NodeState
from ..placement.ctg import Link
from ..placement.drawing.drawing_fabric import draw_fabric
from ..placement.drawing.svg import plural, rate_text
from ..placement.inference.health import Finding
from .health_news import clock
from .pages import render_page

MOST_MATRICES = 8
MOST_LISTED = 500


@dataclass(frozen=True)
class TierRow:
    """A line of the table of tiers, as text."""

    name: str
    domains: str
    rate: str
    latency: str
    oversubscription: str
    note: str


def topology_page(
    cluster: Cluster,
    link_health: Mapping[Link, float] | None = None,
    findings: Sequence[Finding] = (),
) -> str:
    """A cluster as one HTML file that needs nothing else and runs no script.

    link_health: 0 (dead) to 1 (as built) by the ends of a link in the CTG. findings: what re-probes
    found not well, gravest first.
    """
    away = [node for node in cluster.nodes if node.state in (NodeState.DRAINED, NodeState.FAULTY)]
    return render_page(
        "topology.html.j2",
        {},
        cluster=cluster,
        drawing=Markup(draw_fabric(cluster, link_health)),
        cards=_cards(cluster),
        tiers=tier_rows(cluster),
        findings=[
            (each.named, each.how, clock(each.since_s), each.paths)
            for each in findings[:MOST_LISTED]
        ],
        links=[
            (a, b, f"{health:.0%}")
            for (a, b), health in sorted((link_health or {}).items())
            if health < 1
        ][:MOST_LISTED],
        away=away[:MOST_LISTED],
        inside=[(name, _entries(links.matrix)) for name, links in cluster.links.items()][
            :MOST_MATRICES
        ],
    )


def tier_rows(cluster: Cluster) -> list[TierRow]:
    """The tiers from the nearest to the spine."""
    rows = []
    for tier in cluster.tiers:
        last = tier.name == cluster.spine
        domains = 1 if last else len({node.domains[tier.name] for node in cluster.nodes})
        notes = ["joins all"] if last else []
        notes += ["scale-up links, a device"] if tier.scale_up else []
        notes += ["its switches reduce"] if tier.reduces else []
        rows.append(
            TierRow(
                name=tier.name,
                domains=f"{domains:,}",
                rate=rate_text(tier.bandwidth),
                latency=f"{tier.latency * 1e6:.3g} µs",
                oversubscription=f"{tier.oversubscription:.3g}:1",
                note=", ".join(notes),
            )
        )
    return rows


def _cards(cluster: Cluster) -> list[tuple[str, str, str]]:
    devices = sum(node.devices for node in cluster.nodes)
    free = sum(len(node.usable_devices) for node in cluster.nodes)
    kinds = Counter[str]()
    for node in cluster.nodes:
        kinds[node.accelerator] += node.devices
    shown = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(3))
    levels = [tier.name for tier in cluster.tiers]
    return [
        (f"{len(cluster.nodes):,}", "nodes", ""),
        (f"{devices:,}", "devices", shown),
        (f"{free:,}", "free", f"{free / max(devices, 1):.0%} of them"),
        (str(len(levels)), "tiers", ", ".join([NODE_TIER, *levels])),
        (str(cluster.rails), "rails", plural(cluster.rails, "NIC") + " a node"),
    ]


def _entries(matrix: tuple[tuple[float | str, ...], ...]) -> list[list[str]]:
    return [[e if isinstance(e, str) else rate_text(e) for e in row] for row in matrix]
