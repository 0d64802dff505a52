"""Every sweep gives the same, in blocks of any size."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numba
import pytest
import torch
from cases import SWEEPS
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.nn.modules import DistMultInteraction, RESCALInteraction
from torch import Tensor

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop, Objective
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.factorizations.moments import Moments
from pykeen_nonsampling.free import free_memory
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Ranges, Side, SideWeights
from pykeen_nonsampling.losses.objective import Scores
from pykeen_nonsampling.losses.squared import SquaredObjective
from pykeen_nonsampling.sweeps import plain, ranges
from pykeen_nonsampling.sweeps.choice import fastest_sweep
from pykeen_nonsampling.sweeps.numba import kernels
from pykeen_nonsampling.sweeps.numba import order as plan
from pykeen_nonsampling.sweeps.numba.sweep import FusedSweep
from pykeen_nonsampling.sweeps.plain import PlainSweep
from pykeen_nonsampling.sweeps.problem import Problem, sum_of_costs
from pykeen_nonsampling.sweeps.products import GatherProducts, SparseProducts, products_for

#: A part of Nations
INDEX = TripleIndex.from_factory(Nations().training, num_entities=14, num_relations=55).take(slice(0, 90))


class CubicObjective(Objective):
    """Cubic in the positives, and the mean and the spread of all candidates beside it."""

    def cost(self, scores: Scores) -> Tensor:
        f = scores.positives
        total = (scores.positive_weights * (f**3 - f)).sum()
        if scores.candidates is not None:
            moments = scores.candidates
            total = total + (scores.query_weights * (moments.second / moments.count + moments.first).cos()).sum()
        return total


def make_features() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 6, dtype=torch.double, generator=generator).requires_grad_() for n in (14, 55, 14)]


def make_problem(
    heads: Tensor, relations: Tensor, tails: Tensor, local: bool = True, in_range: bool = False, **kwargs: Any
) -> Problem:
    generator = torch.Generator().manual_seed(1)
    offsets, members = INDEX.range_members()
    more = torch.rand(len(members), dtype=torch.double, generator=generator)
    weights = SideWeights(
        positives=torch.rand(len(INDEX), dtype=torch.double, generator=generator),
        queries=torch.rand(INDEX.num_queries, dtype=torch.double, generator=generator),
        ranges=Ranges(offsets.tolist(), members, more) if in_range else None,
    )
    form = factorize(DistMultInteraction()).form
    candidates = Moments.of(tails) if local else None
    return Problem(Side("tail", INDEX, weights), form, CubicObjective(), heads, relations, tails, candidates, **kwargs)


def plain_sum(problem: Problem) -> Tensor:
    """Compute the same by automatic differentiation, with a row of scores per query."""
    weights: Any = problem.side.weights
    e, r = INDEX.pairs.unbind(dim=-1)
    f = (problem.given[e] * problem.relations[r]) @ problem.answers.T
    positives = f[INDEX.query_index, INDEX.answers]
    total = (weights.positives * (positives**3 - positives)).sum()
    if problem.candidates is not None:
        u = torch.ones(55, 14, dtype=torch.double)
        if weights.ranges is not None:
            for r_, start, stop in zip(range(55), weights.ranges.offsets, weights.ranges.offsets[1:], strict=False):
                u[r_, weights.ranges.entities[start:stop]] += weights.ranges.weights[start:stop]
        u = u[r]
        mean_square, first = (u * f.square()).sum(dim=1) / u.sum(dim=1), (u * f).sum(dim=1)
        total = total + (weights.queries * (mean_square + first).cos()).sum()
    return total


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("memory_budget", [1, 10_000, 10**9, None])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("candidates", ["none", "all", "in range"])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_sum_and_gradients_equal_automatic_differentiation(
    sweep: str, memory_budget: int | None, shared: bool, candidates: str, factor: float
) -> None:
    features = make_features()
    if shared:
        features[2] = features[0]
    problem = make_problem(*features, local=candidates != "none", in_range=candidates == "in range")
    total, expected = sum_of_costs(problem, SWEEPS[sweep](memory_budget)), plain_sum(problem)
    torch.testing.assert_close(total, expected)
    inputs = features[:2] if shared else features
    for actual, wanted in zip(
        torch.autograd.grad(factor * total, inputs), torch.autograd.grad(factor * expected, inputs), strict=True
    ):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("cached_elements", [0, 20, 100, 10**6], ids=lambda n: f"{n} at once")
@pytest.mark.parametrize("scored", [False, True], ids=["by Gram matrix", "by score"])
def test_ranges_in_chunks(sweep: str, cached_elements: int, scored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the members of a range are visited, the sum is the same."""
    monkeypatch.setattr(ranges, "CACHED_ELEMENTS", cached_elements)
    monkeypatch.setattr(ranges.RangeProducts, "_is_scored", lambda self, queries, members: scored and queries % 3 > 0)
    features = make_features()
    problem = make_problem(*features, in_range=True)
    total, expected = sum_of_costs(problem, SWEEPS[sweep](10_000)), plain_sum(problem)
    torch.testing.assert_close(total, expected)
    for actual, wanted in zip(torch.autograd.grad(total, features), torch.autograd.grad(expected, features), strict=True):
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
    torch.testing.assert_close(total, plain_sum(make_problem(*features)).detach())
    # what was allocated in inference mode would be of no use outside
    sweeper = SWEEPS[sweep](None)
    with torch.inference_mode():
        sum_of_costs(make_problem(*features), sweeper)
    sum_of_costs(make_problem(*features), sweeper).backward()


