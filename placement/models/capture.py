"""Tracing a torch module without running it: operators, their work, and layers folded."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, Problem
from .captured import CapturedModel, CapturedOperator, Shape
from .folding import fold

if TYPE_CHECKING:
    import torch


def capture(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: Mapping[str, Any] | None = None
) -> CapturedModel:
    """What a module computes for inputs of these shapes, traced by torch.export.

    Nothing is computed and no memory is taken for tensors: module and inputs are copied to the
    meta device. Layers that are alike are folded, shared parameters are counted once. Dropout and
    the like are as the module's mode says. Raises ModuleNotFoundError without torch, InvalidInput
    when the forward pass depends on the values of tensors or cannot be traced for another reason.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        hint = "capture() needs torch: install it with `pip install railweave[torch]`"
        raise ModuleNotFoundError(hint, name="torch") from error
    if not isinstance(module, torch.nn.Module):
        found = f"a {type(module).__name__} instead of a torch.nn.Module"
        raise InvalidInput("capture", [Problem("module", found, "give a module")])
    if not isinstance(inputs, tuple):
        found = f"a {type(inputs).__name__} instead of a tuple"
        raise InvalidInput("capture", [Problem("inputs", found, "give (first, second, ...)")])
    shadow, arguments, named = _on_meta(module, inputs, dict(keywords or {}))
    name = type(module).__name__
    try:
        program = torch.export.export(shadow, arguments, named, strict=False)
        # Attention stays one operator; all else becomes products, convolutions and simple ones.
        table = torch.export.default_decompositions()
        del table[torch.ops.aten.scaled_dot_product_attention.default]
        program = program.run_decompositions(table)
    except Exception as error:
        # torch.export raises whatever the module's own code or one of its tracers trips over.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        fix = "make its forward pass independent of the values of tensors, or fit the inputs"
        fault = Problem("module", f"{name} cannot be traced: {lines[0][:300]}", fix)
        raise InvalidInput("capture", [fault]) from error
    parameters = {key: tuple(p.shape) for key, p in shadow.named_parameters()}
    return CapturedModel(name=name, layers=fold(list(_operators(program)), parameters))


def _on_meta(
    module: torch.nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A copy of a module that has no data, and the inputs without theirs."""
    import torch
    from torch.utils import _pytree

    # Told that these are copied already, deepcopy takes no memory for them and keeps ties.
    memo: dict[int, Any] = {
        id(p): torch.nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad)
        for p in module.parameters()
    }
    memo |= {id(buffer): buffer.detach().to("meta") for buffer in module.buffers()}
    shadow = copy.deepcopy(module, memo)

    def empty(value: Any) -> Any:
        return value.detach().to("meta") if isinstance(value, torch.Tensor) else value

    arguments, named = _pytree.tree_map(empty, (inputs, keywords))
    return shadow, arguments, named


def _operators(program: torch.export.ExportedProgram) -> Iterator[tuple[str, CapturedOperator]]:
    """The operators of a program in order, each with the path of its module."""
    import torch

    names = program.graph_signature.inputs_to_parameters
    source: dict[Any, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            source[node] = names[node.name]
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        view = node.target.is_view
        if view and node.args and node.args[0] in source:
            source[node] = source[node.args[0]]
        read = [n for n in node.all_input_nodes if _tensors(n.meta.get("val"))]
        inputs = [tensor for n in read for tensor in _tensors(n.meta["val"])]
        outputs = _tensors(node.meta.get("val"))
        owned = {source[n]: n for n in read if n in source}
        stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
        yield (
            stack[-1][0],
            CapturedOperator(
                name=node.target._schema.name.removeprefix("aten::"),
                module="",
                inputs=tuple(_shape(tensor) for tensor in inputs),
                outputs=tuple(_shape(tensor) for tensor in outputs),
                flops=_flops(node, outputs),
                read_bytes=0 if view else sum(_bytes(tensor) for tensor in inputs),
                written_bytes=0 if view else sum(_bytes(tensor) for tensor in outputs),
                parameters=0 if view else sum(n.meta["val"].numel() for n in owned.values()),
            ),
        )


def _tensors(value: Any) -> list[Any]:
    values = value if isinstance(value, tuple | list) else (value,)
    return [item for item in values if hasattr(item, "untyped_storage")]


def _shape(tensor: Any) -> Shape:
    return tuple(int(size) for size in tensor.shape)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _flops(node: Any, outputs: list[Any]) -> int:
    """FLOPs of an operator, 2 a multiplication with its addition."""
    name = node.target._schema.name.removeprefix("aten::")
    shapes = [
        _shape(arg.meta["val"]) if hasattr(arg, "meta") and _tensors(arg.meta.get("val")) else ()
        for arg in node.args
    ]
    if name in ("mm", "bmm"):
        return 2 * int(outputs[0].numel()) * shapes[0][-1]
    if name in ("addmm", "baddbmm"):
        return 2 * int(outputs[0].numel()) * shapes[1][-1]
    if name == "convolution":
        _, inner, *taps = shapes[1]
        # A transposed convolution multiplies each input with the taps, another each output.
        reached = shapes[0] if node.args[6] else _shape(outputs[0])
        products = inner
        for size in (*reached, *taps):
            products *= size
        return 2 * products
    if name == "scaled_dot_product_attention":
        *batch, queries, width = shapes[0]
        pairs = queries * shapes[1][-2] * (width + shapes[2][-1])
        for size in batch:
            pairs *= size
        return 2 * pairs
    return 0
