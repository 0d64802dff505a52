"""Training under the local closed world assumption: all candidates of an observed query but its answers are negatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor
from typing_extensions import override

from ..factorizations import Weights
from ..factorizations.features import Features
from ..factorizations.moments import Moments
from ..graph.batches import Batch
from ..graph.frequencies import Frequencies
from ..graph.sides import Side
from ..losses import FactorizedLoss
from ..losses.objective import AnyObjective
from ..losses.weights import weigh_local_closed_world
from ..sweeps.problem import Problem, sum_of_costs
from .loop import FactorizedTrainingLoop
from .run import Run

#: The ends of a triple, by all names that PyKEEN's LCWA training loop has for them
TARGETS: dict[object, tuple[Target, ...]] = {
    LABEL_HEAD: (LABEL_HEAD,),
    0: (LABEL_HEAD,),
    LABEL_TAIL: (LABEL_TAIL,),
    2: (LABEL_TAIL,),
    "both": (LABEL_TAIL, LABEL_HEAD),
}


class NonSamplingLCWATrainingLoop(FactorizedTrainingLoop):
    r"""A training loop over all candidates of each query that occurs, without scoring any of them.

    The negatives are those of PyKEEN's :class:`pykeen.training.LCWATrainingLoop`: all tails for each observed pair $(h, r)$
    and, by default, all heads for each observed pair $(r, t)$, except for the true ones. For a score $q^\top k$, the sum of
    the squares over all candidates needs only the candidates' Gram matrix,

    .. math::

        \sum_q c_q \sum_k (q^\top k)^2 = \sum_q c_q \, q^\top \Big( \sum_k k k^\top \Big) q

    so an epoch costs $O((|\mathcal{Q}| + |\mathcal{E}|) d^2 + |\mathcal{T}| d)$ for $|\mathcal{Q}|$ distinct queries,
    instead of $O(|\mathcal{Q}| |\mathcal{E}| d)$, and each query may have a weight of its own.

    By default, one epoch is one optimizer step on the whole graph. With a ``batch_size``, each mini-batch has whole queries
    with all of their negatives, so that the batches of an epoch add up to the whole loss.
    """

    closed_world: ClassVar[bool] = False

    loss_hpo_default: ClassVar[Mapping[str, Any]] = {
        "query_weight": {"type": float, "low": -0.5, "high": 1.0, "q": 0.25},
        "candidate_weight": {"type": float, "low": -0.5, "high": 1.5, "q": 0.25},
    }

    def __init__(self, *, target: Target | int | None = None, **kwargs: Any) -> None:
        """Initialize the training loop.

        :param target: the end of a triple to predict: ``"tail"``, ``"head"``, or ``"both"``. By default, both; for a factory
            that creates inverse triples, the tails only, since the heads are the tails of inverse triples there.
        :param kwargs: additional keyword-based parameters passed to :class:`FactorizedTrainingLoop`
        :raises ValueError: if there is no such end
        """
        super().__init__(**kwargs)
        # a list cannot be looked up, and False is the same key as 0
        known = isinstance(target, (str, int)) and not isinstance(target, bool) and target in TARGETS
        if target is not None and not known:
            raise ValueError(
                f"{target=} is not an end of a triple whose candidates are entities: use 'tail', 'head' or 'both', "
                f"e.g. training_loop_kwargs=dict(target='both')."
            )
        self.target = target

    @override
    @classmethod
    def targets(cls, inverse: bool, target: Any = None) -> Sequence[Target]:
        # with inverse triples, the heads are the tails of these
        default = LABEL_TAIL if inverse else "both"
        return TARGETS[default if target is None else target]

    @override
    def _sides(
        self, loss: FactorizedLoss, weights: Weights, frequencies: Frequencies, targets: Sequence[Target]
    ) -> Sequence[Side]:
        sides = []
        for target in targets:
            side = Side(target, frequencies.other_end if target == LABEL_HEAD else frequencies.index)
            by_side = weigh_local_closed_world(loss, side, frequencies, weights, self._weighter, self._dtype)
            sides.append(replace(side, weights=by_side))
        return sides

    @override
    def _num_scores(self, batch: Batch) -> float:
        return batch.num_queries * self.num_entities

    @override
    def _check(self, run: Run, all_features: Features) -> None:
        super()._check(run, all_features)
        if any(side.target == LABEL_HEAD for side in run.batch.sides):
            run.factorization.check_head_queries(*all_features)

    @override
    def _sum(self, run: Run, batch: Batch, features: Features, objective: AnyObjective) -> Tensor:
        heads, relations, tails = features
        total, norm_weight = heads.new_zeros(()), run.loss.duality_weight or 0.0
        candidates: Moments | None = None
        used: Tensor | None = None
        for side in batch.sides:
            given, answers = side.ends(heads, tails)
            weights = side.weights.candidates
            # most models have the same features for heads and tails, so one Gram matrix is enough
            if not run.loss.needs_scores and (candidates is None or heads is not tails or weights is not used):
                candidates, used = run.placement.moments(answers, weights), weights
            form = side.face(run.factorization.form)
            problem = Problem(side, form, objective, given, relations, answers, candidates, norm_weight)
            total = total + sum_of_costs(problem, run.sweep)
        return total
