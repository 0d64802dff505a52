"""The sweeps under test. Whoever asks for one gets this one, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from torch import Tensor

from pykeen_nonsampling.sweeps.numba.sweep import FusedSweep
from pykeen_nonsampling.sweeps.plain import PlainSweep
from pykeen_nonsampling.sweeps.problem import Gradients, Problem, Sweep
from pykeen_nonsampling.sweeps.products import GatherProducts, SparseProducts
from pykeen_nonsampling.sweeps.scores import ScoreSweep
from pykeen_nonsampling.training import loop, run


class OnlyFusedSweep(FusedSweep):
    """The compiled loops alone: fails where they would leave a problem to the plain sweep."""

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        assert self.applies(problem), "the compiled loops do not apply"
        return super().__call__(problem, differentiate)


#: The sweeps that can solve any problem, from the memory budget
PLAIN: dict[str, Callable[[int | None], Sweep]] = {
    "sparse": lambda memory_budget: PlainSweep(memory_budget, SparseProducts()),
    "gather": lambda memory_budget: PlainSweep(memory_budget, GatherProducts()),
}

#: All sweeps for objectives of moments, from the memory budget: the compiled loops are for trilinear forms
SWEEPS: dict[str, Callable[[int | None], Sweep]] = {**PLAIN, "fused": OnlyFusedSweep}


@contextmanager
def training_with(sweep: str, memory_budget: int | None) -> Iterator[None]:
    """Let training loops use a sweep, and fail if they have not.

    :param sweep: its name, or ``"scores"`` for the one of objectives that see every score
    :param memory_budget: its memory budget
    :yield: while they do
    """
    count = 0

    def make(_: int | None = None, scores: bool = False) -> Sweep:
        assert scores == (sweep == "scores")
        made = ScoreSweep(memory_budget) if scores else SWEEPS[sweep](memory_budget)

        def solve(problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
            nonlocal count
            count += 1
            return made(problem, differentiate)

        return solve

    with pytest.MonkeyPatch.context() as patch:
        for module in (loop, run):
            patch.setattr(module, "fastest_sweep", make)
        yield
    assert count, "the training has not used the sweep"
