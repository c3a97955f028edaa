"""What each pipeline stage of a workload holds: layers of each kind, and parameters of a rank."""

from __future__ import annotations

from typing import NamedTuple

from ..models import Model, Prediction, Tower
from ..models.work import share
from ..strategies.division import starts
from ..workload import Workload


class Stage(NamedTuple):
    """Layers of a pipeline rank, over all of its virtual stages.

    layers: how many of each kind, by the kind's place in the model's stack. first, last: whether
    it has the embedding, and the output head.
    """

    layers: tuple[tuple[int, int], ...]
    first: bool
    last: bool


class Parameters(NamedTuple):
    """Parameters on one rank: those that all data-parallel ranks have alike, and of experts."""

    dense: int
    experts: int


def stages_of(workload: Workload) -> tuple[Stage, ...]:
    """The stages of a workload, first to last."""
    stack, ranks = workload.model.stack, workload.parallelism.pp
    place = {id(block): index for index, block in enumerate(stack.blocks)}
    pieces = starts(workload.piece_layers)
    found = []
    for stage in range(ranks):
        counts: dict[int, int] = {}
        for start, end in pieces[stage::ranks]:
            for count, block in stack.between(start, end):
                index = place[id(block)]
                counts[index] = counts.get(index, 0) + count
        layers = tuple((count, index) for index, count in counts.items())
        found.append(Stage(layers, stage == 0, stage == ranks - 1))
    return tuple(found)


def end_parameters(model: Model, stage: Stage, tp: int, vocabulary_tp: int, towers: bool) -> int:
    """Parameters of a rank outside the layers.

    The first stage has the embedding, tables of positions and what an encoder has beside its
    layers, the last the final norm, the output head (a copy of the embedding when that is tied and
    on another stage) and what joins predicted tokens, with a copy of the embedding for them.
    towers: those beside the text are trained.
    """
    count = 0
    beside: list[Tower | Prediction] = []
    if stage.first:
        count += model.input_parameters(vocabulary_tp) + model.stack.extra
        beside += [] if model.encoder is None else [model.encoder]
        beside += model.towers if towers else ()
    if stage.last:
        count += model.output_parameters(vocabulary_tp, own_copy=not stage.first)
        if model.prediction is not None:
            beside.append(model.prediction)
            if not stage.first:
                count += share(model.vocab, vocabulary_tp) * model.embedding.token_width
    for part in beside:
        layers = sum(n * block.parameters(tp) for n, block in part.stack.kinds)
        count += part.parameters(tp) - layers
    return count
