"""Nonlinear least squares with bounds, for fits that must not be led by a few odd rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def fit(
    residuals: Callable[[Floats], Floats],
    start: Floats,
    low: Floats,
    high: Floats,
    rounds: int = 30,
    odd: float = 0.15,
) -> Floats:
    """Parameters that make the sum of sqrt(1 + (r / odd)^2) of the residuals least.

    Levenberg 1944 and Marquardt 1963 with derivatives by differences and weights that fall as
    1 / |r| beyond `odd` (the soft-l1 loss of Triggs et al. 1999); steps stop at the bounds.
    """
    here = np.clip(start, low, high)
    span = np.where(here != 0, np.abs(here), 0.1 * (high - low))
    found = residuals(here)
    damping = 1e-2
    for _ in range(rounds):
        slopes = np.empty((len(found), len(here)))
        for index in range(len(here)):
            nudge = 1e-3 * span[index]
            if here[index] + nudge > high[index]:
                nudge = -nudge
            beside = here.copy()
            beside[index] += nudge
            slopes[:, index] = (residuals(beside) - found) / nudge
        weights = 1 / np.sqrt(1 + (found / odd) ** 2)
        scaled = slopes * span
        normal = scaled.T @ (weights[:, None] * scaled)
        gradient = scaled.T @ (weights * found)
        for _ in range(8):
            damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
            there = np.clip(here - span * np.linalg.solve(damped, gradient), low, high)
            tried = residuals(there)
            if _loss(tried, odd) < _loss(found, odd):
                break
            damping *= 4
        else:
            return here
        settled = _loss(found, odd) - _loss(tried, odd) < 1e-5 * _loss(found, odd)
        here, found, damping = there, tried, damping / 5
        if settled:
            return here
    return here


def _loss(residuals: Floats, odd: float) -> float:
    return float(np.sum(np.sqrt(1 + (residuals / odd) ** 2) - 1))
