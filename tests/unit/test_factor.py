"""A Cholesky factor is found where there is one, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from railweave.placement.bounds.factor import has_factor


def with_least_eigenvalue(size: int, least: float) -> np.ndarray:
    chance = np.random.default_rng(size)
    turned = np.linalg.qr(chance.standard_normal((size, size)))[0]
    values = np.linspace(least, 3.0, size)
    matrix: np.ndarray = (turned * values) @ turned.T
    return (matrix + matrix.T) / 2


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 33, 130])
def test_the_factor_is_that_of_the_library(size: int) -> None:
    matrix = with_least_eigenvalue(size, 0.01)
    found = matrix.copy()
    assert has_factor(found)
    np.testing.assert_allclose(np.triu(found).T, np.linalg.cholesky(matrix), atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 33, 130])
@pytest.mark.parametrize("least", [-1e-9, -0.5])
def test_a_matrix_with_a_negative_eigenvalue_has_none(size: int, least: float) -> None:
    assert not has_factor(
        with_least_eigenvalue(size, least) if size > 1 else np.full((1, 1), least)
    )


def test_what_is_not_a_number_has_none() -> None:
    assert not has_factor(np.full((6, 6), np.nan))
