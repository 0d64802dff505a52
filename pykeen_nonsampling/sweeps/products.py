"""Products of queries and keys at observed triples, and their adjoints."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from ..factorizations.base import find_runs
from ..graph.index import TripleIndex


class Block:
    """Queries in a row, with all that their sweep needs to know again in each epoch."""

    def __init__(self, index: TripleIndex, queries: slice, size: int):
        """Initialize the block.

        :param index: the index that it is a part of
        :param queries: the positions of its queries
        :param size: the number of triples for which vectors may be gathered at once
        """
        self.queries = queries
        self.triples = index.positions(queries)
        # a copy: whoever keeps blocks by their index must not keep the index by its blocks
        self.index = copy.copy(index.take(queries))
        self.size = size
        self._pattern: Tensor | None = None

    @cached_property
    def chunks(self) -> Sequence[slice]:
        """Its triples, at most so many at once: a single query may have more."""
        return [slice(start, start + self.size) for start in range(0, len(self.index), self.size)]

    @cached_property
    def relation_runs(self) -> Sequence[tuple[int, slice]]:
        """The relations of its queries, cf. :func:`find_runs`."""
        return find_runs(self.index.pairs[:, 1])

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The matrix of queries × answers in CSR form, in 32 bits: offsets of rows, shape: (q + 1,), and columns."""
        return self.index.offsets.int(), self.index.answers.int()

    @cached_property
    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same matrix by columns: distinct answers, their offsets, queries, and the order of triples that this is."""
        distinct, offsets, queries, order = self.index.columns
        return distinct, offsets.int(), queries.int(), order

    def pattern(self, dtype: torch.dtype) -> Tensor:
        """Return the same matrix as a tensor, with zeros as values, shape: (q, num_entities)."""
        if self._pattern is None or self._pattern.dtype != dtype:
            offsets, answers = self.rows
            values = torch.zeros(len(self.index), dtype=dtype, device=answers.device)
            size = (self.index.num_queries, self.index.num_entities)
            with warnings.catch_warnings():
                # PyTorch calls sparse matrices a beta feature, once per process
                warnings.simplefilter("ignore", category=UserWarning)
                self._pattern = torch.sparse_csr_tensor(offsets, answers, values, size=size)
        return self._pattern


class Products(Protocol):
    """Products of queries and keys at observed triples, and their adjoints."""

    def scores(self, queries: Tensor, keys: Tensor, block: Block) -> Tensor:
        r"""Compute $q_{i}^\top k_{j}$ for each triple with query i and answer j, shape: (n,)."""

    def to_queries(self, keys: Tensor, weights: Tensor, block: Block) -> Tensor:
        r"""Compute $\sum_n w_n k_{j_n}$ over the triples of each query, shape: (q, k)."""

    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, block: Block) -> None:
        r"""Add $\sum_n w_n q_{i_n}$ over the triples of each answer to the rows of a target, shape: (num_entities, k)."""


class GatherProducts(Products):
    """By gathering rows: runs wherever PyTorch runs."""

    @override
    def scores(self, queries: Tensor, keys: Tensor, block: Block) -> Tensor:
        index = block.index
        return torch.cat(
            [
                (queries.index_select(0, index.query_index[part]) * keys.index_select(0, index.answers[part])).sum(dim=-1)
                for part in block.chunks
            ]
        )

    @override
    def to_queries(self, keys: Tensor, weights: Tensor, block: Block) -> Tensor:
        index, result = block.index, keys.new_zeros(block.index.num_queries, keys.shape[1])
        for part in block.chunks:
            rows = keys.index_select(0, index.answers[part]).mul_(weights[part, None])
            result.index_add_(0, index.query_index[part], rows)
        return result

    @override
    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, block: Block) -> None:
        index = block.index
        for part in block.chunks:
            rows = queries.index_select(0, index.query_index[part]).mul_(weights[part, None])
            target.index_add_(0, index.answers[part], rows)


class SparseProducts(Products):
    """By sparse sampled products and weighted bags of rows: far faster, where the build and the device have them."""

    @override
    def scores(self, queries: Tensor, keys: Tensor, block: Block) -> Tensor:
        return torch.sparse.sampled_addmm(block.pattern(keys.dtype), queries, keys.T, beta=0.0).values()

    @override
    def to_queries(self, keys: Tensor, weights: Tensor, block: Block) -> Tensor:
        offsets, answers = block.rows
        return functional.embedding_bag(answers, keys, offsets[:-1], mode="sum", per_sample_weights=weights)

    @override
    def add_to_keys(self, target: Tensor, queries: Tensor, weights: Tensor, block: Block) -> None:
        distinct, offsets, query_index, order = block.columns
        weights = weights.index_select(0, order)
        rows = functional.embedding_bag(query_index, queries, offsets, mode="sum", per_sample_weights=weights)
        target.index_add_(0, distinct, rows)


@cache
def products_for(device: torch.device, dtype: torch.dtype) -> Products:
    """Choose the fastest products that work for a device and a data type, by trying them."""
    index = TripleIndex(torch.tensor([[0, 0, 1], [0, 0, 2], [1, 0, 0]], device=device), num_entities=3, num_relations=1)
    block = Block(index, slice(0, 2), size=3)
    queries = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, dtype=dtype)
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], device=device, dtype=dtype)
    weights = torch.ones(3, device=device, dtype=dtype)
    fast = SparseProducts()
    try:
        works = fast.scores(queries, keys, block).tolist() == [2.0, 3.0, 3.0]
        works &= fast.to_queries(keys, weights, block).tolist() == [[1.0, 2.0], [1.0, 0.0]]
        fast.add_to_keys(keys, queries, weights, block)
        works &= keys.tolist() == [[4.0, 4.0], [1.0, 3.0], [2.0, 3.0]]
    except (RuntimeError, NotImplementedError):
        # e.g. a build without MKL, or a device without sparse matrices
        works = False
    return fast if works else GatherProducts()
