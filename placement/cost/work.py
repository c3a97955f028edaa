"""What a pipeline stage does for one micro-batch: seconds of the device, and what it must send."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..accelerators import Accelerator
from ..models import AttentionCore, Block, Model, Stack
from ..workload import Workload
from .compute import DeviceModel, PartTime
from .constants import Constants
from .operations import (
    ELEMENT_BYTES,
    Passes,
    Slice,
    block_passes,
    embedding_passes,
    head_passes,
    joining_passes,
)
from .software import Software
from .stages import Parameters, Stage


class StageWork(NamedTuple):
    """One micro-batch on one stage.

    forward_s, backward_s, weights_s, repeated_s: seconds of the device; backward has the weight
    gradients in it. wait_s: for the host. reductions: sums over tensor-parallel ranks in a forward
    pass. gathers: for context parallelism, layers with the bytes of keys and values over the whole
    sequence. exchanges: mixtures, with the bytes that a rank dispatches.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    repeated_s: float
    wait_s: float
    reductions: int
    gathers: tuple[tuple[int, float], ...]
    exchanges: tuple[tuple[int, float], ...]


class StageWorker:
    """Works out stages on one accelerator with one program; layers seen before are kept."""

    def __init__(
        self, accelerator: Accelerator, precision: str, software: Software, constants: Constants
    ) -> None:
        self._device = DeviceModel(accelerator, precision, constants)
        self._software = software
        self._layers: dict[Any, PartTime] = {}

    def work(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        """One micro-batch of a model on a stage.

        The first stage embeds and runs an encoder, the last has the head and the layers that
        predict further tokens, with a head each.
        """
        parts: list[tuple[int, PartTime]] = []
        blocks = [(count, model.stack.blocks[index]) for count, index in stage.layers]
        parts += [
            (count, self._layer(model, model.stack, index, part)) for count, index in stage.layers
        ]
        if stage.first:
            parts.append((1, self._other(embedding_passes(model, part, self._software))))
            if model.encoder is not None:
                tower = model.encoder
                inside = part._replace(sequence=tower.sequence or part.sequence)
                parts += self._stack(model, tower.stack, inside)
                blocks += list(tower.stack.kinds)
        if stage.last:
            heads = 1
            if model.prediction is not None:
                ahead = model.prediction
                heads += ahead.tokens
                parts += self._stack(model, ahead.stack, part)
                blocks += list(ahead.stack.kinds)
                parts.append((ahead.tokens, self._other(joining_passes(ahead, part))))
            parts.append((heads, self._other(head_passes(model, part, self._software))))
        return _summed(parts, blocks, part)

    def optimizer_s(self, workload: Workload, parameters: Parameters) -> float:
        """Seconds of the optimizer: all gradients are read (for their norm), each rank steps its
        own share of the parameters.
        """
        split = workload.parallelism
        shards = split.dp * split.cp if split.zero else 1
        experts = parameters.experts / max(1, shards // split.ep)
        stepped = parameters.dense / shards + experts
        read = 2.0 * ELEMENT_BYTES * (parameters.dense + parameters.experts)
        if split.zero >= 2:
            read /= shards
        return self._device.stream_s(read + stepped * self._software.optimizer_bytes)

    def _stack(self, model: Model, stack: Stack, part: Slice) -> list[tuple[int, PartTime]]:
        place = {id(block): index for index, block in enumerate(stack.blocks)}
        return [
            (count, self._layer(model, stack, place[id(block)], part))
            for count, block in stack.kinds
        ]

    def _layer(self, model: Model, stack: Stack, index: int, part: Slice) -> PartTime:
        key = (id(stack), index, part)
        found = self._layers.get(key)
        if found is None:
            passes = block_passes(stack.blocks[index], part, self._software, model.dropout)
            found = self._layers[key] = self._other(passes)
        return found

    def _other(self, passes: Passes) -> PartTime:
        return self._device.part_time(passes, self._software)


def _summed(
    parts: list[tuple[int, PartTime]], blocks: list[tuple[int, Block]], part: Slice
) -> StageWork:
    gathers: dict[float, int] = {}
    exchanges: dict[float, int] = {}
    for count, block in blocks:
        for core in block.cores(part.tp):
            if isinstance(core, AttentionCore):
                size = ELEMENT_BYTES * part.tokens * part.cp * core.key_value_width
                gathers[size] = gathers.get(size, 0) + count
        if block.mixture is not None:
            copies = block.mixture.experts_per_token * block.mixture.expert.hidden
            sent = ELEMENT_BYTES * part.whole_tokens * copies
            exchanges[sent] = exchanges.get(sent, 0) + count
    return StageWork(
        forward_s=sum(n * time.forward.device_s for n, time in parts),
        backward_s=sum(n * (time.inputs.device_s + time.weights.device_s) for n, time in parts),
        weights_s=sum(n * time.weights.device_s for n, time in parts),
        repeated_s=sum(n * time.repeated.device_s for n, time in parts),
        wait_s=sum(n * sum(step.wait_s for step in time) for n, time in parts),
        reductions=sum(count * block.reductions for count, block in blocks),
        gathers=tuple((count, size) for size, count in gathers.items()),
        exchanges=tuple((count, size) for size, count in exchanges.items()),
    )
