"""Sums over observed triples and Gram matrices, with their gradients: the only place that knows about speed.

Of all triples, only the observed ones are looked at one by one, and that is where the time goes. So they are visited once,
in blocks that fit the processor's cache: scores, costs and gradients of a block are computed before the next one is
touched, and nothing of the size triples × dimension ever exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from .graph import Graph, find_runs

if TYPE_CHECKING:
    # which itself needs Gram matrices
    from .factorizations import Moments

__all__ = [
    "block_size",
    "compute_queries",
    "gram",
    "sum_of_norms",
    "sum_over_triples",
]

#: The number of triples times features in a block on a CPU: the matrices of its distinct queries fit a last-level cache
CACHED_ELEMENTS = 2**22

#: The number of matrices, at most one row a triple each, that are alive at the same time while a block is processed
MATRICES = 14


class Kernel(Protocol):
    """Products of queries and keys at observed triples, and their adjoints."""

    def products(self, queries: Tensor, keys: Tensor, graph: Graph) -> Tensor:
        r"""Compute $q_{i}^\top k_{j}$ for each triple with query i and tail j, shape: (n,)."""

    def to_queries(self, keys: Tensor, weights: Tensor, graph: Graph) -> Tensor:
        r"""Compute $\sum_n w_n k_{j_n}$ over the triples of each query, shape: (q, k)."""

    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, graph: Graph) -> None:
        r"""Add $\sum_n w_n q_{i_n}$ over the triples of each tail to the rows of a target, shape: (num_entities, k)."""


class GatherKernel:
    """By gathering rows: runs wherever PyTorch runs."""

    def products(self, queries: Tensor, keys: Tensor, graph: Graph) -> Tensor:
        return (queries.index_select(0, graph.query_index) * keys.index_select(0, graph.tails)).sum(dim=-1)

    def to_queries(self, keys: Tensor, weights: Tensor, graph: Graph) -> Tensor:
        rows = keys.index_select(0, graph.tails).mul_(weights[:, None])
        return keys.new_zeros(len(graph.pairs), keys.shape[1]).index_add_(0, graph.query_index, rows)

    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, graph: Graph) -> None:
        target.index_add_(0, graph.tails, queries.index_select(0, graph.query_index).mul_(weights[:, None]))


class SparseKernel:
    """By sparse sampled products and weighted bags of rows: far faster, where the build and the device have them."""

    def products(self, queries: Tensor, keys: Tensor, graph: Graph) -> Tensor:
        pattern = graph.pattern(num_entities=keys.shape[0], dtype=keys.dtype)
        return torch.sparse.sampled_addmm(pattern, queries, keys.T, beta=0.0).values()

    def to_queries(self, keys: Tensor, weights: Tensor, graph: Graph) -> Tensor:
        offsets, tails = graph.rows
        return functional.embedding_bag(tails, keys, offsets[:-1], mode="sum", per_sample_weights=weights)

    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, graph: Graph) -> None:
        distinct, offsets, query_index, order = graph.columns
        weights = weights.index_select(0, order)
        rows = functional.embedding_bag(query_index, queries, offsets, mode="sum", per_sample_weights=weights)
        target.index_add_(0, distinct, rows)


@cache
def kernel_for(device: torch.device, dtype: torch.dtype) -> Kernel:
    """Choose the fastest kernel that works for a device and a data type, by trying it."""
    graph = Graph(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 0]], device=device))
    queries = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, dtype=dtype)
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], device=device, dtype=dtype)
    weights = torch.ones(3, device=device, dtype=dtype)
    fast = SparseKernel()
    try:
        works = fast.products(queries, keys, graph).tolist() == [2.0, 3.0, 3.0]
        works &= fast.to_queries(keys, weights, graph).tolist() == [[1.0, 2.0], [1.0, 0.0]]
        fast.add_to_keys(keys, queries, weights, graph)
        works &= keys.tolist() == [[4.0, 4.0], [1.0, 3.0], [2.0, 3.0]]
    except (RuntimeError, NotImplementedError):
        # e.g. a build without MKL, or a device without sparse matrices
        works = False
    return fast if works else GatherKernel()


def block_size(dimension: int, itemsize: int, device: torch.device, memory_budget: int | None = None) -> int:
    """Determine the number of triples to process at once.

    :param dimension: the number of features
    :param itemsize: the number of bytes of a feature
    :param device: the device
    :param memory_budget: the number of bytes to use at most. By default, a quarter of what is free.
    :return: the number of triples, at least one
    """
    if memory_budget is None:
        memory_budget = free_memory(device) // 4
    size = memory_budget // (MATRICES * dimension * itemsize)
    if device.type == "cpu":
        size = min(size, CACHED_ELEMENTS // dimension)
    return max(1, size)


def free_memory(device: torch.device) -> int:
    """Return the number of bytes that are free on a device; 1 GB, where the device does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**30


