"""Running the solver and its peers on one instance; everything is scored by `evaluate()` alone."""

from __future__ import annotations

import resource
import subprocess
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from railweave.placement import Cluster, Evaluator, place
from railweave.placement.constraints import Constraints
from railweave.placement.errors import BoundAboveCost

from .instances import Instance
from .job import Device, Job
from .peers import Peer, Unavailable

SOLVER = "place()"


@dataclass(frozen=True)
class Result:
    """One method on one instance.

    traffic_bytes: by tier, node first; empty when the method gave no valid placement.
    bound_bytes: the solver's proven bound on cross-spine bytes.
    seconds, cpu_seconds: wall time of the setting kept, and CPU time of all its threads and
        processes; for the solver, of the whole call.
    """

    family: str
    seed: int
    ranks: int
    method: str
    setting: str
    traffic_bytes: dict[str, float]
    bound_bytes: float
    seconds: float
    cpu_seconds: float
    problem: str = ""

    @property
    def spine_bytes(self) -> float:
        """Bytes a step whose ends meet only at the last tier."""
        return list(self.traffic_bytes.values())[-1]

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class Clock:
    """Wall and CPU time since it was made; CPU time counts ended child processes too."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = self._cpu_seconds()

    def read(self) -> tuple[float, float]:
        """(wall, CPU) seconds."""
        return time.perf_counter() - self._wall, self._cpu_seconds() - self._cpu

    @staticmethod
    def _cpu_seconds() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime


def validity_problem(cluster: Cluster, world_size: int, devices: list[Device]) -> str:
    """Why the devices are no valid placement, or an empty text."""
    if len(devices) != world_size:
        return f"{len(devices)} devices for {world_size} ranks"
    if len(set(devices)) != len(devices):
        return "a device is used twice"
    free = {(node.name, index) for node in cluster.nodes for index in node.usable_devices}
    taken = [device for device in devices if device not in free]
    return f"{taken[0]} is not free" if taken else ""


def solver_result(instance: Instance, family: str, seed: int, time_limit_s: float) -> Result:
    """The solver's placement, its bound, and the wall time of the whole call."""
    clock = Clock()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", BoundAboveCost)
        placement = place(
            instance.pcg,
            instance.cluster,
            time_limit_s=time_limit_s,
            seed=seed,
            # The peers split tensor-parallel groups where that helps, so it may too.
            constraints=Constraints(split_tensor_groups=True),
        )
    seconds, cpu_seconds = clock.read()
    # The bound of a placement is never above its cost; what was claimed is told here.
    too_high = [w.message.bound_bytes for w in told if isinstance(w.message, BoundAboveCost)]
    scored = Evaluator(instance.pcg, instance.cluster)(placement.devices)
    return Result(
        family=family,
        seed=seed,
        ranks=instance.pcg.world_size,
        method=SOLVER,
        setting=placement.method,
        traffic_bytes=scored.traffic_bytes,
        bound_bytes=max([placement.lower_bound_bytes, *too_high]),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        problem=validity_problem(instance.cluster, instance.pcg.world_size, placement.devices),
    )


def peer_result(
    peer: Peer,
    job: Job,
    score: Evaluator,
    family: str,
    seed: int,
    bound_bytes: float,
    starts: int = 1,
) -> Result:
    """The best of a peer's candidates, spine first and then inwards; failures are told."""
    best: tuple[tuple[float, ...], str, dict[str, float], tuple[float, float]] | None = None
    problems: list[str] = []
    for candidate in peer.candidates(job, seed, starts):
        clock = Clock()
        try:
            devices = candidate.place()
        except ValueError as error:
            problems.append(f"{candidate.setting}: {error}")
            continue
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
            last = said[-1] if said else "no message"
            program = Path(error.cmd[0]).name
            problems.append(f"{candidate.setting}: {program} ended with {error.returncode}: {last}")
            continue
        times = clock.read()
        wrong = validity_problem(job.cluster, job.pcg.world_size, devices)
        if wrong:
            problems.append(f"{candidate.setting}: {wrong}")
            continue
        traffic = score(devices).traffic_bytes
        key = tuple(reversed(traffic.values()))
        if best is None or key < best[0]:
            best = (key, candidate.setting, traffic, times)
    setting, traffic, times = best[1:] if best else ("", {}, (0.0, 0.0))
    return Result(
        family=family,
        seed=seed,
        ranks=job.pcg.world_size,
        method=peer.NAME,
        setting=setting,
        traffic_bytes=traffic,
        bound_bytes=bound_bytes,
        seconds=times[0],
        cpu_seconds=times[1],
        problem=_told(problems),
    )


def _told(problems: list[str]) -> str:
    """The first two problems and how many more there are."""
    more = [f"and {len(problems) - 2} more settings"] if len(problems) > 2 else []
    return "; ".join([*problems[:2], *more])


def side_by_side(
    instance: Instance,
    family: str,
    seed: int,
    peers: Mapping[str, Peer],
    time_limit_s: float = 1.0,
    starts: int = 1,
) -> Iterable[Result]:
    """The solver's result, then each peer's. A peer that is not installed raises Unavailable."""
    solved = solver_result(instance, family, seed, time_limit_s)
    yield solved
    job = Job(instance.pcg, instance.cluster)
    score = Evaluator(instance.pcg, instance.cluster)
    for peer in peers.values():
        yield peer_result(peer, job, score, family, seed, solved.bound_bytes, starts)


def unavailable(peers: Mapping[str, Peer], job: Job) -> dict[str, str]:
    """Peers that cannot run here, each with how to get it."""
    missing = {}
    for name, peer in peers.items():
        try:
            next(iter(peer.candidates(job, 0)), None)
        except Unavailable as error:
            missing[name] = str(error)
    return missing
