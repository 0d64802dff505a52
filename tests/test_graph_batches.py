"""Batches, sub-batches and parts are made of whole queries, and together have each once."""

from __future__ import annotations

import pytest
import torch
from graphs import GRAPHS, as_set
from pykeen.datasets import Nations

from pykeen_nonsampling.graph.batches import Batch, Batches
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side


def make_batch(name: str = "nations") -> Batch:
    factory = Nations().training if name == "nations" else GRAPHS[name]
    index = TripleIndex.from_factory(factory, factory.num_entities, factory.num_relations)
    return Batch([Side("tail", index), Side("head", index.reverse())])


class TestBatches:
    @pytest.mark.parametrize("batch_size", [1, 7, 100, 10**6])
    @pytest.mark.parametrize("name", ["nations", "ordinary", "one triple", "every triple"])
    def test_an_epoch_has_every_query_once_and_whole(self, name: str, batch_size: int) -> None:
        whole = make_batch(name)
        batches = Batches(whole, batch_size, drop_last=False)
        parts = [whole[queries] for queries in batches]
        assert len(parts) == len(batches) == min(-(-len(whole) // batch_size), max(s.index.num_queries for s in whole.sides))
        for i, side in enumerate(whole.sides):
            pieces = [part.sides[i].index for part in parts]
            assert sum(piece.num_queries for piece in pieces) == side.index.num_queries
            assert sum(map(len, pieces)) == len(side.index)
            assert as_set(torch.cat([piece.triples for piece in pieces])) == as_set(side.index.triples)
        assert sum(part.share for part in parts) == pytest.approx(1.0)
        assert all(len(part) for part in parts)

    def test_order_is_random(self) -> None:
        whole = make_batch()
        torch.manual_seed(0)
        one, other = (next(iter(Batches(whole, 100, drop_last=False))) for _ in range(2))
        assert not torch.equal(torch.as_tensor(one[0]), torch.as_tensor(other[0]))

    def test_all_at_once_is_the_batch_itself(self) -> None:
        whole = make_batch()
        (queries,) = Batches(whole, len(whole), drop_last=True)
        assert whole[queries] is whole

    @pytest.mark.parametrize(("batch_size", "length"), [(500, 3), (796, 2), (1592, 1), (1593, 0)])
    def test_drop_last(self, batch_size: int, length: int) -> None:
        """Of 1,592 triples."""
        batches = Batches(make_batch(), batch_size, drop_last=True)
        assert len(batches) == len(list(batches)) == length

    @pytest.mark.parametrize("size", [1, 100, 1000, 10**6])
    def test_sub_batches_are_a_partition(self, size: int) -> None:
        whole = make_batch()
        parts = [whole.part(start, min(start + size, len(whole))) for start in range(0, len(whole), size)]
        for i, side in enumerate(whole.sides):
            assert torch.equal(torch.cat([part.sides[i].index.triples for part in parts]), side.index.triples)
        assert sum(part.share for part in parts) == pytest.approx(1.0)
        assert whole.part(0, len(whole)) is whole

    def test_occurrences_count_every_side(self) -> None:
        whole = make_batch("ordinary")
        entities, relations = whole.occurrences
        index = whole.sides[0].index
        assert entities.tolist() == (2 * index.occurrences()[0]).tolist()
        assert relations.tolist() == (2 * index.occurrences()[1]).tolist()

    @pytest.mark.parametrize("parts", [1, 2, 3, 7, 50])
    def test_each_query_is_in_one_of_several_parts(self, parts: int) -> None:
        triples = torch.randint(0, 9, (60, 3), generator=torch.Generator().manual_seed(0))
        index = TripleIndex(triples, 9, 9)
        whole = Batch([Side("tail", index), Side("head", index.reverse())])
        divided = [whole.divide(i, parts) for i in range(parts)]
        for i, side in enumerate(whole.sides):
            assert torch.equal(torch.cat([part.sides[i].index.triples for part in divided]), side.index.triples)
        assert sum(part.share for part in divided) == pytest.approx(1)
        loads = [part.num_queries for part in divided]
        assert max(loads) <= whole.num_queries / parts + 4
