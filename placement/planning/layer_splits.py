"""Ways to divide a model's layers over the stages of a pipeline."""

from __future__ import annotations

from typing import NamedTuple

from ..cost.flops import training_flops_per_token
from ..models import Model
from ..models.block import Block
from ..strategies.division import balanced


class LayerSplit(NamedTuple):
    """Fields of `Parallelism` that say how many layers each stage has."""

    stage_layers: tuple[int, ...] | None = None
    embedding_as_layer: bool = False
    head_as_layer: bool = False


EVEN = LayerSplit()


class LayerCosts(NamedTuple):
    """Forward FLOPs a token of every layer in order, and of what the last stage does besides."""

    layers: tuple[float, ...]
    last: float

    @classmethod
    def of(cls, model: Model, sequence: int) -> LayerCosts:
        """Those of a model at a sequence length; what predicts further tokens counts as last."""
        known = {id(block): _block_flops(block, sequence) for _, block in model.kinds}
        layers = [known[id(block)] for count, block in model.runs for _ in range(count)]
        whole = training_flops_per_token(model, sequence) / 3
        if model.encoder is not None:
            whole -= sum(
                n * _block_flops(block, sequence) for n, block in model.encoder.stack.kinds
            )
        return cls(tuple(layers), max(0.0, whole - sum(layers)))


def layer_splits(costs: LayerCosts, stages: int, uneven: bool) -> tuple[LayerSplit, ...]:
    """The ways tried for a number of stages, the plainest first.

    Evenly where the layers divide, else evenly with the head, or both ends, counted as a layer; and
    (`uneven`) such that the stage with most to compute has as little as can be.
    """
    layers = len(costs.layers)
    if stages == 1:
        return (EVEN,)
    found, counts = [EVEN], [layers // stages] * stages
    if (layers + 1) % stages == 0:
        found, counts = [LayerSplit(head_as_layer=True)], [(layers + 1) // stages] * stages
        counts[-1] -= 1
    elif (layers + 2) % stages == 0:
        found = [LayerSplit(embedding_as_layer=True, head_as_layer=True)]
        counts = [(layers + 2) // stages] * stages
        counts[0] -= 1
        counts[-1] -= 1
    if uneven:
        best = balanced(costs.layers, 0.0, costs.last, stages)
        if best and best != counts:
            ways = [LayerSplit(stage_layers=tuple(best))]
            found = ways if found == [EVEN] and layers % stages else found + ways
    return tuple(found)


def _block_flops(block: Block, sequence: int) -> float:
    return sum(m.flops_per_token for m in block.matmuls()) + sum(
        core.flops_per_token(sequence) for core in block.cores()
    )
