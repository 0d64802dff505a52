"""Evaluation at the speed of a matrix product."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver
from pykeen.evaluation.ranks import Ranks
from pykeen.models import Model
from pykeen.typing import Target
from torch import Tensor
from torch.nn import functional
from tqdm.autonotebook import tqdm

from . import ranks as processes
from .factorizations import Factorization, NotDecomposableError
from .scoring import End, Hidden, Scorer
from .sweep import check_memory_budget

__all__ = [
    "FactorizedRankBasedEvaluator",
]

logger = logging.getLogger(__name__)

#: Scores closer to each other than this, in units of the rounding error of a number as large as they could be, are compared
#: by the model itself. Errors of single terms mostly cancel out, so the error of a sum is about one such unit.
ROUNDING_ERRORS = 16

#: Triples whose near ties the model decides at once: it scores the candidates of each of them for all of them
SETTLED_ROWS = 64


class FactorizedRankBasedEvaluator(RankBasedEvaluator):
    r"""A rank-based evaluator that scores all candidates with one matrix product, queries times keys.

    PyKEEN scores candidates one by one, from broadcast vectors. With $f(h, r, t) = q(h, r)^\top k(t)$, the scores of all
    tails are $K q$, and each distinct query among the evaluation triples has to be scored only once.

    The ranks are PyKEEN's: where the score of a candidate and that of the true entity differ by no more than rounding
    could explain, the model itself scores both and decides. If both have the same vectors, they tie, whatever the batch. For
    some models, such as RESCAL, TuckER and QuatE, PyKEEN's rounding depends on the size of the batch and on a candidate's
    position. There, PyKEEN may miss such a tie, and scores that differ by rounding only may be ordered differently.

    All rank types, metrics and options are those of :class:`pykeen.evaluation.RankBasedEvaluator`, which also takes over,
    with a warning, for a model that has no factorization.
    """

    def __init__(
        self,
        *,
        factorization: HintOrType[Factorization] = None,
        factorization_kwargs: OptionalKwargs = None,
        memory_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the evaluator.

        :param factorization: the factorization of the model's score, or a hint for it. Defaults to the one registered for
            the model's interaction.
        :param factorization_kwargs: additional keyword-based parameters for the factorization
        :param memory_budget: >0, the number of bytes for scores, unless there is a ``batch_size``. Defaults to a quarter of
            what is free.
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.evaluation.RankBasedEvaluator`
        :raises ValueError: if the budget is not positive
        """
        super().__init__(**kwargs)
        check_memory_budget(memory_budget)
        self.factorization = factorization
        self.factorization_kwargs = factorization_kwargs
        self.memory_budget = memory_budget

    # docstr-coverage: inherited
    def evaluate(  # noqa: D102
        self,
        model: Model,
        mapped_triples: Tensor,
        *args: Any,
        additional_filter_triples: Tensor | list[Tensor] | None = None,
        **kwargs: Any,
    ) -> Any:
        # withheld from PyKEEN, which would sort all known triples in a way that takes longer than most evaluations
        self._additional_filter_triples = additional_filter_triples
        kwargs["additional_filter_triples"] = None if additional_filter_triples is None else []
        return super().evaluate(model, mapped_triples, *args, **kwargs)

    # docstr-coverage: inherited
    def _evaluate_on_device(  # type: ignore[override]
        self,
        model: Model,
        mapped_triples: Tensor,
        batch_size: int | None,
        slice_size: int | None,
        device: torch.device,
        all_pos_triples: Tensor | None,
        targets: Collection[Target],
        tqdm_kwargs: Mapping[str, Any],
        restrict_entities_to: Collection[int] | None = None,
    ) -> Any:
        model = model.to(device).eval()
        if all_pos_triples is not None:
            more = self._additional_filter_triples
            more = [] if more is None else [more] if isinstance(more, Tensor) else list(more)
            all_pos_triples = torch.cat([all_pos_triples, *more]).to(device)
        try:
            scorer = self._scorer(model)
        except NotDecomposableError as error:
            logger.warning("Evaluating with PyKEEN's RankBasedEvaluator instead: %s", error)
            return super()._evaluate_on_device(
                model=model,
                mapped_triples=mapped_triples,
                batch_size=batch_size,
                slice_size=slice_size,
                device=device,
                all_pos_triples=all_pos_triples,
                targets=targets,
                tqdm_kwargs=tqdm_kwargs,
                restrict_entities_to=restrict_entities_to,
            )
        excluded = None
        if restrict_entities_to is not None:
            excluded = torch.ones(scorer.num_entities, dtype=torch.bool, device=device)
            excluded[torch.as_tensor(list(restrict_entities_to), device=device)] = False
        # scores, a copy, and the result of a comparison
        rows = batch_size or self.batch_size or scorer.num_rows(self.memory_budget, copies=3)
        self.clear()
        self.num_entities = scorer.num_entities
        group = processes.Ranks.current()
        mine = group.rows(len(mapped_triples))
        description = dict(desc=f"Evaluating on {device}", unit="triple", unit_scale=True, disable=not group.is_first)
        with (
            torch.inference_mode(),
            tqdm(total=(mine.stop - mine.start) * len(targets), **{**description, **tqdm_kwargs}) as progress,
        ):
            for target in targets:
                triples = mapped_triples.to(device)
                known = all_pos_triples if self.filtered else None
                end = scorer.end(target, triples[:0] if known is None else known)
                ranking = _Ranking(end, scorer.turn(target, triples), known is not None, excluded)
                ranks = ranking.run(rows, progress, group)
                for rank_type, values in ranks.items():
                    self.ranks[target, rank_type].append(values.cpu().numpy())
                self.num_candidates[target].append(ranks.number_of_options.cpu().numpy())
        return self.finalize()

    def _scorer(self, model: Model) -> Scorer:
        """Prepare to score with a model."""
        if model.predict_with_sigmoid:
            raise NotDecomposableError("A sigmoid (predict_with_sigmoid=True) rounds distinct scores to the same one.")
        return Scorer.of(model, self.mode, self.factorization, self.factorization_kwargs)


