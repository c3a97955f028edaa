"""Ray on hosts of a fabric: each node a machine of its own, joined over the fabric alone."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from railweave.agents import processes
from waiting import wait_until

from .fabric import Fabric
from .hosts import TESTS, end_processes, start

_PORT = 6379
_ID, _ID_BYTES = "RAY_OVERRIDE_NODE_ID_FOR_TESTING", 28
_LISTEN_PORT = 7401
_AGENT_PORTS = {"dashboard-agent-grpc": 7402, "runtime-env-agent": 7403, "metrics-export": 7404}
"""Ports that Ray's agents choose at their start are waited for by a raylet, which ends itself after
15 s; on a crowded machine they take longer. Each host has all ports to itself. The port for HTTP is
waited for in any case, in a file that is written here before the agent writes the same."""
_UP_S = 300.0
_AT_A_TIME = 2
_STARTS = 4
_STARTED = "Ray runtime started"
_TOO_SLOW = "timed out during startup"
"""What `ray start` says when it ends a raylet that took 30 s, a time that nothing can change."""


class Raylets:
    """Ray nodes on these hosts, the first of them the head, while the context lasts.

    resources: of every node, for Ray. labels: of each. Logs are in `folder`, as `<host>.log`.
    """

    def __init__(
        self,
        fabric: Fabric,
        hosts: Sequence[str],
        resources: str = "{}",
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._fabric = fabric
        self._hosts = list(hosts)
        self._resources = resources
        self._labels = labels or {}
        self._machines: dict[str, subprocess.Popen[str]] = {}
        self._ids: dict[str, str] = {}
        # Unix sockets have short names only, so Ray's folders start from a short one.
        self.folder = Path(tempfile.mkdtemp(prefix="rwf-", dir="/tmp"))

    def environment(self) -> dict[str, str]:
        """What a driver on one of the hosts needs to find and enter this Ray cluster."""
        return {
            "RAY_ADDRESS": f"{self._fabric.hosts[self._hosts[0]].address}:{_PORT}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(TESTS),
        }

    def run(self, module: str, *arguments: str, timeout_s: float = 600.0) -> str:
        """What a Python module prints that is run as a driver on the head. Raises RuntimeError."""
        found = subprocess.run(
            [*self._inside(self._hosts[0]), sys.executable, "-m", module, *arguments],
            env={**self._fabric.environment(), **self.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if found.returncode:
            raise RuntimeError(f"{module} ended with {found.returncode}: {found.stderr[-3000:]}")
        return found.stdout

    def driver(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        """A Python module as a driver on the head, with pipes to its input and from its output."""
        with (self.folder / f"{module}.log").open("w") as log:
            return subprocess.Popen(
                [*self._inside(self._hosts[0]), sys.executable, "-m", module, *arguments],
                env={**self._fabric.environment(), **self.environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def power_loss(self, host: str) -> None:
        """Kill a node's machine: every process of it is gone at once."""
        machine = self._machines.pop(host)
        machine.kill()
        machine.wait()
        end_processes(self._fabric, host)

    def __enter__(self) -> Self:
        try:
            token = self.folder / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            self._start(self._hosts[:1])
            for at in range(1, len(self._hosts), _AT_A_TIME):
                self._start(self._hosts[at : at + _AT_A_TIME])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every node and remove what they wrote."""
        for host in list(self._machines):
            self.power_loss(host)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, hosts: Sequence[str]) -> None:
        """Start Ray on these hosts, again where a crowded machine was too slow for `ray start`."""
        for host in hosts:
            self._launch(host)
        for host in hosts:
            starts = 1
            while not self._came_up(host):
                if starts == _STARTS:
                    raise RuntimeError(f"the raylet on {host} timed out {starts} times")
                self.power_loss(host)
                self._launch(host)
                starts += 1

    def _launch(self, host: str) -> None:
        self._ids[host] = secrets.token_hex(_ID_BYTES)
        with (self.folder / f"{host}.log").open("w") as log:
            self._machines[host] = start(
                self._fabric,
                host,
                self._command(host),
                environment={**self._settings(), _ID: self._ids[host]},
                output=log,
                machine=True,
            )

    def _came_up(self, host: str) -> bool:
        """Whether a node is up, once it is known; False where `ray start` gave it up as slow."""
        log = self.folder / f"{host}.log"
        machine = self._machines[host]

        def known() -> bool:
            for session in (self.folder / host).glob("session_2*"):
                port = session / f"dashboard_agent_listen_port_{self._ids[host]}"
                if not port.exists():
                    port.write_text(str(_LISTEN_PORT))
            return machine.poll() is not None or _STARTED in log.read_text(errors="replace")

        wait_until(known, _UP_S, f"the raylet on {host} is up")
        said = log.read_text(errors="replace")
        if machine.poll() is None:
            return True
        if _TOO_SLOW in said:
            return False
        raise RuntimeError(f"the raylet on {host} ended: {said[-2000:]}")

    def _command(self, host: str) -> list[str]:
        head = host == self._hosts[0]
        address = self._fabric.hosts[host].address
        labels = {"railweave.io/node": host, **self._labels.get(host, {})}
        role = (
            [
                "--head",
                f"--port={_PORT}",
                "--ray-client-server-port=10001",
                "--include-dashboard=false",
                "--no-monitor",
            ]
            if head
            else [f"--address={self.environment()['RAY_ADDRESS']}"]
        )
        return [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--log-color=false"),
            *role,
            f"--node-ip-address={address}",
            f"--node-name={host}",
            f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}",
            f"--resources={self._resources}",
            "--num-cpus=4",
            "--num-gpus=0",
            "--object-store-memory=80000000",
            f"--temp-dir={self.folder / host}",
            f"--dashboard-agent-listen-port={_LISTEN_PORT}",
            *(f"--{agent}-port={port}" for agent, port in _AGENT_PORTS.items()),
            "--include-log-monitor=false",
            "--disable-usage-stats",
        ]

    def _settings(self) -> Mapping[str, str]:
        kept = {name: "" for name in os.environ if name.startswith("RAY_")}
        settings = self.environment()
        del settings["RAY_ADDRESS"]
        return kept | settings | {
            "RAY_worker_niceness": "0",
            "RAY_enable_worker_prestart": "false",
            "RAY_prestart_worker_first_driver": "false",
            "RAY_raylet_start_wait_time_s": "150",
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def _inside(self, host: str) -> list[str]:
        """The command that enters a node's machine: its network, processes and name."""
        unshare = self._machines[host].pid
        [first] = [each for each in processes.table().values() if each.parent_pid == unshare]
        return ["nsenter", f"--target={first.pid}", "--net", "--pid", "--mount", "--uts"]
