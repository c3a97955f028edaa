"""A traced module: its operators with their work, and layers that are alike once."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field

from ..explained import Explained
from .sizes import LayerCount

Shape = tuple[int, ...]
Quantity = Annotated[int, Field(ge=0)]


class CapturedOperator(Explained):
    """One operator as it was traced.

    name: of ATen, such as `mm`. module: the module inside the layer whose forward pass ran it.
    flops: of products of matrices, convolutions and attention, 2 a multiplication with its
    addition; 0 of all else. read_bytes, written_bytes: what it moves when it runs alone; 0 for
    views. parameters: elements of the parameters it reads.
    """

    name: str
    module: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    flops: Quantity
    read_bytes: Quantity
    written_bytes: Quantity
    parameters: Quantity


class CapturedLayer(Explained):
    """A part of a module, and how many parts are like it; the sums are those of one.

    parameters: of its own; one shared with an earlier layer is counted there.
    """

    name: str
    repeat: LayerCount
    parameters: Quantity
    operators: tuple[CapturedOperator, ...]

    @cached_property
    def flops(self) -> int:
        """FLOPs of one forward pass."""
        return sum(operator.flops for operator in self.operators)

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes read and written in one forward pass, each operator running alone."""
        return sum(operator.read_bytes + operator.written_bytes for operator in self.operators)

    @cached_property
    def output_bytes(self) -> int:
        """Bytes that the operators leave behind: the most that a backward pass may keep."""
        return sum(operator.written_bytes for operator in self.operators)


class CapturedModel(Explained):
    """What a module computes for one set of inputs: see `capture`."""

    name: str
    layers: tuple[CapturedLayer, ...]

    @cached_property
    def parameters(self) -> int:
        """Parameters in all; shared ones are counted once."""
        return sum(layer.repeat * layer.parameters for layer in self.layers)

    @cached_property
    def flops(self) -> int:
        """FLOPs of one forward pass."""
        return sum(layer.repeat * layer.flops for layer in self.layers)

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes read and written in one forward pass, each operator running alone."""
        return sum(layer.repeat * layer.moved_bytes for layer in self.layers)

    @cached_property
    def flops_by_operator(self) -> dict[str, int]:
        """FLOPs of one forward pass by the operator's name."""
        found: dict[str, int] = {}
        for layer in self.layers:
            for operator in layer.operators:
                if operator.flops:
                    found.setdefault(operator.name, 0)
                    found[operator.name] += layer.repeat * operator.flops
        return found
