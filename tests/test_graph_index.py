"""The index has all triples once, from either end, and queries stay whole."""

from __future__ import annotations

import itertools

import pytest
import torch
from graphs import GRAPHS, as_set
from pykeen.datasets import Nations

from pykeen_nonsampling.graph import index as module
from pykeen_nonsampling.graph.index import TripleIndex


@pytest.fixture(params=[*GRAPHS, "nations"])
def index(request: pytest.FixtureRequest) -> TripleIndex:
    factory = Nations().training if request.param == "nations" else GRAPHS[request.param]
    return TripleIndex.from_factory(factory, factory.num_entities, factory.num_relations)


class TestIndex:
    def test_has_each_triple_once(self, index: TripleIndex, request: pytest.FixtureRequest) -> None:
        name = request.node.callspec.params["index"]
        factory = Nations().training if name == "nations" else GRAPHS[name]
        given = factory._add_inverse_triples_if_necessary(factory.mapped_triples)
        assert as_set(index.triples) == as_set(given)
        assert len(index) == len(as_set(given))

    def test_is_sorted_by_relation_and_entity(self, index: TripleIndex) -> None:
        keys = [(r, e, a) for e, r, a in index.triples.tolist()]
        assert keys == sorted(keys)

    def test_parts_fit_each_other(self, index: TripleIndex) -> None:
        assert index.offsets.tolist() == [0, *itertools.accumulate(index.counts.tolist())]
        assert torch.equal(index.pairs[index.query_index], index.triples[:, :2])
        assert len(as_set(index.pairs)) == index.num_queries
        assert (index.counts > 0).all()

    def test_columns(self, index: TripleIndex) -> None:
        distinct, starts, queries, order = index.columns
        assert torch.equal(index.query_index[order], queries)
        assert torch.equal(index.answers[order][starts], distinct)
        assert torch.equal(distinct, index.answers.unique())

    def test_order_of_triples_does_not_matter(self, index: TripleIndex) -> None:
        shuffled = index.triples[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))].repeat(2, 1)
        other = TripleIndex(shuffled, index.num_entities, index.num_relations)
        for name in ("pairs", "offsets", "answers"):
            assert torch.equal(getattr(other, name), getattr(index, name))

    def test_reverse(self, index: TripleIndex) -> None:
        assert as_set(index.reverse().triples.flip(1)) == as_set(index.triples)
        assert torch.equal(index.reverse().reverse().triples, index.triples)

    def test_large_numbers_do_not_overflow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in a graph of Freebase's size: |E|·|R|·|E| exceeds 64 bits."""
        entities, relations = 86_054_151, 14_824
        assert entities * relations * entities > 2**63
        far = [(entities - 1, relations - 1, entities - 1), (0, relations - 1, 5), (entities - 1, 0, 0), (0, 0, 7)]
        index = TripleIndex(torch.tensor([*far, *far]), entities, relations)
        assert as_set(index.triples) == set(far)
        assert index.pairs.tolist() == [[0, 0], [entities - 1, 0], [0, relations - 1], [entities - 1, relations - 1]]
        # the way around gives the same where both ways work
        nations = Nations().training
        plain = TripleIndex.from_factory(nations, 14, 55)
        monkeypatch.setattr(module, "_LARGEST", 1)
        assert torch.equal(TripleIndex.from_factory(nations, 14, 55).triples, plain.triples)

    def test_lookup(self, index: TripleIndex) -> None:
        everything = torch.cartesian_prod(torch.arange(index.num_entities), torch.arange(index.num_relations))
        rows, answers = index.lookup(everything)
        found = torch.cat([everything[rows], answers[:, None]], dim=-1)
        assert as_set(found) == as_set(index.triples)
        assert len(found) == len(index)

    def test_lookup_in_nothing(self) -> None:
        index = TripleIndex(torch.empty(0, 3, dtype=torch.long), 5, 2)
        rows, answers = index.lookup(torch.tensor([[0, 1]]))
        assert len(rows) == len(answers) == 0

    def test_occurrences(self, index: TripleIndex) -> None:
        entities, relations = index.occurrences()
        ids = index.triples[:, [0, 2]].flatten().tolist()
        assert entities.tolist() == [ids.count(i) for i in range(index.num_entities)]
        assert relations.tolist() == [index.triples[:, 1].tolist().count(r) for r in range(index.num_relations)]

    @pytest.mark.parametrize("size", [1, 3, 100, 10**6])
    def test_blocks_are_a_partition_into_whole_queries(self, index: TripleIndex, size: int) -> None:
        blocks = index.blocks(size)
        parts = [index.take(queries) for queries in blocks]
        assert torch.equal(torch.cat([part.triples for part in parts]), index.triples)
        assert sum(part.num_queries for part in parts) == index.num_queries
        assert all(len(part) <= size or part.num_queries == 1 for part in parts)

    def test_any_queries_can_be_taken(self, index: TripleIndex) -> None:
        some = torch.arange(0, index.num_queries, 2)
        part = index.take(some)
        wanted = torch.isin(index.query_index, some)
        assert torch.equal(part.triples, index.triples[wanted])
        assert torch.equal(torch.as_tensor(index.positions(some)), wanted.nonzero()[:, 0])
        assert index.take(slice(None)) is index
