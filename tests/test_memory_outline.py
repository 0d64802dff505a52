"""Outlines of other sizes, and readable numbers."""

from __future__ import annotations

import pytest
from pykeen.datasets import Nations
from pykeen.models import CP, RESCAL, DistMult

from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.memory.outline import format_bytes


def test_a_smaller_model_can_be_told_from_a_larger_one() -> None:
    nations = Nations().training
    for model in (DistMult, RESCAL, CP):
        large, small = (outline(model, {**model_defaults(model), "embedding_dim": d}, nations) for d in (200, 50))
        shrunk = large.shrink(1 / 4).memory(memory_budget=1).training
        assert shrunk == pytest.approx(small.memory(memory_budget=1).training, rel=0.1)


def test_bytes_are_readable() -> None:
    assert [format_bytes(x) for x in (12, 12_345, 1.5e6, 2.5e9, 3e12)] == [
        "0.012 kB",
        "12.3 kB",
        "1.5 MB",
        "2.5 GB",
        "3 TB",
    ]
