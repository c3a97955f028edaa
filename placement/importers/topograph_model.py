"""Models of topograph: switches over switches, and blocks of nodes below them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .accelerator_domains import PART, with_accelerator_domains
from .declared_trees import NoTree, tree_of
from .facts import Facts, Network
from .hostlists import MOST_NAMES, HostlistError, expanded, folded
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, values_of
from .registry import Importer
from .slurm_parts import tree_summary, tree_warnings
from .source import Source
from .tier_names import NVLINK

NAME = "topograph-model"
_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/domain$")
_SUB_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/sub-domain$")
_MARK = re.compile(r"^[\"'{ ]*(switches|blocks)[\"']?\s*:", re.M)


def certainty(source: Source) -> float:
    """How sure it is: switches by name with child switches, or blocks with nodes."""
    if not _MARK.search(source.text):
        return 0.0
    if not source.documents:
        return 0.3 if "nodes:" in source.text and "switch:" in source.text else 0.0
    first = source.documents[0]
    if not isinstance(first, dict):
        return 0.0
    blocks, switches = first.get("blocks"), first.get("switches")
    if isinstance(blocks, list) and any(isinstance(b, dict) and "nodes" in b for b in blocks):
        return 0.9
    known = isinstance(switches, dict) and any(
        isinstance(one, dict) and "switches" in one for one in switches.values()
    )
    return 0.7 if known else 0.0


@dataclass
class _Model:
    """What the file lists, by switch and by node."""

    children: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read(source: Source) -> Facts:
    """The tree, the nodes and their accelerator domains. Raises InvalidInput."""
    model = _read_model(source)
    try:
        tree = tree_of(model.children, model.nodes, lambda name: _line(source, name))
    except NoTree as error:
        raise source.refuse(error.place, error.found, error.fix) from error
    network = tree.network()
    warnings = [*model.warnings, *tree_warnings(tree)]
    if model.loose:
        warnings.append(
            f"{len(model.loose)} nodes are in blocks without a switch: {folded(model.loose)}"
        )
        domains = {**network.domains, **{name: {} for name in model.loose}}
        network = Network(network.tiers, domains)
    notes = {
        name: {**_above(tree.above.get(name), tree.parent, model), **has}
        for name, has in model.told.items()
    }
    network, found = with_accelerator_domains(
        network, _by_key(notes, _DOMAIN), _by_key(notes, _SUB_DOMAIN)
    )
    members = network_summary(network)["domains"]
    summary: dict[str, Any] = {
        "nodes": len(model.told),
        "node_list": folded(model.told),
        **tree_summary(tree, {}),
        "switches_not_declared": [name for name in model.nodes if name not in model.children],
        "switch_labels": model.labels,
        "accelerator_domains": members.get(NVLINK, {}),
        "accelerator_sub_domains": members.get(PART, {}),
    }
    return Facts(NAME, summary, network, warnings=(*warnings, *found))


def _read_model(source: Source) -> _Model:
    data = mapping_of(source, values_of(source)[0], "the model")
    model = _Model()
    for key, value in mapping_of(source, data.get("switches") or {}, "switches").items():
        name = name_of(source, key, "switches")
        place = f"switches.{name}"
        body = mapping_of(source, value if value is not None else {}, place)
        kids = list_of(source, body.get("switches"), f"{place}.switches")
        model.children[name] = [name_of(source, kid, f"{place}.switches") for kid in kids]
        if body.get("labels"):
            model.labels[name] = _texts(source, body["labels"], f"{place}.labels")
        notes = body.get("annotations") or {}
        model.annotations[name] = _texts(source, notes, f"{place}.annotations")
    for index, value in enumerate(list_of(source, data.get("blocks"), "blocks")):
        _read_block(
            source, model, f"blocks[{index}]", mapping_of(source, value, f"blocks[{index}]")
        )
    if not model.told:
        raise source.refuse("", "no nodes: no block has any", "hand in the whole model")
    return model


def _read_block(source: Source, model: _Model, place: str, block: dict[str, Any]) -> None:
    names = _nodes(source, place, block.get("nodes"), MOST_NAMES - len(model.told))
    notes = {
        **_texts(source, block.get("labels") or {}, place),
        **_texts(source, block.get("annotations") or {}, place),
    }
    for name in names:
        if name in model.told:
            raise source.refuse(place, f"node {name!r} is in two blocks", "put it into one")
        model.told[name] = notes
    if block.get("switch") is None:
        model.loose += names
    else:
        model.nodes.setdefault(name_of(source, block["switch"], place), []).extend(names)
    if not names:
        model.warnings.append(f"{place}: no nodes")


def _line(source: Source, name: str) -> str:
    key = rf"^[ \"']*(- switch: *)?[\"']?{re.escape(name)}[\"']?[ \t]*:?"
    match = re.search(key, source.text, re.M)
    return f"line {source.text.count(chr(10), 0, match.start()) + 1}" if match else repr(name)


def _texts(source: Source, value: Any, place: str) -> dict[str, str]:
    return {
        str(key): str(one).strip()
        for key, one in mapping_of(source, value, place).items()
        if isinstance(one, str | int | float)
    }


def _nodes(source: Source, place: str, value: Any, most: int) -> list[str]:
    texts = value if isinstance(value, list) else [] if value is None else [value]
    try:
        names = (
            expanded(",".join(name_of(source, text, place) for text in texts), most)
            if texts
            else []
        )
    except HostlistError as error:
        raise source.refuse(place, str(error), "write a list such as node[01-04]") from error
    if len(set(names)) < len(names):
        raise source.refuse(place, "a node is listed twice", "list it once")
    return names


def _above(switch: str | None, parent: Mapping[str, str], model: _Model) -> dict[str, str]:
    """What the switches above tell of a node; the nearer one is believed."""
    path: list[str] = []
    while switch is not None:
        path.append(switch)
        switch = parent.get(switch)
    found: dict[str, str] = {}
    for one in reversed(path):
        found |= model.annotations.get(one, {})
    return found


def _by_key(notes: dict[str, dict[str, str]], pattern: re.Pattern[str]) -> dict[str, str]:
    return {
        name: value
        for name, has in notes.items()
        for key, value in has.items()
        if pattern.match(key)
    }


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "topograph model", "tests/models of topograph", certainty, read),
)
