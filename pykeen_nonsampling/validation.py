"""Checks of numbers that users give, in Python or in JSON, where ``"0.1"`` and ``true`` are easily taken for numbers."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def as_number(
    name: str,
    value: Any,
    example: float,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    otherwise: str = "",
) -> float:
    """Return a number, unless it is not a finite number, or out of range.

    :param name: the name of the parameter
    :param value: its value
    :param example: a value that makes sense
    :param above: the value has to be larger than this
    :param least: the value has to be at least this
    :param below: the value has to be smaller than this
    :param otherwise: what to do instead
    :return: the value
    :raises TypeError: if it is not a number
    :raises ValueError: if it is out of range
    """
    bounds = [f"{sign} {bound:g}" for sign, bound in ((">", above), ("≥", least), ("<", below)) if bound is not None]
    advice = f"use {' '.join(['a finite number', ' and '.join(bounds)]).strip()}, e.g. {name}={example!r}{otherwise}."
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r} is of type {type(value).__name__}, but has to be a number: {advice}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
    ):
        raise ValueError(f"{name}={value} is out of range: {advice}")
    return number


def as_integer(name: str, value: Any, example: int, *, least: int = 1, otherwise: str = "") -> int:
    """Return an integer, unless it is not an integer, or too small.

    :param name: the name of the parameter
    :param value: its value
    :param example: a value that makes sense
    :param least: the value has to be at least this
    :param otherwise: what to do instead
    :return: the value
    :raises TypeError: if it is not an integer
    :raises ValueError: if it is out of range
    """
    advice = f"use an integer ≥ {least}, e.g. {name}={example}{otherwise}."
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is of type {type(value).__name__}, but has to be an integer: {advice}")
    if value < least:
        raise ValueError(f"{name}={value} is out of range: {advice}")
    return int(value)
