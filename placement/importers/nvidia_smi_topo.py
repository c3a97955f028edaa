"""`nvidia-smi topo -m`: how the GPUs and network interfaces of a node are joined."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..accelerator_names import kind_of_product
from ..errors import InvalidInput, Problem
from ..links import MOST_LINKED_DEVICES, SELF
from .facts import ANY_NODE, Facts, Machine
from .node_paths import PATHS, counted, in_use, links_of, nearest, pairs
from .registry import Importer
from .source import Source

_TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_TOKEN = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID|\S+")
_GPU = re.compile(r"GPU\d{1,4}")
_COLUMN = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*")
_NVLINKS = re.compile(r"NV(\d{1,3})")
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_PREFIX = re.compile(
    r"^(?:> ?)*(?:([A-Za-z0-9][\w.-]*): ?(?=\s|GPU\d|[\w.-]+\s+(?:X|NV\d|[A-Z]{3})))?"
)
_PRODUCT = re.compile(r"^\s*GPU (\d{1,4}): (.+?)(?: \(UUID|$)")
_LEGEND_NAME = re.compile(r"^\s*(NIC\d+): *(\S+)\s*$")
_OLD_WORDS = {"SOC": "SYS", "PSB": "PIX"}
"""What drivers before 2017 printed for them."""
_P2P_WORDS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_MOST_COLUMNS = 4 * MOST_LINKED_DEVICES
_MOST_NVLINKS = 18
"""Of one GPU, in all generations up to the fifth."""


@dataclass(frozen=True)
class _Line:
    number: int
    text: str


@dataclass(frozen=True)
class _Row:
    """A row: its label, what joins it to each column, and the cells under the titles."""

    line: int
    label: str
    cells: tuple[str, ...]
    told: dict[str, str]


@dataclass
class _Matrix:
    """What one host printed. columns: labels of the header; titles: those of the affinities."""

    line: int
    columns: tuple[str, ...]
    titles: tuple[str, ...]
    rows: dict[str, _Row] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    products: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(label for label in self.columns if _GPU.fullmatch(label))

    @property
    def nics(self) -> tuple[str, ...]:
        return tuple(label for label in self.columns if not _GPU.fullmatch(label))

    def path(self, a: str, b: str) -> str:
        return self.rows[a].cells[self.columns.index(b)]


def _certainty(source: Source) -> float:
    header = any(_header_of(line) for line in _with_gpus(source))
    if not header:
        return 0.0
    told = any(title in source.text for title in _TITLES)
    return 0.9 if told or any(_has_itself(line) for line in _with_gpus(source)) else 0.0


def _has_itself(line: str) -> bool:
    """A row in which a GPU meets itself."""
    words = _PREFIX.sub("", line).split()
    return bool(words) and _GPU.fullmatch(words[0]) is not None and SELF in words


def _read(source: Source) -> Facts:
    machines: dict[str, Machine] = {}
    summaries: dict[str, Any] = {}
    warnings: list[str] = []
    for host, lines in _by_host(source).items():
        matrix = _matrix(source, lines)
        if matrix is not None:
            machines[host], summaries[host] = _machine(matrix)
            warnings += matrix.warnings
    if not machines:
        raise source.refuse("", "no matrix of GPUs", "hand in the output of nvidia-smi topo -m")
    alone = len(machines) == 1
    summary = next(iter(summaries.values())) if alone else {"hosts": len(machines), **summaries}
    return Facts("nvidia-smi-topo", summary, machines=machines, warnings=tuple(warnings))


def _with_gpus(source: Source) -> Iterator[str]:
    return (line for line in source.lines if "GPU" in line)


def _header_of(text: str) -> tuple[str, ...]:
    """The tokens of a header line; empty where the line is none."""
    tokens = tuple(_TOKEN.findall(_PREFIX.sub("", text)))
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return ()
    if len(tokens) == 1:
        return tokens if text[:1].isspace() else ()
    columns = [token for token in tokens if token not in _TITLES]
    return tokens if all(_COLUMN.fullmatch(one) and not _known(one) for one in columns) else ()


def _by_host(source: Source) -> dict[str, list[_Line]]:
    """Lines by the host that a parallel shell put before each; all under "" where none did."""
    found: dict[str, list[_Line]] = {}
    prefixed = [
        match[1]
        for line in _with_gpus(source)
        if _header_of(line) and (match := _PREFIX.match(line)) and match[1]
    ]
    hosts = {host for host in prefixed if not host.isdigit()}
    for number, text in enumerate(source.lines, start=1):
        match = _PREFIX.match(text)
        host = match[1] if match and match[1] in hosts else ANY_NODE
        plain = text.removeprefix(f"{host}:") if host else text[match.end() if match else 0 :]
        found.setdefault(host, []).append(_Line(number, plain))
    return found


def _matrix(source: Source, lines: Sequence[_Line]) -> _Matrix | None:
    matrix: _Matrix | None = None
    legend = False
    passed: list[int] = []
    for line in lines:
        tokens = _header_of(line.text) if "GPU" in line.text else ()
        if tokens and matrix is None:
            matrix = _headed(source, line.number, tokens)
        elif tokens and matrix is not None:
            place, found = f"line {line.number}", f"a second matrix; the first is at {matrix.line}"
            raise source.refuse(place, found, "give each node's matrix a file of its own")
        elif matrix is None or legend or not line.text.strip():
            if matrix is not None and (name := _LEGEND_NAME.match(line.text)):
                matrix.names.setdefault(name[1], name[2])
        elif line.text.strip().rstrip(":").casefold() in ("legend", "nic legend"):
            legend = True
        elif (label := line.text.split(maxsplit=1)[0]) in matrix.columns:
            _add_row(source, matrix, line, label)
            matrix.warnings += [f"line {n}: not a row of the matrix; passed over" for n in passed]
            passed = []
        elif len(matrix.rows) < len(matrix.columns):
            passed.append(line.number)
    if matrix is not None:
        _check(source, matrix)
        for line in lines:
            if product := _PRODUCT.match(line.text):
                matrix.products.setdefault(f"GPU{product[1]}", product[2])
    return matrix


def _headed(source: Source, number: int, tokens: Sequence[str]) -> _Matrix:
    first_title = next((k for k, token in enumerate(tokens) if token in _TITLES), len(tokens))
    columns, titles = tuple(tokens[:first_title]), tuple(tokens[first_title:])
    if len(columns) > _MOST_COLUMNS:
        found = f"{len(columns)} columns; a node has at most {_MOST_COLUMNS}"
        raise source.refuse(f"line {number}", found, "hand in the matrix of one node")
    twice = next((label for label in columns if columns.count(label) > 1), None)
    if twice is not None:
        raise source.refuse(f"line {number}", f"two columns {twice}", "hand in the whole output")
    matrix = _Matrix(number, columns, tuple(title for title in titles if title in _TITLES))
    if len(matrix.gpus) > MOST_LINKED_DEVICES:
        found = f"{len(matrix.gpus)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse(f"line {number}", found, "hand in the matrix of one node")
    return matrix


def _add_row(source: Source, matrix: _Matrix, line: _Line, label: str) -> None:
    width = len(matrix.columns)
    fields = [cell.strip() for cell in line.text.strip("\n").lstrip(" ").split("\t")]
    tabbed = len(fields) > width and all(fields[: width + 1])
    if tabbed:
        cells, tail = tuple(fields[1 : width + 1]), fields[width + 1 :]
        told = _told_by_cells(matrix.titles, tail)
    else:
        words = line.text.split()[1:]
        cells, tail = tuple(words[:width]), words[width:]
        told = _told_by_order(matrix.titles, tail)
    row = _Row(line.number, label, cells, told)
    earlier = matrix.rows.get(label)
    if earlier is not None and earlier.cells != cells:
        found = f"a second row {label}, unlike the one of line {earlier.line}"
        raise source.refuse(f"line {line.number}", found, "hand in the matrix of one node")
    if len(tail) > 2 * len(_TITLES):
        found = f"row {label} has {len(tail)} cells more than its {width} columns"
        raise source.refuse(f"line {line.number}", found, "hand in the output as it was printed")
    matrix.rows[label] = row


def _told_by_cells(titles: Sequence[str], tail: Sequence[str]) -> dict[str, str]:
    """Cells of a row with tabs, where an empty one is either not told or only fills the column.

    The first stands under the first title; of the others the last that is not empty stands under
    the last title, because only short affinities are followed by filling.
    """
    told = dict.fromkeys(titles, "")
    if titles and tail:
        told[titles[0]] = tail[0]
        rest = [cell for cell in tail[1:] if cell]
        others = titles[1:]
        if len(rest) < len(others) and len(tail) <= len(others):
            # No room for filling: the cells stand where they stand.
            rest = list(tail[1:])
            told.update(zip(others, rest, strict=False))
        else:
            for title, cell in zip(reversed(others), reversed(rest), strict=False):
                told[title] = cell
    return told


def _told_by_order(titles: Sequence[str], tail: Sequence[str]) -> dict[str, str]:
    """Cells of a row with blanks: in order, where fewer than titles the CPUs told by their form."""
    told = dict.fromkeys(titles, "")
    start = 0
    if titles and len(tail) < len(titles) and tail and not re.match(r"\d+[-,]", tail[0]):
        start = len(titles) - len(tail)
    told.update(zip(titles[start:], tail, strict=False))
    return told


def _check(source: Source, matrix: _Matrix) -> None:
    """Raises InvalidInput for what is missing, unknown or contradictory in the matrix."""
    _check_p2p(source, matrix)
    problems = _cut(matrix) or _unknown_cells(matrix) or _unlike(matrix)
    if problems:
        raise InvalidInput(source.name, problems)
    _tidy(matrix)


def _check_p2p(source: Source, matrix: _Matrix) -> None:
    seen = {cell for row in matrix.rows.values() for cell in row.cells} - {SELF}
    if seen & _P2P_WORDS:
        found = (
            "this is a peer-to-peer capability matrix (nvidia-smi topo -p2p), not a topology "
            f"matrix: {len(matrix.gpus)} GPUs, no link classes"
        )
        fix = "hand in the output of nvidia-smi topo -m"
        raise source.refuse(f"line {matrix.line}", found, fix)


def _cut(matrix: _Matrix) -> list[Problem]:
    """Rows that are missing or too short."""
    fix = "hand in the whole output of nvidia-smi topo -m"
    problems = []
    missing = [label for label in matrix.columns if label not in matrix.rows]
    width = len(matrix.columns)
    promised = f"the header promises {len(matrix.gpus)} GPUs and {len(matrix.nics)} NICs"
    if missing:
        found = f"truncated matrix: {promised}, rows {_ranges(missing)} are missing"
        if matrix.rows:
            last = max(matrix.rows.values(), key=lambda row: row.line)
            end = next((cell for cell in reversed(list(last.told.values())) if cell), None)
            end = end or (last.cells[-1] if last.cells else "")
            found += f"; the last row, {last.label}, ends at {end!r}"
            problems.append(Problem(f"line {last.line}", found, fix))
        else:
            problems.append(Problem(f"line {matrix.line}", found, fix))
    for row in matrix.rows.values():
        if len(row.cells) < width:
            found = f"truncated matrix: row {row.label} has {len(row.cells)} of {width} cells"
            problems.append(Problem(f"line {row.line}", found, fix))
    return problems


def _ranges(labels: Sequence[str]) -> str:
    """Labels, with three and more that follow each other as `first..last`."""
    runs: list[list[str]] = []
    for label in labels:
        match = re.fullmatch(r"(.*?)(\d{1,9})", label)
        before = re.fullmatch(r"(.*?)(\d{1,9})", runs[-1][-1]) if runs else None
        follows = match and before and match[1] == before[1] and int(match[2]) == int(before[2]) + 1
        if follows:
            runs[-1].append(label)
        else:
            runs.append([label])
    shown = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs]
    return ", ".join(shown)


def _unknown_cells(matrix: _Matrix) -> list[Problem]:
    problems = []
    for row in matrix.rows.values():
        for column, cell in zip(matrix.columns, row.cells, strict=True):
            place = f"line {row.line}"
            if (cell == SELF) != (row.label == column):
                found = f"{row.label}-{column} is {cell!r}"
                fix = f"{SELF} stands where a device meets itself, and only there"
                problems.append(Problem(place, found, fix))
            elif cell != SELF and not _known(cell):
                found = f"{row.label}-{column} is {cell!r}, which is no link class"
                fix = f"the classes are NV#, {', '.join(PATHS)}"
                problems.append(Problem(place, found, fix))
            elif _NVLINKS.fullmatch(cell) and not (_GPU.fullmatch(column) and _is_gpu(row)):
                found = f"{row.label}-{column} is {cell!r}"
                problems.append(Problem(place, found, "NVLinks join GPUs and nothing else"))
    return problems


def _is_gpu(row: _Row) -> bool:
    return _GPU.fullmatch(row.label) is not None


def _known(cell: str) -> bool:
    count = _NVLINKS.fullmatch(cell)
    return cell in PATHS or cell in _OLD_WORDS or (count is not None and 0 < int(count[1]) < 100)


def _unlike(matrix: _Matrix) -> list[Problem]:
    problems = []
    for a, one in enumerate(matrix.columns):
        for other in matrix.columns[a + 1 :]:
            there, back = matrix.path(one, other), matrix.path(other, one)
            if _word(there) != _word(back):
                line = matrix.rows[other].line
                found = f"{other}-{one} is {back}, but {one}-{other} is {there}"
                fix = f"see line {matrix.rows[one].line}: a link has one class in both directions"
                problems.append(Problem(f"line {line}", found, fix))
    return problems


def _word(cell: str) -> str:
    return _OLD_WORDS.get(cell, cell)


def _tidy(matrix: _Matrix) -> None:
    """Old words in today's; oddities of affinities named."""
    for row in list(matrix.rows.values()):
        old = sorted({cell for cell in row.cells if cell in _OLD_WORDS})
        if old:
            said = ", ".join(f"{word} is read as {_OLD_WORDS[word]}" for word in old)
            matrix.warnings.append(f"line {row.line}: {said}")
        cpus = row.told.get(_TITLES[0], "")
        if _GPU.fullmatch(row.label) and cpus not in ("", "N/A") and not _CPUS.fullmatch(cpus):
            matrix.warnings.append(
                f"line {row.line}: CPU affinity {cpus!r} of {row.label} is cut or no list; unknown"
            )
            row.told[_TITLES[0]] = ""
        cells = tuple(_word(cell) for cell in row.cells)
        matrix.rows[row.label] = _Row(row.line, row.label, cells, row.told)


