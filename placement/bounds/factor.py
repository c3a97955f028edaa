"""Whether a symmetric matrix is positive definite, shown by its Cholesky factor."""

from __future__ import annotations

import math

from ..jobs.index import Floats
from ..loops.compiled import lean


@lean
def has_factor(matrix: Floats) -> bool:
    """Whether the factor exists, by rows on and above the diagonal, which it takes the place of.

    In one thread: several of a library's wait for each other by turning idle, which takes a busy
    machine a hundred times as long as the work itself.
    """
    rows = matrix.shape[0]
    for first in range(0, rows, 4):
        end = min(first + 4, rows)
        for r in range(first, end):
            for k in range(first, r):
                factor = matrix[k, r]
                for c in range(r, rows):
                    matrix[r, c] -= factor * matrix[k, c]
            if not matrix[r, r] > 0.0:
                return False
            root = math.sqrt(matrix[r, r])
            for c in range(r, rows):
                matrix[r, c] /= root
        # Four rows at once, so that what is left is read and written a fourth as often.
        for r in range(end, rows):
            one, two = matrix[first, r], matrix[first + 1, r]
            three, four = matrix[first + 2, r], matrix[first + 3, r]
            for c in range(r, rows):
                matrix[r, c] -= (
                    one * matrix[first, c]
                    + two * matrix[first + 1, c]
                    + three * matrix[first + 2, c]
                    + four * matrix[first + 3, c]
                )
    return True
