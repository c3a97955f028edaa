"""How many levels a set of noisy values has, and where: a mixture of normals with model choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_LEVELS = 6
_BINS = 320
_STEPS = 30
_STARTS = 10
_LEAST_APART = 2.2
"""In units of the noise; nearer than that, a skew of the noise looks like two levels."""
_LEAST_NOISE = 0.05
"""Values of one level are taken to differ by at least 5 %: tiers that differ less are none."""
_OUTLIERS = 0.02
_REACH = np.log(50)
"""Values more than 50 times beyond all but a few are outliers."""
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
class _Fit:
    means: Floats
    weights: Floats
    noise: float
    log_likelihood: float


def find_levels(logs: Floats, most: int = MOST_LEVELS) -> Levels:
    """The levels in `logs` (finite logarithms, at least one).

    A mixture of normals, each of the same width to the left and of another to the right (noise is
    skewed), over a thin uniform background (outliers) is fitted by
    expectation maximisation, with one level more as long as the Bayesian information criterion
    (Schwarz 1978) gains by it and the levels stay 2.2 standard deviations apart.
    """
    middle = float(np.median(logs))
    near, far = np.quantile(logs, (_OUTLIERS, 1 - _OUTLIERS))
    low, high = max(logs.min(), near - _REACH), min(logs.max(), far + _REACH)
    span = max(high - low, 4 * _LEAST_NOISE)
    low, high = low - 0.05 * span, high + 0.05 * span
    inside = logs[(logs >= low) & (logs <= high)]
    counts, edges = np.histogram(inside, bins=_BINS, range=(low, high))
    values = (edges[1:] + edges[:-1]) / 2
    kept = counts > 0
    values, counts = values[kept], counts[kept].astype(float)
    background = _OUTLIERS / (high - low)
    total = counts.sum()
    best = _fitted(values, counts, np.array([middle]), background)
    if best is None:
        return Levels((middle,), _LEAST_NOISE, (1.0,))
    for count in range(2, most + 1):
        starts = (
            np.sort(np.append(best.means, new))
            for new in np.quantile(inside, np.linspace(0, 1, _STARTS))
        )
        grid = (
            np.sort(np.append(best.means, new))
            for new in np.linspace(values[0], values[-1], _STARTS)
        )
        found = [_fitted(values, counts, start, background) for start in [*starts, *grid]]
        fits = [fit for fit in found if fit is not None and _distinct(fit, total)]
        if not fits:
            break
        better = max(fits, key=lambda fit: fit.log_likelihood)
        gain = better.log_likelihood - best.log_likelihood
        if gain <= np.log(total) + _MARGIN:
            break
        assert len(better.means) == count
        best = better
    return Levels(tuple(map(float, best.means)), float(best.noise), tuple(map(float, best.weights)))


def _distinct(fit: _Fit, total: float) -> bool:
    apart = np.diff(fit.means) >= _LEAST_APART * fit.noise
    return bool(np.all(apart) and np.all(fit.weights * total >= _FEWEST_OF_A_LEVEL))


def _fitted(values: Floats, counts: Floats, start: Floats, background: float) -> _Fit | None:
    """The mixture that expectation maximisation reaches from these means; None if one dies."""
    modes = start.astype(float)
    total = counts.sum()
    mean = np.average(values, weights=counts)
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    left = right = max(_LEAST_NOISE, spread / (2 * len(modes)))
    weights = np.full(len(modes), 1 / len(modes))
    skew = _MOST_SKEW if total > _FEW else _MOST_SKEW_OF_FEW
    likelihood = -np.inf
    for _ in range(_STEPS):
        off = values[:, None] - modes
        below = off < 0
        z = off / np.where(below, left, right)
        height = (1 - _OUTLIERS) * weights * 2 / ((left + right) * np.sqrt(2 * np.pi))
        parts = height * np.exp(-0.5 * z * z)
        whole = parts.sum(axis=1) + background
        before, likelihood = likelihood, float(counts @ np.log(whole))
        shares = parts / whole[:, None] * counts[:, None]
        masses = shares.sum(axis=0)
        if np.any(masses < 0.5):
            return None
        pull = shares / np.where(below, left, right) ** 2
        modes = (pull * values[:, None]).sum(axis=0) / pull.sum(axis=0)
        # Maximum likelihood of a split normal with its mode given (John 1982).
        squares = shares * (values[:, None] - modes) ** 2
        low = float(squares[below].sum()) ** (1 / 3)
        high = float(squares[~below].sum()) ** (1 / 3)
        whole_mass = masses.sum()
        left = max(_LEAST_NOISE, low * np.sqrt((low + high) / whole_mass))
        right = max(_LEAST_NOISE, high * np.sqrt((low + high) / whole_mass))
        left, right = max(left, right / skew), max(right, left / skew)
        weights = masses / whole_mass
        if likelihood - before < 1e-4 * max(1.0, total * 1e-4):
            break
    order = np.argsort(modes)
    noise = float(np.sqrt((left * left + right * right) / 2))
    return _Fit(modes[order], weights[order], noise, likelihood)
