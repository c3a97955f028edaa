"""All importers, and which of them reads a file: told from its content, never from its name."""

from __future__ import annotations

import difflib
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ..errors import InvalidInput, Problem
from .facts import Facts
from .source import Source
from .usable_names import with_usable_names

MODULES: tuple[str, ...] = (
    "ascend_rank_table",
    "astra_sim",
    "aws_topology",
    "cluster_uuids",
    "containerlab",
    "gaudi_hcl",
    "hived",
    "hwloc_xml",
    "iblinkinfo",
    "ibnetdiscover",
    "kueue",
    "lingjun",
    "lldp",
    "name_lists",
    "nccl_graph",
    "nccl_log",
    "nccl_ras",
    "nccl_tests_log",
    "nccl_topo",
    "netq",
    "node_labels",
    "nvidia_smi_nvlink",
    "nvidia_smi_topo",
    "oci_hosts",
    "rocm_topo",
    "simai",
    "slurm_conf",
    "slurm_yaml",
    "topograph_model",
    "topograph_output",
    "volcano",
)
"""The modules of this package that hold importers; each lists its own as `IMPORTERS`."""
_SHOWN = 60


@dataclass(frozen=True)
class Importer:
    """One format.

    name: for `--format` and messages, such as `slurm-topology-conf`. title: what people call it.
    produced_by: the command or place that such a file comes from.
    certainty: 0 (not this format) to 1 (certainly), by content; cheap, and never raises.
    read: the facts. Raises InvalidInput naming line and reason.
    """

    name: str
    title: str
    produced_by: str
    certainty: Callable[[Source], float]
    read: Callable[[Source], Facts]
    read_by_levels: Callable[[Source, Mapping[str, Sequence[str]]], Facts] | None = None
    """For labelled nodes: the same, with the levels that another file names (`label_levels`)."""


@cache
def importers() -> tuple[Importer, ...]:
    """Every importer, by name."""
    found = [
        _checked(importer)
        for module in MODULES
        for importer in importlib.import_module(f".{module}", __package__).IMPORTERS
    ]
    return tuple(sorted(found, key=lambda importer: importer.name))


def _checked(importer: Importer) -> Importer:
    by_levels = importer.read_by_levels
    return replace(
        importer,
        read=with_usable_names(importer.read),
        read_by_levels=with_usable_names(by_levels) if by_levels else None,
    )


def named(name: str) -> Importer:
    """The importer of that name. Raises InvalidInput with those there are."""
    for importer in importers():
        if importer.name == name:
            return importer
    names = [importer.name for importer in importers()]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    problem = Problem("format", f"no importer {name!r}", f"{hint}there are: {', '.join(names)}")
    raise InvalidInput("import", [problem])


def recognised(source: Source) -> Importer | None:
    """The importer that is surest of the file; None where none claims it."""
    best = max(importers(), key=lambda importer: importer.certainty(source), default=None)
    return best if best is not None and best.certainty(source) > 0 else None


def read_source(source: Source, format_name: str | None = None) -> Facts:
    """What a file says. format_name: the importer to use; told from the content when None.

    Raises InvalidInput naming line and reason, and the known formats for a file that is none.
    """
    return _importer_of(source, format_name).read(source)


def read_facts(path: str | os.PathLike[str], format_name: str | None = None) -> Facts:
    """What the file at `path` says. Raises InvalidInput."""
    return read_source(Source.load(path), format_name)


def read_files(
    paths: Iterable[str | os.PathLike[str]], format_name: str | None = None
) -> dict[str, Facts]:
    """What files that belong together say, by their paths. Raises InvalidInput.

    Files that name levels of labels are read first, and labelled nodes by them.
    """
    return read_sources([Source.load(path) for path in dict.fromkeys(paths)], format_name)


def read_sources(sources: Sequence[Source], format_name: str | None = None) -> dict[str, Facts]:
    """The same of files that are loaded, by their names."""
    of = {source.name: _importer_of(source, format_name) for source in sources}
    levels: dict[str, tuple[str, ...]] = {}
    found: dict[str, Facts] = {}
    for source in sorted(sources, key=lambda source: of[source.name].read_by_levels is not None):
        importer = of[source.name]
        by_levels = importer.read_by_levels
        found[source.name] = by_levels(source, levels) if by_levels else importer.read(source)
        levels.update(found[source.name].label_levels)
    return {source.name: found[source.name] for source in sources}


def _importer_of(source: Source, format_name: str | None) -> Importer:
    importer = named(format_name) if format_name else recognised(source)
    if importer is None:
        raise _unknown(source)
    return importer


def _unknown(source: Source) -> InvalidInput:
    if not source.text.strip():
        return source.refuse("", "the file is empty", "hand in the whole file")
    if source.xml_problem is not None:
        return InvalidInput(source.name, [source.xml_problem])
    first = next(line.strip() for line in source.lines if line.strip())
    found = f"no format that is known here; it begins with {first[:_SHOWN]!r}"
    fix = "railweave import --formats lists what can be read; name one with --format"
    return source.refuse("", found, fix)
