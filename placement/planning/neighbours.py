"""Strategies one step away from the best one: what each would cost, or which limit rules it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..strategies.rules import broken_rules
from .estimates import Estimate
from .search import Strategy
from .space import Shape, Sharing, Space
from .why import memory_text, why_slower


@dataclass(frozen=True)
class Neighbour:
    """A strategy that differs from the best in one thing.

    change: that thing. outcome: why it is no better. step_s: seconds of its step, None where a rule
    or the memory rules it out. limit: "rule", "memory", or "" for time alone.
    """

    change: str
    outcome: str
    step_s: float | None
    limit: str = ""


Option = tuple[Shape, Sharing]


def neighbours(
    space: Space, estimator: Estimate, best: Strategy, island: int, degrees: bool = True
) -> tuple[Neighbour, ...]:
    """What lies around the best strategy, degrees first; the rest of the strategy stays.

    Data parallelism takes what another degree leaves. island: devices of a scale-up domain.
    degrees: whether to change degrees too, which decide how many stages each kind of accelerator
    has where there are several.
    """
    found = []
    for change, options in (
        *(_degree_steps(space, best, island) if degrees else ()),
        *_steps(space, best),
    ):
        if options:
            found.append(_judged(space, estimator, best, change, options))
        else:
            outcome = f"leaves the scale-up domain of {island} devices"
            found.append(Neighbour(change, outcome, None, "rule"))
    return tuple(found)


def _judged(
    space: Space, estimator: Estimate, best: Strategy, change: str, options: list[Option]
) -> Neighbour:
    problems, estimates = [], []
    for shape, sharing in options:
        workload = space.workload(shape, sharing)
        broken = broken_rules(workload)
        if broken:
            problems.append(broken[0])
        else:
            estimates.append(estimator(workload))
    fitting = [one for one in estimates if space.limits.allows(one)]
    if fitting:
        found = min(fitting, key=lambda one: one.step_s)
        return Neighbour(change, why_slower(found, best.estimate), found.step_s)
    if estimates:
        leanest = min(estimates, key=lambda one: one.memory_bytes - one.memory_limit_bytes)
        outcome = memory_text(leanest, space.limits.memory_share)
        return Neighbour(change, outcome, None, "memory")
    return Neighbour(change, problems[0].found, None, "rule")


def _degree_steps(space: Space, best: Strategy, island: int) -> Iterator[tuple[str, list[Option]]]:
    shape, sharing = best.shape, best.sharing
    part = shape.slice
    ranks = best.workload.parallelism.world_size
    for tp in _around(part.tp):
        etp = tp if part.etp == part.tp else min(part.etp, tp)
        changed = part._replace(tp=tp, etp=etp)
        if ranks % (tp * part.cp * shape.pp) == 0:
            dp = ranks // (tp * part.cp * shape.pp)
            options = [(shape._replace(slice=changed, dp=dp), sharing)]
            yield f"tp {tp}", [] if tp > island else options
    for pp in _around(shape.pp):
        if ranks % (part.tp * part.cp * pp) == 0:
            dp = ranks // (part.tp * part.cp * pp)
            ways = space.pipelines(pp)
            yield f"pp {pp}", [(Shape(part, pp, dp, *way), sharing) for way in ways]
    for cp in _around(part.cp):
        if ranks % (part.tp * cp * shape.pp) == 0:
            dp = ranks // (part.tp * cp * shape.pp)
            yield f"cp {cp}", [(shape._replace(slice=part._replace(cp=cp), dp=dp), sharing)]
    if space.task.model.experts:
        for ep in _around(part.ep):
            yield f"ep {ep}", [(shape._replace(slice=part._replace(ep=ep)), sharing)]
    for virtual_pp in _nearest(space, shape):
        ways = [way for way in space.pipelines(shape.pp) if way[0] == virtual_pp]
        options = [(Shape(part, shape.pp, shape.dp, *way), sharing) for way in ways]
        yield f"{virtual_pp} virtual stages" if virtual_pp > 1 else "one stage a rank", options


def _steps(space: Space, best: Strategy) -> Iterator[tuple[str, list[Option]]]:
    shape, sharing = best.shape, best.sharing
    part = shape.slice
    for size in _around(part.micro_batch):
        changed = part._replace(micro_batch=size)
        yield f"micro-batch {size}", [(shape._replace(slice=changed), sharing)]
    even = space.even_stages(shape)
    if shape.layers.stage_layers and shape.layers != even:
        yield "even stages", [(shape._replace(layers=even), sharing)]
    for recompute in space.limits.recompute:
        if recompute != part.recompute:
            changed = part._replace(recompute=recompute)
            yield f"recompute {recompute}", [(shape._replace(slice=changed), sharing)]
    for zero in (0, 1, 2, 3):
        if zero != sharing.zero and zero in space.limits.zero and best.estimate.devices > 1:
            changed = part._replace(sharded=zero == 3)
            options = [
                (shape._replace(slice=changed), Sharing(zero, None, reshard))
                for reshard in ((True, False) if zero == 3 else (False,))
            ]
            yield f"ZeRO-{zero}", options


def _nearest(space: Space, shape: Shape) -> list[int]:
    """The numbers of virtual stages next to the shape's, of those that layers divide over."""
    pp, layers = shape.pp, space.task.model.layers
    known = sorted({way[0] for way in space.pipelines(pp)})
    even = [v for v in known if layers % (pp * v) == 0 or layers % pp or v == 1]
    below = [v for v in even if v < shape.virtual_pp][-1:]
    return below + [v for v in even if v > shape.virtual_pp][:1]


def _around(degree: int) -> Iterator[int]:
    if degree % 2 == 0:
        yield degree // 2
    yield degree * 2
