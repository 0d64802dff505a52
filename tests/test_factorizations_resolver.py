"""Every interaction finds its factorization, and every factorization has its tests."""

import importlib
from pathlib import Path

import pytest
from factorization_case import FactorizationTestCase
from graphs import GRAPHS
from pykeen.nn.modules import DistMultInteraction

from pykeen_nonsampling.factorizations import (
    DistMultFactorization,
    FunctionForm,
    MatrixForm,
    NotDecomposableError,
    TrilinearForm,
    factorization_resolver,
    factorize,
)


def cases() -> list[type[FactorizationTestCase]]:
    """Find the test cases of all files."""
    for path in Path(__file__).parent.glob("test_factorizations_*.py"):
        importlib.import_module(path.stem)
    found, left = [], [FactorizationTestCase]
    while left:
        case = left.pop()
        left += case.__subclasses__()
        if case.__name__.startswith("Test"):
            found.append(case)
    return found


def test_every_registered_factorization_has_a_case() -> None:
    assert {case.cls for case in cases()} >= set(factorization_resolver)


def test_all_graphs_are_tried_with_each_kind_of_form() -> None:
    forms = {case.cls: type(case.cls(case.make_interaction()).form) for case in cases() if case.graphs is GRAPHS}
    assert len(forms) >= 4
    assert set(forms.values()) == {FunctionForm, MatrixForm, TrilinearForm}


def test_subclass_that_inherits_the_score_is_decomposed() -> None:
    class Renamed(DistMultInteraction):
        pass

    assert isinstance(factorize(Renamed()), DistMultFactorization)


def test_subclass_with_a_score_of_its_own_is_not() -> None:
    class Other(DistMultInteraction):
        def forward(self, h, r, t):  # type: ignore[no-untyped-def]
            return super().forward(h, r, t).tanh()

    with pytest.raises(NotDecomposableError, match="Other cannot be decomposed"):
        factorize(Other())