class _Ranking:
    """Ranks the answers of triples among all candidates.

    Scores are computed block by block, and each is compared and counted while the cache still has it: to write all of them
    to memory, and to read them again, would take as long as to compute them.
    """

    def __init__(self, end: End, triples: Tensor, filtered: bool, excluded: Tensor | None):
        """Initialize the ranking.

        :param end: the end that is ranked, with the known triples
        :param triples: shape: (n, 3), the triples, as (given entity, relation, answer)
        :param filtered: whether known answers do not count
        :param excluded: shape: (num_entities,), which entities are not candidates
        """
        self.end = end
        self.triples = triples
        self.filtered = filtered
        self.excluded = excluded
        self.keys = keys = end.keys
        self.options = len(keys) if excluded is None else int((~excluded).sum())
        self.error = ROUNDING_ERRORS * torch.finfo(keys.dtype).eps * keys.norm(dim=1).max()

    def run(self, rows: int, progress: Any, group: processes.Ranks) -> Ranks:
        """Rank the answers, in the order of the triples, some rows at a time, and some in each process."""
        # triples of the same query are adjacent, and so are queries of the same relation
        identities, order = (self.triples[:, 1] * len(self.keys) + self.triples[:, 0]).sort()
        results = torch.zeros(3, len(order), dtype=torch.long, device=order.device)
        # the same memory for all blocks, which the cache still has
        space = self.keys.new_empty(3, min(rows, len(order)) * self.end.scorer.num_columns)
        mine = group.rows(len(order))
        for start in range(mine.start, mine.stop, rows):
            block = slice(start, min(start + rows, mine.stop))
            results[:, order[block]] = self._rank(self.triples[order[block]], identities[block], space)
            progress.update(block.stop - block.start)
        group.add(results)
        larger, equal, number_of_options = results
        optimistic, pessimistic = larger + 1, larger + equal + 1
        return Ranks(
            optimistic=optimistic,
            realistic=(optimistic + pessimistic).float() * 0.5,
            pessimistic=pessimistic,
            number_of_options=number_of_options,
        )

    def _rank(self, batch: Tensor, identity: Tensor, space: Tensor) -> Tensor:
        """Count the candidates that score higher than the answer, the others that score the same, and all of them."""
        row = identity.unique_consecutive(return_inverse=True)[1]
        pairs = batch[functional.pad(row.diff() > 0, (1, 0), value=True)]
        queries = self.end.queries(pairs)
        options = torch.full_like(row, self.options)
        if self.filtered:
            rows, known = self.end.side.index.lookup(pairs)
            hidden = Hidden(rows, known)
            # known ones are not options, except for the answer itself
            kept = torch.ones_like(known) if self.excluded is None else (~self.excluded[known]).long()
            options += 1 - row.new_zeros(len(pairs)).index_add_(0, rows, kept)[row]
        else:
            hidden = Hidden(torch.arange(len(row), device=row.device), batch[:, 2])
        true = (queries[row] * self.keys[batch[:, 2]]).sum(dim=1)
        tolerance = (self.error * queries.norm(dim=1))[row]
        low, high = (true - tolerance)[:, None], (true + tolerance)[:, None]
        larger, doubtful = torch.zeros_like(row), []
        for candidates, scores in self.end.scores(queries, out=space[0]):
            if self.excluded is not None:
                scores[:, self.excluded[candidates]] = -torch.inf
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

    def _settle(self, batch: Tensor, doubtful: Tensor, larger: Tensor, equal: Tensor) -> None:
        """Let the model decide which doubtful candidates score higher than the answer, and which the same, and count them.

        :param batch: the triples
        :param doubtful: shape: (2, n), positions of triples, and candidates
        :param larger: shape: (len(batch),), where to count those that score higher
        :param equal: likewise, those that score the same
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


evaluator_resolver.register(FactorizedRankBasedEvaluator, synonyms={"factorized"})
