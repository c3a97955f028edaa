"""A lower bound for any job from the eigenvalues of its traffic graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.compiled import lean
from .factor import has_factor
from .laplacian import cut_graph

MOST_UNITS = 1600
"""Units up to which the matrix is held, and proved about, as a whole."""
FLOPS_PER_WORK = 2e9
"""Floating point operations of sparse products that count as one unit of work."""
FACTOR_FLOPS_PER_WORK = 1e10
"""The same of dense factors."""
_STEP_WORK = 1e-3
"""Work of a step besides its products."""
_DEGREE = 16
_EXTRA = 4
_MOST_STEPS = 300
_SLACKS = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)


def spectral_bound(
    graph: UnitGraph, rooms: Ints, known: float, work: float, seed: int
) -> tuple[float, float]:
    """Bytes that no division among domains with `rooms` units of room goes below; the work done.

    known: bytes of some division, towards which the bound is raised.

    With X the units' membership of k parts of sizes m, the edges between the parts weigh
    trace(X'(L + D)X) / 2 for the Laplacian L and any diagonal D of trace 0, which is at least
    sum(m_i e_i) / 2 with sizes falling and eigenvalues e rising (Donath, Hoffman, IBM J. Res. Dev.
    1973). Of all sizes within the room the fullest first give the least sum. D is improved by
    steps along the supergradient. The eigenvalues themselves are estimates; what is returned is
    proved for a D by a Cholesky factor, whatever they are (see `_proved`).
    """
    units = graph.units
    sizes = _fullest(rooms, units)
    proof = 2 * units**3 / FACTOR_FLOPS_PER_WORK + _STEP_WORK
    if units > MOST_UNITS or len(sizes) < 2 or work < proof:
        return 0.0, 0.0
    relaxed = cut_graph(graph, rooms)
    entries = np.count_nonzero(relaxed.laplacian)
    columns = min(units, len(sizes) + _EXTRA)
    cost = _STEP_WORK + 2.0 * (_DEGREE + 4) * columns * (entries + 8 * units) / FLOPS_PER_WORK
    scale = float(relaxed.laplacian.diagonal().max())
    if scale <= 0.0:
        return relaxed.base, cost
    matrix = relaxed.laplacian / scale
    aim = (known - relaxed.base) / scale
    steps = min(_MOST_STEPS, int((work - proof) / cost))
    diagonal, vectors = _raised(matrix, sizes, aim, steps, seed)
    proved = _proved(matrix + np.diag(diagonal), vectors, sizes)
    return relaxed.base + scale * max(0.0, proved), proof + steps * cost


def _fullest(rooms: Ints, units: int) -> Floats:
    """Sizes of parts, the largest domains filled first."""
    reach = np.minimum(np.cumsum(np.sort(rooms)[::-1]), units)
    sizes = np.diff(reach, prepend=0)
    return sizes[sizes > 0].astype(np.float64)


def _raised(
    matrix: Floats, sizes: Floats, aim: float, steps: int, seed: int
) -> tuple[Floats, Floats]:
    """The best diagonal met on a walk, and estimates of the eigenvectors that go with it."""
    units, parts = len(matrix), len(sizes)
    sparse = _Sparse.of(matrix)
    chance = np.random.default_rng(seed)
    columns = min(units, parts + _EXTRA)
    vectors = np.linalg.qr(chance.standard_normal((units, columns)))[0]
    diagonal = np.zeros(units)
    best, best_diagonal, best_vectors = -np.inf, diagonal, vectors
    reach, since = 1.0, 0
    for step in range(steps):
        values, vectors = _lowest(sparse, diagonal, vectors, 3 if step == 0 else 1)
        value = float(sizes @ values[:parts]) / 2
        # An estimate that has not settled is too high; only what a second look confirms counts.
        if value > best:
            best, best_diagonal, best_vectors, since = value, diagonal, vectors, 0
        else:
            since += 1
            if since % 8 == 0:
                reach /= 2
                diagonal, vectors = best_diagonal, best_vectors
        slope = (vectors[:, :parts] ** 2) @ sizes / 2
        slope -= slope.mean()
        size = float(slope @ slope)
        if size < 1e-18 or aim <= best:
            break
        diagonal = diagonal + reach * max(0.0, aim - value) / size * slope
    _, best_vectors = _lowest(sparse, best_diagonal, best_vectors, 6)
    return best_diagonal, best_vectors


@dataclass(frozen=True)
class _Sparse:
    """A symmetric matrix by rows. Products are our own, as those of several threads of a library
    cost more time than they save at this size."""

    start: Ints
    column: Ints
    value: Floats
    reach: float

    @classmethod
    def of(cls, matrix: Floats) -> _Sparse:
        row, column = np.nonzero(matrix)
        count = np.bincount(row, minlength=len(matrix))
        start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count)])
        reach = float(np.abs(matrix).sum(axis=1).max())
        return cls(start, column.astype(np.int64), matrix[row, column], reach)


def _lowest(
    sparse: _Sparse, diagonal: Floats, vectors: Floats, rounds: int
) -> tuple[Floats, Floats]:
    """Estimates of the lowest eigenvalues of the matrix with more on its diagonal, rising.

    And their vectors, both from estimates before. Subspace iteration with a Chebyshev filter (Zhou,
    Saad et al., J. Comp. Phys. 219, 2006).
    """
    top = sparse.reach + float(np.abs(diagonal).max())
    arrays = (sparse.start, sparse.column, sparse.value, diagonal)
    values, vectors = _ritz(_times(*arrays, vectors), vectors)
    for _ in range(rounds):
        raised = _filtered(*arrays, vectors, float(values[-1]), top, _DEGREE)
        vectors = np.ascontiguousarray(np.linalg.qr(raised)[0])
        values, vectors = _ritz(_times(*arrays, vectors), vectors)
    return values, vectors


def _ritz(image: Floats, vectors: Floats) -> tuple[Floats, Floats]:
    values, mixed = np.linalg.eigh(vectors.T @ image)
    return values, np.ascontiguousarray(vectors @ mixed)


def _times(start: Ints, column: Ints, value: Floats, diagonal: Floats, block: Floats) -> Floats:
    """The product of the matrix and a block of vectors."""
    found = np.empty_like(block)
    _fill_times(start, column, value, diagonal, block, found)
    return found


@lean
def _fill_times(
    start: Ints, column: Ints, value: Floats, diagonal: Floats, block: Floats, found: Floats
) -> None:
    rows, width = block.shape
    for r in range(rows):
        for c in range(width):
            found[r, c] = diagonal[r] * block[r, c]
        for i in range(start[r], start[r + 1]):
            k, weight = column[i], value[i]
            for c in range(width):
                found[r, c] += weight * block[k, c]


def _filtered(
    start: Ints,
    column: Ints,
    value: Floats,
    diagonal: Floats,
    block: Floats,
    low: float,
    top: float,
    degree: int,
) -> Floats:
    """A Chebyshev polynomial of the matrix, small from `low` to `top`, times a block of vectors."""
    centre, half = (top + low) / 2, max((top - low) / 2, 1e-12)
    before = block.copy()
    now = (_times(start, column, value, diagonal, block) - centre * block) / half
    later = np.empty_like(now)
    for _ in range(degree - 1):
        size = _next(start, column, value, diagonal, before, now, later, centre, half)
        before, now, later = now, later, before
        before /= size
        now /= size
    return now


@lean
def _next(
    start: Ints,
    column: Ints,
    value: Floats,
    diagonal: Floats,
    before: Floats,
    now: Floats,
    later: Floats,
    centre: float,
    half: float,
) -> float:
    """Fill `later` with the polynomial of the next degree, by recurrence; returns its largest."""
    rows, width = now.shape
    largest = 0.0
    for r in range(rows):
        for c in range(width):
            later[r, c] = diagonal[r] * now[r, c]
        for i in range(start[r], start[r + 1]):
            k, weight = column[i], value[i]
            for c in range(width):
                later[r, c] += weight * now[k, c]
        for c in range(width):
            later[r, c] = 2 * (later[r, c] - centre * now[r, c]) / half - before[r, c]
            largest = max(largest, abs(later[r, c]))
    return largest


def _proved(matrix: Floats, vectors: Floats, sizes: Floats) -> float:
    """The part of the sum of sizes times eigenvalues, halved, that a factorisation proves.

    For orthonormal v and s >= 0, if A + sum(s_i v_i v_i') - t I is positive semidefinite, then
    trace(X'AX) >= t n - sum(s_i |X'v_i|^2) >= t n - sum(s_i m_i), the largest s against the
    largest m, for all X with X'X = diag(m). That it is so is shown by its Cholesky factor, with a
    margin for rounding (Rump, BIT 2006).
    """
    units, parts = len(matrix), len(sizes)
    vectors = np.linalg.qr(vectors)[0]
    values, vectors = _ritz(matrix @ vectors, vectors)
    middle = float(values[parts - 1 : parts + 1].mean())
    spread = max(float(values[: parts + 1][-1] - values[0]), 1e-9)
    best = -np.inf
    for slack in _SLACKS:
        for level in (middle, float(values[parts - 1])):
            raised = np.maximum(0.0, level - values)
            lifted = matrix + (vectors * raised) @ vectors.T
            largest = float(np.abs(lifted).sum(axis=1).max())
            margin = 8.0 * units * np.finfo(np.float64).eps * largest
            bottom = level - slack * spread
            if not has_factor(lifted - np.diag(np.full(units, bottom))):
                continue
            # The vectors are orthonormal to rounding only.
            lost = float(np.sort(raised)[::-1][: len(sizes)] @ sizes[: len(raised)])
            best = max(best, ((bottom - margin) * units - lost * (1 + 1e-12)) / 2)
        if best > -np.inf:
            break
    return best