class Queries(Protocol):
    """How queries are made of features, and the adjoint of that; cf. :class:`~pykeen_nonsampling.Factorization`."""

    #: whether they are made of one relation at a time
    by_relation: bool

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:
        """Compute the queries row by row."""

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the gradients by the features from that by the queries; it may overwrite all but a single relation."""


def compute_queries(factorization: Queries, heads: Tensor, relations: Tensor, pairs: Tensor) -> Tensor:
    """Compute queries, without their gradient.

    :param factorization: how queries are made of head and relation features
    :param heads: shape: (num_entities, k), the head features
    :param relations: shape: (num_relations, …), the relation features
    :param pairs: shape: (q, ≥2), the heads and relations, best sorted by relation
    :return: shape: (q, l), the queries
    """
    h, r = pairs[:, 0], pairs[:, 1]
    rows = heads.index_select(0, h)
    if factorization.by_relation:
        return torch.cat([factorization.queries(rows[part], relations[i : i + 1]) for i, part in find_runs(r)])
    return factorization.queries(rows, relations.index_select(0, r))


class _SumOverTriples(torch.autograd.Function):
    """Computes the sum and its gradient in one sweep; the backward pass only hands out the gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        cost: Callable[[Tensor, Graph], tuple[Tensor, Tensor]],
        factorization: Queries,
        graph: Graph,
        size: int,
        kernel: Kernel,
        differentiate: bool,
        negatives: _Negatives | None,
        heads: Tensor,
        relations: Tensor,
        tails: Tensor | None,
        first: Tensor | None,
        second: Tensor | None,
    ) -> Tensor:
        keys = heads if tails is None else tails
        blocks = graph.blocks(size)
        # memory that is new costs as much as what is done with it, so the rows of all blocks, epoch after epoch, go to the
        # same place
        num_rows = max(len(block.pairs) for block in blocks)
        head_rows = graph.workspace("heads", heads, num_rows)
        by_relation = factorization.by_relation
        query_rows = graph.workspace("queries", keys, num_rows) if by_relation else keys
        relation_rows = relations if by_relation else graph.workspace("relations", relations, num_rows)
        negative_rows = [graph.workspace(name, keys, num_rows) for name in ("gradient", "weighted") if negatives is not None]
        if differentiate:
            grad_heads, grad_relations = torch.zeros_like(heads), torch.zeros_like(relations)
            grad_keys = grad_heads if tails is None else torch.zeros_like(keys)
        total = heads.new_zeros(())
        for block in blocks:
            h, r = block.pairs.unbind(dim=-1)
            x = torch.index_select(heads, 0, h, out=head_rows[: len(h)])
            if by_relation:
                queries = query_rows[: len(h)]
                for i, part in block.relation_runs:
                    queries[part] = factorization.queries(x[part], relations[i : i + 1])
            else:
                y = torch.index_select(relations, 0, r, out=relation_rows[: len(r)])
                queries = factorization.queries(x, y)
            block_total, slopes = cost(kernel.products(queries, keys, block), block)
            total += block_total
            if negatives is not None:
                grad_negatives = negatives.add(queries, block.query_weights, *(rows[: len(h)] for rows in negative_rows))
            if not differentiate:
                continue
            kernel.add_to_keys(grad_keys, queries, slopes, block)
            grad_queries = kernel.to_queries(keys, slopes, block)
            if negatives is not None:
                grad_queries += grad_negatives
            if by_relation:
                for i, part in block.relation_runs:
                    grad_x, grad_y = factorization.queries_backward(x[part], relations[i : i + 1], grad_queries[part])
                    grad_relations[i : i + 1] += grad_y
                    x[part] = grad_x
                grad_heads.index_add_(0, h, x)
            else:
                grad_x, grad_y = factorization.queries_backward(x, y, grad_queries)
                grad_heads.index_add_(0, h, grad_x)
                grad_relations.index_add_(0, r, grad_y)
        if negatives is not None:
            total += negatives.total
        if differentiate:
            ctx.gradients = [grad_heads, grad_relations, None if tails is None else grad_keys, None, None]
            if negatives is not None:
                ctx.gradients[-2:] = negatives.grad_first, negatives.grad_second
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        # handed over, not copied: the gradients of all entities are the largest matrices there are
        gradients, ctx.gradients = ctx.gradients, None
        if grad_outputs[0].item() != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(grad_outputs[0])
        return (None, None, None, None, None, None, None, *gradients)


