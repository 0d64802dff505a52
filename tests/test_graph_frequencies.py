"""What occurs in a graph is counted right, in one process or in several that count together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.datasets import Nations
from pykeen.triples import CoreTriplesFactory
from torch import Tensor

from pykeen_nonsampling.graph.frequencies import Frequencies
from pykeen_nonsampling.graph.index import TripleIndex


def distinct(factory: CoreTriplesFactory) -> list[tuple[int, int, int]]:
    """List the distinct triples, with inverse ones."""
    return sorted(set(map(tuple, factory._add_inverse_triples_if_necessary(factory.mapped_triples).tolist())))


def assert_counts(frequencies: Frequencies, triples: list[tuple[int, int, int]]) -> None:
    """Compare with the counts of a list."""
    assert frequencies.num_triples == len(triples)
    for counts, column, size in (
        (frequencies.heads, 0, frequencies.num_entities),
        (frequencies.relations, 1, frequencies.num_relations),
        (frequencies.tails, 2, frequencies.num_entities),
    ):
        expected = Counter(triple[column] for triple in triples)
        assert counts.tolist() == [expected[i] for i in range(size)]
    answers = Counter((h, r) for h, r, _ in triples).values(), Counter((r, t) for _, r, t in triples).values()
    assert frequencies.most_answers == max(*answers[0], *answers[1])


@pytest.mark.parametrize("name", [*GRAPHS, "nations"])
def test_of_a_factory(name: str) -> None:
    factory = Nations().training if name == "nations" else GRAPHS[name]
    frequencies, triples = Frequencies.of(factory), distinct(factory)
    assert_counts(frequencies, triples)
    assert frequencies.num_other_queries == len({(r, t) for _, r, t in triples})
    assert {(t, r, h) for h, r, t in triples} == set(map(tuple, frequencies.other_end.triples.tolist()))


def test_inverse_triples_do_not_make_a_graph_denser() -> None:
    triples = [(0, 0, 1), (1, 0, 2), (3, 1, 0)]
    once, twice = (Frequencies.of(make_factory(triples, 4, 2, create_inverse_triples=x)) for x in (False, True))
    assert twice.num_triples == 2 * once.num_triples == 6
    assert twice.density == once.density == 3 / 4


class Process:
    """Counts together with other processes, once it is known what each of them says."""

    def __init__(self, said: list[list[Any]] | None = None) -> None:
        self.said: list[Any] = []
        self.by_all = said

    def all_of(self, value: Any) -> list[Any]:
        self.said.append(value)
        return [value] if self.by_all is None else [said[len(self.said) - 1] for said in self.by_all]

    def add(self, *tensors: Tensor) -> None:
        for x in tensors:
            x.copy_(torch.stack(self.all_of(x.clone())).sum(dim=0))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_processes_count_together(size: int) -> None:
    """Each has the queries of its own entities, from either end, which may be none."""
    factory = make_factory([(0, 0, 1), (0, 0, 2), (0, 0, 3), (3, 1, 0), (3, 0, 1), (3, 1, 3), (6, 1, 0)], 7, 2)
    triples = factory.mapped_triples

    def count(rank: int, process: Process) -> Frequencies:
        by_head, by_tail = (triples[triples[:, column] % size == rank] for column in (0, 2))
        index, other_end = (TripleIndex(x, 7, 2) for x in (by_head, by_tail.flip(1)))
        frequencies = Frequencies(index, other_end, process)
        frequencies.count_together()
        return frequencies

    alone = [Process() for _ in range(size)]
    for rank, process in enumerate(alone):
        count(rank, process)
    for rank in range(size):
        process = Process([x.said for x in alone])
        frequencies = count(rank, process)
        exchanged = len(process.said)
        assert_counts(frequencies, distinct(factory))
        assert frequencies.density == 1
        mine = {(r, t) for _, r, t in triples.tolist() if t % size == rank}
        assert frequencies.num_other_queries == len(mine)
        assert len(process.said) == exchanged, "somebody would wait for others that have gone on"
