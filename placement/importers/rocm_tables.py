"""The tables of `rocm-smi --showtopo` and `amd-smi topology`, from text and from JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ..links import MOST_LINKED_DEVICES
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
RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
_PAIR = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})"
)
_ITSELF = frozenset({"0", "SELF", "N/A", "TRUE", "ENABLED", "X"})
TYPES = {"XGMI": "XGMI", "PCIE": "PCIE"}


@dataclass
class Tables:
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
        """What a table says of two labels."""
        return self.cells.get(table, {}).get((a, b))


def tables_certainty(source: Source) -> float:
    """How sure it is that a source holds such tables."""
    if _rocm_json(source) or _amd_json(source):
        return 0.95
    text = source.text.casefold()
    if not any(title in text for title in ("between two gpus", "link type table", "weight table")):
        return 0.95 if "(topology) numa node" in text else 0.0
    return 0.9 if re.search(r"GPU\d|[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", source.text) else 0.0


def tables_of(source: Source) -> Tables:
    """The tables of one node, in whichever form; raises InvalidInput for what is cut or absurd."""
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
    return tables


def _from_text(source: Source) -> Tables:
    tables = Tables()
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
    tables: Tables,
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
    source: Source, tables: Tables, table: str, columns: tuple[str, ...], line: int
) -> None:
    missing = [label for label in columns if (table, label) not in tables.lines]
    if missing:
        found = f"truncated table: rows {', '.join(missing)} are missing"
        raise source.refuse(f"line {line}", found, "hand in the whole output")
    tables.labels = tables.labels or columns
    if set(columns) != set(tables.labels):
        found = f"{len(columns)} GPUs here, {len(tables.labels)} in the table before"
        raise source.refuse(f"line {line}", found, "hand in the output of one run")


def _add_numa(source: Source, tables: Tables, number: int, match: re.Match[str]) -> None:
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


def _from_rocm_json(source: Source) -> Tables:
    data = _rocm_json(source) or {}
    tables = Tables()
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
            tables.numa[label] = whole(told.get("(Topology) Numa Node"))
            tables.affinity[label] = whole(told.get("(Topology) Numa Affinity"))
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


def _from_amd_json(source: Source) -> Tables:
    tables = Tables()
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


def _check(source: Source, tables: Tables) -> None:
    """Raises InvalidInput for a cell that means nothing or contradicts its mirror."""
    for table, held in tables.cells.items():
        for a in tables.labels:
            own = held[a, a].upper()
            line = tables.lines.get((table, a))
            place = f"line {line}" if line else f"{table} of {a}"
            if own not in _ITSELF and RANGE.fullmatch(own) is None:
                found = f"{table} of {a} with itself is {held[a, a]!r}"
                raise source.refuse(place, found, "0 stands there: hand in the output unchanged")
        for a, b in combinations(tables.labels, 2):
            there, back = held[a, b], held[b, a]
            if there != back and table in ("weight", "hops", "type"):
                line = tables.lines.get((table, b))
                place = f"line {line}" if line else f"{table} of {b}"
                found = f"{table} from {b} to {a} is {back}, but from {a} to {b} {there}"
                raise source.refuse(place, found, "hand in the output unchanged")
            if table == "type" and there.upper() not in TYPES:
                tables.warnings.append(
                    f"{_of(tables, table, a)}link type between {a} and {b} is {there!r}: unknown"
                )
            elif table in ("weight", "hops") and not _NUMBER.fullmatch(there):
                tables.warnings.append(
                    f"{_of(tables, table, a)}{table} between {a} and {b} is {there!r}: unknown"
                )


def _of(tables: Tables, table: str, label: str) -> str:
    line = tables.lines.get((table, label))
    return f"line {line}: " if line else ""


def whole(value: Any) -> int | None:
    """A whole number that is not negative, None for anything else."""
    text = str(value).strip()
    return int(text) if _NUMBER.fullmatch(text) else None
