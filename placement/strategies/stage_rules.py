"""Rules of pipeline stages: layers, virtual stages, the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import Problem
from .rule_text import divisors

if TYPE_CHECKING:
    from ..workload import Workload


def layers_divide(workload: Workload) -> Iterator[Problem]:
    """pp x virtual_pp divides the layers (with the ends that count as one), or each stage's are
    given: as many numbers as stages, which add up; only the first and the last may be 0."""
    split, layers = workload.parallelism, workload.model.layers
    given = split.stage_layers
    if given is not None:
        yield from _given_layers(given, split.stages, layers)
        if split.embedding_as_layer or split.head_as_layer:
            found = "layers of each stage are given, and ends that count as layers"
            fix = "leave out embedding_as_layer and head_as_layer, or stage_layers"
            yield Problem("parallelism.stage_layers", found, fix)
        return
    ends = split.embedding_as_layer + split.head_as_layer
    stages, units = split.stages, layers + ends
    what = f"{layers} layers" + (f" and {ends} at the ends" if ends else "")
    if units % stages:
        found = (
            f"{what} over pp {split.pp} x virtual_pp {split.virtual_pp} = {stages} "
            f"stages is {units / stages:.6g} a stage"
        )
        fix = f"make pp x virtual_pp one of {divisors(units)}, or give stage_layers"
        yield Problem("parallelism.pp", found, fix)
    elif stages == 1 and ends:
        yield Problem("parallelism.pp", f"{what} on one stage", "count layers alone with pp 1")


def _given_layers(given: tuple[int, ...], stages: int, layers: int) -> Iterator[Problem]:
    if len(given) != stages:
        found = f"{len(given)} numbers for pp x virtual_pp = {stages} stages"
        yield Problem("parallelism.stage_layers", found, "give one a stage")
    elif sum(given) != layers:
        found = f"{sum(given)} layers in all, but the model has {layers}"
        yield Problem("parallelism.stage_layers", found, f"make them add up to {layers}")
    for stage, count in enumerate(given[1:-1], 1):
        if not count:
            place = f"parallelism.stage_layers[{stage}]"
            fix = "give it one or more; only the first and the last stage have something else"
            yield Problem(place, "a stage without layers", fix)


def virtual_stages_need_a_pipeline(workload: Workload) -> Iterator[Problem]:
    """Several stages a rank, and zero-bubble schedules, are for pipelines of two ranks or more."""
    split = workload.parallelism
    if split.pp > 1:
        return
    if split.virtual_pp > 1:
        found = f"virtual_pp {split.virtual_pp} with pp 1"
        yield Problem("parallelism.virtual_pp", found, "use virtual_pp 1, or more stages")
    if split.schedule == "zero-bubble":
        yield Problem("parallelism.schedule", "zero-bubble with pp 1", "leave it out: no bubble")


def schedule_fits_stages(workload: Workload) -> Iterator[Problem]:
    """1F1B and zero-bubble have one stage a rank, the interleaved schedule has several."""
    split = workload.parallelism
    if split.schedule == "interleaved" and split.virtual_pp == 1:
        fix = "use virtual_pp 2 or more, or 1f1b"
        yield Problem("parallelism.schedule", "interleaved with virtual_pp 1", fix)
    elif split.schedule not in (None, "interleaved") and split.virtual_pp > 1:
        found = f"{split.schedule} with virtual_pp {split.virtual_pp}"
        yield Problem("parallelism.schedule", found, "use interleaved, or virtual_pp 1")


STAGE_RULES: dict[str, Callable[[Workload], Iterator[Problem]]] = {
    rule.__name__: rule
    for rule in (layers_divide, virtual_stages_need_a_pipeline, schedule_fits_stages)
}