def solve(sweep: Any, problem: Problem) -> list[Tensor]:
    """Compute sum and gradients."""
    total, gradients = sweep(problem, True)
    return [total, *(x for x in vars(gradients).values() if x is not None)]


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set the number of threads, for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


class TestFusedSweep:
    """What only the compiled loops could get wrong."""

    @pytest.mark.parametrize("local", [False, True])
    @pytest.mark.parametrize("objective", [SquaredObjective(0.9, 0.1), CubicObjective()], ids=["squared", "cubic"])
    def test_any_number_of_threads(self, threads: Callable[[int], None], local: bool, objective: Objective) -> None:
        heads, relations, tails = (x.detach() for x in make_features())
        problem = replace(make_problem(heads, relations, tails, local=local, norm_weight=0.3), objective=objective)
        expected = solve(PlainSweep(), problem)
        for n in (1, 2, 3, 40):
            threads(n)
            for memory_budget in (None, 50_000):
                sweep = FusedSweep(memory_budget)
                actual = solve(sweep, problem)
                for x, y in zip(actual, expected, strict=True):
                    torch.testing.assert_close(x, y)
                again = solve(sweep, problem)
                assert all(torch.equal(x, y) for x, y in zip(actual, again, strict=True)), "not the same bits"
            assert torch.get_num_threads() == n, "PyTorch has another number of threads than before"

    def test_settings_of_numba_stay(self, threads: Callable[[int], None]) -> None:
        threads(2)
        before = numba.config.THREADING_LAYER, numba.get_num_threads()
        solve(FusedSweep(), make_problem(*(x.detach() for x in make_features())))
        assert before == (numba.config.THREADING_LAYER, numba.get_num_threads())

    def test_threads_have_no_memory_for_many_relations(
        self, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads(4)
        problem = make_problem(*(x.detach() for x in make_features()))
        sweep = FusedSweep()
        assert sweep._num_parts(problem) == 4
        size = problem.relations.numel() * problem.relations.element_size()
        for memory, parts in ((2 * size, 2), (size - 1, 1)):
            monkeypatch.setattr(plan, "RELATION_MEMORY", memory)
            assert sweep._num_parts(problem) == parts
            assert sweep._plan(problem.side.index, parts).parts == parts

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
    def test_forked_process_has_one_thread(self) -> None:
        """Others would wait forever for threads that are not there, and so may PyTorch."""
        code = """
            import os, torch
            from pykeen_nonsampling.sweeps.numba.threads import num_threads, warn_if_forked
            warn_if_forked()
            torch.set_num_threads(2)
            assert num_threads() == 2, "no OpenMP"
            if os.fork():
                raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
            warn_if_forked()
            os._exit(0 if num_threads() == 1 else 1)
        """
        process = subprocess.run(
            [sys.executable, "-c", inspect.cleandoc(code)], check=True, timeout=300, capture_output=True, text=True
        )
        assert process.stderr.count("This process was forked.") == 1

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    @pytest.mark.parametrize("local", [False, True])
    def test_what_is_not_finite_stays_visible(self, value: float, local: bool) -> None:
        features = [x.detach() for x in make_features()]
        features[1][INDEX.pairs[0, 1], 2] = value
        problem = replace(make_problem(*features, local=local), objective=SquaredObjective())
        assert not any(x.isfinite().all() for x in solve(FusedSweep(), problem)[:3])

    @pytest.mark.parametrize("local", [False, True])
    def test_single_precision(self, local: bool) -> None:
        features = [x.detach() for x in make_features()]
        problem = make_problem(*features, local=local, norm_weight=0.1)
        expected = solve(FusedSweep(), replace(problem, objective=SquaredObjective(0.9, 0.1)))
        weights: Any = problem.side.weights
        weights = SideWeights(weights.positives.float(), weights.queries.float())
        features = [x.float() for x in features]
        problem = replace(
            make_problem(*features, local=local, norm_weight=0.1),
            objective=SquaredObjective(0.9, 0.1),
            side=Side("tail", INDEX, weights),
        )
        for x, y in zip(solve(FusedSweep(), problem), expected, strict=True):
            assert x.dtype == torch.float
            torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-4)

    def test_applies_to_trilinear_forms_in_usual_precision(self) -> None:
        problem = make_problem(*(x.detach() for x in make_features()))
        assert FusedSweep.applies(problem)
        assert not FusedSweep.applies(replace(problem, given=problem.given.bfloat16()))
        assert not FusedSweep.applies(replace(problem, given=problem.given.to("meta")))
        rescal = factorize(RESCALInteraction()).form
        matrices = torch.randn(55, 6, 6, dtype=torch.double)
        other = replace(problem, form=rescal, relations=matrices, objective=SquaredObjective())
        assert not FusedSweep.applies(other)
        for x, y in zip(solve(FusedSweep(), other), solve(PlainSweep(), other), strict=True):
            assert torch.equal(x, y)

    def test_plans_go_with_their_index(self) -> None:
        sweep, index = FusedSweep(), TripleIndex(INDEX.triples, 14, 55)
        problem = replace(make_problem(*(x.detach() for x in make_features())), side=Side("tail", index))
        sweep(problem, False)
        (plan,) = sweep._plans.values()
        sweep(problem, True)
        assert next(iter(sweep._plans.values())) is plan
        del problem, index, plan
        gc.collect()
        assert not sweep._plans

    def test_without_place_for_a_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def njit(cache: bool = False, **kwargs: Any) -> Any:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: function

        monkeypatch.setattr(kernels, "njit", njit)
        assert kernels.compiled()(len) is len


