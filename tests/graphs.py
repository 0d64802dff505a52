"""Graphs to test on."""

from __future__ import annotations

import itertools

import torch
from pykeen.triples import CoreTriplesFactory
from torch import Tensor


def make_factory(
    triples: list[tuple[int, int, int]], num_entities: int, num_relations: int, create_inverse_triples: bool = False
) -> CoreTriplesFactory:
    """Make a factory from ids."""
    return CoreTriplesFactory(
        mapped_triples=torch.as_tensor(triples, dtype=torch.long).view(-1, 3),
        num_entities=num_entities,
        num_relations=num_relations,
        create_inverse_triples=create_inverse_triples,
    )


def as_set(triples: Tensor) -> set[tuple[int, ...]]:
    """Forget the order of triples."""
    return set(map(tuple, triples.tolist()))


#: Graphs with every peculiarity that a sum over all triples could trip over
GRAPHS: dict[str, CoreTriplesFactory] = {
    "ordinary": make_factory([(0, 0, 1), (1, 0, 2), (2, 1, 0), (3, 1, 1), (0, 0, 3), (4, 2, 4)], 5, 3),
    "one entity": make_factory([(0, 0, 0), (0, 1, 0)], 1, 3),
    "one relation": make_factory([(0, 0, 1), (1, 0, 2), (2, 0, 2)], 3, 1),
    "one triple": make_factory([(0, 0, 0)], 1, 1),
    "self-loops": make_factory([(0, 0, 0), (1, 0, 1), (1, 1, 1), (0, 1, 1)], 2, 2),
    "relation without triple": make_factory([(0, 0, 1), (1, 2, 0)], 2, 4),
    "entity without triple": make_factory([(0, 0, 2), (2, 1, 0)], 5, 2),
    "duplicate triples": make_factory([(0, 0, 1), (0, 0, 1), (1, 1, 0), (0, 0, 1), (2, 1, 1)], 3, 2),
    "every triple": make_factory(list(itertools.product(range(2), range(2), range(2))), 2, 2),
    "inverse triples": make_factory([(0, 0, 1), (1, 1, 2), (2, 0, 2)], 4, 2, create_inverse_triples=True),
}


#: A graph that has most of them at once, for whatever does not depend on how triples are indexed
PECULIAR = make_factory(
    [(0, 0, 1), (1, 0, 2), (0, 0, 1), (2, 1, 2), (3, 1, 1), (0, 0, 3), (4, 3, 4), (4, 1, 1), (1, 0, 2)], 6, 4
)


#: A graph with few triples, but many pairs of entities, and of entities and relations
WIDE = make_factory([(i, i % 100, (7 * i + 1) % 400) for i in range(400)], 400, 100)
