"""What is trained, in numbers: the sizes of a graph, and what of a loss memory depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from pykeen.triples import CoreTriplesFactory
from torch.utils.weak import WeakTensorKeyDictionary

from ..distributed.shards import Sharding, TriplesShard
from ..distributed.sweep import rows_at_once
from ..factorizations import Factorization
from ..graph.frequencies import Frequencies
from ..graph.index import TripleIndex
from ..losses import FactorizedLoss, as_exponent


@dataclass(frozen=True)
class Counts:
    """The numbers of a graph that memory and time depend on."""

    num_entities: int
    #: as the model knows them, including inverse ones
    num_relations: int
    #: to train on, including inverse ones
    num_triples: int
    #: the numbers of distinct pairs of head and relation, and of relation and tail
    num_queries: tuple[int, int]
    #: the number of entities of other processes to have at once, if they are divided
    num_fetched: int = 0
    #: the number of processes that have all of this, and visit a part of the queries each
    num_ranks: int = 1
    #: whether half of the triples are the inverse ones of the others
    inverse: bool = False
    #: the largest number of answers of a query, if it is known
    most_answers: int = 1

    @property
    def density(self) -> float:
        """The number of triples per entity, without inverse ones."""
        return self.num_triples / (1 + self.inverse) / self.num_entities

    @property
    def is_divided(self) -> bool:
        """Whether the entities are divided among processes."""
        return self.num_fetched > 0

    @classmethod
    def of(cls, factory: CoreTriplesFactory) -> Counts:
        """Count what is in a factory. Kept, since that takes a while."""
        # factories have no hash, but each has triples of its own
        known = _COUNTED.setdefault(factory.mapped_triples, {})
        sizes = factory.num_entities, factory.num_relations
        if sizes not in known:
            if isinstance(factory, TriplesShard):
                sharding = factory.sharding
                by_head, by_tail = factory.both_ends()
                sizes_of_all = sharding.num_entities, factory.num_relations
                ends = TripleIndex(by_head, *sizes_of_all), TripleIndex(by_tail.flip(1), *sizes_of_all)
                known[sizes] = cls.of_frequencies(Frequencies(*ends, inverse=factory.create_inverse_triples), sharding)
            else:
                known[sizes] = cls.of_frequencies(Frequencies.of(factory))
        return known[sizes]

    @classmethod
    def of_frequencies(cls, frequencies: Frequencies, sharding: Sharding | None = None) -> Counts:
        """Take what has been counted, in this process.

        :param frequencies: the frequencies
        :param sharding: which process has which entities, if they are divided
        :return: the numbers
        """
        index = frequencies.index
        rows = index.num_entities if sharding is None else sharding.num_rows
        fetched = 0 if rows == index.num_entities else min(index.num_entities, rows_at_once(rows))
        queries = index.num_queries, frequencies.num_other_queries
        return cls(rows, index.num_relations, len(index), queries, fetched, inverse=frequencies.inverse)

    def parallel(self, num_ranks: int) -> Counts:
        """Return the numbers of one of several processes that each have all entities."""
        return replace(self, num_ranks=num_ranks)

    def shard(self, num_ranks: int) -> Counts:
        """Return the numbers of one of several processes among which the entities are divided, rounded up."""
        rows, triples, heads, tails = (-(-x // num_ranks) for x in (self.num_entities, self.num_triples, *self.num_queries))
        fetched = min(self.num_entities, rows_at_once(rows))
        return Counts(rows, self.num_relations, triples, (heads, tails), fetched, inverse=self.inverse)

    def factory(self) -> CoreTriplesFactory:
        """Make a factory of a single triple for models of the same sizes."""
        return CoreTriplesFactory(torch.zeros(1, 3, dtype=torch.long), self.num_entities, self.num_relations)


_COUNTED: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Task:
    """What is trained, as far as memory depends on it."""

    #: whether every triple that is not observed is a negative, or only the candidates of observed queries
    closed_world: bool = False
    #: the number of ends of triples whose queries are visited
    sides: int = 2
    #: whether candidates have weights
    weighted: bool = True
    #: whether every score is seen, and not only moments of them
    scores: bool = False
    #: whether the norms of vectors are part of the loss
    regularized: bool = True
    #: the number of tensors, as large as all parameters, that the optimizer keeps: two of Adam, one of Adagrad
    optimizer_copies: int = 2

    @classmethod
    def of(cls, loss: FactorizedLoss, closed_world: bool = False, sides: int = 2) -> Task:
        """Find out what a loss needs.

        :param loss: the loss, with all its weights
        :param closed_world: whether every triple that is not observed is a negative
        :param sides: the number of ends of triples that are predicted
        :return: the task
        """
        by_entity = any(as_exponent(x) for x in (loss.head_weight, loss.tail_weight))
        return cls(
            closed_world=closed_world,
            sides=sides,
            weighted=by_entity or bool(as_exponent(loss.candidate_weight) and not closed_world),
            scores=loss.needs_scores,
            regularized=bool(loss.regularization_weight),
            optimizer_copies=1 if loss.needs_scores else 2,
        )

    def with_optimizer(self, optimizer: torch.optim.Optimizer) -> Task:
        """Return the same task with the state of an optimizer."""
        defaults = optimizer.defaults
        if isinstance(optimizer, torch.optim.SGD):
            return replace(self, optimizer_copies=int(bool(defaults.get("momentum"))))
        if isinstance(optimizer, torch.optim.Adagrad):
            return replace(self, optimizer_copies=1)
        return replace(self, optimizer_copies=2 + bool(defaults.get("amsgrad")))


#: From the factorization of a model's score, and the numbers of the graph, to what is trained
TaskOf = Callable[[Factorization, Counts], Task]
