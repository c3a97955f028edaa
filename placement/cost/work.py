"""What a pipeline stage does for one micro-batch: seconds of the device, and what it must send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..accelerators import Accelerator
from ..models import AttentionCore, Block, Model, Stack
from ..workload import Workload
from .compute import DeviceModel, PartTime
from .constants import Constants
from .memory import LayerMemory, StageMemory, embedding_bytes, layer_bytes, logit_bytes
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
from .stages import Parameters, Stage, end_parameters


class StageWork(NamedTuple):
    """One micro-batch on one stage.

    forward_s, backward_s, weights_s, repeated_s: seconds of the device; backward has the weight
    gradients in it. wait_s: for the host. reductions: sums over tensor-parallel ranks in a forward
    pass. gathers: for context parallelism, layers with the bytes of keys and values over the whole
    sequence. exchanges: mixtures, with the bytes that a rank dispatches.
    parameters: of a rank. memory: that does not depend on the schedule or on sharding.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    repeated_s: float
    wait_s: float
    reductions: int
    gathers: tuple[tuple[int, float], ...]
    exchanges: tuple[tuple[int, float], ...]
    parameters: Parameters
    memory: StageMemory


class _Layer(NamedTuple):
    """All that a stage needs of one of its layers; fields as in `StageWork`."""

    time: PartTime
    reductions: int
    gathers: tuple[float, ...]
    exchange: float
    parameters: Parameters
    memory: LayerMemory


class StageWorker:
    """Works out stages on one accelerator with one program; layers seen before are kept."""

    def __init__(
        self, accelerator: Accelerator, precision: str, software: Software, constants: Constants
    ) -> None:
        self._device = DeviceModel(accelerator, precision, constants)
        self._software = software
        self._layers: dict[Any, _Layer] = {}
        self._ends: dict[Any, PartTime] = {}

    def work(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        """One micro-batch of a model on a stage.

        The first stage embeds and runs an encoder, the last has the head and the layers that
        predict further tokens, with a head each.
        """
        layers = [
            (count, self._layer(model, model.stack, index, part)) for count, index in stage.layers
        ]
        ends: list[tuple[int, PartTime]] = []
        if stage.first:
            ends.append((1, self._end(model, part, embedding_passes)))
            if model.encoder is not None:
                tower = model.encoder
                inside = part._replace(sequence=tower.sequence or part.sequence)
                layers += self._stack(model, tower.stack, inside)
        if stage.last:
            heads = 1
            if model.prediction is not None:
                ahead = model.prediction
                heads += ahead.tokens
                layers += self._stack(model, ahead.stack, part)
                ends.append((ahead.tokens, self._time(joining_passes(ahead, part))))
            ends.append((heads, self._end(model, part, head_passes)))
        times = [(count, layer.time) for count, layer in layers] + ends
        gathers: dict[float, int] = {}
        exchanges: dict[float, int] = {}
        for count, layer in layers:
            for size in layer.gathers:
                gathers[size] = gathers.get(size, 0) + count
            if layer.exchange:
                exchanges[layer.exchange] = exchanges.get(layer.exchange, 0) + count
        return StageWork(
            forward_s=sum(n * time.forward.device_s for n, time in times),
            backward_s=sum(n * (time.inputs.device_s + time.weights.device_s) for n, time in times),
            weights_s=sum(n * time.weights.device_s for n, time in times),
            repeated_s=sum(n * time.repeated.device_s for n, time in times),
            wait_s=sum(n * sum(one.wait_s for one in time) for n, time in times),
            reductions=sum(count * layer.reductions for count, layer in layers),
            gathers=tuple((count, size) for size, count in gathers.items()),
            exchanges=tuple((count, size) for size, count in exchanges.items()),
            parameters=self._parameters(model, stage, part, layers),
            memory=self._memory(model, stage, part, layers),
        )

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

    def _parameters(
        self, model: Model, stage: Stage, part: Slice, layers: list[tuple[int, _Layer]]
    ) -> Parameters:
        """Parameters of a rank: those of the layers once if they share one set."""
        dense = experts = 0
        for count, layer in layers:
            times = 1 if model.stack.shared else count
            dense += times * layer.parameters.dense
            experts += times * layer.parameters.experts
        return Parameters(dense + end_parameters(model, stage, part.tp), experts)

    def _memory(
        self, model: Model, stage: Stage, part: Slice, layers: list[tuple[int, _Layer]]
    ) -> StageMemory:
        kept = sum(count * layer.memory.kept for count, layer in layers)
        if stage.first:
            kept += embedding_bytes(model, part, self._software)
        return StageMemory(
            kept=kept,
            working=max((layer.memory.working for _, layer in layers), default=0.0),
            logits=logit_bytes(model, part, self._software) if stage.last else 0.0,
            largest=max((sum(layer.parameters) for _, layer in layers), default=0),
        )

    def _stack(self, model: Model, stack: Stack, part: Slice) -> list[tuple[int, _Layer]]:
        place = {id(block): index for index, block in enumerate(stack.blocks)}
        return [
            (count, self._layer(model, stack, place[id(block)], part))
            for count, block in stack.kinds
        ]

    def _layer(self, model: Model, stack: Stack, index: int, part: Slice) -> _Layer:
        key = (id(stack), index, part)
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = self._new_layer(stack.blocks[index], part, model.dropout)
        return found

    def _end(
        self, model: Model, part: Slice, passes: Callable[[Model, Slice, Software], Passes]
    ) -> PartTime:
        key = (id(model), passes, part)
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = self._time(passes(model, part, self._software))
        return found

    def _new_layer(self, block: Block, part: Slice, dropout: bool) -> _Layer:
        whole = part.tokens * part.cp
        cores = [core for core in block.cores(part.tp) if isinstance(core, AttentionCore)]
        mixture = block.mixture
        copies = 0 if mixture is None else mixture.experts_per_token * mixture.expert.hidden
        return _Layer(
            time=self._time(block_passes(block, part, self._software, dropout)),
            reductions=block.reductions,
            gathers=tuple(ELEMENT_BYTES * whole * core.key_value_width for core in cores),
            exchange=ELEMENT_BYTES * part.whole_tokens * copies,
            parameters=Parameters(
                block.dense_parameters(part.tp),
                block.expert_parameters(part.expert_tp, part.ep),
            ),
            memory=layer_bytes(block, part, self._software, dropout),
        )

    def _time(self, passes: Passes) -> PartTime:
        return self._device.part_time(passes, self._software)
