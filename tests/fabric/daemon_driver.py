"""A driver on a fabric's head that does with Railweave's client what it is told, line by line.

Arguments: the daemon's folder. A line is JSON, {"do": name, ...}; so is each answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from railweave.agents.prober import ProbeSettings
from railweave.scheduler.client import Client
from railweave.scheduler.job import Job
from railweave.scheduler.service import start_daemon, stop_daemon


class Driver:
    """What can be asked."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self.client: Client | None = None

    def start(self, **settings: Any) -> dict[str, Any]:
        """Start the daemon."""
        start_daemon(self._state_dir, **settings)
        self.client = Client()
        return {}

    def nodes(self) -> dict[str, Any]:
        """The state of every node, and why it is not used."""
        assert self.client
        return {node.name: [node.state, node.reason] for node in self.client.status().nodes}

    def probe(self, **settings: Any) -> dict[str, Any]:
        """Measure the network once."""
        assert self.client
        cluster = self.client.probe(settings=ProbeSettings(**settings))
        return {node.name: node.domains for node in cluster.nodes}

    def submit(self, **fields: Any) -> dict[str, Any]:
        """Queue a job."""
        assert self.client
        return {"id": self.client.submit(Job(**fields)).id}

    def job(self, job_id: str) -> dict[str, Any]:
        """A job's state, and the nodes and ends of its attempts."""
        assert self.client
        job = self.client.job(job_id)
        attempts = job.attempts
        return {
            "state": job.state.value,
            "explain": job.explain(),
            "nodes": [[node for node, _ in each.placement["devices"]] for each in attempts],
            "causes": [(each.cause or {}).get("kind") for each in attempts],
        }

    def logs(self, job_id: str) -> dict[str, Any]:
        """What rank 0 of the last attempt wrote."""
        assert self.client
        return {"text": self.client.job(job_id).logs(0)}

    def steps(self, job_id: str) -> dict[str, Any]:
        """The step that each rank reported last."""
        assert self.client
        return {str(rank.rank): rank.step for rank in self.client.job(job_id).ranks()}

    def network(self) -> dict[str, Any]:
        """What is not well, in words and as data."""
        assert self.client
        found = self.client.network().findings
        return {each.named: each.to_data() for each in found}

    def events(self, kind: str) -> dict[str, Any]:
        """The messages of all events of a kind so far."""
        assert self.client
        return {"messages": [e.message for e in self.client.events() if e.kind == kind]}

    def railweave(self, words: list[str]) -> dict[str, Any]:
        """What the command `railweave` prints."""
        command = Path(sys.executable).with_name("railweave")
        found = subprocess.run(
            [command, *words], capture_output=True, text=True, timeout=120, check=True
        )
        return {"text": found.stdout}

    def stop(self) -> dict[str, Any]:
        """End the daemon and all jobs."""
        stop_daemon()
        return {}


def main(state_dir: str) -> None:
    """Answer lines until there are no more."""
    driver = Driver(state_dir)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = getattr(driver, asked.pop("do"))(**asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print("answer " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