class TestFastestSweep:
    def test_fused(self) -> None:
        sweep = fastest_sweep(123)
        assert isinstance(sweep, FusedSweep)
        assert sweep.memory_budget == sweep.plain.memory_budget == 123

    def test_plain_without_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        sweep = fastest_sweep(123)
        assert isinstance(sweep, PlainSweep)
        assert sweep.memory_budget == 123

    def test_plain_if_numba_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "pykeen_nonsampling.sweeps.numba.sweep", None)
        assert isinstance(fastest_sweep(), PlainSweep)
        assert "Numba is installed, but cannot be imported" in caplog.text

    def test_training_loops_use_it(self) -> None:
        training = Nations().training
        model = DistMult(triples_factory=training, loss=NonSamplingLoss())
        loop = NonSamplingTrainingLoop(model=model, triples_factory=training)
        loop.train(training, num_epochs=1, use_tqdm=False)
        assert isinstance(loop._run.sweep, FusedSweep)


def test_blocks_go_with_their_index() -> None:
    sweeper, features = PlainSweep(), [x.detach() for x in make_features()]
    index = TripleIndex(INDEX.triples, 14, 55)
    problem = Problem(Side("tail", index), factorize(DistMultInteraction()).form, SquaredObjective(), *features)
    sweeper(problem, False)
    (blocks,) = (blocks for _, blocks in sweeper._blocks.values())
    sweeper(problem, False)
    assert next(iter(sweeper._blocks.values()))[1] is blocks
    del problem, index, blocks
    gc.collect()
    assert not sweeper._blocks


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_fast_products_where_the_build_has_them(dtype: torch.dtype) -> None:
    products = products_for(torch.device("cpu"), dtype)
    assert isinstance(products, SparseProducts if torch.backends.mkl.is_available() else GatherProducts)


