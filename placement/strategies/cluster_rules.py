"""The rules of a split that depend on the cluster: room, scale-up domains, memory, balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ..cluster import NODE_TIER, Cluster
from ..cost import Estimator
from ..errors import Problem
from ..jobs.tensor_groups import scale_up_tier
from ..workload import Workload
from .division import balanced
from .loads import StageLoad, layer_flops, stage_loads

BALANCE_GAIN = 0.03
"""A better division of layers is told where it makes the slowest stage faster by more than this."""
_GB = 1e9


@dataclass(frozen=True)
class Finding:
    """A rule that a workload breaks on a cluster.

    must: the job cannot run so; otherwise it runs, but worse than it could.
    """

    rule: str
    must: bool
    problem: Problem


def check(
    workload: Workload, cluster: Cluster, estimator: Estimator | None = None
) -> list[Finding]:
    """Every rule that needs the cluster and that a workload breaks on its free devices.

    Those that a split must meet by itself were checked when the workload was made. estimator: one
    of the same cluster, where many workloads are checked.
    """
    case = _Case(workload, cluster, estimator)
    found = [
        Finding(rule.__name__, must, problem)
        for rule, must in (
            (devices_suffice, True),
            (tensor_groups_in_scale_up_domains, False),
            (precision_is_native, False),
        )
        for problem in rule(case)
    ]
    if any(finding.must for finding in found):
        return found
    for rule, must in ((memory_suffices, True), (stages_are_balanced, False)):
        found += [Finding(rule.__name__, must, problem) for problem in rule(case)]
    return found


class _Case:
    """A workload on a cluster, with what the rules share."""

    def __init__(self, workload: Workload, cluster: Cluster, estimator: Estimator | None) -> None:
        self.workload, self.cluster = workload, cluster
        self.free = sum(len(node.usable_devices) for node in cluster.nodes)
        self._estimator = estimator

    @cached_property
    def estimator(self) -> Estimator:
        return self._estimator or Estimator(self.cluster)

    @cached_property
    def loads(self) -> tuple[StageLoad, ...]:
        return stage_loads(self.workload, self.cluster, self.estimator)


def devices_suffice(case: _Case) -> Iterator[Problem]:
    """There are as many free devices as ranks."""
    ranks = case.workload.parallelism.world_size
    if ranks > case.free:
        found = f"{ranks} ranks on {case.free} free devices: {ranks - case.free} too few"
        yield Problem("parallelism", found, "use smaller degrees, or free nodes")


def tensor_groups_in_scale_up_domains(case: _Case) -> Iterator[Problem]:
    """Every tensor-parallel group (and expert-tensor one) has room inside one scale-up domain."""
    tier, split = scale_up_tier(case.cluster), case.workload.parallelism
    room = Counter[str]()
    for node in case.cluster.nodes:
        room[node.name if tier == NODE_TIER else node.domains.get(tier, "")] += len(
            node.usable_devices
        )
    widest = max(room.values(), default=0)
    for name, degree in (("tp", split.tp), ("etp", split.expert_tp)):
        if degree == 1 or (name == "etp" and degree == split.tp):
            continue
        groups, whole = split.world_size // degree, sum(free // degree for free in room.values())
        if degree > widest:
            found = f"{name} {degree}, but the widest {tier} has {widest} free devices"
            yield Problem(f"parallelism.{name}", found, f"use {name} {widest} at most")
        elif whole < groups:
            found = (
                f"{groups} groups of {name} {degree}, but {tier} domains have room for {whole} "
                "whole ones"
            )
            fix = f"use a smaller {name}, or one that divides the {widest} devices of a domain"
            yield Problem(f"parallelism.{name}", found, fix)


def precision_is_native(case: _Case) -> Iterator[Problem]:
    """The devices compute in the precision of the workload."""
    precision = case.workload.precision
    for kind in sorted({node.accelerator for node in case.cluster.nodes if node.usable_devices}):
        peaks = case.cluster.accelerator(kind).peak_flops
        if precision not in peaks:
            found = f"{precision}, but {kind} has {', '.join(peaks)}"
            yield Problem("precision", found, f"use one of {', '.join(peaks)}")


def memory_suffices(case: _Case) -> Iterator[Problem]:
    """The fullest rank of every stage fits into its device; the worst is told."""
    over = [
        (load.memory_bytes - limit.memory_limit_bytes, load, limit.memory_limit_bytes)
        for load, limit in zip(case.loads, case.estimator.stages(case.workload), strict=True)
    ]
    worst, load, limit = max(over, key=lambda one: one[0])
    if worst <= 0:
        return
    parts = sorted(load.memory.items(), key=lambda part: -part[1])[:3]
    shown = ", ".join(f"{name} {size / _GB:.1f}" for name, size in parts)
    found = (
        f"a rank of stage {load.stage} needs {load.memory_bytes / _GB:.1f} GB of "
        f"{limit / _GB:.1f} ({shown})"
    )
    yield Problem("parallelism", found, _memory_fix(case.workload, parts[0][0]))


def _memory_fix(workload: Workload, largest: str) -> str:
    split = workload.parallelism
    if largest in ("activations", "logits"):
        ways = []
        if workload.recompute != "full":
            ways.append("more recompute")
        if workload.micro_batch > 1:
            ways.append(f"micro_batch below {workload.micro_batch}")
        return f"use {' or '.join([*ways, 'a larger tp or cp'])}"
    shared = {"optimizer": 1, "gradients": 2, "weights": 3}
    least = shared.get(largest, 0)
    if split.zero < least and split.dp * split.cp > 1:
        return f"use zero {least}, or a larger tp or pp"
    return "use a larger tp or pp"


def stages_are_balanced(case: _Case) -> Iterator[Problem]:
    """No other division of the layers makes the slowest stage much faster.

    The one compared with gives the stage with most to compute as little as can be.
    """
    workload, split = case.workload, case.workload.parallelism
    if split.pp == 1:
        return
    best = tuple(balanced(*layer_flops(workload), split.stages))
    if not best or best == workload.piece_layers:
        return
    ends = {"embedding_as_layer": False, "head_as_layer": False}
    other = split.model_copy(update={"stage_layers": best, **ends})
    stages = case.estimator.stages(workload.model_copy(update={"parallelism": other}))
    seconds = [load.micro_batch_s for load in case.loads]
    slowest = max(range(split.pp), key=seconds.__getitem__)
    least = max(stage.micro_batch_s for stage in stages)
    gain = 1 - least / seconds[slowest]
    if gain <= BALANCE_GAIN:
        return
    times = seconds[slowest] * split.pp / sum(seconds)
    found = (
        f"stage {slowest} takes {seconds[slowest] * 1e3:.4g} ms a micro-batch, "
        f"{times:.2f} x the mean"
    )
    fix = f"stage_layers {best} would make it {least * 1e3:.4g} ms, {gain:.0%} less"
    yield Problem("parallelism.stage_layers", found, fix)
