"""How much work a call may do."""

from __future__ import annotations

import pytest
from railweave.placement.loops.budget import FULL_RANKS, Budget


def test_a_limit_is_as_much_work_for_every_job_up_to_the_full_size() -> None:
    assert Budget(0.5, ranks=8).left == Budget(0.5, ranks=FULL_RANKS).left == 0.5


def test_larger_jobs_get_more_work_but_not_in_proportion() -> None:
    assert Budget(0.5, ranks=4 * FULL_RANKS).left == pytest.approx(1.0)


def test_work_that_is_charged_is_spent_whatever_the_size() -> None:
    budget = Budget(1.0, ranks=4 * FULL_RANKS)
    budget.charge(1.5)
    assert not budget.spent()
    budget.charge(0.5)
    assert budget.spent()
