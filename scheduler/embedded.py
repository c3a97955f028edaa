"""A real Ray cluster of several nodes on this machine, for the demo, for trying out and for tests.

Each node is a `ray start` of its own with its own loopback address, its own session directory and
its own processes, so that killing one is what a power loss is to a real cluster.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .embedded_node import HEAD, EmbeddedNode, check_nodes
from .embedded_ports import AgentPorts, ClaimedPort
from .embedded_record import EmbeddedRecord
from .embedded_start import start_command, start_environment, start_failure
from .keeper_link import EmbeddedClusterError, KeeperLink, tail

__all__ = [
    "EMBEDDED_SILENT_S",
    "HEAD",
    "EmbeddedCluster",
    "EmbeddedClusterError",
    "EmbeddedNode",
    "Progress",
]

TOKEN_NAME = "ray-token"
EMBEDDED_SILENT_S = 30.0
"""After how long without a sign of life a node should count as lost here, where all nodes and
ranks share one machine and a slow answer is no sign of a fault."""
_AT_A_TIME = 2
_NODE_START_S = 120.0
_LONGEST_TEMPORARY_FOLDER = 20
_RAY_GAVE_UP = "timed out during startup"
_NODE_ID_BYTES = 28

Progress = Callable[[str], None]


class EmbeddedCluster:
    """A head and some nodes, started by `start()` or `with`, ended by `stop()`, exit or death.

    state_dir holds the token and each node's log; a temporary directory by default. durable:
    whether Ray's control store keeps its state on the disk, so that a head that has ended can be
    started again while the other nodes go on. `address` and `environment()` are what clients need.
    Raises InvalidInput for nodes Ray would refuse. Different nodes may be killed and added from
    different threads.
    """

    def __init__(
        self,
        nodes: Sequence[EmbeddedNode],
        *,
        state_dir: str | os.PathLike[str] | None = None,
        head_devices: int = 0,
        health_check_timeout_s: float = 10.0,
        durable: bool = False,
    ) -> None:
        head = EmbeddedNode(HEAD, head_devices)
        check_nodes([head, *nodes])
        self._planned = [head, *nodes]
        self._running: dict[str, EmbeddedNode] = {}
        # Clusters of different people on one machine have addresses of their own, too.
        self._subnet = f"{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}"
        self._octets: dict[str, int] = {}
        self._started = 0
        self._directory: Path | None = None
        self._state_dir = None if state_dir is None else Path(state_dir)
        self._state_dir_is_temporary = state_dir is None
        self._health_check_timeout_s = health_check_timeout_s
        self.durable = durable
        self._port = 0
        self._numbering = threading.Lock()
        self._claim: ClaimedPort | None = None
        self._ports: dict[str, AgentPorts] = {}
        self._keeper: KeeperLink | None = None

    @property
    def address(self) -> str:
        """Host and port of the head, as RAY_ADDRESS wants it."""
        return f"{self._ip(HEAD)}:{self._port}"

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes that were started and not killed, without the head."""
        return tuple(name for name in self._running if name != HEAD)

    def ended_nodes(self) -> tuple[str, ...]:
        """Nodes whose raylet has ended by itself, as when Ray took one that hung for dead."""
        running = self._ask(verb="status")["running"]
        return tuple(name for name in self.node_names if not running.get(name))

    @property
    def head_runs(self) -> bool:
        """Whether the head is there, rather than killed, or ended with its control store."""
        return HEAD in self._running and bool(self._ask(verb="status")["running"].get(HEAD))

    def node(self, name: str) -> EmbeddedNode:
        """A node that runs, as it was started. Raises EmbeddedClusterError."""
        self._known(name)
        return self._running[name]

    @property
    def state_dir(self) -> Path:
        """Where the token and the nodes' logs are."""
        if self._state_dir is None:
            raise EmbeddedClusterError("the embedded cluster is not started; call start() first")
        return self._state_dir

    def environment(self) -> dict[str, str]:
        """Variables with which a Ray driver or the `railweave` command finds this cluster."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": os.fspath(self.state_dir / TOKEN_NAME),
            "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
        }

    def use(self) -> None:
        """Put `environment()` into this process, so that `ray.init()` and what it starts use it."""
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ.update(self.environment())
        if "ray" in sys.modules:
            # Ray reads its settings and its token once, when it is imported.
            from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

            Config.initialize("")
            AuthenticationTokenLoader.instance().reset_cache()

    def start(self, progress: Progress | None = None) -> Self:
        """Start the head, then the nodes, two at a time; `progress` gets a line a step.

        Raises EmbeddedClusterError with the last lines of the node that failed; then nothing is
        left running.
        """
        if self._keeper is not None:
            raise EmbeddedClusterError("the embedded cluster is started already")
        say = progress or (lambda _: None)
        try:
            # Unix sockets have at most 107 bytes of path, so Ray's folders start from a short one.
            folder = tempfile.gettempdir()
            folder = folder if len(folder) <= _LONGEST_TEMPORARY_FOLDER else "/tmp"
            self._directory = Path(tempfile.mkdtemp(prefix="rw-", dir=folder))
            if self._state_dir is None or self._state_dir_is_temporary:
                self._state_dir, self._state_dir_is_temporary = self._directory / "state", True
            self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_secret(self._state_dir / TOKEN_NAME, secrets.token_hex(32))
            self._claim = ClaimedPort()
            self._port = self._claim.number
            self._keeper = KeeperLink.start(self._directory, self._state_dir / "keeper.log")
            atexit.register(self.stop)
            say("starting the head of a Ray cluster on this machine")
            self._start([self._planned[0]], say)
            self._start(self._planned[1:], say)
        except BaseException:
            self.stop()
            raise
        return self

    def restart_head(self) -> None:
        """Start the head again that was killed, or that `head_runs` no more.

        It gets the address and the store that it had, and Ray starts the daemon and the controllers
        on it again. Raises EmbeddedClusterError where there is no such store.
        """
        if not self.durable:
            raise EmbeddedClusterError(
                "the head cannot be started again: this cluster's control store was in memory "
                "only, and is lost with it; start another cluster, with durable=True"
            )
        if self.head_runs:
            raise EmbeddedClusterError("the head runs already; kill_node(HEAD) first")
        if HEAD in self._running:
            self.kill_node(HEAD)  # what it has left
        self._add(self._planned[0])

    def add_node(self, node: EmbeddedNode) -> None:
        """Start one more node, or one that was killed again; waits until Ray counts it in."""
        check_nodes([node])
        if node.name == HEAD:
            raise EmbeddedClusterError(f"{HEAD} is the name of the head; give the node another")
        if node.name in self._running:
            raise EmbeddedClusterError(
                f"node {node.name} runs already; kill_node({node.name!r}) first, or use a new name"
            )
        self._add(node)

    def _add(self, node: EmbeddedNode) -> None:
        try:
            self._start([node], lambda _: None)
        except BaseException:
            # Else what is left of this start would be in the way of the next.
            if node.name in self._ask(verb="status")["running"]:
                self._ask(verb="kill", name=node.name)
            raise

    def kill_node(self, name: str) -> int:
        """Power loss: every process of the node is gone at once. How many there were."""
        self._known(name)
        held = name in self._ask(verb="status")["running"]
        del self._running[name]
        self._release(name)
        if not held:
            return 0  # it has ended by itself, and nothing of it is left
        reply = self._ask(verb="kill", name=name)
        if reply["survivors"]:
            raise EmbeddedClusterError(
                f"processes {reply['survivors']} of node {name} would not die"
            )
        return int(reply["killed"])

    def stop_node(self, name: str) -> int:
        """SIGSTOP every process of the node: a hang. How many there were."""
        self._known(name)
        return int(self._ask(verb="stop", name=name)["stopped"])

    def resume_node(self, name: str) -> int:
        """SIGCONT every process of a stopped node. How many there were."""
        self._known(name)
        return int(self._ask(verb="resume", name=name)["resumed"])

    def stop(self) -> None:
        """End every process that was started here; remove Ray's directories and the token.

        What else is in state_dir stays, unless that is a temporary one. Idempotent.

        Raises EmbeddedClusterError naming the processes that would not end.
        """
        atexit.unregister(self.stop)
        keeper, self._keeper = self._keeper, None
        self._running.clear()
        for name in list(self._ports):
            self._release(name)
        if self._claim is not None:
            self._claim.release()
        directory, self._directory = self._directory, None
        survivors = [] if keeper is None else keeper.end()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
            (self.state_dir / TOKEN_NAME).unlink(missing_ok=True)
        if survivors:
            raise EmbeddedClusterError(
                f"processes {survivors} of the embedded cluster would not end; "
                "look at them with ps and end them by pid"
            )

    def detach(self, record: str | os.PathLike[str]) -> None:
        """Leave the cluster running when this process ends; `record` is what `attach` reads.

        From then on only `stop()`, here or after `attach`, ends it.
        """
        self._ask(verb="detach")
        atexit.unregister(self.stop)
        keeper = self._live_keeper()
        keeper.detached = True
        EmbeddedRecord(
            address=self.address,
            token_path=self.environment()["RAY_AUTH_TOKEN_PATH"],
            port=self._port,
            keeper_pid=keeper.process.pid,
            keeper_start_ticks=keeper.process.start_ticks,
            directory=keeper.directory,
            state_dir=self.state_dir,
            durable=self.durable,
            head=self._planned[0],
            started=self._started,
            subnet=self._subnet,
            octets=self._octets,
            nodes=tuple(self._running.values()),
        ).write(record)

    @classmethod
    def attach(cls, record: str | os.PathLike[str]) -> Self | None:
        """The cluster that `detach` left running; None when there is none any more.

        Raises EmbeddedClusterError for one that another version of Railweave left running.
        """
        found = EmbeddedRecord.read(record)
        if found is None:
            return None
        written, keeper = found
        cluster = cls([], state_dir=written.state_dir, durable=written.durable)
        cluster._planned = [written.head]
        cluster._directory = written.directory
        cluster._keeper = KeeperLink(written.directory, keeper)
        cluster._port = written.port
        cluster._subnet, cluster._octets = written.subnet, dict(written.octets)
        cluster._started = written.started
        cluster._running = {node.name: node for node in written.nodes}
        return cluster

    def __enter__(self) -> Self:
        return self if self._keeper is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._keeper is not None and not self._keeper.detached:
            self.stop()

    def _start(self, nodes: Iterable[EmbeddedNode], say: Progress) -> None:
        waiting, starting = list(nodes), dict[str, tuple[EmbeddedNode, Path]]()
        again: set[str] = set()
        give_up = time.monotonic() + _NODE_START_S
        while waiting or starting:
            while waiting and len(starting) < _AT_A_TIME:
                node = waiting.pop(0)
                starting[node.name] = (node, self._launch(node))
                give_up = time.monotonic() + _NODE_START_S
            running = self._ask(verb="status")["running"]
            for name, (node, log) in list(starting.items()):
                self._ports[name].publish()
                if "Ray runtime started" in tail(log, 8000):
                    del starting[name]
                    self._running[name] = node
                    say(f"node {name} is up")
                elif not running.get(name):
                    # Ray gives a raylet 30 s, which a machine that is busy elsewhere can exceed.
                    if _RAY_GAVE_UP not in tail(log, 8000) or name in again:
                        found = "ended while it started"
                        raise self._failure(node, log, found)
                    again.add(name)
                    say(f"node {name} was not up in Ray's time for it; once more")
                    starting[name] = (node, self._launch(node))
                    give_up = time.monotonic() + _NODE_START_S
                elif time.monotonic() > give_up:
                    found = f"was not up within {_NODE_START_S:g} s"
                    raise self._failure(node, log, found)
            time.sleep(0.02)

    def _launch(self, node: EmbeddedNode) -> Path:
        folder = self._live_keeper().directory
        with self._numbering:
            self._octets.setdefault(node.name, 2 + len(self._octets))
            while (directory := folder / f"n{self._started}").exists():
                self._started += 1  # of a start that was not written down
            log = self.state_dir / f"{node.name}-{self._started}.log"
            self._started += 1
        node_id = secrets.token_hex(_NODE_ID_BYTES)
        self._release(node.name)
        self._ports[node.name] = AgentPorts(node_id, directory, head=node.name == HEAD)
        log.unlink(missing_ok=True)
        head = self._port if node.name == HEAD else self.address
        settings = self.environment()
        store = folder / "gcs" if self.durable else None
        self._ask(
            verb="start",
            name=node.name,
            argv=start_command(
                node, self._ip(node.name), head, directory, self._ports[node.name].arguments()
            ),
            env=start_environment(settings, node_id, self._health_check_timeout_s, store),
            log=os.fspath(log),
        )
        return log

    def _ip(self, name: str) -> str:
        """A loopback address of the node's own, so that nodes differ by address as real ones do."""
        return f"127.{self._subnet}.{self._octets[name]}"

    def _failure(self, node: EmbeddedNode, log: Path, what: str) -> EmbeddedClusterError:
        up = f"{len(self._running)} of {len(self._planned)}"
        return EmbeddedClusterError(start_failure(node, tail(log, 4000), log, what, up))

    def _release(self, name: str) -> None:
        if (ports := self._ports.pop(name, None)) is not None:
            ports.release()

    def _known(self, name: str) -> None:
        if name not in self._running:
            running = ", ".join(self._running) or "none"
            raise EmbeddedClusterError(f"no node {name!r} is running; running: {running}")

    def _live_keeper(self) -> KeeperLink:
        if self._keeper is None:
            raise EmbeddedClusterError("the embedded cluster is not running; call start() first")
        return self._keeper

    def _ask(self, **request: Any) -> dict[str, Any]:
        return self._live_keeper().ask(request)


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
