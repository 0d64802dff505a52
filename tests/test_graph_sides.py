"""A side keeps queries, answers and weights together."""

from __future__ import annotations

import pytest
import torch
from graphs import GRAPHS

from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side, SideWeights


class TestSide:
    def test_weights_follow_their_queries(self) -> None:
        factory = GRAPHS["ordinary"]
        index = TripleIndex.from_factory(factory, 5, 3)
        weights = SideWeights(torch.arange(6.0), torch.arange(5.0), None, 10 + torch.arange(6.0))
        side = Side("tail", index, weights).take(torch.tensor([0, 3]))
        # the first query has two answers
        assert side.weights.positives.tolist() == [0.0, 1.0, 4.0]  # type: ignore[union-attr]
        assert side.weights.answers.tolist() == [10.0, 11.0, 14.0]  # type: ignore[union-attr]
        assert side.weights.queries.tolist() == [0.0, 3.0]  # type: ignore[union-attr]
        assert Side("tail", index).take(slice(2)).weights == SideWeights()

    @pytest.mark.parametrize(("target", "expected"), [("tail", ("heads", "tails")), ("head", ("tails", "heads"))])
    def test_ends(self, target: str, expected: tuple[str, str]) -> None:
        index = TripleIndex.from_factory(GRAPHS["ordinary"], 5, 3)
        assert Side(target, index).ends("heads", "tails") == expected  # type: ignore[arg-type,comparison-overlap]
