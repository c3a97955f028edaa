"""A driver on a fabric's head: breaks the network under a job, and prints what came of it as JSON.

Arguments: a folder that all machines have, and the faults as a railweave.chaos/1 text for a job
called `job`. The network is broken from outside: whoever started this listens on the socket
`network` in the folder.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from chaos_program import PROGRAM, expected
from railweave.scheduler.chaos.driver import Driver
from railweave.scheduler.chaos.histories import judged, last_event
from railweave.scheduler.chaos.kinds import Kind
from railweave.scheduler.chaos.schedule import Schedule
from railweave.scheduler.client import Client
from railweave.scheduler.job import Job
from railweave.scheduler.service import start_daemon
from waiting import wait_until

RANKS, NODES = 2, 4


class Outside:
    """The network, which is broken and mended by who sees all of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def cut(self, kind: Kind, node: str) -> Callable[[], None]:
        """Break it; what is returned mends it."""
        self._ask({"cut": kind.value, "node": node})
        return lambda: self._ask({"mend": True})

    def _ask(self, request: dict[str, object]) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self._path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            assert connection.recv(16) == b"done\n"


def main(folder_text: str, schedule_text: str) -> None:
    """Run the job, break the network, wait until all is well again."""
    folder = Path(folder_text)
    schedule = Schedule.parse(schedule_text)
    start_daemon(folder / "state", probation_s=0.5, reprobe={"every_s": 0})
    with Client() as client:
        wait_until(lambda: _well(client), 120, "every node is well")
        head = client.status().nodes[0].name
        (work := folder / "work").mkdir()
        job = client.submit(
            Job(
                name="job",
                entrypoint=["python", "-m", "railweave.agents.rehearsal", "-c", PROGRAM],
                devices=RANKS,
                working_dir=work,
                checkpoint_dir=work / "checkpoints",
                env={"STEPS": "60"},
                grace_s=0.5,
                max_restarts=100,
                constraints={"excluded_nodes": [head]},
            )
        )
        after = last_event(client)
        with Driver(client, schedule, {"job": job.id}, network=Outside(folder / "network")) as run:
            done = run.run()
            run.settle(120)
        wait_until(lambda: _well(client), 120, "every node is well again")
        (work / "finish").touch()
        state = job.wait(120)
        report = judged(client, done, [job], after)
        results = [(work / f"result-{rank}").read_text().split() for rank in range(RANKS)]
        print(
            json.dumps(
                {
                    "state": state.value,
                    "explained": job.explain(),
                    "right": [
                        found == expected(rank, int(steps))
                        for rank, (steps, found) in enumerate(results)
                    ],
                    "findings": [
                        [each.done.fault.kind.value, each.outcome.value, each.detect_s, each.told]
                        for each in report.findings
                    ],
                    "unexplained": list(report.unexplained),
                }
            )
        )


def _well(client: Client) -> bool:
    nodes = client.status().nodes
    return len(nodes) >= NODES and all(node.state == "ok" for node in nodes)


if __name__ == "__main__":
    main(*sys.argv[1:])
