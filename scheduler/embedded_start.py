"""How a Ray node of an embedded cluster is started: the command, and the settings around it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .embedded_node import EmbeddedNode


def start_command(
    node: EmbeddedNode, ip: str, head: int | str, directory: Path, ports: Sequence[str]
) -> list[str]:
    """What starts a node and stays as long as it runs.

    head: the port to listen on where the node is the head, else the address of the head.
    directory: of the node's session. ports: arguments that say which ports its parts take.
    """
    role = (
        ["--head", f"--port={head}", "--include-dashboard=false", "--no-monitor"]
        if isinstance(head, int)
        else [f"--address={head}"]
    )
    labels = ",".join(f"{key}={value}" for key, value in node.labels().items())
    resources = {"railweave_device": node.devices} if node.devices else {}
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--log-color=false"),
        *role,
        f"--node-ip-address={ip}",
        f"--node-name={node.name}",
        f"--labels={labels}",
        f"--resources={json.dumps(resources)}",
        f"--num-cpus={node.cpus}",
        "--num-gpus=0",
        "--object-store-memory=80000000",
        f"--temp-dir={directory}",
        *ports,
        "--include-log-monitor=false",
        "--disable-usage-stats",
    ]


def start_environment(
    settings: Mapping[str, str], node_id: str, health_check_timeout_s: float, store: Path | None
) -> dict[str, str]:
    """The environment of a node.

    settings: how its cluster is found. store: where the control store keeps its state, None for in
    memory.
    """
    # A Ray setting of the user's own (an address, another token) would point nodes elsewhere.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {k: v for k, v in settings.items() if k != "RAY_ADDRESS"}
    if store is not None:
        environment["RAY_gcs_storage"] = "rocksdb"
        environment["RAY_gcs_storage_path"] = os.fspath(store)
    return environment | {
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": node_id,
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": f"{1000 * health_check_timeout_s:.0f}",
        "RAY_health_check_failure_threshold": "3",
        "RAY_worker_niceness": "0",
        "RAY_enable_worker_prestart": "false",
        "RAY_prestart_worker_first_driver": "false",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "PYTHONUNBUFFERED": "1",
    }


def start_failure(node: EmbeddedNode, said: str, log: Path, what: str, up: str) -> str:
    """What to tell of a node that did not start: the end of its log, and what helps."""
    lines = "\n".join(f"  {line}" for line in said.splitlines()[-12:]) or "  nothing"
    return (
        f"Ray node {node.name} {what}. Its log {log} ends:\n{lines}\n"
        f"A node needs about 0.4 GB of memory and some CPU; {up} were up. "
        "Free memory or start fewer nodes, then try again."
    )
