"""Evaluation at the speed of a matrix product."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver
from pykeen.evaluation.ranks import Ranks
from pykeen.models import Model
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor
from torch.nn import functional
from tqdm.autonotebook import tqdm

from .factorizations import Factorization, NotDecomposableError
from .features import Features, factorize_model, features
from .sweep import check_memory_budget, free_memory
from .triples import Side, TripleIndex

__all__ = [
    "FactorizedRankBasedEvaluator",
]

logger = logging.getLogger(__name__)

#: Rows of scores computed at once on a CPU: more would not speed up the matrix product, but would slow down counting
CACHED_ROWS = 256

#: Scores closer to each other than this, in units of the rounding error of a number as large as they could be, are compared
#: by the model itself. Errors of single terms mostly cancel out, so the error of a sum is about one such unit.
ROUNDING_ERRORS = 16


class FactorizedRankBasedEvaluator(RankBasedEvaluator):
    r"""A rank-based evaluator that scores all candidates with one matrix product, queries times keys.

    PyKEEN scores candidates one by one, from broadcast vectors. With $f(h, r, t) = q(h, r)^\top k(t)$, the scores of all
    tails are $K q$, and each distinct query among the evaluation triples has to be scored only once.

    The ranks are PyKEEN's: where the score of a candidate and that of the true entity differ by no more than rounding
    could explain, the model itself scores both and decides. The exception is models whose rounding in PyKEEN depends on the
    batch, such as TuckER and QuatE: their exact ties may be counted differently, here as well as in PyKEEN. All rank types,
    metrics and options are those of :class:`pykeen.evaluation.RankBasedEvaluator`, which also takes over, with a warning,
    for a model that has no factorization.
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
        rows = batch_size or self.batch_size or self._num_rows(scorer)
        self.clear()
        self.num_entities = scorer.num_entities
        description = dict(desc=f"Evaluating on {device}", unit="triple", unit_scale=True)
        with (
            torch.inference_mode(),
            tqdm(total=len(mapped_triples) * len(targets), **{**description, **tqdm_kwargs}) as progress,
        ):
            for target in targets:
                task = scorer.task(target, mapped_triples.to(device), all_pos_triples)
                ranks = task.rank(
                    rows=rows,
                    filtered=self.filtered and all_pos_triples is not None,
                    excluded=excluded,
                    progress=progress,
                )
                for rank_type, values in ranks.items():
                    self.ranks[target, rank_type].append(values.cpu().numpy())
                self.num_candidates[target].append(ranks.number_of_options.cpu().numpy())
        return self.finalize()

    def _scorer(self, model: Model) -> _Scorer:
        """Prepare to score with a model."""
        factorization = factorize_model(model, self.factorization, self.factorization_kwargs)
        if model.predict_with_sigmoid:
            raise NotDecomposableError("A sigmoid (predict_with_sigmoid=True) rounds distinct scores to the same one.")
        with torch.inference_mode():
            all_features = features(model, factorization, mode=self.mode)
            factorization.check_head_queries(*all_features, up_to_constants=True)
        if not all(x.isfinite().all() for x in all_features):
            raise NotDecomposableError("Some of the model's features are not finite.")
        return _Scorer(model, self.mode, factorization, all_features)

    def _num_rows(self, scorer: _Scorer) -> int:
        """Determine the number of evaluation triples to rank at once: scores, a copy, and the result of a comparison."""
        tails = scorer.features.tails
        device = tails.device
        budget = free_memory(device) // 4 if self.memory_budget is None else self.memory_budget
        rows = budget // (3 * scorer.num_entities * tails.element_size())
        return max(1, min(rows, CACHED_ROWS) if device.type == "cpu" else rows)


@dataclass
class _Scorer:
    """A model with its features."""

    model: Any
    mode: Any
    factorization: Factorization
    features: Features

    @property
    def num_entities(self) -> int:
        return self.features.tails.shape[0]

    def task(self, target: Target, triples: Tensor, known: Tensor | None) -> _Task:
        """Prepare to rank the entities of one end of triples."""
        inverse = self.model.use_inverse_triples

        def turn(x: Tensor) -> Tensor:
            """Bring triples into the form (given entity, relation as the model knows it, ranked entity)."""
            if inverse:
                # PyKEEN predicts heads as tails of inverse triples
                x = self.model.relation_inverter.map(batch=x, index=1, invert=target == LABEL_HEAD)
            return x.flip(1) if target == LABEL_HEAD else x

        facts = turn(triples if known is None else known)
        index = TripleIndex(facts, self.num_entities, int(facts[:, 1].max()) + 1)
        return _Task(self, turn(triples), Side(LABEL_TAIL if inverse else target, index))


