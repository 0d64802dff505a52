"""The sweep that runs wherever PyTorch runs, made of its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..factorizations.moments import ScoreMoments
from ..free import free_memory
from ..graph.index import TripleIndex
from ..losses.objective import Objective, Scores
from .problem import Gradients, Problem, Size, SweepMemory
from .products import Block, Products, products_for

#: The number of triples times features in a block on a CPU: the matrices of its distinct queries fit a last-level cache
BLOCK_ELEMENTS = 2**22

#: The number of matrices that are alive at the same time while a block is processed: at most, if each triple has a row of
#: its own, and if each query has one
TRIPLE_MATRICES, QUERY_MATRICES = 14, 7

#: The bytes of a triple and of a query in a block
TRIPLE_BYTES, QUERY_BYTES = 36, 36


def block_size(width: int, itemsize: int, device: torch.device, memory_budget: int | None = None) -> int:
    """Determine the number of triples to process at once.

    :param width: the number of features
    :param itemsize: the number of bytes of a feature
    :param device: the device
    :param memory_budget: the number of bytes to use at most. By default, a quarter of what is free.
    :return: the number of triples, at least one
    """
    if memory_budget is None:
        memory_budget = free_memory(device) // 4
    size = memory_budget // (TRIPLE_MATRICES * width * itemsize)
    if device.type == "cpu":
        size = min(size, BLOCK_ELEMENTS // width)
    return max(1, size)


class PlainSweep:
    """Visits the observed queries once, in blocks that fit the processor's cache.

    Scores, costs and gradients of a block are computed before the next one is touched, and nothing of the size triples ×
    features ever exists. The blocks of an index, and the memory that they are processed in, are kept from one sweep to the
    next: new memory costs as much as what is done with it.
    """

    def __init__(self, memory_budget: int | None = None, products: Products | None = None):
        """Initialize the sweep.

        :param memory_budget: the number of bytes for intermediate results. By default, a quarter of what is free.
        :param products: how to multiply queries and keys. By default, the fastest way that works.
        """
        self.memory_budget = memory_budget
        self.products = products
        self._blocks: WeakKeyDictionary[TripleIndex, tuple[int, Sequence[Block]]] = WeakKeyDictionary()
        self._memory: dict[tuple[str, int], Tensor] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # without what is kept between sweeps
        return type(self), (
            self.memory_budget,
            self.products,
        )

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        """Sum the costs of a problem.

        :param problem: the problem
        :param differentiate: whether the gradients are needed
        :return: the sum, and its gradients, if needed
        """
        given, answers = problem.given, problem.answers
        candidates, objective = problem.candidates, cast(Objective, problem.objective)
        products = self.products or products_for(given.device, given.dtype)
        gradients = zero_gradients(problem) if differentiate else None
        total = given.new_zeros(())
        if problem.norm_weight:
            counts = problem.side.index.answers.bincount(minlength=len(answers))
            total += add_norms(answers, counts, problem.norm_weight, None if gradients is None else gradients.answers)
        for block in self._divide(problem):
            x, y = self._gather(problem, block)
            queries = self._queries(problem, block, x, y)
            moments = None
            if candidates is not None:
                by_gram = torch.mm(queries, candidates.second, out=self._rows("by gram", answers, block))
                moments = ScoreMoments(
                    count=candidates.count,
                    first=queries @ candidates.first if objective.needs_first else queries.new_zeros(len(queries)),
                    second=torch.linalg.vecdot(queries, by_gram),
                )
            weights = problem.side.weights.take(block.queries, block.triples)
            scores = Scores(
                positives=products.scores(queries, answers, block),
                query_index=block.index.query_index,
                candidates=moments,
                positive_weights=weights.positives,
                query_weights=weights.queries,
                answer_weights=weights.answers,
            )
            if gradients is None:
                total += objective.cost(scores)
                if problem.norm_weight:
                    total += add_norms(queries, block.index.counts, problem.norm_weight)
                continue
            costs = objective.costs(scores)
            total += costs.total
            products.add_to_keys(gradients.answers, queries, costs.positives, block)
            grad_queries = products.to_queries(answers, costs.positives, block)
            if gradients.second is not None and costs.second is not None:
                # of q'Gq, the gradient is 2Gq by the query, and qq' by the Gram matrix
                weighted = torch.mul(queries, costs.second[:, None], out=self._rows("scratch", answers, block))
                gradients.second.addmm_(queries.T, weighted)
                grad_queries.addcmul_(by_gram, costs.second[:, None], value=2)
            if candidates is not None and gradients.first is not None and costs.first is not None:
                gradients.first.addmv_(queries.T, costs.first)
                grad_queries.addr_(costs.first, candidates.first)
            if problem.norm_weight:
                total += add_norms(queries, block.index.counts, problem.norm_weight, grad_queries)
            self._pull_back(problem, gradients, block, x, y, grad_queries)
        return total, gradients

    def memory(self, size: Size) -> SweepMemory:
        """Estimate the memory that a problem needs."""
        n, row = max(1, size.num_triples), size.width * size.itemsize
        in_block = min(n, block_size(size.width, size.itemsize, size.device, self.memory_budget))
        blocks = QUERY_MATRICES * row * -(-in_block * size.num_queries // n)
        return SweepMemory(TRIPLE_BYTES * size.num_triples + QUERY_BYTES * size.num_queries, 0, blocks)

    def _gather(self, problem: Problem, block: Block) -> tuple[Tensor, Tensor]:
        """Gather the features of the given entities and relations of a block, unless its form takes all relations."""
        given, relations = problem.given, problem.relations
        entity_ids, relation_ids = block.index.pairs.unbind(dim=-1)
        x = torch.index_select(given, 0, entity_ids, out=self._rows("given", given, block))
        if problem.form.by_relation:
            return x, relations
        return x, torch.index_select(relations, 0, relation_ids, out=self._rows("relations", relations, block))

    def _queries(self, problem: Problem, block: Block, x: Tensor, y: Tensor) -> Tensor:
        """Compute the queries of a block."""
        queries = self._rows("queries", problem.answers, block)
        if not problem.form.by_relation:
            return problem.form.queries(x, y, queries)
        for r, part in block.relation_runs:
            queries[part] = problem.form.queries(x[part], y[r : r + 1])
        return queries

    def _pull_back(
        self, problem: Problem, gradients: Gradients, block: Block, x: Tensor, y: Tensor, grad_queries: Tensor
    ) -> None:
        """Add the gradients by the features to the others."""
        entity_ids, relation_ids = block.index.pairs.unbind(dim=-1)
        grad_x = self._rows("scratch", problem.given, block)
        if problem.form.by_relation:
            for r, part in block.relation_runs:
                grad_x[part], grad_y = problem.form.backward(x[part], y[r : r + 1], grad_queries[part])
                gradients.relations[r : r + 1] += grad_y
        else:
            out = grad_x, self._rows("gradient by relations", problem.relations, block)
            grad_x, grad_y = problem.form.backward(x, y, grad_queries, out)
            gradients.relations.index_add_(0, relation_ids, grad_y)
        gradients.given.index_add_(0, entity_ids, grad_x)

    def _divide(self, problem: Problem) -> Sequence[Block]:
        """Divide the queries into blocks. Kept, since every epoch needs them."""
        given, index = problem.given, problem.side.index
        width = max(given.shape[1], problem.answers.shape[1])
        if not problem.form.by_relation:
            width = max(width, problem.relations.shape[1] // 2)
        known = self._blocks.get(index)
        if known is None or known[0] != width:
            if self.memory_budget is None:
                # asked for once, not for every batch
                self.memory_budget = free_memory(given.device) // 4
            size = block_size(width, given.element_size(), given.device, self.memory_budget)
            known = self._blocks[index] = width, [Block(index, queries, size) for queries in index.blocks(size)]
        return known[1]

    def _rows(self, name: str, like: Tensor, block: Block) -> Tensor:
        """Return memory for one row per query of a block, the same each time, with whatever is left in it."""
        n, shape = block.index.num_queries, like.shape[1:]
        key = name, shape.numel()
        space = self._memory.get(key)
        if space is None or len(space) < n or space.dtype != like.dtype or space.device != like.device:
            with torch.inference_mode(False):
                space = self._memory[key] = torch.empty(n, *shape, dtype=like.dtype, device=like.device)
        return space[:n]


def add_norms(x: Tensor, counts: Tensor, weight: float, gradient: Tensor | None = None) -> Tensor:
    """Sum the squared norms of rows, each as often as it counts, and add the gradient of the sum to another one."""
    weights = weight * counts.to(x.dtype)
    if gradient is not None:
        gradient.addcmul_(x, weights[:, None], value=2)
    return weights @ torch.linalg.vecdot(x, x)


def zero_gradients(problem: Problem) -> Gradients:
    """Make gradients to add to."""
    given = problem.given.new_zeros(problem.given.shape)
    candidates = problem.candidates
    return Gradients(
        given=given,
        relations=problem.relations.new_zeros(problem.relations.shape),
        answers=given if problem.answers is problem.given else problem.answers.new_zeros(problem.answers.shape),
        first=None if candidates is None else torch.zeros_like(candidates.first),
        second=None if candidates is None else torch.zeros_like(candidates.second),
    )
