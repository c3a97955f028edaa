"""What findings mean for placement: nodes to leave out or avoid, and the health of links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..cluster import Cluster
from ..ctg import CTG, Link, build_ctg
from ..domains import Domain
from .health import Between, Finding, Health

DRAIN_BELOW = 0.5
"""A node with less than this part of its usual speed slows every job it is in: it is left out."""
_BROKEN = (Health.DOWN, Health.FLAPPING)


@dataclass(frozen=True)
class Effects:
    """What findings mean for new placements.

    out: nodes that are to take no rank, with what is wrong. shunned: nodes that are to take ranks
    only where that is better than without them. cut: domains whose way out is down or flaps, with
    the nodes that only reach each other. link_health: of the CTG's network links, for `build_ctg`
    and `communication_time`.
    """

    out: Mapping[str, Finding] = field(default_factory=dict)
    shunned: Mapping[str, Finding] = field(default_factory=dict)
    cut: Mapping[Domain, frozenset[str]] = field(default_factory=dict)
    link_health: Mapping[Link, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.out or self.shunned)

    def crossed(self, nodes: Iterable[str]) -> Domain | None:
        """A domain that is cut off and has some of these nodes, but not all; None without one."""
        used = set(nodes)
        return next(
            (domain for domain, inside in self.cut.items() if used & inside and used - inside), None
        )


def effects_of(
    cluster: Cluster,
    findings: Sequence[Finding],
    most_out: int | None = None,
    drain_below: float = DRAIN_BELOW,
) -> Effects:
    """What findings mean for placements on a cluster.

    Nodes that are down, flap or have less than `drain_below` of their speed are left out, the worst
    first, `most_out` at most; the others and those that are only somewhat worse are shunned, and so
    are all nodes of a domain whose links outwards are not well: they do well among themselves. A
    single path means nothing: the tree does not tell which links it took.
    """
    known = {node.name for node in cluster.nodes}
    out: dict[str, Finding] = {}
    shunned: dict[str, Finding] = {}
    cut: dict[Domain, frozenset[str]] = {}
    for finding in sorted(findings, key=lambda each: (each.health not in _BROKEN, each.factor)):
        subject = finding.subject
        if isinstance(subject, Domain):
            inside = {n.name for n in cluster.nodes if n.domains.get(subject.tier) == subject.name}
            shunned |= {name: finding for name in inside if name not in shunned}
            if finding.health in _BROKEN and inside:
                cut[subject] = frozenset(inside)
        elif isinstance(subject, str) and subject in known and subject not in out:
            unfit = finding.health in _BROKEN or finding.factor < drain_below
            if unfit and (most_out is None or len(out) < most_out):
                out[subject] = finding
            else:
                shunned.setdefault(subject, finding)
    shunned = {name: finding for name, finding in shunned.items() if name not in out}
    return Effects(out, shunned, cut, link_health(cluster, findings))


def link_health(cluster: Cluster, findings: Iterable[Finding]) -> dict[Link, float]:
    """The health of the CTG's links that findings name, for `build_ctg`: 0 dead, 1 as built.

    A node's is that of the links between its NICs and their switches, a domain's that of the links
    out of its switches, and of links between domains that of all out of them; where a finding has a
    rail, of that rail's. A single path names no link: the tree does not tell which it took.
    """
    wanted = [each for each in findings if isinstance(each.subject, Domain | str | Between)]
    found: dict[Link, float] = {}
    if not wanted:
        return found
    graph = build_ctg(cluster)
    left: dict[tuple[object, int | None], float] = {}
    for each in wanted:
        key = (each.subject, each.rail)
        left[key] = min(_left(each), left.get(key, 1.0))
    for one, other, data in graph.edges(data=True):
        if data["kind"] != "network":
            continue
        for lower, upper in ((one, other), (other, one)):
            end, above = graph.nodes[lower], graph.nodes[upper]
            subjects: tuple[object, ...] = ()
            if end["kind"] == "nic":
                subjects = (end["node"],)
            elif end["kind"] == "switch" and above.get("level", 0) > end["level"]:
                between = (
                    Between(above["tier"], name) for name in (above["domain"], above["tier"])
                )
                subjects = (Domain(end["tier"], end["domain"]), *between)
            rails = {None, end.get("rail")}
            healths = [left[key] for key in product(subjects, rails) if key in left]
            if healths:
                found[one, other] = min(*healths, found.get((one, other), 1.0))
    return found


def _left(finding: Finding) -> float:
    return 0.0 if finding.health is Health.DOWN else max(0.0, min(1.0, finding.factor))


def degraded_ctg(cluster: Cluster, findings: Iterable[Finding]) -> CTG:
    """The communication topology graph with the health that findings give its links."""
    return build_ctg(cluster, link_health(cluster, list(findings)))