def _machine(matrix: _Matrix) -> tuple[Machine, dict[str, Any]]:
    gpus, nics = matrix.gpus, matrix.nics
    among = [[matrix.path(a, b) for b in gpus] for a in gpus]
    nic_paths = {gpu: {nic: matrix.path(gpu, nic) for nic in nics} for gpu in gpus}
    nearest_of = {gpu: nearest(nic_paths[gpu]) for gpu in gpus}
    named = {nic: matrix.names.get(nic, None if nic.startswith("NIC") else nic) for nic in nics}
    cpus = {gpu: _known_text(matrix.rows[gpu].told.get(_TITLES[0], "")) for gpu in gpus}
    numa = {gpu: _known_text(matrix.rows[gpu].told.get(_TITLES[1], "")) for gpu in gpus}
    kinds = {kind_of_product(product) for product in matrix.products.values()}
    near = [[named[nic] or nic for nic in nearest_of[gpu][1]] for gpu in gpus]
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(gpus),
        links=links_of(among),
        nics=in_use(near, [named[nic] or nic for nic in nics]),
        nearest_nics=tuple(tuple(names) for names in near),
        numa_nodes=tuple(_number(numa[gpu]) for gpu in gpus),
        cpus=tuple(cpus[gpu] or "" for gpu in gpus),
    )
    summary: dict[str, Any] = {
        "gpus": len(gpus),
        "nics": len(nics),
        "link_counts": counted(list(pairs(gpus, among).values())),
        "links": pairs(gpus, among),
        "nvlinks_per_gpu": {gpu: _nvlinks(row) for gpu, row in zip(gpus, among, strict=True)},
        "nearest_nics": {
            gpu: {"path": path, "nics": list(names)} for gpu, (path, names) in nearest_of.items()
        },
        "nic_paths": nic_paths,
        "nic_links": pairs(nics, [[matrix.path(a, b) for b in nics] for a in nics]),
        "nic_names": named,
        "cpus": cpus,
        "cpu_groups": _groups(cpus),
        "numa_nodes": {gpu: _number(numa[gpu]) for gpu in gpus},
        "gpu_numa_ids": {
            gpu: _number(_known_text(matrix.rows[gpu].told.get(_TITLES[2], ""))) for gpu in gpus
        },
        "products": {gpu: matrix.products.get(gpu) for gpu in gpus},
        "not_told": _not_told(matrix, cpus, numa),
    }
    return machine, summary


