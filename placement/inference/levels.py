"""How many levels a set of noisy values has, and where: a mixture of normals with model choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_LEVELS = 6
_BIN, _MOST_BINS = 0.01, 2048
_STEPS = 30
_LEAST_MASS, _TINY, _LEAST_GAIN = 0.5, 1e-12, 0.01
_STARTS = 10
_LEAST_APART = 2.2
"""In units of the noise; nearer than that, a skew of the noise looks like two levels."""
_LEAST_NOISE = 0.05
"""Values of one level are taken to differ by at least 5 %: tiers that differ less are none."""
_OUTLIERS = 0.02
_REACH = float(np.log(10_000))
"""Values more than 10,000 times off the median are outliers: a switch and another city."""
_MOST_SKEW, _MOST_SKEW_OF_FEW, _FEW = 4.0, 1.5, 1000
"""How many times wider the noise may be on one side than on the other; few values tell no more."""
_FEWEST_OF_A_LEVEL = 3.0
_MARGIN = 4.0
"""By how much, beyond BIC, the log-likelihood must gain for another level."""


@dataclass(frozen=True)
class Levels:
    """Levels of the logarithms of a quantity, ascending.

    means: of each level (its mode), as logarithms. noise: the standard deviation within a level,
    shared by all. weights: the part of the values at each level.
    """

    means: tuple[float, ...]
    noise: float
    weights: tuple[float, ...]

    def nearest(self, logs: Floats) -> NDArray[np.int64]:
        """Which level each value is nearest to."""
        middles = [(one + two) / 2 for one, two in zip(self.means, self.means[1:], strict=False)]
        return np.searchsorted(np.asarray(middles), logs)


@dataclass(frozen=True)
class _Fits:
    """Mixtures, one a row: modes and weights `[row, level]`, ascending; the others `[row]`."""

    modes: Floats
    weights: Floats
    noise: Floats
    log_likelihood: Floats


def find_levels(logs: Floats, most: int = MOST_LEVELS) -> Levels:
    """The levels in `logs` (finite logarithms, at least one).

    A mixture of normals, each of the same width to the left and of another to the right (noise is
    skewed), over a thin uniform background (outliers) is fitted by expectation maximisation, with
    one level more as long as the Bayesian information criterion (Schwarz 1978) gains by it and the
    levels stay 2.2 standard deviations apart.
    """
    middle = float(np.median(logs))
    low, high = max(logs.min(), middle - _REACH), min(logs.max(), middle + _REACH)
    span = max(high - low, 4 * _LEAST_NOISE)
    low, high = low - 0.05 * span, high + 0.05 * span
    inside = logs[(logs >= low) & (logs <= high)]
    bins = min(_MOST_BINS, int(np.ceil((high - low) / _BIN)))
    counts, edges = np.histogram(inside, bins=bins, range=(low, high))
    values = (edges[1:] + edges[:-1]) / 2
    kept = counts > 0
    values, counts = values[kept], counts[kept].astype(float)
    background = _OUTLIERS / (high - low)
    total = float(counts.sum())
    best = last = _best_of(_fitted(values, counts, np.array([[middle]]), background))
    quantiles = np.quantile(inside, np.linspace(0, 1, _STARTS))
    more = np.append(quantiles, np.linspace(values[0], values[-1], _STARTS))
    for count in range(2, most + 1):
        known = np.broadcast_to(last.modes[0], (len(more), count - 1))
        starts = np.sort(np.column_stack([known, more]), axis=1)
        tried = _fitted(values, counts, starts, background)
        apart = np.diff(tried.modes, axis=1) >= _LEAST_APART * tried.noise[:, None]
        enough = tried.weights * total >= _FEWEST_OF_A_LEVEL
        distinct = np.all(apart, axis=1) & np.all(enough, axis=1)
        found = _best_of(tried, distinct)
        wanted = best.log_likelihood[0] + (np.log(total) + _MARGIN) * (count - best.modes.shape[1])
        if found.log_likelihood[0] > wanted:
            best = last = found
            continue
        # Two levels where there are three overlap as wide as they must be; a third parts them.
        last = _best_of(tried)
        if count > best.modes.shape[1] + 1 or not last.log_likelihood[0] > wanted:
            break
    return Levels(
        tuple(map(float, best.modes[0])),
        float(best.noise[0]),
        tuple(map(float, best.weights[0])),
    )


def _best_of(fits: _Fits, which: NDArray[np.bool_] | None = None) -> _Fits:
    """The likeliest one, of `which` alone; its likelihood is minus infinity where that is none."""
    likelihood = fits.log_likelihood
    if which is not None:
        likelihood = np.where(which, likelihood, -np.inf)
    at = slice(best := int(np.argmax(likelihood)), best + 1)
    return _Fits(fits.modes[at], fits.weights[at], fits.noise[at], likelihood[at])


def _fitted(values: Floats, counts: Floats, starts: Floats, background: float) -> _Fits:
    """The mixtures that expectation maximisation reaches from each row of modes.

    The likelihood of one that loses a level on the way is minus infinity.
    """
    modes = starts.astype(float)
    rows, levels = modes.shape
    total = counts.sum()
    mean = np.average(values, weights=counts)
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    left = np.full((rows, 1, 1), max(_LEAST_NOISE, spread / (2 * levels)))
    right = left.copy()
    weights = np.full((rows, levels), 1 / levels)
    skew = _MOST_SKEW if total > _FEW else _MOST_SKEW_OF_FEW
    likelihood = np.full(rows, -np.inf)
    alive = np.ones(rows, dtype=bool)
    for _ in range(_STEPS):
        off = values[None, :, None] - modes[:, None, :]
        below = off < 0
        width = np.where(below, left, right)
        height = (1 - _OUTLIERS) * weights[:, None, :] * 2 / ((left + right) * np.sqrt(2 * np.pi))
        parts = height * np.exp(-0.5 * (off / width) ** 2)
        whole = parts.sum(axis=2) + background
        before, likelihood = likelihood, np.log(whole) @ counts
        shares = parts * (counts / whole)[:, :, None]
        masses = shares.sum(axis=1)
        alive &= np.all(masses >= _LEAST_MASS, axis=1)
        pull = shares / width**2
        modes = np.einsum("rbl,b->rl", pull, values) / np.maximum(pull.sum(axis=1), _TINY)
        # Maximum likelihood of a split normal with its mode given (John 1982).
        squares = shares * (values[None, :, None] - modes[:, None, :]) ** 2
        low = np.cbrt(np.where(below, squares, 0.0).sum(axis=(1, 2)))
        high = np.cbrt(np.where(below, 0.0, squares).sum(axis=(1, 2)))
        mass = np.maximum(masses.sum(axis=1), _TINY)
        root = np.sqrt((low + high) / mass)
        one, two = np.maximum(low * root, _LEAST_NOISE), np.maximum(high * root, _LEAST_NOISE)
        left = np.maximum(one, two / skew)[:, None, None]
        right = np.maximum(two, one / skew)[:, None, None]
        weights = masses / mass[:, None]
        if np.max((likelihood - before)[alive], initial=0.0) < _LEAST_GAIN:
            break
    order = np.argsort(modes, axis=1)
    return _Fits(
        np.take_along_axis(modes, order, axis=1),
        np.take_along_axis(weights, order, axis=1),
        np.sqrt((left**2 + right**2) / 2)[:, 0, 0],
        np.where(alive, likelihood, -np.inf),
    )
