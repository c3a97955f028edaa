"""`railweave import`: a cluster file out of the files that a site already has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...placement.errors import InvalidInput
from ...placement.importers.clusters import Choices, Imported, assembled
from ...placement.importers.facts import Facts
from ...placement.importers.registry import importers, named, read_files
from .main import Failed
from .output import check_outputs, console, json_option, print_json, table
from .tree import cluster_tree

_MOST_LISTED = 12
_MOST_ALIKE = 4


@click.command("import")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the cluster file here.")
@click.option("--format", "format_name", help="Read every file as this format.")
@click.option("--formats", "list_formats", is_flag=True, help="List the formats, and stop.")
@click.option("--name", default="imported", show_default=True, help="The cluster's name.")
@click.option("--accelerator", help="What kind of device the nodes have.")
@click.option("--devices", type=click.IntRange(1, 1024), help="How many devices a node has.")
@click.option("--rails", type=click.IntRange(1, 64), help="How many NICs a node has.")
@click.option(
    "--nic-bandwidth",
    type=click.FloatRange(min=0, min_open=True),
    help="Bytes/s of one NIC in one direction.",
)
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="FILE=PATTERN",
    help="Which nodes (such as dgx-*) the machine that a file describes stands for.",
)
@click.option("--without-tier", "without_tiers", multiple=True, help="Leave a tier out.")
@json_option
def command(
    files: tuple[str, ...],
    out: str | None,
    format_name: str | None,
    list_formats: bool,
    name: str,
    accelerator: str | None,
    devices: int | None,
    rails: int | None,
    nic_bandwidth: float | None,
    machines: tuple[str, ...],
    without_tiers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Read files that tell of a network, of nodes or of measurements, as one cluster.

    The format of each is told from its content. Shows what each file says and what was assumed.
    """
    if list_formats:
        _list_formats(as_json)
        return
    if not files:
        raise click.UsageError("give at least one file, or --formats to see what can be read")
    if nic_bandwidth is not None and not math.isfinite(nic_bandwidth):
        raise click.BadParameter("give bytes per second", param_hint="'--nic-bandwidth'")
    given = [("--name", name), ("--accelerator", accelerator), *(("FILE", file) for file in files)]
    for option, text in given:
        if text is not None and not text.strip():
            raise click.BadParameter("it is empty", param_hint=f"'{option}'")
    check_outputs(out)
    choices = Choices(
        name=name,
        accelerator=accelerator,
        devices=devices,
        rails=rails,
        nic_bytes_per_s=nic_bandwidth,
        machine_nodes=_patterns(machines, files),
        without_tiers=without_tiers,
    )
    facts = read_files(files, format_name)
    _check_choices(facts, choices)
    try:
        imported = assembled(facts, choices)
    except InvalidInput as error:
        if as_json:
            print_json({"files": _files_data(facts), "cluster": None, "problem": str(error)})
        else:
            console().print(*(_shown(file, each) for file, each in facts.items()), sep="\n")
        raise Failed(str(error)) from error
    if out:
        imported.cluster.save(out)
    if as_json:
        print_json(
            {
                "files": _files_data(facts),
                "cluster": imported.cluster.to_data(),
                "warnings": list(imported.warnings),
            }
        )
        return
    console().print(_summary(imported))
    if out:
        console().print(f"written: {out}")


def _patterns(machines: tuple[str, ...], files: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for given in machines:
        file, equals, pattern = given.rpartition("=")
        if not equals or not pattern:
            raise click.BadParameter(f"{given!r} is not FILE=PATTERN", param_hint="'--machine'")
        if file not in files:
            say = f"{file!r} is not among the files given: {', '.join(files)}"
            raise click.BadParameter(say, param_hint="'--machine'")
        found[file] = pattern
    return found


def _check_choices(facts: Mapping[str, Facts], choices: Choices) -> None:
    """Refuse choices about what no file has: they are slips of the keyboard."""
    for file in choices.machine_nodes:
        if len(facts[file].machines) != 1:
            has = len(facts[file].machines) or "no"
            say = f"{file} describes {has} machines; this is for a file that describes one"
            raise click.BadParameter(say, param_hint="'--machine'")
    tiers = {t.name: None for each in facts.values() if each.network for t in each.network.tiers}
    for name in choices.without_tiers:
        if name not in tiers:
            say = f"no file has a tier {name!r}; there are: {', '.join(tiers) or 'none'}"
            raise click.BadParameter(say, param_hint="'--without-tier'")


def _list_formats(as_json: bool) -> None:
    if as_json:
        print_json([{"name": i.name, "title": i.title, "from": i.produced_by} for i in importers()])
        return
    rows = [(each.name, each.title, each.produced_by) for each in importers()]
    console().print(table(["format", "what it is", "where it comes from"], rows))


def _files_data(facts: Mapping[str, Facts]) -> list[dict[str, Any]]:
    return [
        {
            "file": file,
            "format": each.format,
            "summary": dict(each.summary),
            "measurements": dict(each.measurements),
            "warnings": list(each.warnings),
        }
        for file, each in facts.items()
    ]


def _summary(imported: Imported) -> Group:
    parts: list[RenderableType] = [_shown(file, each) for file, each in imported.facts.items()]
    said = {w for file, each in imported.facts.items() for w in _prefixed(file, each)}
    others = [warning for warning in imported.warnings if warning not in said]
    parts += [Text(f"note: {warning}", "yellow") for warning in others]
    return Group(*parts, cluster_tree(imported.cluster))


def _prefixed(file: str, facts: Facts) -> list[str]:
    return [f"{file}: {warning}" for warning in facts.warnings]


def _shown(file: str, facts: Facts) -> Group:
    title = named(facts.format).title
    rows = [(key.replace("_", " "), _value(value)) for key, value in facts.summary.items()]
    return Group(
        Text.assemble((file, "bold"), f": {title}"),
        table(["", ""], rows),
        *(Text(f"warning: {warning}", "yellow") for warning in facts.warnings),
        *(
            [Text(f"{len(facts.measurements)} measured: {_value(dict(facts.measurements))}")]
            if facts.measurements
            else []
        ),
    )


def _value(value: Any, inside: bool = False) -> str:
    """A figure for people; what is alike for all keys is said once."""
    if value is None:
        return "unknown"
    if isinstance(value, list | tuple):
        text = _cut([_value(each, True) for each in value], ", ")
        return (f"({text})" if inside and text else text) or "none"
    if isinstance(value, Mapping):
        texts = {key: _value(each, True) for key, each in value.items()}
        if len(texts) > _MOST_ALIKE and len(set(texts.values())) == 1:
            return f"{next(iter(texts.values()))} for all {len(texts)}"
        text = _cut([f"{key}: {each}" for key, each in texts.items()], ", " if inside else "; ")
        return (f"({text})" if inside and text else text) or "none"
    return value if isinstance(value, str) else json.dumps(value)


def _cut(texts: list[str], between: str) -> str:
    more = len(texts) - _MOST_LISTED
    return between.join(texts[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
