"""How long what is left will take, judged by what has been done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from .plan import Run, Search, Training
from .storage import Record

#: What runs have in common that take about as long, from the closest ones to the most distant
KINSHIP: Sequence[Sequence[str]] = (
    ("kind", "dataset", "model", "loop", "dim", "epochs", "configuration"),
    ("kind", "dataset", "model", "loop", "epochs", "configuration"),
    ("kind", "dataset", "loop", "configuration"),
    ("kind", "loop"),
    ("kind",),
    (),
)


def estimate(runs: Iterable[Run], records: Iterable[Record]) -> float | None:
    """Estimate the seconds that runs will take, by those that have most in common with them.

    :param runs: what is left
    :param records: what has been done
    :return: the seconds; None if nothing has been done so far
    """
    means = []
    for names in KINSHIP:
        groups: dict[tuple[Any, ...], list[float]] = {}
        for record in records:
            groups.setdefault(tuple(record.run.get(name) for name in names), []).append(record.took)
        means.append({kin: fmean(times) for kin, times in groups.items()})
    if not means[-1]:
        return None
    return sum(_expect(run, means) for run in runs)


def _expect(run: Run, means: Sequence[dict[tuple[Any, ...], float]]) -> float:
    described = json.loads(run.key)
    for i, (names, known) in enumerate(zip(KINSHIP, means, strict=True)):
        kin = tuple(described.get(name) for name in names)
        if kin in known:
            return known[kin]
        if i == 1 and isinstance(run, Search):
            return run.search_seconds + run.repeats * run.budget_seconds
        if i == 1 and isinstance(run, Training) and run.budget is not None:
            return run.budget
    raise AssertionError("all runs are related")


def format_time(seconds: float) -> str:
    """Write a time as one reads it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
