"""Outlines of other sizes, and readable numbers."""

from __future__ import annotations

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import CP, RESCAL, DistMult

from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.memory.outline import format_bytes
from pykeen_nonsampling.sweeps.numba.order import Order


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


def test_an_index_and_an_order_have_as_many_bytes_as_they_say() -> None:
    index = TripleIndex.from_factory(Nations().training, 14, 55)
    n, q, a = len(index), index.num_queries, index.reverse().num_queries
    order = Order(index, parts=1)
    # offsets have one more element
    expected = TripleIndex.TRIPLE_BYTES * n + TripleIndex.QUERY_BYTES * q + 8
    assert sum(x.nbytes for x in (index.pairs, index.offsets, index.answers)) == expected
    tensors = [x for x in vars(order).values() if isinstance(x, torch.Tensor)]
    expected = Order.TRIPLE_BYTES * n + Order.QUERY_BYTES * q + Order.ANSWER_BYTES * a + 2 * 8
    assert sum(x.nbytes for x in tensors) == expected
