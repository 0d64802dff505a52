"""Which loss to train with, and with which weights, as far as the user leaves it open."""

from __future__ import annotations

import math
from typing import Any

from pykeen.losses import Loss, PairwiseLoss
from typing_extensions import override

from ..factorizations.base import Factorization, NotDecomposableError
from .base import FactorizedLoss, Numbers
from .objective import Objective
from .pykeen import SUMS_OVER_QUERIES, PykeenLoss
from .softmax import SoftmaxLoss
from .squared import NonSamplingLoss

#: The softmax loss is chosen if an epoch has at most so many scores. There are at most as many queries as triples, for each
#: end, and each is scored with all entities.
MOST_SCORES = 2e10


class AutomaticLoss(FactorizedLoss):
    """Stands for the loss that suits graph and model, which the training loops put in its place.

    It is what they use if no loss is given, cf. :func:`~pykeen_nonsampling.losses.automatic.choose_loss`.
    """

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
        raise NotImplementedError(
            f"{type(self).__name__} depends on the graph: a training loop of this package puts another loss in its place."
        )


def count_scores(graph: Numbers) -> int:
    """Count the scores of an epoch in the local closed world, at most."""
    return (2 - graph.inverse) * graph.num_triples * graph.num_entities


def choose_loss(graph: Numbers, closed_world: bool) -> type[FactorizedLoss]:
    """Choose a loss for a graph.

    :param graph: the numbers of the graph
    :param closed_world: whether all triples are summed, and not the candidates of observed queries
    :return: in the local closed world, the softmax loss if an epoch has at most :data:`MOST_SCORES` scores; otherwise, the
        squared one
    """
    affordable = count_scores(graph) <= MOST_SCORES and not graph.is_divided
    return SoftmaxLoss if affordable and not closed_world else NonSamplingLoss


def resolve_loss(
    loss: Any,
    graph: Numbers,
    factorization: Factorization,
    closed_world: bool,
    num_features: float = math.inf,
    label_smoothing: float = 0.0,
) -> FactorizedLoss:
    """Decide which loss to train with, and with which weights. What the user has set stays.

    :param loss: the loss, this package's or PyKEEN's, if the user has chosen one
    :param graph: the numbers of the graph
    :param factorization: the factorization of the model's score
    :param closed_world: whether all triples are summed, and not the candidates of observed queries
    :param num_features: the number of features of an entity, if it is known
    :param label_smoothing: the label smoothing that the user trains with
    :return: the loss, with all weights
    :raises NotDecomposableError: if the model cannot be trained with this loss
    """
    if not isinstance(loss, FactorizedLoss):
        loss = AutomaticLoss() if loss is None else PykeenLoss(loss)
    if isinstance(loss, AutomaticLoss):
        # only the squared loss has targets to smooth
        squared = factorization.no_scores or label_smoothing
        cls = NonSamplingLoss if squared else choose_loss(graph, closed_world)
        loss = cls(**loss.kwargs)
    reason = factorization.no_scores if loss.needs_scores else factorization.no_moments
    if reason is not None:
        raise NotDecomposableError(f"{loss.name} cannot be used with this model: {reason}")
    defaults = loss.default_weights(graph, factorization.family, closed_world, num_features)
    return loss.replace(**{name: x for name, x in defaults.items() if getattr(loss, name) is None})


def check_loss(loss: type[Loss], closed_world: bool) -> None:
    """Refuse a loss that cannot be computed.

    :param loss: the class of the loss
    :param closed_world: whether all triples are summed, and not the candidates of observed queries
    :raises ValueError: if it cannot be computed
    """
    if issubclass(loss, FactorizedLoss):
        return
    if callable(getattr(loss, "objective", None)):
        raise ValueError(
            f"{loss.__name__} has an objective, but not the weights that go with it. Derive it from "
            f"pykeen_nonsampling.FactorizedLoss."
        )
    is_sum = issubclass(loss, SUMS_OVER_QUERIES)
    if is_sum and not closed_world:
        return
    if closed_world:
        reason = (
            "of the negatives' scores, only the sum and the sum of squares are known, so the loss must be a function of "
        )
        reason += "these"
        advice = "loss='nonsampling', with loss_kwargs=dict(positive_weight=1.0, negative_weight=1.0) for the mean squared "
        advice += "error" + (", or training_loop='nonsamplinglcwa'" if is_sum else "")
    else:
        reason = "it is not known to be a sum over queries, of which only some are scored at a time"
        if issubclass(loss, PairwiseLoss):
            reason = "it compares each answer of a query with each of its negatives, which are too many pairs"
        advice = "e.g. loss='nonsampling' or loss='crossentropy'"
    raise ValueError(f"{loss.__name__} cannot be used without negative sampling: {reason}. Use {advice}.")
