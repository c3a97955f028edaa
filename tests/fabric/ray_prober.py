"""A driver on a fabric's head: has the agents probe, and prints what they measured as JSON lines.

Arguments: the agents' state folder and ProbeSettings as JSON.
"""

from __future__ import annotations

import sys

import ray
from railweave.agents.fleet import NAMESPACE, ensure_agents
from railweave.agents.probe_fleet import FleetEnds
from railweave.agents.prober import ProbeSettings, probe
from railweave.placement.inference.probing import Probing

_AGENTS_S = 300.0


def main(state_dir: str, settings_text: str) -> None:
    """Probe until the planner is content."""
    settings = ProbeSettings.model_validate_json(settings_text)
    ray.init(namespace=NAMESPACE, log_to_driver=False)
    fleet = ensure_agents(state_dir, _AGENTS_S)
    if fleet.failures:
        raise RuntimeError(f"nodes without an agent: {fleet.failures}")
    probed = probe(Probing(sorted(fleet.agents)), FleetEnds(fleet.agents), settings)
    for measurement in probed.measurements:
        print(measurement.model_dump_json())


if __name__ == "__main__":
    main(*sys.argv[1:])
