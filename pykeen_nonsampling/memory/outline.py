"""How much memory a model of known shapes needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..distributed.group import Group
from ..distributed.shards import Sharding
from ..distributed.sweep import ShardedSweep
from ..factorizations import Family
from ..graph.index import TripleIndex
from ..ranking.candidates import CACHED_COLUMNS, CACHED_ROWS
from ..sweeps.choice import fastest_sweep
from ..sweeps.problem import Size
from .task import Counts, Task

#: The bytes per triple that it takes to make an index of them, and that of their other end, beyond the index itself
INDEXING_BYTES = 100

#: The bytes per triple of an evaluation: all known triples, and an index of them
EVALUATION_BYTES = 150

#: Tensors of fewer bytes than this share a heap with holes between them, on a CPU; larger ones have memory of their own, cf.
#: M_MMAP_THRESHOLD_MAX of the C library. And by how much the holes enlarge the heap; measured.
LARGE_TENSOR, HEAP_FACTOR = 2**25, 1.7

#: What the parts of the memory are called
PARTS: Mapping[str, str] = {
    "parameters": "parameters",
    "optimizer": "gradients and optimizer",
    "features": "features",
    "grams": "Gram matrices",
    "blocks": "blocks",
    "index": "index of triples",
}

UNITS: Mapping[str, int] = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Memory:
    """The bytes of a run, by what they are for. All but the last are needed at the same time."""

    parameters: int
    #: gradients of the parameters, and the state of the optimizer
    optimizer: int
    #: the features of entities and relations, their gradients and intermediate results
    features: int
    #: Gram matrices, their gradients and intermediate results
    grams: int
    #: queries that are processed at the same time
    blocks: int
    #: the triples, sorted by query
    index: int
    #: the most that there is during an evaluation with ``evaluator="factorized"``
    evaluation: int

    @property
    def training(self) -> int:
        """The bytes that training needs."""
        return self.parameters + self.optimizer + self.features + self.grams + self.blocks + self.index

    @property
    def total(self) -> int:
        """The bytes that training and evaluation need, one after the other."""
        return max(self.training, self.evaluation)


@dataclass(frozen=True)
class Outline:
    """What is known of a model without the memory for it."""

    #: the family of its factorization
    family: Family
    #: whether its form is made of trilinear products
    trilinear: bool
    #: the bytes of all parameters, of those to train, of the largest one of these, and of those that no entity has
    parameters: int
    trainable: int
    largest: int
    common: int
    #: the bytes of the features of all heads, relations and tails
    features: int
    #: of these, the bytes of those of relations
    relation_features: int
    #: the number of features of a head, and of a tail; and whether these are different features
    widths: tuple[int, int]
    separate: bool
    #: the bytes of one of them
    itemsize: int
    counts: Counts
    task: Task
    #: the bytes of a step beyond parameters and blocks: at most, of these in Gram matrices, and before its backward pass
    step: int
    grams: int
    forward: int

    @property
    def width(self) -> int:
        """The largest number of features of an entity."""
        return max(self.widths)

    def memory(self, device: torch.device | None = None, memory_budget: int | None = None) -> Memory:
        """Estimate the bytes that training and evaluation need.

        :param device: the device to train on
        :param memory_budget: the number of bytes for blocks. By default, a quarter of what is free.
        :return: the bytes, in addition to what the process has before
        """
        device = device or torch.device("cpu")
        counts, task, n = self.counts, self.task, self.counts.num_triples
        sweep = fastest_sweep(memory_budget, task.scores)
        if counts.num_fetched:
            sweep = ShardedSweep(sweep, Sharding(counts.num_entities, Group()), counts.num_fetched)
        sweeps = [sweep.memory(size) for size in self._sizes(device)]
        blocks = max(x.blocks for x in sweeps)
        queries = sum(counts.num_queries[: task.sides])
        indexed = TripleIndex.TRIPLE_BYTES * task.sides * n + TripleIndex.QUERY_BYTES * queries
        weights = self.itemsize * 2 * (task.sides * n + queries)
        index = indexed + weights + sum(x.kept for x in sweeps)
        if counts.num_ranks > 1:
            # the part that a process visits is a copy
            index += (indexed + weights) // counts.num_ranks
        optimizer = (1 + task.optimizer_copies) * self.trainable
        # an optimizer's step computes two tensors per parameter, one parameter after the other
        beyond = max(self.step - self.trainable, 2 * self.largest)
        # sorting takes more for a while: for an index, before all else, and for a sweep, after the first forward pass, but
        # before there is an optimizer's state
        sorting = max([INDEXING_BYTES * n, *(self.forward + x.sorting for x in sweeps if x.sorting)])
        index += max(0, sorting - optimizer - beyond - blocks)
        scores = 3 * self.itemsize * CACHED_ROWS * (min(CACHED_COLUMNS, counts.num_entities) + self.width)

        def spread(size: int, tensor: int) -> int:
            return int(HEAP_FACTOR * size) if device.type == "cpu" and tensor < LARGE_TENSOR else size

        matrix = max(self.itemsize * self.width * counts.num_entities, self.relation_features)
        optimizer_memory, of_triples = spread(optimizer, self.largest), 8 * n
        evaluation = spread(self.features, matrix) + spread(indexed + EVALUATION_BYTES * n, of_triples) + scores
        return Memory(
            parameters=self.parameters,
            optimizer=optimizer_memory,
            # at the peak, there may be no gradients of parameters yet
            features=spread(max(self.features, beyond - self.grams), matrix),
            grams=spread(min(self.grams, beyond), self.itemsize * self.width**2),
            blocks=blocks,
            index=spread(index, of_triples),
            evaluation=self.parameters + optimizer_memory + evaluation,
        )

    def _sizes(self, device: torch.device) -> Sequence[Size]:
        """Return the size of what this process sweeps, for each end of triples that is predicted."""
        counts, task = self.counts, self.task
        n, heads, tails = (-(-x // counts.num_ranks) for x in (counts.num_triples, *counts.num_queries))
        return [
            Size(
                num_triples=n,
                num_queries=queries,
                num_answers=answers,
                num_candidates=counts.num_entities,
                width=self.width,
                itemsize=self.itemsize,
                relation_bytes=self.relation_features,
                trilinear=self.trilinear,
                candidates=not task.closed_world,
                device=device,
            )
            for queries, answers in ((heads, tails), (tails, heads))[: task.sides]
        ]

    def fits(self, free: int, device: torch.device | None = None, memory_budget: int | None = None) -> bool:
        """Whether training fits, with blocks as small as necessary, unless their size is given."""
        return self.memory(device, memory_budget or 1).training <= free

    def shrink(self, factor: float) -> Outline:
        """Estimate the outline of the same model with fewer dimensions.

        :param factor: the number of dimensions, relative to the current one
        :return: the outline
        """
        # the share of what grows with the square of the dimension
        share = self.relation_features / max(1, self.features) if self.family is Family.FULL_MATRIX else 0.0

        def scale(size: int) -> int:
            return int(size * ((1 - share) * factor + share * factor**2))

        grams = int(self.grams * factor**2)
        return replace(
            self,
            parameters=scale(self.parameters),
            trainable=scale(self.trainable),
            largest=scale(self.largest),
            common=scale(self.common),
            features=scale(self.features),
            forward=grams + scale(max(0, self.forward - self.grams)),
            relation_features=int(self.relation_features * (factor**2 if share else factor)),
            widths=(max(1, int(self.widths[0] * factor)), max(1, int(self.widths[1] * factor))),
            grams=grams,
            step=grams + scale(self.step - self.grams),
        )


def format_bytes(size: float) -> str:
    """Write a number of bytes with three digits."""
    unit = next(unit for unit in ("TB", "GB", "MB", "kB") if size >= UNITS[unit] or unit == "kB")
    return f"{size / UNITS[unit]:,.3g} {unit}"
