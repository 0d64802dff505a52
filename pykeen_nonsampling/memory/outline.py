"""How much memory a model of known shapes needs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from ..factorizations import Family
from ..ranking.candidates import CACHED_COLUMNS, CACHED_ROWS
from ..sweeps.numba.order import limit_parts, query_block_size
from ..sweeps.plain import block_size
from .task import Counts, Task

#: The bytes of a triple and of a query in an index
TRIPLE_BYTES, QUERY_BYTES = 8, 24

#: The bytes per triple that it takes to make an index of them, and that of their other end, beyond the index itself
INDEXING_BYTES = 100

#: For compiled loops, the bytes of a triple and of a query in a plan, of a query of the other end, and per triple to make it
PLAN_BYTES, PLAN_QUERY_BYTES, PLAN_OTHER_BYTES, PLANNING_BYTES = 12, 20, 16, 100

#: The bytes of a triple and of a query in the blocks of the plain sweep
BLOCK_BYTES, BLOCK_QUERY_BYTES = 36, 36

#: The number of matrices of all queries of a block: in compiled loops, and in the plain sweep
QUERY_MATRICES, BLOCK_MATRICES = 3, 7

#: The bytes per triple that is divided, to know which vectors to exchange; and the number of matrices of these vectors
EXCHANGE_BYTES, EXCHANGE_MATRICES = 32, 6

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
    #: Gram matrices, likewise
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
        queries = counts.num_queries[: task.sides]
        # of these, this process visits a part
        part, visited, visited_queries = (-(-x // counts.num_ranks) for x in (n, task.sides * n, sum(queries)))
        # compiled loops, cf. FusedSweep, have plans, and the plain sweep has blocks that it keeps
        compiled = self.trilinear and not task.ranges and device.type == "cpu" and _has_numba()
        indexed = TRIPLE_BYTES * task.sides * n + QUERY_BYTES * sum(queries)
        weights = self.itemsize * (2 * task.sides * n + 2 * sum(queries))
        if compiled:
            order = (
                PLAN_BYTES * visited
                + PLAN_QUERY_BYTES * visited_queries
                + PLAN_OTHER_BYTES * sum(counts.num_queries) // counts.num_ranks
            )
        else:
            order = BLOCK_BYTES * visited + BLOCK_QUERY_BYTES * visited_queries
        if counts.num_fetched:
            order += indexed + EXCHANGE_BYTES * task.sides * n
        if counts.num_ranks > 1:
            # the part is a copy
            order += (indexed + weights) // counts.num_ranks
        optimizer = (1 + task.optimizer_copies) * self.trainable
        # an optimizer's step computes two tensors per parameter, one parameter after the other
        beyond = max(self.step - self.trainable, 2 * self.largest)
        blocks = self._blocks(compiled, device, memory_budget)
        # sorting takes more for a while; if it is for a plan, after the first forward pass, but before the optimizer's state
        sorting = self.forward + PLANNING_BYTES * part if compiled else INDEXING_BYTES * n
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
            index=spread(indexed + weights + order + max(0, sorting - optimizer - beyond - blocks), of_triples),
            evaluation=self.parameters + optimizer_memory + evaluation,
        )

    def _blocks(self, compiled: bool, device: torch.device, memory_budget: int | None) -> int:
        """Estimate the bytes of what is computed for some queries at a time."""
        counts, task, row = self.counts, self.task, self.itemsize * self.width
        queries, n = (-(-x // counts.num_ranks) for x in (max(counts.num_queries[: task.sides]), max(1, counts.num_triples)))
        fetched = EXCHANGE_MATRICES * row * min(n, counts.num_fetched)
        if compiled:
            parts = limit_parts(torch.get_num_threads(), self.relation_features, memory_budget)
            blocks = fetched + (parts * self.relation_features if parts > 1 else 0)
            if not task.closed_world:
                blocks += QUERY_MATRICES * row * min(queries, query_block_size(self.width, self.itemsize, memory_budget))
            return blocks
        size = min(n, block_size(self.width, self.itemsize, device, memory_budget))
        blocks = fetched + BLOCK_MATRICES * row * -(-size * queries // n)
        if task.ranges:
            # a Gram matrix for each relation of a block
            blocks += min(counts.num_relations, 1 + counts.num_relations * size // n) * row * self.width
        return blocks

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


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def format_bytes(size: float) -> str:
    """Write a number of bytes with three digits."""
    unit = next(unit for unit in ("TB", "GB", "MB", "kB") if size >= UNITS[unit] or unit == "kB")
    return f"{size / UNITS[unit]:,.3g} {unit}"
