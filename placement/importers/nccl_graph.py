"""NCCL's graph XML: the rings and trees that it found for one number of GPUs."""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element

from ..errors import Problem
from .facts import Facts
from .nccl_elements import whole
from .registry import Importer
from .source import Source

PATTERNS: dict[int, str] = {
    1: "balanced tree",
    2: "split tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet direct",
}
"""NCCL's numbers of communication patterns (NCCL_TOPO_PATTERN_* in its graph.h)."""
_MOST_ENTRIES = 1_000_000
_FLOAT = re.compile(r"\d{1,9}(\.\d{1,9})?([eE][+-]?\d{1,2})?")


def pattern_name(number: int | None) -> str:
    """The word for one of NCCL's pattern numbers."""
    return PATTERNS.get(number, f"pattern {number}") if number is not None else "unknown"


def _certainty(source: Source) -> float:
    root = source.xml
    return 0.95 if root is not None and root.tag == "graphs" else 0.0


def _read(source: Source) -> Facts:
    root = source.xml
    if root is None or root.tag != "graphs":
        raise source.refuse("", "no graphs element", "hand in the file of NCCL_GRAPH_DUMP_FILE")
    graphs = [_graph(source, element) for element in root.findall("graph")]
    if not graphs:
        found = "graphs without a graph"
        raise source.refuse(source.line_of("<graphs"), found, "hand in the whole file")
    numbers = [graph["id"] for graph in graphs]
    if len(set(numbers)) < len(numbers):
        raise source.refuse("", "two graphs have one id", "hand in the file as NCCL wrote it")
    gpus = sorted({gpu for graph in graphs for path in graph["paths"] for gpu in path["gpus"]})
    nets = sorted({n for g in graphs for path in g["paths"] for n in path["nets"]}, key=str)
    warnings = _warnings(source, graphs, gpus)
    summary = {
        "graph_count": len(graphs),
        "gpus": len(gpus),
        "gpu_numbers": gpus,
        "nets": nets,
        "single_node_only": not nets,
        "graphs": graphs,
        "not_told": ["links and NUMA nodes: the file holds only the paths that NCCL chose"],
    }
    fix = "add the topology of the node: NCCL_TOPO_DUMP_FILE or nvidia-smi topo -m"
    found = f"paths that NCCL chose for {len(gpus)} GPUs of one node, not the node itself"
    return Facts(
        "nccl-graph-xml",
        summary,
        not_alone=Problem("", found, fix),
        warnings=tuple(warnings),
    )


def _graph(source: Source, element: Element) -> dict[str, Any]:
    pattern = whole(element.get("pattern"))
    number = whole(element.get("id"))
    place = source.line_of(f'<graph id="{element.get("id")}"')
    if number is None:
        raise source.refuse(source.line_of("<graph "), "a graph without id", "hand in the file")
    channels = element.findall("channel")
    promised = whole(element.get("nchannels"))
    if promised is not None and promised != len(channels):
        found = f"graph {number} promises {promised} channels and has {len(channels)}"
        raise source.refuse(place, found, "hand in the whole file")
    paths = [_path(source, place, channel) for channel in channels]
    sizes = {len(path["gpus"]) for path in paths}
    members = {frozenset(path["gpus"]) for path in paths}
    if pattern not in (5, 6) and (len(sizes) > 1 or len(members) > 1):
        found = f"channels of graph {number} go over different GPUs"
        raise source.refuse(place, found, "hand in the file as NCCL wrote it")
    return {
        "id": number,
        "pattern": pattern,
        "pattern_name": pattern_name(pattern),
        "channels": len(paths),
        "usable": bool(paths),
        "cross_nic": whole(element.get("crossnic")),
        "gbyte_per_s_intra": _number(element.get("speedintra")),
        "gbyte_per_s_inter": _number(element.get("speedinter")),
        "latency_inter_us": _number(element.get("latencyinter")),
        "type_intra": element.get("typeintra"),
        "type_inter": element.get("typeinter"),
        "same_channels": whole(element.get("samechannels")),
        "nets_in": sorted({path["nets"][0] for path in paths if path["nets"]}, key=str),
        "nets_out": sorted({path["nets"][-1] for path in paths if path["nets"]}, key=str),
        "paths": paths,
    }


def _path(source: Source, place: str, channel: Element) -> dict[str, Any]:
    """GPUs and nets of a channel in their order."""
    if len(channel) > _MOST_ENTRIES:
        raise source.refuse(place, f"a channel of {len(channel)} entries", "hand in one node's")
    gpus = [_dev(source, place, one) for one in channel if one.tag == "gpu"]
    if len(set(gpus)) < len(gpus):
        raise source.refuse(place, "a channel goes over one GPU twice", "hand in the file")
    nets = [_dev(source, place, one) for one in channel if one.tag == "net"]
    return {"gpus": gpus, "nets": nets}


def _dev(source: Source, place: str, element: Element) -> int:
    """The device number; newer versions write those of nets as `0x1`, a system id before them."""
    text = element.get("dev", "")
    number = whole(text)
    if number is None and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text):
        number = int(text, 16) & 0x00FF_FFFF_FFFF_FFFF
    if number is None or number < 0:
        found = f"a {element.tag} of a channel has the number {text!r}"
        raise source.refuse(place, found, "hand in the file as NCCL wrote it")
    return number


def _number(text: str | None) -> float | None:
    plain = (text or "").strip()
    return float(plain) if _FLOAT.fullmatch(plain) else None


def _warnings(source: Source, graphs: list[dict[str, Any]], gpus: list[int]) -> list[str]:
    found = [
        f"{source.line_of('<graph')}: these graphs apply to exactly {len(gpus)} GPUs; left in "
        "place as NCCL_GRAPH_FILE they break runs on another number"
    ]
    for graph in graphs:
        place = source.line_of(f'<graph id="{graph["id"]}"')
        before = f"{place}: graph {graph['id']}"
        ends = {*graph["nets_in"], *graph["nets_out"]}
        if not graph["channels"]:
            found.append(f"{before} has no channels: not usable")
        elif len(ends) == 1 and graph["channels"] > 1:
            found.append(f"{before}: all traffic on one net ({next(iter(ends))})")
    return found


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nccl-graph-xml",
        title="NCCL graph XML",
        produced_by="NCCL_GRAPH_DUMP_FILE=graph.xml in the environment of a job",
        certainty=_certainty,
        read=_read,
    ),
)
