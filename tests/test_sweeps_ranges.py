"""Ranges of relations, visited in chunks."""

from __future__ import annotations

import pytest
import torch
from problems import make_features, make_problem, sum_by_definition
from sweeps import PLAIN

from pykeen_nonsampling.sweeps import ranges
from pykeen_nonsampling.sweeps.problem import sum_of_costs


@pytest.mark.parametrize("sweep", PLAIN)
@pytest.mark.parametrize("cached_elements", [0, 20, 100, 10**6], ids=lambda n: f"{n} at once")
@pytest.mark.parametrize("scored", [False, True], ids=["by Gram matrix", "by score"])
def test_ranges_in_chunks(sweep: str, cached_elements: int, scored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the members of a range are visited, the sum is the same."""
    monkeypatch.setattr(ranges, "SCORED_ELEMENTS", cached_elements)
    monkeypatch.setattr(ranges.RangeProducts, "_is_scored", lambda self, queries, members: scored and queries % 3 > 0)
    features = make_features()
    problem = make_problem(*features, in_range=True)
    total, expected = sum_of_costs(problem, PLAIN[sweep](10_000)), sum_by_definition(problem)
    torch.testing.assert_close(total, expected)
    for actual, wanted in zip(torch.autograd.grad(total, features), torch.autograd.grad(expected, features), strict=True):
        torch.testing.assert_close(actual, wanted)