class _Negatives:
    r"""Sums $w_q (q^\top k - y)^2$ over queries and all candidates, of which only the moments are needed.

    .. math::

        \sum_q w_q \sum_k (q^\top k - y)^2
        = \sum_q w_q \Big( q^\top \Big( \sum_k k k^\top \Big) q - 2 y q^\top \sum_k k + y^2 \sum_k 1 \Big)
    """

    def __init__(self, count: float, first: Tensor, second: Tensor, target: float):
        self.count = count
        self.first = first
        self.second = second
        self.target = target
        self.total = first.new_zeros(())
        self.grad_first = torch.zeros_like(first)
        self.grad_second = torch.zeros_like(second)

    def add(self, queries: Tensor, weights: Tensor, gradient: Tensor, weighted: Tensor) -> Tensor:
        """Add the negatives of some queries, in O(q·k²), and return the gradient by them, shape: (q, k).

        :param queries: shape: (q, k), the queries
        :param weights: shape: (q,), their weights
        :param gradient: shape: (q, k), memory for the gradient
        :param weighted: shape: (q, k), memory for weighted queries
        :return: the gradient
        """
        weights = weights.to(queries.dtype)
        torch.mm(queries, self.second, out=gradient)
        torch.mul(queries, weights[:, None], out=weighted)
        self.grad_second.addmm_(queries.T, weighted)
        if self.target:
            first = weighted.sum(dim=0)
            gradient.sub_(self.target * self.first)
            self.grad_first.sub_(first, alpha=2 * self.target)
            self.total += self.target**2 * self.count * weights.sum() - self.target * (first @ self.first)
        self.total += torch.dot(weighted.view(-1), gradient.view(-1))
        return gradient.mul_(2 * weights[:, None])


def sum_over_triples(
    cost: Callable[[Tensor, Graph], tuple[Tensor, Tensor]],
    factorization: Queries,
    graph: Graph,
    heads: Tensor,
    relations: Tensor,
    tails: Tensor,
    candidates: Moments | None = None,
    negative_target: float = 0.0,
    memory_budget: int | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    r"""Sum the cost of the score $q(h, r)^\top k(t)$ over the triples of a graph, in O(n·k).

    :param cost: the sum of the costs of the scores, shape: (m,), of a part of the graph, and their derivatives, shape: (m,)
    :param factorization: how queries are made of head and relation features
    :param graph: the triples
    :param heads: shape: (num_entities, k), the head features
    :param relations: shape: (num_relations, …), the relation features
    :param tails: shape: (num_entities, k), the tail features
    :param candidates: the moments of the tail features, if each query of the graph is to meet all of them: then
        $\sum_q w_q \sum_t (q^\top k(t) - y)^2$ is added, in O(q·k²), with the queries' weights of the graph
    :param negative_target: the target y of these scores
    :param memory_budget: the number of bytes for intermediate results
    :param kernel: the kernel. By default, the fastest that works.
    :return: the sum
    """
    width = max(heads.shape[1], tails.shape[1], 0 if factorization.by_relation else relations.shape[1] // 2)
    size = block_size(width, heads.element_size(), heads.device, memory_budget)
    kernel = kernel or kernel_for(heads.device, heads.dtype)
    differentiate = torch.is_grad_enabled() and any(x.requires_grad for x in (heads, relations, tails))
    negatives, first, second = None, None, None
    if candidates is not None:
        first, second = candidates.first, candidates.second
        negatives = _Negatives(candidates.count, first.detach(), second.detach(), negative_target)
    return _SumOverTriples.apply(
        cost,
        factorization,
        graph,
        size,
        kernel,
        differentiate,
        negatives,
        heads,
        relations,
        None if tails is heads else tails,
        first,
        second,
    )


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.T @ x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x @ (grad_outputs[0] + grad_outputs[0].T)


def gram(x: Tensor) -> Tensor:
    r"""Compute the Gram matrix $\sum x x^\top$ of the rows; its gradient takes one product of matrices, not two."""
    return _Gram.apply(x)


class _SumOfNorms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, power: float) -> Tensor:
        # x |x|^(p - 2), also where x is zero
        if power == 3:
            gradient = x * x.abs()
        elif power == 2:
            gradient = x.clone()
        else:
            gradient = x.sgn().mul_(x.abs().pow_(power - 1))
        gradient.mul_(weights.to(x.dtype).view(-1, *(1,) * (x.ndim - 1)))
        total = torch.vdot(x.reshape(-1), gradient.view(-1)).real
        ctx.gradient = gradient.mul_(power)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(grad_outputs[0]), None, None


def sum_of_norms(x: Tensor, weights: Tensor, power: float) -> Tensor:
    r"""Sum $w_i \|x_i\|_p^p$ over the rows; of complex numbers, absolute values count. Value and gradient in one sweep.

    :param x: shape: (n, …), the vectors, real or complex
    :param weights: shape: (n,), the weights
    :param power: the power p
    :return: the sum
    """
    return _SumOfNorms.apply(x, weights, power)
