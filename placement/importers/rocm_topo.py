"""`rocm-smi --showtopo` and `amd-smi topology`: how a node's AMD GPUs are joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ..accelerator_names import kind_of_product
from ..links import MOST_LINKED_DEVICES
from .facts import ANY_NODE, Facts, Machine
from .node_paths import ANY_NUMA, SAME_NUMA, XGMI_BYTES_PER_S, counted, links_of
from .registry import Importer
from .source import Source

_NUMBER = re.compile(r"\d{1,9}")
_TITLES: dict[str, str] = {
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type between two gpus": "type",
    "link accessibility between two gpus": "access",
    "bandwidth between two gpus": "bandwidth",
    "bandwidth": "bandwidth",
    "numa nodes": "numa",
    "access table": "access",
    "weight table": "weight",
    "hops table": "hops",
    "link type table": "type",
    "numa bw table": "bandwidth",
    "cache coherency table": "",
    "atomics table": "",
    "dma table": "",
    "bi-directional table": "",
}
"""What each table holds, by its title in small letters; tables that are not needed are empty."""
_SIDE_BY_SIDE = re.compile(r"(?:weight|hops|link type|link accessibility)\b", re.IGNORECASE)
_GPU = r"(?:GPU|card)\s?\[?(\d{1,4})\]?"
_NUMA = re.compile(
    rf"^\s*{_GPU}\s*:\s*\(Topology\)\s*Numa\s+(Node|Affinity)\s*:\s*(-?\d{{1,6}})\s*$"
)
_SERIES = re.compile(rf"^\s*{_GPU}\s*:\s*Card [Ss]eries:(.+)$")
_LABEL = re.compile(r"GPU\d{1,4}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
_PAIR = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})"
)
_ITSELF = frozenset({"0", "SELF", "N/A", "TRUE", "ENABLED", "X"})
_TYPES = {"XGMI": "XGMI", "PCIE": "PCIE"}
_XGMI_WEIGHT = 15
"""What the kernel counts for one xGMI link; a path of several has a multiple."""


@dataclass
class _Tables:
    """Cells by table and pair of labels, with the line of each row; NUMA nodes by label."""

    labels: tuple[str, ...] = ()
    cells: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    numa: dict[str, int | None] = field(default_factory=dict)
    affinity: dict[str, int | None] = field(default_factory=dict)
    numa_line: int | None = None
    products: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def cell(self, table: str, a: str, b: str) -> str | None:
        return self.cells.get(table, {}).get((a, b))


def _certainty(source: Source) -> float:
    if _rocm_json(source) or _amd_json(source):
        return 0.95
    text = source.text.casefold()
    if not any(title in text for title in ("between two gpus", "link type table", "weight table")):
        return 0.95 if "(topology) numa node" in text else 0.0
    return 0.9 if re.search(r"GPU\d|[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", source.text) else 0.0


def _read(source: Source) -> Facts:
    if _rocm_json(source):
        tables = _from_rocm_json(source)
    elif _amd_json(source):
        tables = _from_amd_json(source)
    else:
        tables = _from_text(source)
    if not tables.labels:
        found = "no table of GPUs"
        raise source.refuse("", found, "hand in the output of rocm-smi --showtopo")
    if len(tables.labels) > MOST_LINKED_DEVICES:
        found = f"{len(tables.labels)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse("", found, "hand in the tables of one node")
    _check(source, tables)
    machine, summary = _machine(source, tables)
    return Facts(
        "rocm-topo", summary, machines={ANY_NODE: machine}, warnings=tuple(tables.warnings)
    )


def _from_text(source: Source) -> _Tables:
    tables = _Tables()
    table = ""
    columns: tuple[str, ...] = ()
    wanted: dict[str, tuple[str, ...]] = {}
    heads: dict[str, int] = {}
    for number, line in enumerate(source.lines, start=1):
        words = line.split()
        plain = line.strip().strip("=").strip().rstrip(":").casefold()
        if plain in _TITLES:
            table, columns = _TITLES[plain], ()
            if table and table in heads:
                found = f"a second table {plain!r}; the first is at line {heads[table]}"
                raise source.refuse(f"line {number}", found, "give each node a file of its own")
            heads[table] = number
        elif len(_SIDE_BY_SIDE.findall(line)) > 1:
            count = {2: "two", 3: "three"}.get(len(_SIDE_BY_SIDE.findall(line)), "several")
            found = f"{count} matrices on the same lines"
            fix = "hand in the output of rocm-smi --showtopo as it was printed, one below another"
            raise source.refuse(f"line {number}", found, fix)
        elif match := _NUMA.match(line):
            _add_numa(source, tables, number, match)
        elif match := _SERIES.match(line):
            tables.products[f"GPU{match[1]}"] = match[2].strip()
        elif not words or not table or table == "numa" or not _LABEL.fullmatch(words[0]):
            if table == "numa" and words:
                tables.numa_line = number
        elif not columns and all(_LABEL.fullmatch(word) for word in words):
            columns = wanted[table] = _columns(source, number, words)
        elif columns:
            _add_row(source, tables, table, columns, number, words)
    for table, columns in wanted.items():
        _check_whole(source, tables, table, columns, heads[table])
    tables.labels = tables.labels or tuple({**tables.numa, **tables.affinity})
    return tables


def _columns(source: Source, number: int, words: Sequence[str]) -> tuple[str, ...]:
    if len(set(words)) < len(words):
        raise source.refuse(f"line {number}", "a GPU has two columns", "hand in the whole output")
    if len(words) > MOST_LINKED_DEVICES:
        found = f"{len(words)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse(f"line {number}", found, "hand in the tables of one node")
    return tuple(words)


def _add_row(
    source: Source,
    tables: _Tables,
    table: str,
    columns: tuple[str, ...],
    number: int,
    words: Sequence[str],
) -> None:
    label, cells = words[0], words[1:]
    place = f"line {number}"
    if label not in columns:
        raise source.refuse(place, f"a row of {label}, which has no column", "hand in the output")
    if (table, label) in tables.lines:
        found = f"a second row of {label}; the first is at line {tables.lines[table, label]}"
        raise source.refuse(place, found, "give each node a file of its own")
    if len(cells) != len(columns):
        found = f"the row of {label} has {len(cells)} of {len(columns)} cells"
        raise source.refuse(place, found, "hand in the whole output")
    tables.lines[table, label] = number
    held = tables.cells.setdefault(table, {})
    held.update({(label, column): cell for column, cell in zip(columns, cells, strict=True)})


def _check_whole(
    source: Source, tables: _Tables, table: str, columns: tuple[str, ...], line: int
) -> None:
    missing = [label for label in columns if (table, label) not in tables.lines]
    if missing:
        found = f"truncated table: rows {', '.join(missing)} are missing"
        raise source.refuse(f"line {line}", found, "hand in the whole output")
    tables.labels = tables.labels or columns
    if set(columns) != set(tables.labels):
        found = f"{len(columns)} GPUs here, {len(tables.labels)} in the table before"
        raise source.refuse(f"line {line}", found, "hand in the output of one run")


def _add_numa(source: Source, tables: _Tables, number: int, match: re.Match[str]) -> None:
    tables.numa_line = number
    held = tables.numa if match[2] == "Node" else tables.affinity
    label, value = f"GPU{int(match[1])}", int(match[3]) if int(match[3]) >= 0 else None
    if held.setdefault(label, value) != value:
        found = f"{label} on NUMA node {value}, before on {held[label]}"
        raise source.refuse(f"line {number}", found, "hand in the output of one node")


def _rocm_json(source: Source) -> dict[str, Any] | None:
    data = source.json
    system = data.get("system") if isinstance(data, dict) else None
    topology = isinstance(system, dict) and any(_PAIR.fullmatch(str(key)) for key in system)
    return data if topology else None


def _from_rocm_json(source: Source) -> _Tables:
    data = _rocm_json(source) or {}
    tables = _Tables()
    names: dict[str, None] = {}
    kinds = {"Weight": "weight", "Hops": "hops", "Link type": "type"}
    for key, value in data["system"].items():
        if match := _PAIR.fullmatch(str(key)):
            a, b = f"GPU{int(match[2])}", f"GPU{int(match[3])}"
            names |= dict.fromkeys((a, b))
            held = tables.cells.setdefault(kinds[match[1]], {})
            held[a, b] = held[b, a] = str(value).strip()
    for card, told in data.items():
        match = re.fullmatch(r"(?:card|GPU)(\d{1,4})", str(card))
        if match and isinstance(told, dict):
            label = f"GPU{int(match[1])}"
            names.setdefault(label)
            tables.numa[label] = _whole(told.get("(Topology) Numa Node"))
            tables.affinity[label] = _whole(told.get("(Topology) Numa Affinity"))
            series = told.get("Card Series", told.get("Card series"))
            if isinstance(series, str) and series.strip():
                tables.products[label] = series.strip()
    tables.labels = tuple(sorted(names, key=lambda name: int(name[3:])))
    for table, held in tables.cells.items():
        held.update({(label, label): "0" for label in tables.labels})
        for a, b in combinations(tables.labels, 2):
            if (a, b) not in held:
                found = f"no {table} between {a} and {b}"
                raise source.refuse("system", found, "hand in the whole output")
    return tables


def _amd_json(source: Source) -> list[dict[str, Any]] | None:
    data = source.json
    if isinstance(data, dict):
        data = next((v for v in data.values() if isinstance(v, list)), None)
    fits = (
        isinstance(data, list)
        and bool(data)
        and all(
            isinstance(one, dict) and isinstance(one.get("links"), list) and "gpu" in one
            for one in data
        )
    )
    return data if fits else None


def _from_amd_json(source: Source) -> _Tables:
    tables = _Tables()
    keys = {"weight": "weight", "num_hops": "hops", "link_type": "type", "bandwidth": "bandwidth"}
    data = _amd_json(source) or []
    labels = [f"GPU{one['gpu']}" for one in data]
    if len(set(labels)) < len(labels):
        raise source.refuse("", "a GPU is there twice", "hand in the output of one node")
    if len(labels) > MOST_LINKED_DEVICES:
        found = f"{len(labels)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse("", found, "hand in the output of one node")
    for label, one in zip(labels, data, strict=True):
        for link in one["links"]:
            other = f"GPU{link.get('gpu')}" if isinstance(link, dict) else None
            if other not in labels:
                found = f"a link of {label} to {other}, which is not described"
                raise source.refuse(f"links of {label}", found, "hand in the whole output")
            for key, table in keys.items():
                if key in link:
                    value = link[key]
                    shown = value.get("value") if isinstance(value, dict) else value
                    tables.cells.setdefault(table, {})[label, str(other)] = str(shown).strip()
    for table, held in tables.cells.items():
        for a in labels:
            for b in labels:
                if (a, b) not in held:
                    found = f"no {table} from {a} to {b}"
                    raise source.refuse(f"links of {a}", found, "hand in the whole output")
    tables.labels = tuple(labels)
    return tables


def _check(source: Source, tables: _Tables) -> None:
    """Raises InvalidInput for a cell that means nothing or contradicts its mirror."""
    for table, held in tables.cells.items():
        for a in tables.labels:
            own = held[a, a].upper()
            line = tables.lines.get((table, a))
            place = f"line {line}" if line else f"{table} of {a}"
            if own not in _ITSELF and _RANGE.fullmatch(own) is None:
                found = f"{table} of {a} with itself is {held[a, a]!r}"
                raise source.refuse(place, found, "0 stands there: hand in the output unchanged")
        for a, b in combinations(tables.labels, 2):
            there, back = held[a, b], held[b, a]
            if there != back and table in ("weight", "hops", "type"):
                line = tables.lines.get((table, b))
                place = f"line {line}" if line else f"{table} of {b}"
                found = f"{table} from {b} to {a} is {back}, but from {a} to {b} {there}"
                raise source.refuse(place, found, "hand in the output unchanged")
            if table == "type" and there.upper() not in _TYPES:
                tables.warnings.append(
                    f"{_of(tables, table, a)}link type between {a} and {b} is {there!r}: unknown"
                )
            elif table in ("weight", "hops") and not _NUMBER.fullmatch(there):
                tables.warnings.append(
                    f"{_of(tables, table, a)}{table} between {a} and {b} is {there!r}: unknown"
                )


def _of(tables: _Tables, table: str, label: str) -> str:
    line = tables.lines.get((table, label))
    return f"line {line}: " if line else ""


def _machine(source: Source, tables: _Tables) -> tuple[Machine, dict[str, Any]]:
    labels = tables.labels
    _warn_numa(source, tables)
    links = {f"{a}-{b}": _link(tables, a, b) for a, b in combinations(labels, 2)}
    numa = {label: _either(tables.affinity.get(label), tables.numa.get(label)) for label in labels}
    kinds = {kind_of_product(product) for product in tables.products.values()}
    bandwidth: dict[str, float] = {}
    matrix = [[_entry(tables, numa, bandwidth, a, b) for b in labels] for a in labels]
    known = all(entry is not None for row in matrix for entry in row)
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(labels),
        links=links_of([[str(e) for e in row] for row in matrix], bandwidth) if known else None,
        numa_nodes=tuple(numa[label] for label in labels),
    )
    told = [one["type"] for one in links.values() if one["type"] is not None]
    not_told = [] if tables.products else ["kind of GPU"]
    not_told += [] if tables.numa or tables.affinity else ["NUMA nodes"]
    not_told += [] if "bandwidth" in tables.cells else ["bandwidth of the links"]
    summary = {
        "gpus": len(labels),
        "link_counts": counted(told),
        "links": links,
        "xgmi_groups": _groups(labels, links),
        "numa_nodes": {label: tables.numa.get(label) for label in labels},
        "numa_affinity": {label: tables.affinity.get(label) for label in labels},
        "not_told": [*not_told, "network interfaces"],
    }
    return machine, summary


def _warn_numa(source: Source, tables: _Tables) -> None:
    if not tables.numa and not tables.affinity:
        return
    last = tables.numa_line or len(source.lines)
    for label in tables.labels:
        number = label.removeprefix("GPU")
        for held, what in ((tables.numa, "node"), (tables.affinity, "affinity")):
            if label not in held and held:
                tables.warnings.append(
                    f"line {last}: NUMA {what} of GPU {number} missing (cut); unknown"
                )


def _link(tables: _Tables, a: str, b: str) -> dict[str, Any]:
    word = tables.cell("type", a, b)
    spread = _RANGE.fullmatch(tables.cell("bandwidth", a, b) or "")
    return {
        "type": _TYPES.get(word.upper()) if word is not None else None,
        "weight": _whole(tables.cell("weight", a, b)),
        "hops": _whole(tables.cell("hops", a, b)),
        "bytes_per_s": int(spread[2]) * 1e6 if spread and int(spread[2]) else None,
    }


def _entry(
    tables: _Tables,
    numa: dict[str, int | None],
    bandwidth: dict[str, float],
    a: str,
    b: str,
) -> str | None:
    """The name of what joins two GPUs, its rate put into `bandwidth`; None where not known.

    Hops are 1 for all of xGMI, so the weight tells how many links a path has. Over PCIe two hops
    meet at one CPU, more go through another.
    """
    if a == b:
        return "X"
    link = _link(tables, *sorted((a, b), key=tables.labels.index))
    if link["type"] == "XGMI":
        hops = max(1, round((link["weight"] or _XGMI_WEIGHT) / _XGMI_WEIGHT))
        rate = link["bytes_per_s"]
        name = "XGMI" if hops == 1 else f"XGMI/{hops}"
        if rate is not None and rate != XGMI_BYTES_PER_S:
            name += f"@{rate / 1e9:g}"
        bandwidth[name] = (rate or XGMI_BYTES_PER_S) / hops
        return name
    if link["type"] == "PCIE":
        if link["hops"] is not None:
            return SAME_NUMA if link["hops"] <= 2 else ANY_NUMA
        return SAME_NUMA if numa[a] is not None and numa[a] == numa[b] else ANY_NUMA
    return None


def _groups(labels: Sequence[str], links: dict[str, dict[str, Any]]) -> list[list[str]]:
    """GPUs that xGMI joins, directly or over others; a GPU without any is in none."""
    group = {label: {label} for label in labels}
    for a, b in combinations(labels, 2):
        if links[f"{a}-{b}"]["type"] == "XGMI" and group[a] is not group[b]:
            joined = group[a] | group[b]
            for label in joined:
                group[label] = joined
    found: list[list[str]] = []
    for label in labels:
        members = [one for one in labels if one in group[label]]
        if len(members) > 1 and members not in found:
            found.append(members)
    return found


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _whole(value: Any) -> int | None:
    text = str(value).strip()
    return int(text) if _NUMBER.fullmatch(text) else None


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="rocm-topo",
        title="rocm-smi --showtopo or amd-smi topology",
        produced_by="rocm-smi --showtopo, amd-smi topology, or either with --json",
        certainty=_certainty,
        read=_read,
    ),
)
