"""In which order compiled loops visit queries and answers, so that each row of a gradient belongs to one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..triples import TripleIndex

__all__ = [
    "Plan",
    "Rows",
    "even_cuts",
]

#: What a query costs in addition to its answers, in terms of these
QUERY_LOAD = 2


@dataclass(frozen=True)
class Rows:
    """Queries in a row, and how to divide them."""

    #: the positions of queries and their triples
    queries: slice
    triples: slice
    #: shape: (parts + 1,), where to divide them evenly
    cuts: Any
    #: shape: (b,), the rows grouped by given entity, and where to divide these, such that no entity is in two parts
    order: Any
    entity_cuts: Any


class Plan:
    """The orders to visit the queries and answers of an index in."""

    def __init__(self, index: TripleIndex, parts: int):
        """Sort queries by given entity, and triples by answer.

        :param index: the index, which is not kept
        :param parts: the number of parts to divide both into
        """
        self.parts = parts
        self.pairs, self.offsets, self.answers = (x.contiguous().numpy() for x in (index.pairs, index.offsets, index.answers))
        entities, order = index.pairs[:, 0].sort(stable=True)
        #: shape: (q,), the queries grouped by given entity
        self.order = order.int().numpy()
        self.cuts = _cut(entities, QUERY_LOAD + index.counts[order], parts)
        # queries are sorted by relation already, and the order of equal answers stays
        answers, triples = index.answers.sort(stable=True)
        pairs = index.pairs[torch.repeat_interleave(index.counts, output_size=len(index))[triples]]
        runs, counts = (answers * index.num_relations + pairs[:, 1]).unique_consecutive(return_counts=True)
        #: shape: (g,), answers and relations of groups of triples, and their given entities, cf. ``kernels``
        self.run_answers, self.run_relations = (runs // index.num_relations).int().numpy(), (runs % index.num_relations).int().numpy()
        self.run_offsets = functional.pad(counts.cumsum(dim=0), (1, 0)).numpy()
        self.run_given = pairs[:, 0].int().numpy()
        self.triples = triples.int().numpy()
        self.run_cuts = _cut(runs // index.num_relations, QUERY_LOAD + counts, parts)
        self._rows: tuple[int, Sequence[Rows]] | None = None

    def rows(self, size: int) -> Sequence[Rows]:
        """Divide the queries, in the order of the index, into blocks of at most some number. Kept, since every epoch needs them."""
        if self._rows is None or self._rows[0] != size:
            self._rows = size, [self._block(start, size) for start in range(0, len(self.pairs), size)]
        return self._rows[1]

    def _block(self, start: int, size: int) -> Rows:
        stop = min(start + size, len(self.pairs))
        entities, order = torch.from_numpy(self.pairs[start:stop, 0]).sort(stable=True)
        return Rows(
            queries=slice(start, stop),
            triples=slice(int(self.offsets[start]), int(self.offsets[stop])),
            cuts=even_cuts(stop - start, self.parts),
            order=order.int().numpy(),
            entity_cuts=_cut(entities, torch.ones_like(entities), self.parts),
        )


def even_cuts(n: int, parts: int) -> Any:
    """Divide a number of rows evenly."""
    return np.arange(parts + 1) * n // parts


def _cut(groups: Tensor, loads: Tensor, parts: int) -> Any:
    """Divide rows into parts of about the same load, and no group into two.

    :param groups: shape: (n,), the group of each row, ascending
    :param loads: shape: (n,), what it costs to visit the row
    :param parts: the number of parts
    :return: shape: (parts + 1,), where the parts begin
    """
    n = len(groups)
    starts = functional.pad((groups.diff() != 0).nonzero()[:, 0] + 1, (1, 1), value=0)
    starts[-1] = n
    loads = functional.pad(loads.cumsum(dim=0), (1, 0))
    wanted = torch.arange(1, parts) * loads[-1] // parts
    inner = starts[torch.searchsorted(loads[starts], wanted)]
    return functional.pad(functional.pad(inner, (1, 0)), (0, 1), value=n).numpy()