@pytest.mark.parametrize("error", [RuntimeError("requires MKL"), NotImplementedError("no such operator on this device")])
def test_fallback_where_it_has_not(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(torch.sparse, "sampled_addmm", fail)
    assert isinstance(products_for.__wrapped__(torch.device("cpu"), torch.float), GatherProducts)


def test_fallback_where_they_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparseProducts, "scores", lambda *args: torch.zeros(3))
    assert isinstance(products_for.__wrapped__(torch.device("cpu"), torch.float), GatherProducts)


class TestBlockSize:
    def test_fits_the_cache(self) -> None:
        assert plain.block_size(200, 4, torch.device("cpu"), 2**40) == plain.CACHED_ELEMENTS // 200

    @pytest.mark.parametrize("budget", [10**5, 10**6, 10**7])
    def test_fits_the_budget(self, budget: int) -> None:
        size = plain.block_size(100, 8, torch.device("cpu"), budget)
        assert size * 100 * 8 * plain.MATRICES <= budget < (size + 1) * 100 * 8 * plain.MATRICES

    def test_is_at_least_one(self) -> None:
        assert plain.block_size(10**9, 8, torch.device("cpu"), 1) == 1

    def test_default_is_a_quarter_of_what_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plain, "free_memory", lambda device: 4 * 10**6)
        for device in ("cpu", "cuda"):
            explicit = plain.block_size(100, 8, torch.device(device), 10**6)
            assert plain.block_size(100, 8, torch.device(device)) == explicit == 10**6 // (100 * 8 * plain.MATRICES)

    def test_free_memory(self) -> None:
        assert free_memory(torch.device("cpu")) > 0
        assert free_memory(torch.device("meta")) == 2**30

    def test_large_queries_are_gathered_in_chunks(self) -> None:
        """A query with more answers than a block has room for is one block, but its vectors are not gathered at once."""
        index = TripleIndex(torch.tensor([[0, 0, a] for a in range(10)]), 10, 1)
        sweeper = PlainSweep(memory_budget=plain.MATRICES * 6 * 8 * 3, products=GatherProducts())
        features = [torch.randn(n, 6, dtype=torch.double) for n in (10, 1, 10)]
        problem = Problem(Side("tail", index), factorize(DistMultInteraction()).form, SquaredObjective(), *features)
        total, gradients = sweeper(problem, True)
        ((_, (block,)),) = sweeper._blocks.values()
        assert [len(range(*part.indices(10))) for part in block.chunks] == [3, 3, 3, 1]
        expected, expected_gradients = PlainSweep()(problem, True)
        torch.testing.assert_close(total, expected)
        assert gradients is not None
        assert expected_gradients is not None
        torch.testing.assert_close(gradients.given, expected_gradients.given)
        torch.testing.assert_close(gradients.answers, expected_gradients.answers)


@pytest.mark.parametrize("memory_budget", [1, 5_000, 200_000])
def test_training_is_the_same_for_any_budget(memory_budget: int) -> None:
    dataset = Nations()
    losses = []
    for budget in (None, memory_budget):
        model = DistMult(triples_factory=dataset.training, random_seed=0, loss=NonSamplingLoss()).double()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=budget)
        losses.append(loop.train(dataset.training, num_epochs=3, use_tqdm=False))
        assert "_sweep" not in vars(loop), "its memory is kept"
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    with pytest.raises(ValueError, match="memory_budget=0 is out of range: use an integer ≥ 1"):
        NonSamplingTrainingLoop(model=model, triples_factory=dataset.training, memory_budget=0)