@dataclass
class _Task:
    """Triples (given entity, relation, ranked entity), and how to score all candidates for the latter."""

    scorer: _Scorer
    triples: Tensor
    #: the end that is ranked, as the model sees it, and all that is known about it
    side: Side

    @property
    def keys(self) -> Tensor:
        """The features of all candidates."""
        return self.side.ends(self.scorer.features.heads, self.scorer.features.tails)[1]

    def queries(self, pairs: Tensor) -> Tensor:
        """Compute the queries of pairs of given entity and relation."""
        heads, relations, tails = self.scorer.features
        given, _ = self.side.ends(heads, tails)
        return self.side.face(self.scorer.factorization.form).of_pairs(given, relations, pairs)

    def model_scores(self, pairs: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates for pairs of given entity and relation by the model itself, shape: (len(pairs), len(candidates)).

        How PyKEEN rounds depends on whether it scores one pair or more, so it never gets a single one.
        """
        model, mode = self.scorer.model, self.scorer.mode
        rows = max(2, 2**22 // (len(candidates) * self.keys.shape[1]))
        scores = []
        for some in pairs.split(rows):
            given = some if len(some) > 1 else some.expand(2, -1)
            if self.side.target == LABEL_HEAD:
                result = model.score_h(rt_batch=given.flip(1), heads=candidates, mode=mode)
            else:
                result = model.score_t(hr_batch=given, tails=candidates, mode=mode)
            scores.append(result[: len(some)])
        return torch.cat(scores)

    def rank(self, rows: int, filtered: bool, excluded: Tensor | None, progress: Any) -> Ranks:
        """Rank the true entities among all candidates, in the order of the triples."""
        keys = self.keys
        # triples of the same query are adjacent, and so are queries of the same relation
        identities, order = (self.triples[:, 1] * len(keys) + self.triples[:, 0]).sort()
        error = ROUNDING_ERRORS * torch.finfo(keys.dtype).eps * keys.norm(dim=1).max()
        options = keys.shape[0] if excluded is None else int((~excluded).sum())
        results = torch.empty(3, len(order), dtype=torch.long, device=keys.device)
        scores, comparison = (keys.new_empty(rows, keys.shape[0]) for _ in range(2))
        for positions, identity in zip(order.split(rows), identities.split(rows), strict=True):
            batch = self.triples[positions]
            distinct, row = identity.unique_consecutive(return_inverse=True)
            first = functional.pad(row.diff() > 0, (1, 0), value=True)
            queries = self.queries(batch[first])
            s = torch.mm(queries, keys.T, out=scores[: len(distinct)])
            true = s[row, batch[:, 2]]
            tolerance = (error * queries.norm(dim=1))[row]
            number_of_options = torch.full_like(row, options)
            if filtered:
                filtered_rows, filtered_entities = self.side.index.lookup(batch[first])
                s[filtered_rows, filtered_entities] = -torch.inf
                # known ones are not options, except for the true one itself
                kept = torch.ones_like(filtered_rows) if excluded is None else (~excluded[filtered_entities]).long()
                number_of_options += 1 - torch.zeros_like(distinct).index_add_(0, filtered_rows, kept)[row]
            if excluded is not None:
                s[:, excluded] = -torch.inf
            if len(distinct) < len(row):
                s = s.index_select(0, row)
            larger, equal = self._compare(s, true, tolerance, batch, itself=not filtered, out=comparison[: len(row)])
            results[:, positions] = torch.stack([larger, equal, number_of_options])
            progress.update(len(batch))
        larger, equal, number_of_options = results
        optimistic, pessimistic = larger + 1, larger + equal + 1
        return Ranks(
            optimistic=optimistic,
            realistic=(optimistic + pessimistic).float() * 0.5,
            pessimistic=pessimistic,
            number_of_options=number_of_options,
        )

    def _compare(
        self, scores: Tensor, true: Tensor, tolerance: Tensor, batch: Tensor, itself: bool, out: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Count the candidates that score higher than the true one, and the others that score the same."""
        low, high = (true - tolerance)[:, None], (true + tolerance)[:, None]
        # summing numbers is much faster than summing booleans
        larger = torch.gt(scores, high, out=out).sum(dim=1).long()
        near = torch.ge(scores, low, out=out).sum(dim=1).long() - larger
        equal = torch.zeros_like(larger)
        # in the unfiltered setting, the true one is among the candidates
        (doubtful,) = (near > int(itself)).nonzero(as_tuple=True)
        if len(doubtful) > 0:
            s = scores[doubtful]
            index, entities = ((s >= low[doubtful]) & (s <= high[doubtful])).nonzero(as_tuple=True)
            if itself:
                other = entities != batch[doubtful[index], 2]
                index, entities = index[other], entities[other]
            candidates, positions = torch.cat([entities, batch[doubtful, 2]]).unique(return_inverse=True)
            position, true_position = positions.split([len(entities), len(doubtful)])
            exact_scores = self.model_scores(batch[doubtful, :2], candidates)
            exact, exact_true = exact_scores[index, position], exact_scores[index, true_position[index]]
            for count, which in ((larger, exact > exact_true), (equal, exact == exact_true)):
                count.index_add_(0, doubtful[index], which.long())
        return larger, equal


evaluator_resolver.register(FactorizedRankBasedEvaluator, synonyms={"factorized"})
