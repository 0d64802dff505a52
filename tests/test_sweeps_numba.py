"""What only the compiled loops could get wrong."""

from __future__ import annotations

import gc
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
from problems import INDEX, CubicObjective, make_features, make_problem, solve
from pykeen.nn.modules import RESCALInteraction
from sweeps import OnlyFusedSweep

from pykeen_nonsampling import Objective
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side, SideWeights
from pykeen_nonsampling.losses.squared import SquaredObjective
from pykeen_nonsampling.sweeps.numba import kernels, order
from pykeen_nonsampling.sweeps.numba.sweep import FusedSweep
from pykeen_nonsampling.sweeps.plain import PlainSweep


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
                sweep = OnlyFusedSweep(memory_budget)
                actual = solve(sweep, problem)
                for x, y in zip(actual, expected, strict=True):
                    torch.testing.assert_close(x, y)
                again = solve(sweep, problem)
                assert all(torch.equal(x, y) for x, y in zip(actual, again, strict=True)), "not the same bits"
            assert torch.get_num_threads() == n, "PyTorch has another number of threads than before"

    def test_settings_of_numba_stay(self, threads: Callable[[int], None]) -> None:
        threads(2)
        before = numba.config.THREADING_LAYER, numba.get_num_threads()
        solve(OnlyFusedSweep(), make_problem(*(x.detach() for x in make_features())))
        assert before == (numba.config.THREADING_LAYER, numba.get_num_threads())

    def test_threads_have_no_memory_for_many_relations(
        self, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads(4)
        problem = make_problem(*(x.detach() for x in make_features()))
        sweep = OnlyFusedSweep()
        assert sweep._num_parts(problem) == 4
        size = problem.relations.numel() * problem.relations.element_size()
        for memory, parts in ((2 * size, 2), (size - 1, 1)):
            monkeypatch.setattr(order, "RELATION_MEMORY", memory)
            assert sweep._num_parts(problem) == parts
            assert sweep._order(problem.side.index, parts).parts == parts

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
        assert not any(x.isfinite().all() for x in solve(OnlyFusedSweep(), problem)[:3])

    @pytest.mark.parametrize("local", [False, True])
    def test_single_precision(self, local: bool) -> None:
        features = [x.detach() for x in make_features()]
        problem = make_problem(*features, local=local, norm_weight=0.1)
        expected = solve(OnlyFusedSweep(), replace(problem, objective=SquaredObjective(0.9, 0.1)))
        weights: Any = problem.side.weights
        weights = SideWeights(weights.positives.float(), weights.queries.float())
        features = [x.float() for x in features]
        problem = replace(
            make_problem(*features, local=local, norm_weight=0.1),
            objective=SquaredObjective(0.9, 0.1),
            side=Side("tail", INDEX, weights),
        )
        for x, y in zip(solve(OnlyFusedSweep(), problem), expected, strict=True):
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

    def test_orders_go_with_their_index(self) -> None:
        sweep, index = OnlyFusedSweep(), TripleIndex(INDEX.triples, 14, 55)
        problem = replace(make_problem(*(x.detach() for x in make_features())), side=Side("tail", index))
        sweep(problem, False)
        (kept,) = sweep._orders.values()
        sweep(problem, True)
        assert next(iter(sweep._orders.values())) is kept
        del problem, index, kept
        gc.collect()
        assert not sweep._orders

    def test_without_place_for_a_cache(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def njit(cache: bool = False, **kwargs: Any) -> Any:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return lambda function: function

        monkeypatch.setattr(kernels, "njit", njit)
        assert kernels.compiled()(len) is len