def _nvlinks(row: Sequence[str]) -> int | None:
    """NVLinks of a GPU that lead to others of its node; None for a GPU without others.

    The matrix counts links to switches once for each GPU that they reach. More than a GPU has
    shows that they are such.
    """
    if len(row) < 2:
        return None
    counts = [int(match[1]) for cell in row if (match := _NVLINKS.fullmatch(cell))]
    return sum(counts) if sum(counts) <= _MOST_NVLINKS else max(counts)


def _groups(cpus: dict[str, str | None]) -> list[dict[str, Any]]:
    groups: dict[str, list[str]] = {}
    for gpu, which in cpus.items():
        if which is not None:
            groups.setdefault(which, []).append(gpu)
    return [{"cpus": which, "gpus": gpus} for which, gpus in groups.items()]


def _known_text(cell: str) -> str | None:
    return None if cell in ("", "N/A") else cell


def _number(cell: str | None) -> int | None:
    return int(cell) if cell is not None and re.fullmatch(r"\d{1,9}", cell) else None


def _not_told(
    matrix: _Matrix, cpus: dict[str, str | None], numa: dict[str, str | None]
) -> list[str]:
    said = [] if matrix.products else ["kind of GPU"]
    said.append("MIG state: a GPU in the matrix may be divided or taken")
    if any(_NVLINKS.fullmatch(cell) for row in matrix.rows.values() for cell in row.cells):
        said.append("rate of one NVLink")
        said.append("NVLink domain: it may be wider than this node")
    said += ["CPU affinity"] if not any(cpus.values()) else []
    said += ["NUMA affinity"] if not any(value is not None for value in numa.values()) else []
    if any(nic.startswith("NIC") and nic not in matrix.names for nic in matrix.nics):
        said.append("device names of the NICs")
    return said


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nvidia-smi-topo",
        title="nvidia-smi topo -m",
        produced_by="nvidia-smi topo -m",
        certainty=_certainty,
        read=_read,
    ),
)
