"""Training under the closed world assumption: every triple that is not observed is a negative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

import torch
from pykeen.typing import LABEL_TAIL, Target
from torch import Tensor
from typing_extensions import override

from ..factorizations import Weights
from ..factorizations.features import Features
from ..graph.batches import Batch
from ..graph.frequencies import Frequencies
from ..graph.sides import Side
from ..losses import FactorizedLoss
from ..losses.objective import AnyObjective, Objective, Scores
from ..losses.weights import weigh_closed_world
from ..sweeps.problem import Problem, sum_of_costs
from .loop import FactorizedTrainingLoop
from .run import Run


class NonSamplingTrainingLoop(FactorizedTrainingLoop):
    r"""A training loop over every triple of $\mathcal{E} \times \mathcal{R} \times \mathcal{E}$, without negative sampling.

    Observed triples have target 1, all others target 0. The sum over all triples is not enumerated: for a score
    $f(h, r, t) = q(h, r)^\top k(t)$, it is made of the Gram matrices of queries and keys,

    .. math::

        \sum_{h, r, t} f(h, r, t)^2 = \Big\langle \sum_{h, r} q q^\top, \sum_t k k^\top \Big\rangle

    so an epoch costs $O((|\mathcal{E}| + |\mathcal{R}|) d^2 + |\mathcal{T}| d)$, however many negatives there are [li2021]_.

    Negatives may have weights $w_h w_r w_t$, which become weights of the vectors in the Gram matrices.

    By default, one epoch is one optimizer step on the whole graph. With a ``batch_size``, each mini-batch of queries comes
    with its share of the sum over all triples, so that the batches of an epoch add up to the whole loss.
    """

    closed_world: ClassVar[bool] = True

    @override
    @classmethod
    def targets(cls, inverse: bool, target: Any = None) -> Sequence[Target]:
        return (LABEL_TAIL,)

    @override
    def _check_objective(self, objective: AnyObjective) -> None:
        if objective.needs_queries:
            raise ValueError(
                f"{type(objective).__name__} needs to see whole queries, but in the closed world all triples are summed at "
                f"once and none belongs to a query. Use training_loop='nonsamplinglcwa', or loss='nonsampling'."
            )

    @override
    def _sides(
        self, loss: FactorizedLoss, weights: Weights, frequencies: Frequencies, targets: Sequence[Target]
    ) -> Sequence[Side]:
        by_side = weigh_closed_world(loss, frequencies.index, weights, self._weighter, self._dtype)
        return [Side(LABEL_TAIL, frequencies.index, by_side)]

    @override
    def _num_scores(self, batch: Batch) -> float:
        return batch.share * self.num_entities**2 * self.model.num_relations

    @override
    def _sum(self, run: Run, batch: Batch, features: Features, objective: AnyObjective) -> Tensor:
        heads, relations, tails = features
        (side,) = batch.sides
        form, norm_weight = side.face(run.factorization.form), run.loss.duality_weight or 0.0
        problem = Problem(side, form, objective, heads, relations, tails, norm_weight=norm_weight)
        # what all triples cost is linear in their moments, as if they were the candidates of a single query
        all_triples = Scores(
            positives=heads.new_empty(0),
            query_index=torch.empty(0, dtype=torch.long, device=heads.device),
            candidates=run.factorization.score_moments(heads, relations, tails, run.weights, run.placement.moments),
            query_weights=side.weights.queries,
        )
        return sum_of_costs(problem, run.sweep) + batch.share * cast(Objective, objective).cost(all_triples)
