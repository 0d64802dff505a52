"""Numbers that users give are taken, or refused with their name, the reason and an example."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pykeen_nonsampling.validation import as_integer, as_number


class TestNumbers:
    @pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.float64(0.25), Fraction(1, 4)], ids=repr)
    def test_of_any_type(self, value: Any) -> None:
        number = as_number("x", value, 0.1)
        assert type(number) is float
        assert number == 0.25

    @pytest.mark.parametrize("value", [3, np.int64(3)], ids=repr)
    def test_integers_are_numbers(self, value: Any) -> None:
        number = as_number("x", value, 0.1)
        assert type(number) is float
        assert number == 3.0

    @pytest.mark.parametrize("value", ["0.1", "", True, False, None, [0.1], {}, 1j], ids=repr)
    def test_of_other_types_are_refused(self, value: Any) -> None:
        with pytest.raises(TypeError) as info:
            as_number("x", value, 0.1)
        assert str(info.value) == (
            f"x={value!r} is of type {type(value).__name__}, but has to be a number: use a finite number, e.g. x=0.1."
        )

    @pytest.mark.parametrize(
        "value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)], ids=["nan", "∞", "-∞", "1", "-1"]
    )
    def test_that_are_not_finite_are_refused(self, value: float) -> None:
        with pytest.raises(ValueError, match=r"^x=.* is out of range: use a finite number, e.g. x=0.1\.$"):
            as_number("x", value, 0.1)

    @pytest.mark.parametrize(
        ("bounds", "inside", "outside"),
        [
            (dict(above=0.0), [1e-300, 5], [0, -0.0, -1e-300]),
            (dict(least=1.0), [1, 1.5], [np.nextafter(1.0, 0.0), -5]),
            (dict(below=0.5), [-7, np.nextafter(0.5, 0.0)], [0.5, 1]),
            (dict(above=0.0, below=1.0), [0.5], [0.0, 1.0, -1, 2]),
            (dict(least=0.0, below=1.0), [0.0, 0.5], [1.0, -1e-9]),
        ],
        ids=str,
    )
    def test_bounds(self, bounds: dict[str, float], inside: list[float], outside: list[float]) -> None:
        for value in inside:
            assert as_number("x", value, 0.1, **bounds) == value
        for value in outside:
            with pytest.raises(ValueError, match=r"^x=.* is out of range: "):
                as_number("x", value, 0.1, **bounds)

    def test_all_bounds_are_named(self) -> None:
        with pytest.raises(ValueError, match="is out of range") as info:
            as_number("lr", 2, 0.05, above=0, below=1, otherwise=", or leave it out")
        assert str(info.value) == ("lr=2 is out of range: use a finite number > 0 and < 1, e.g. lr=0.05, or leave it out.")
        with pytest.raises(TypeError, match=r"use a finite number ≥ 0.5, e.g. lr=1\."):
            as_number("lr", "2", 1, least=0.5)


class TestIntegers:
    @pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)], ids=repr)
    def test_of_any_type(self, value: Any) -> None:
        number = as_integer("n", value, 10)
        assert type(number) is int
        assert number == 3

    @pytest.mark.parametrize("value", [3.0, "3", True, None, [3], np.float64(3), Fraction(3)], ids=repr)
    def test_of_other_types_are_refused(self, value: Any) -> None:
        with pytest.raises(TypeError) as info:
            as_integer("n", value, 10)
        assert str(info.value) == (
            f"n={value!r} is of type {type(value).__name__}, but has to be an integer: use an integer ≥ 1, e.g. n=10."
        )

    @pytest.mark.parametrize("least", [-2, 0, 1, 5])
    def test_bound(self, least: int) -> None:
        assert as_integer("n", least, 10, least=least) == least
        with pytest.raises(
            ValueError, match=rf"^n={least - 1} is out of range: use an integer ≥ {least}, e.g. n=10 or so\.$"
        ):
            as_integer("n", least - 1, 10, least=least, otherwise=" or so")

    def test_large_ones_stay_as_they_are(self) -> None:
        assert as_integer("n", 10**400, 10) == 10**400
