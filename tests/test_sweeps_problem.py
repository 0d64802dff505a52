"""Every sweep gives the same, in blocks of any size."""

from __future__ import annotations

import pytest
import torch
from problems import INDEX, make_features, make_problem, sum_by_definition
from sweeps import SWEEPS

from pykeen_nonsampling.factorizations.moments import Moments
from pykeen_nonsampling.graph.sides import Side
from pykeen_nonsampling.losses.squared import SquaredObjective
from pykeen_nonsampling.sweeps.problem import Problem, sum_of_costs


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("memory_budget", [1, 10_000, 10**9, None])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_sum_and_gradients_equal_automatic_differentiation(
    sweep: str, memory_budget: int | None, shared: bool, local: bool, factor: float
) -> None:
    features = make_features()
    if shared:
        features[2] = features[0]
    problem = make_problem(*features, local=local)
    total, expected = sum_of_costs(problem, SWEEPS[sweep](memory_budget)), sum_by_definition(problem)
    torch.testing.assert_close(total, expected)
    inputs = features[:2] if shared else features
    for actual, wanted in zip(
        torch.autograd.grad(factor * total, inputs), torch.autograd.grad(factor * expected, inputs), strict=True
    ):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_nothing_is_left_of_one_sweep_in_the_next(sweep: str) -> None:
    """Memory is used again, also for other sizes, data types and objectives."""
    sweeper, features = SWEEPS[sweep](10_000), make_features()
    problem = make_problem(*features)
    first = sum_of_costs(problem, sweeper)
    half = [x.detach()[:, :3].float() for x in features]
    narrow = Problem(
        Side("tail", INDEX.take(slice(0, 40))), problem.form, SquaredObjective(), *half, candidates=Moments.of(half[2])
    )
    expected = SWEEPS[sweep](None)(narrow, False)[0]
    torch.testing.assert_close(sweeper(narrow, False)[0], expected)
    assert torch.equal(sum_of_costs(problem, sweeper), first)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_problem_is_left_as_it_was(sweep: str) -> None:
    features = [x.detach() for x in make_features()]
    before = [x.clone() for x in features]
    SWEEPS[sweep](None)(make_problem(*features), True)
    assert all(torch.equal(x, y) for x, y in zip(before, features, strict=True))


@pytest.mark.parametrize("sweep", SWEEPS)
def test_without_gradient(sweep: str) -> None:
    features = make_features()
    with torch.inference_mode():
        total = sum_of_costs(make_problem(*features), SWEEPS[sweep](None))
    assert not total.requires_grad
    torch.testing.assert_close(total, sum_by_definition(make_problem(*features)).detach())
    # what was allocated in inference mode would be of no use outside
    sweeper = SWEEPS[sweep](None)
    with torch.inference_mode():
        sum_of_costs(make_problem(*features), sweeper)
    sum_of_costs(make_problem(*features), sweeper).backward()
