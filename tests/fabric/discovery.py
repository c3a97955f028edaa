"""Probe servers on every host of a fabric, and a prober on the first."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from railweave.agents.probe_client import ProbeServers
from railweave.agents.probe_server import TOKEN
from railweave.agents.prober import Planner, Probed, ProbeSettings, probe, run_round
from railweave.agents.rounds import FixedRounds, path_rounds
from railweave.placement.inference.measurements import Measurement, Pair, ProbeKind, ProbeRound

from . import namespaces
from .fabric import Fabric
from .hosts import Crew

Result = TypeVar("Result")


class Prober:
    """What is asked of the probe servers of a fabric, from a host of it."""

    def __init__(self, fabric: Fabric, servers: Mapping[str, tuple[str, int]], token: str) -> None:
        self._fabric = fabric
        self._servers = servers
        self._token = token

    def explore(self, planner: Planner, settings: ProbeSettings) -> Probed:
        """Probe until the planner is content."""
        return self._from_a_host(lambda ends: probe(planner, ends, settings))

    def round(
        self, kind: ProbeKind, pairs: Sequence[Pair], settings: ProbeSettings
    ) -> list[Measurement]:
        """Probe these pairs at the same time."""
        asked = ProbeRound(0, kind, tuple(pairs))
        return self._from_a_host(lambda ends: run_round(asked, ends, settings))

    def paths(self, domains: Mapping[str, str], settings: ProbeSettings) -> list[Measurement]:
        """Latency and bandwidth of every path between neighbouring domains, each twice."""
        kinds = (ProbeKind.LATENCY, ProbeKind.BANDWIDTH) * 2
        planner = FixedRounds(path_rounds(domains), kinds)
        return self._from_a_host(
            lambda ends: probe(planner, ends, settings, traced=True).measurements
        )

    def _from_a_host(self, work: Callable[[ProbeServers], Result]) -> Result:
        def run() -> Result:
            with ProbeServers(self._servers, self._token) as ends:
                return work(ends)

        return namespaces.within(self._fabric.namespace(next(iter(self._servers))), run)


@contextmanager
def probing(fabric: Fabric) -> Iterator[Prober]:
    """Probe servers on all hosts, on the NICs of every rail, while the context lasts."""
    token = secrets.token_hex(16)
    arguments = {
        host.name: [
            part
            for rail, address in enumerate(host.addresses)
            for part in ("--nic", f"{address}%eth{rail}")
        ]
        for host in fabric.hosts.values()
    }
    with Crew(fabric, "railweave.agents.probe_server", arguments, {TOKEN: token}) as crew:
        said = {host: json.loads(line) for host, line in crew.each(len(arguments)).items()}
        where = {host: (said[host]["host"], said[host]["port"]) for host in arguments}
        yield Prober(fabric, where, token)
