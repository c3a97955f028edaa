"""Railweave on a fabric: its daemon on Ray nodes there, and an operator who asks it things."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from waiting import wait_until

from .fabric import Fabric
from .hosts import TESTS
from .raylets import Raylets

Found = TypeVar("Found")
_LOOK_S = 0.5


class Seat:
    """Asks the daemon by a driver on the head."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self.folder = folder

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """The driver's answer. Raises RuntimeError for what went wrong there."""
        assert self._process.stdin and self._process.stdout
        print(json.dumps({"do": do, **fields}), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("answer "):
                found: dict[str, Any] = json.loads(line.removeprefix("answer "))
                if "error" in found:
                    raise RuntimeError(f"{do}: {found['error']}")
                return found
        raise RuntimeError(f"the driver has ended with {self._process.wait()}")

    def until(self, look: Callable[[], Found], deadline_s: float, what: str) -> Found:
        """The first true answer."""

        def again() -> Found:
            found = look()
            if not found:
                time.sleep(_LOOK_S)
            return found

        return wait_until(again, deadline_s, what)

    def run(self, name: str, devices: int, **more: Any) -> str:
        """Queue a ring job in a folder of its own; its id."""
        folder = self.folder / name
        folder.mkdir()
        fields = {
            "name": name,
            "entrypoint": ["python", "-m", "fabric.ring_job"],
            "devices": devices,
            "working_dir": str(folder),
            "checkpoint_dir": str(folder / "checkpoints"),
            "env": {
                "PYTHONPATH": str(TESTS),
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            },
            "grace_s": 2.0,
        }
        return str(self.ask("submit", **(fields | more))["id"])

    def end(self, name: str) -> None:
        """Have a ring job end at its next step."""
        (self.folder / name / "stop").touch()

    def reaches(self, job_id: str, state: str, deadline_s: float = 150) -> dict[str, Any]:
        """The job once it is in a state."""

        def there() -> dict[str, Any] | None:
            found = self.ask("job", job_id=job_id)
            ended = found["state"] in ("FAILED", "CANCELLED", "SUCCEEDED")
            assert found["state"] == state or not ended, found["explain"]
            return found if found["state"] == state else None

        found = self.until(there, deadline_s, f"{job_id} is {state}")
        assert found is not None
        return found

    def passes(self, job_id: str, steps: int, deadline_s: float = 150) -> None:
        """Wait until every rank of the job has taken so many steps more."""

        def taken() -> int:
            found = self.ask("steps", job_id=job_id).values()
            return min((step or 0 for step in found), default=0)

        began = taken()
        self.until(lambda: taken() >= began + steps, deadline_s, f"{job_id} takes {steps} steps")


@contextmanager
def railweave_on(fabric: Fabric, hosts: Sequence[str], **settings: Any) -> Iterator[Seat]:
    """Railweave's daemon on Ray nodes on these hosts, one device on each.

    The hosts' leaves are labels of their nodes. settings: the daemon's.
    """
    labels = {
        host: {"domain.railweave.io/leaf": leaf} for host, leaf in fabric.plan.domains().items()
    }
    with Raylets(fabric, hosts, '{"railweave_device": 1}', labels) as raylets:
        process = raylets.driver("fabric.daemon_driver", str(raylets.folder / "state"))
        try:
            seat = Seat(process, raylets.folder)
            seat.ask("start", **settings)
            seat.until(
                lambda: (
                    len(found := seat.ask("nodes")) == len(hosts)
                    and all(state == "ok" for state, _ in found.values())
                ),
                150,
                "every node is well",
            )
            yield seat
            seat.ask("stop")
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
