"""Folding a traced module: numbered parts that are alike become one layer with a count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .captured import CapturedLayer, CapturedOperator


@dataclass
class _Part:
    """Operators and parameters of a part: a child module, or what its parent does itself."""

    name: str
    operators: list[tuple[str, CapturedOperator]] = field(default_factory=list)
    parameters: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def family(self) -> str | None:
        """The list of modules it is a numbered member of."""
        before, _, last = self.name.rpartition(".")
        return before if last.isdigit() else None

    def layer(self, repeat: int) -> CapturedLayer:
        start = len(self.name) + 1 if self.name else 0
        return CapturedLayer(
            name=self.name,
            repeat=repeat,
            parameters=sum(_elements(shape) for shape in self.parameters.values()),
            operators=tuple(
                operator.model_copy(update={"module": path[start:]})
                for path, operator in self.operators
            ),
        )

    def signature(self) -> tuple[object, ...]:
        """Equal for parts that do and hold the same."""
        start = len(self.name) + 1
        return (
            self.family,
            tuple((path[start:], operator) for path, operator in self.operators),
            tuple(sorted((name[start:], shape) for name, shape in self.parameters.items())),
        )


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def fold(
    operators: Sequence[tuple[str, CapturedOperator]], parameters: Mapping[str, tuple[int, ...]]
) -> tuple[CapturedLayer, ...]:
    """Layers of a module from its operators, each with its module's path, in order.

    parameters: the shape of each by its full name, shared ones under one name alone. Members of a
    list of modules that do and hold the same are one layer, wherever they stand in it.
    """
    whole = _Part("", list(operators), dict(parameters))
    return tuple(_layers(whole, split=True))


def _layers(part: _Part, split: bool) -> list[CapturedLayer]:
    """The layers inside a part; the part itself when it is not to be split and nothing repeats."""
    parts = _children(part)
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], _Part] = {}
    for child in parts:
        mark = child.signature() if child.family is not None else (child.name,)
        counts[mark] = counts.get(mark, 0) + 1
        first.setdefault(mark, child)
    inside: list[CapturedLayer] = []
    repeats = any(count > 1 for count in counts.values())
    for mark, child in first.items():
        if counts[mark] > 1 or child.name == part.name:
            inside.append(child.layer(counts[mark]))
            continue
        found = _layers(child, split=False)
        repeats = repeats or any(layer.repeat > 1 for layer in found)
        inside.extend(found)
    return inside if split or repeats else [part.layer(1)]


def _children(part: _Part) -> list[_Part]:
    children: dict[str, _Part] = {}
    for path, operator in part.operators:
        name = _child(path, part.name)
        children.setdefault(name, _Part(name)).operators.append((path, operator))
    for parameter, shape in part.parameters.items():
        name = _child(parameter.rpartition(".")[0], part.name)
        children.setdefault(name, _Part(name)).parameters[parameter] = shape
    return list(children.values())


def _child(path: str, parent: str) -> str:
    """The part of `parent` that a module belongs to: a member of a list, a child, or itself."""
    rest = path[len(parent) + 1 :] if parent else path
    if not rest:
        return parent
    steps = rest.split(".")
    numbered = len(steps) > 1 and steps[1].isdigit() and not steps[0].isdigit()
    name = ".".join(steps[: 2 if numbered else 1])
    return f"{parent}.{name}" if parent else name
