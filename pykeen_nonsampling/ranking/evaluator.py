"""Evaluation at the speed of a matrix product."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver
from pykeen.models import Model
from pykeen.typing import Target
from torch import Tensor
from tqdm.autonotebook import tqdm
from typing_extensions import override

from ..distributed.group import Group
from ..distributed.model import find_sharding
from ..distributed.shards import ShardingError
from ..factorizations import Factorization, NotDecomposableError
from ..free import check_memory_budget
from .candidates import Scorer
from .ranks import Ranking, ShardedRanking

logger = logging.getLogger(__name__)


class FactorizedRankBasedEvaluator(RankBasedEvaluator):
    r"""A rank-based evaluator that scores all candidates with one matrix product, queries times keys.

    PyKEEN scores candidates one by one, from broadcast vectors. With $f(h, r, t) = q(h, r)^\top k(t)$, the scores of all
    tails are $K q$, and each distinct query among the evaluation triples has to be scored only once.

    The ranks are PyKEEN's: where the score of a candidate and that of the true entity differ by no more than rounding
    could explain, the model itself scores both and decides. If both have the same vectors, they tie, whatever the batch. For
    some models, such as RESCAL, TuckER and QuatE, PyKEEN's rounding depends on the size of the batch and on a candidate's
    position. There, PyKEEN may miss such a tie, and scores that differ by rounding only may be ordered differently.

    All rank types, metrics and options are those of :class:`pykeen.evaluation.RankBasedEvaluator`, which also takes over,
    with a warning, for a model that has no factorization, or clamps its scores.
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

    @override
    def evaluate(
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

    @override
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
        sharding = find_sharding(model)
        try:
            scorer = self._scorer(model)
        except NotDecomposableError as error:
            if sharding is not None:
                raise ShardingError(f"The entities of this model are divided among processes, and {error}") from error
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
        group = Group.current() if sharding is None else sharding.group
        if sharding is not None:
            rows = min(group.all_of(rows))
        mine = group.rows(len(mapped_triples)) if sharding is None else slice(0, len(mapped_triples))
        description = dict(desc=f"Evaluating on {device}", unit="triple", unit_scale=True, disable=not group.is_first)
        with (
            torch.inference_mode(),
            tqdm(total=(mine.stop - mine.start) * len(targets), **{**description, **tqdm_kwargs}) as progress,
        ):
            for target in targets:
                triples = mapped_triples.to(device)
                known = all_pos_triples if self.filtered else None
                end = scorer.end(target, triples[:0] if known is None else known)
                arguments = end, scorer.turn(target, triples), known is not None, excluded
                ranking = Ranking(*arguments, group) if sharding is None else ShardedRanking(*arguments, sharding)
                ranks = ranking.run(rows, progress)
                for rank_type, values in ranks.items():
                    self.ranks[target, rank_type].append(values.cpu().numpy())
                self.num_candidates[target].append(ranks.number_of_options.cpu().numpy())
        return self.finalize()

    def _scorer(self, model: Model) -> Scorer:
        """Prepare to score with a model."""
        if model.predict_with_sigmoid:
            raise NotDecomposableError("A sigmoid (predict_with_sigmoid=True) rounds distinct scores to the same one.")
        scorer = Scorer.of(model, self.mode, self.factorization, self.factorization_kwargs)
        if scorer.factorization.no_moments is not None:
            raise NotDecomposableError("A clamp (clamp_score) gives distinct scores the same value.")
        return scorer


evaluator_resolver.register(FactorizedRankBasedEvaluator, synonyms={"factorized"})
