"""The nodes of an embedded cluster, and what Ray would refuse about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..placement.errors import InvalidInput, Problem

HEAD = "head"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class EmbeddedNode:
    """A node to start: its declared devices, its accelerator kind, its domain at each tier.

    cpus: what Ray is told, whatever the machine has; ranks share the machine's real ones.
    """

    name: str
    devices: int
    accelerator: str = "declared"
    domains: Mapping[str, str] = field(default_factory=dict)
    cpus: int = 8

    def labels(self) -> dict[str, str]:
        """The Ray labels that say the node's name, accelerator and domains."""
        labels = {"railweave.io/node": self.name}
        if self.devices:
            labels["railweave.io/accelerator"] = self.accelerator
        return labels | {f"domain.railweave.io/{t}": d for t, d in self.domains.items()}


def check_nodes(nodes: Sequence[EmbeddedNode]) -> None:
    """Refuse nodes that Ray would not start. Raises InvalidInput."""
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, node in enumerate(nodes):
        place = f"nodes[{index - 1}]" if len(nodes) > 1 else f"node {node.name!r}"
        if node.name in seen:
            problems.append(Problem(place, f"the name {node.name!r} twice", "rename one"))
        seen.add(node.name)
        for what, text in [("name", node.name), ("accelerator", node.accelerator)] + [
            (f"domain at tier {tier}", domain) for tier, domain in node.domains.items()
        ]:
            if not _LABEL.fullmatch(text):
                fix = "use up to 63 letters, digits, '-', '_' and '.'"
                problems.append(Problem(place, f"{what} {text!r}", fix))
        for tier in node.domains:
            if not _LABEL.fullmatch(tier):
                fix = "use up to 63 letters, digits, '-', '_' and '.'"
                problems.append(Problem(place, f"tier {tier!r}", fix))
        if node.devices < 0:
            problems.append(Problem(place, f"{node.devices} devices", "give 0 or more"))
        if node.cpus < 0:
            problems.append(Problem(place, f"{node.cpus} CPUs", "give 0 or more"))
    if problems:
        raise InvalidInput("embedded cluster", problems)
