"""The ranks of answers among all candidates."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.evaluation import ranks as evaluation
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from ..distributed.exchange import Exchange
from ..distributed.group import Group
from ..distributed.shards import Sharding
from .candidates import End, Hidden

#: Scores closer to each other than this, in units of the rounding error of a number as large as they could be, are compared
#: by the model itself. Errors of single terms mostly cancel out, so the error of a sum is about one such unit.
ROUNDING_ERRORS = 16

#: Triples whose near ties the model decides at once: it scores the candidates of each of them for all of them
SETTLED_ROWS = 64

#: Pairs of a triple and a candidate that are scored once more at once
SETTLED_PAIRS = 2**14


class Ranking:
    """Ranks the answers of triples among all candidates.

    Scores are computed block by block, and each is compared and counted while the cache still has it: to write all of them
    to memory, and to read them again, would take as long as to compute them.
    """

    def __init__(self, end: End, triples: Tensor, filtered: bool, excluded: Tensor | None, group: Group):
        """Initialize the ranking.

        :param end: the end that is ranked, with the known triples
        :param triples: shape: (n, 3), the triples, as (given entity, relation, answer)
        :param filtered: whether known answers do not count
        :param excluded: shape: (num_entities,), which entities are not candidates
        :param group: the processes, each of which ranks some of the triples
        """
        self.end = end
        self.triples = triples
        self.filtered = filtered
        self.excluded = excluded
        #: shape: (num_rows,), the same of the entities that this process has
        self.left_out = excluded
        self.group = group
        self.keys = keys = end.keys
        self.options = len(keys) if excluded is None else int((~excluded).sum())
        self.error = ROUNDING_ERRORS * torch.finfo(keys.dtype).eps * keys.norm(dim=1).max()

    def _mine(self) -> slice:
        """Return the positions of the triples that this process ranks."""
        return self.group.rows(len(self.triples))

    def run(self, rows: int, progress: Any) -> evaluation.Ranks:
        """Rank the answers, in the order of the triples, some rows at a time."""
        # triples of the same query are adjacent, and so are queries of the same relation
        identities, order = (self.triples[:, 1] * self.end.scorer.num_entities + self.triples[:, 0]).sort()
        results = torch.zeros(3, len(order), dtype=torch.long, device=order.device)
        # the same memory for all blocks, which the cache still has
        space = self.keys.new_empty(3, min(rows, len(order)) * self.end.scorer.num_columns)
        mine = self._mine()
        for start in range(mine.start, mine.stop, rows):
            block = slice(start, min(start + rows, mine.stop))
            results[:, order[block]] = self._rank(self.triples[order[block]], identities[block], space)
            progress.update(block.stop - block.start)
        self.group.add(results)
        larger, equal, number_of_options = results
        optimistic, pessimistic = larger + 1, larger + equal + 1
        return evaluation.Ranks(
            optimistic=optimistic,
            realistic=(optimistic + pessimistic).float() * 0.5,
            pessimistic=pessimistic,
            number_of_options=number_of_options,
        )

    def _rank(self, batch: Tensor, identity: Tensor, space: Tensor) -> Tensor:
        """Count the candidates that score higher than the answer, the others that score the same, and all of them."""
        row = identity.unique_consecutive(return_inverse=True)[1]
        pairs = batch[functional.pad(row.diff() > 0, (1, 0), value=True)]
        queries = self._queries(pairs)
        options = torch.full_like(row, self.options)
        if self.filtered:
            rows, known = self._known(pairs)
            # known ones are not options, except for the answer itself
            kept = torch.ones_like(known) if self.excluded is None else (~self.excluded[known]).long()
            options += 1 - row.new_zeros(len(pairs)).index_add_(0, rows, kept)[row]
        else:
            rows, known = torch.arange(len(row), device=row.device), batch[:, 2]
        hidden = self._hide(rows, known)
        true = self._score(queries[row], batch[:, 2])
        tolerance = (self.error * queries.norm(dim=1))[row]
        low, high = (true - tolerance)[:, None], (true + tolerance)[:, None]
        larger, doubtful = torch.zeros_like(row), []
        for candidates, scores in self.end.scores(queries, out=space[0]):
            if self.left_out is not None:
                scores[:, self.left_out[candidates]] = -torch.inf
            copy, comparison = (x[: len(row) * scores.shape[1]].view(len(row), -1) for x in space[1:])
            if self.filtered:
                hidden.hide(scores, candidates)
            if len(queries) < len(row):
                scores = torch.index_select(scores, 0, row, out=copy)
            if not self.filtered:
                # other answers to the same query count
                hidden.hide(scores, candidates)
            # summing numbers is much faster than summing booleans
            above = torch.gt(scores, high, out=comparison).sum(dim=1)
            (near,) = (torch.ge(scores, low, out=comparison).sum(dim=1) > above).nonzero(as_tuple=True)
            larger += above.long()
            if len(near) > 0:
                some = scores[near]
                index, entities = ((some >= low[near]) & (some <= high[near])).nonzero(as_tuple=True)
                doubtful.append(torch.stack([near[index], entities + candidates.start]))
        equal = torch.zeros_like(larger)
        if doubtful:
            self._settle(batch, torch.cat(doubtful, dim=1), larger, equal)
        return torch.stack([larger, equal, options])

    def _queries(self, pairs: Tensor) -> Tensor:
        """Compute the queries of pairs of given entity and relation."""
        return self.end.queries(pairs)

    def _known(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """List the known answers to pairs: for each, the position of its pair, and the answer."""
        return self.end.side.index.lookup(pairs)

    def _hide(self, rows: Tensor, entities: Tensor) -> Hidden:
        """Let candidates not count, each in its row of scores."""
        return Hidden(rows, entities)

    def _score(self, queries: Tensor, answers: Tensor) -> Tensor:
        """Score the answers to queries, one each."""
        return (queries * self.keys[answers]).sum(dim=1)

    def _settle(self, batch: Tensor, doubtful: Tensor, larger: Tensor, equal: Tensor) -> None:
        """Let the model decide which doubtful candidates score higher than the answer, and which the same, and count them.

        :param batch: the triples
        :param doubtful: shape: (2, n), positions of triples, and candidates
        :param larger: shape: (len(batch),), where to count those that score higher
        :param equal: the same for those that score the same
        """
        positions, order = doubtful[0].sort()
        distinct, counts = positions.unique_consecutive(return_counts=True)
        sizes = [int(x.sum()) for x in counts.split(SETTLED_ROWS)]
        for some, entities, index in zip(
            distinct.split(SETTLED_ROWS),
            doubtful[1, order].split(sizes),
            torch.repeat_interleave(counts).split(sizes),
            strict=True,
        ):
            index = index - index[0]
            candidates, columns = torch.cat([entities, batch[some, 2]]).unique(return_inverse=True)
            column, true_column = columns.split([len(entities), len(some)])
            scores = self.end.model_scores(batch[some, :2], candidates)
            exact, true = scores[index, column], scores[index, true_column[index]]
            for count, which in ((larger, exact > true), (equal, exact == true)):
                count.index_add_(0, some[index], which.long())


class ShardedRanking(Ranking):
    """Ranks the answers of triples among all candidates, which are divided among processes.

    Each process compares all answers with its own candidates. Scores that differ by no more than rounding could explain are
    computed once more from the same features, in double precision, and in the same way for each candidate. So candidates
    with the same vectors tie, in whichever process they are.
    """

    def __init__(self, end: End, triples: Tensor, filtered: bool, excluded: Tensor | None, sharding: Sharding):
        """Initialize the ranking.

        :param end: the end that is ranked, with the triples that this process knows
        :param triples: shape: (n, 3), the triples, as (given entity, relation, answer)
        :param filtered: whether known answers do not count
        :param excluded: shape: (num_entities,), which entities are not candidates
        :param sharding: which process has which entities
        """
        super().__init__(end, triples, filtered, excluded, sharding.group)
        self.sharding = sharding
        self.left_out = None if excluded is None else excluded[sharding.mine]
        self.options = sharding.num_entities if excluded is None else int((~excluded).sum())
        self.error = self.group.largest(self.error)

    @override
    def _mine(self) -> slice:
        return slice(0, len(self.triples))

    @override
    def _rank(self, batch: Tensor, identity: Tensor, space: Tensor) -> Tensor:
        larger, equal, options = super()._rank(batch, identity, space)
        # all know the number of options, but it counts once
        return torch.stack([larger, equal, options if self.group.is_first else torch.zeros_like(options)])

    @override
    def _queries(self, pairs: Tensor) -> Tensor:
        mine = self.sharding.is_mine(pairs[:, 0])
        own = pairs[mine].clone()
        own[:, 0] -= self.sharding.mine.start
        queries = self.keys.new_zeros(len(pairs), self.keys.shape[1])
        queries[mine] = self.end.queries(own)
        self.group.add(queries)
        return queries

    @override
    def _known(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        rows, known = super()._known(pairs)
        # several processes may know the same
        identities = (x.to(rows.device) for x in self.group.all_of((rows * self.sharding.num_entities + known).cpu()))
        distinct = torch.cat(list(identities)).unique()
        return distinct // self.sharding.num_entities, distinct % self.sharding.num_entities

    @override
    def _hide(self, rows: Tensor, entities: Tensor) -> Hidden:
        mine = self.sharding.is_mine(entities)
        return Hidden(rows[mine], entities[mine] - self.sharding.mine.start)

    @override
    def _score(self, queries: Tensor, answers: Tensor) -> Tensor:
        # for when there are doubts
        entities, rows = answers.unique(return_inverse=True)
        self.answers = Exchange(self.sharding, entities).fetch(self.keys)[rows]
        self.queries = queries
        return (queries * self.answers).sum(dim=1)

    @override
    def _settle(self, batch: Tensor, doubtful: Tensor, larger: Tensor, equal: Tensor) -> None:
        positions, candidates = doubtful
        for some, entities in zip(positions.split(SETTLED_PAIRS), candidates.split(SETTLED_PAIRS), strict=True):
            queries = self.queries[some].double()
            score, true = ((queries * x.double()).sum(dim=1) for x in (self.keys[entities], self.answers[some]))
            for count, which in ((larger, score > true), (equal, score == true)):
                count.index_add_(0, some, which.long())
