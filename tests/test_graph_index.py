"""The index has all triples once, from either end, and queries stay whole."""

from __future__ import annotations

import itertools

import pytest
import torch
from graphs import GRAPHS
from pykeen.datasets import Nations
from torch import Tensor

from pykeen_nonsampling.graph import index as module
from pykeen_nonsampling.graph.batches import Batch, Batches
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side, SideWeights


def as_set(triples: Tensor) -> set[tuple[int, ...]]:
    return set(map(tuple, triples.tolist()))


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

    def test_ranges(self, index: TripleIndex) -> None:
        offsets, members = index.range_members()
        for r, (start, stop) in enumerate(itertools.pairwise(offsets.tolist())):
            assert members[start:stop].tolist() == sorted({a for _, s, a in index.triples.tolist() if s == r})
        assert len(offsets) == index.num_relations + 1

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
