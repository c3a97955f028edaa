"""The matrix that `nvidia-smi topo -m` prints: read row by row, and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidInput, Problem
from ..links import MOST_LINKED_DEVICES, SELF
from .facts import ANY_NODE
from .node_paths import PATHS
from .source import Source

TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_TOKEN = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID|\S+")
_GPU = re.compile(r"GPU\d{1,4}")
_COLUMN = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*")
NVLINKS = re.compile(r"NV(\d{1,3})")
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


@dataclass(frozen=True)
class Line:
    """A line of the output, without the name of the host before it."""

    number: int
    text: str


@dataclass(frozen=True)
class Row:
    """A row: its label, what joins it to each column, and the cells under the titles."""

    line: int
    label: str
    cells: tuple[str, ...]
    told: dict[str, str]


@dataclass
class Matrix:
    """What one host printed. columns: labels of the header; titles: those of the affinities."""

    line: int
    columns: tuple[str, ...]
    titles: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    products: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Labels of the GPUs."""
        return tuple(label for label in self.columns if _GPU.fullmatch(label))

    @property
    def nics(self) -> tuple[str, ...]:
        """Labels of everything else."""
        return tuple(label for label in self.columns if not _GPU.fullmatch(label))

    def path(self, a: str, b: str) -> str:
        """What joins two labels, as the row of the first says."""
        return self.rows[a].cells[self.columns.index(b)]


def has_itself(line: str) -> bool:
    """A row in which a GPU meets itself."""
    words = _PREFIX.sub("", line).split()
    return bool(words) and _GPU.fullmatch(words[0]) is not None and SELF in words


def with_gpus(source: Source) -> Iterator[str]:
    """Lines that may belong to a matrix."""
    return (line for line in source.lines if "GPU" in line)


def header_of(text: str) -> tuple[str, ...]:
    """The tokens of a header line; empty where the line is none."""
    tokens = tuple(_TOKEN.findall(_PREFIX.sub("", text)))
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return ()
    if len(tokens) == 1:
        return tokens if text[:1].isspace() else ()
    columns = [token for token in tokens if token not in TITLES]
    return tokens if all(_COLUMN.fullmatch(one) and not _known(one) for one in columns) else ()


def by_host(source: Source) -> dict[str, list[Line]]:
    """Lines by the host that a parallel shell put before each; all under "" where none did."""
    found: dict[str, list[Line]] = {}
    prefixed = [
        match[1]
        for line in with_gpus(source)
        if header_of(line) and (match := _PREFIX.match(line)) and match[1]
    ]
    hosts = {host for host in prefixed if not host.isdigit()}
    for number, text in enumerate(source.lines, start=1):
        match = _PREFIX.match(text)
        host = match[1] if match and match[1] in hosts else ANY_NODE
        plain = text.removeprefix(f"{host}:") if host else text[match.end() if match else 0 :]
        found.setdefault(host, []).append(Line(number, plain))
    return found


def matrix_of(source: Source, lines: Sequence[Line]) -> Matrix | None:
    """The matrix that one host printed, None where it printed none; InvalidInput for a bad one."""
    matrix: Matrix | None = None
    legend = False
    passed: list[int] = []
    for line in lines:
        tokens = header_of(line.text) if "GPU" in line.text else ()
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


def _headed(source: Source, number: int, tokens: Sequence[str]) -> Matrix:
    first_title = next((k for k, token in enumerate(tokens) if token in TITLES), len(tokens))
    columns, titles = tuple(tokens[:first_title]), tuple(tokens[first_title:])
    if len(columns) > _MOST_COLUMNS:
        found = f"{len(columns)} columns; a node has at most {_MOST_COLUMNS}"
        raise source.refuse(f"line {number}", found, "hand in the matrix of one node")
    twice = next((label for label in columns if columns.count(label) > 1), None)
    if twice is not None:
        raise source.refuse(f"line {number}", f"two columns {twice}", "hand in the whole output")
    matrix = Matrix(number, columns, tuple(title for title in titles if title in TITLES))
    if len(matrix.gpus) > MOST_LINKED_DEVICES:
        found = f"{len(matrix.gpus)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse(f"line {number}", found, "hand in the matrix of one node")
    return matrix


def _add_row(source: Source, matrix: Matrix, line: Line, label: str) -> None:
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
    row = Row(line.number, label, cells, told)
    earlier = matrix.rows.get(label)
    if earlier is not None and earlier.cells != cells:
        found = f"a second row {label}, unlike the one of line {earlier.line}"
        raise source.refuse(f"line {line.number}", found, "hand in the matrix of one node")
    if len(tail) > 2 * len(TITLES):
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


def _check(source: Source, matrix: Matrix) -> None:
    """Raises InvalidInput for what is missing, unknown or contradictory in the matrix."""
    _check_p2p(source, matrix)
    problems = _cut(matrix) or _unknown_cells(matrix) or _unlike(matrix)
    if problems:
        raise InvalidInput(source.name, problems)
    _tidy(matrix)


def _check_p2p(source: Source, matrix: Matrix) -> None:
    seen = {cell for row in matrix.rows.values() for cell in row.cells} - {SELF}
    if seen & _P2P_WORDS:
        found = (
            "this is a peer-to-peer capability matrix (nvidia-smi topo -p2p), not a topology "
            f"matrix: {len(matrix.gpus)} GPUs, no link classes"
        )
        fix = "hand in the output of nvidia-smi topo -m"
        raise source.refuse(f"line {matrix.line}", found, fix)


def _cut(matrix: Matrix) -> list[Problem]:
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


def _unknown_cells(matrix: Matrix) -> list[Problem]:
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
            elif NVLINKS.fullmatch(cell) and not (_GPU.fullmatch(column) and _is_gpu(row)):
                found = f"{row.label}-{column} is {cell!r}"
                problems.append(Problem(place, found, "NVLinks join GPUs and nothing else"))
    return problems


def _is_gpu(row: Row) -> bool:
    return _GPU.fullmatch(row.label) is not None


def _known(cell: str) -> bool:
    count = NVLINKS.fullmatch(cell)
    return cell in PATHS or cell in _OLD_WORDS or (count is not None and 0 < int(count[1]) < 100)


def _unlike(matrix: Matrix) -> list[Problem]:
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


def _tidy(matrix: Matrix) -> None:
    """Old words in today's; oddities of affinities named."""
    for row in list(matrix.rows.values()):
        old = sorted({cell for cell in row.cells if cell in _OLD_WORDS})
        if old:
            said = ", ".join(f"{word} is read as {_OLD_WORDS[word]}" for word in old)
            matrix.warnings.append(f"line {row.line}: {said}")
        cpus = row.told.get(TITLES[0], "")
        if _GPU.fullmatch(row.label) and cpus not in ("", "N/A") and not _CPUS.fullmatch(cpus):
            matrix.warnings.append(
                f"line {row.line}: CPU affinity {cpus!r} of {row.label} is cut or no list; unknown"
            )
            row.told[TITLES[0]] = ""
        cells = tuple(_word(cell) for cell in row.cells)
        matrix.rows[row.label] = Row(row.line, row.label, cells, row.told)
