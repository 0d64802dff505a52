"""Queries whose answers other processes have, in parts that fit."""

from __future__ import annotations

import pytest
import torch

from pykeen_nonsampling.distributed.sweep import _split
from pykeen_nonsampling.graph.index import TripleIndex


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_split(limit: int) -> None:
    """All queries, in their order, with few distinct answers; a query with more is on its own."""
    triples = torch.randint(0, 9, (120, 3), generator=torch.Generator().manual_seed(0))
    index = TripleIndex(triples, 9, 9)
    parts = _split(index, limit)
    assert [x for part in parts for x in range(part.start, part.stop)] == list(range(index.num_queries))
    for part in parts:
        assert part.stop - part.start <= limit
        assert len(index.take(part).answers.unique()) <= limit or part.stop - part.start == 1
    assert _split(index.take(slice(0, 0)), limit) == []
