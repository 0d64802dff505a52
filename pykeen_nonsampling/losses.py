"""Losses that are defined by an objective, so that moments of the negatives' scores suffice."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar

import torch
from docdata import parse_docdata
from pykeen.losses import Loss, PointwiseLoss, Reduction, apply_label_smoothing, loss_resolver
from torch import Tensor

from .objectives import Objective, SquaredObjective, StandardizedObjective
from .objectives.squared import squared_error
from .parameters import as_number

__all__ = [
    "AutomaticLoss",
    "MomentLoss",
    "NonSamplingLoss",
    "StandardizedLoss",
    "UnsavedFunction",
    "as_exponent",
    "check_loss",
    "describe",
]


#: The weight of a negative triple outside of this package's training loops: the best choice of [li2021]_ in most cases
NEGATIVE_WEIGHT = 1.0e-3

#: From given entities, relations and numbers of positives, shape: (q,) each, to the weights of queries, shape: (q,)
QueryWeight = Callable[[Tensor, Tensor, Tensor], Tensor]

#: From numbers of triples to the weights of entities or relations, shape: (num_entities,) or (num_relations,)
CountWeight = Callable[[Tensor], Tensor]

#: The exponents b of $(1 + n)^b$ that have a name
POPULARITY: Mapping[str, float] = {
    "uniform": 0.0,
    "popularity": 1.0,
    "sqrt-popularity": 0.5,
    "inverse-popularity": -1.0,
}

#: The ways to reduce a loss
REDUCTIONS = ("sum", "mean")

#: The parameters that are only meaningful for a graph
GRAPH_WEIGHTS = (
    "query_weight",
    "candidate_weight",
    "range_weight",
    "head_weight",
    "relation_weight",
    "tail_weight",
    "regularization_weight",
    "duality_weight",
)

LossType = TypeVar("LossType", bound="MomentLoss")


class UnsavedFunction:
    """Stands for a function that gave weights when a model was saved, and was not saved with it."""

    def __init__(self, parameter: str, name: str):
        """Initialize it with the parameter of the loss that it was, and its name."""
        self.parameter = parameter
        # so that the loss has the same description as before
        self.__qualname__ = name

    def __call__(self, *args: Tensor) -> Tensor:
        """Refuse to give weights."""
        raise ValueError(
            f"{self.parameter}={self.__qualname__} is a function that was not saved with the model. To train on, define it "
            f"again, and set model.loss.{self.parameter} to it."
        )


class MomentLoss(PointwiseLoss, ABC):
    r"""A loss that needs only the moments of the negatives' scores, as defined by its objective.

    A subclass defines :meth:`objective`. Weights of positives, queries, candidates, heads, relations and tails, and the
    regularization by frequency, are the same for all:

    To the cost of each observed triple, [lacroix2018]_ add the norms of its vectors. Summed over all of them, this is a sum
    over entities and relations, with $n_x$ the number of places in the triples where x occurs:

    .. math::

        \lambda \sum_{(h,r,t) \in \mathcal{T}} \left( \|h\|_p^p + \|r\|_p^p + \|t\|_p^p \right)
        = \lambda \Big( \sum_e n_e \|e\|_p^p + \sum_r n_r \|r\|_p^p \Big)

    The norm of complex vectors is that of their absolute values. PyKEEN's own regularizers differ: they see each vector
    once, however many triples it occurs in.

    For a score $q^\top k$, [zhang2020]_ add the norms of query and answer, once for each end of a triple that is predicted:

    .. math::

        \mu \sum_{(q,t) \in \mathcal{T}} \left( \|q\|_2^2 + \|k(t)\|_2^2 \right)
        = \mu \Big( \sum_q n_q \|q\|_2^2 + \sum_e n_e \|k(e)\|_2^2 \Big)

    This suits relations that are full matrices, whose entries are no measure of what they do to a vector.

    .. [krompass2015] Krompaß, D., Baier, S., and Tresp, V. (2015) `Type-Constrained Representation Learning in Knowledge
       Graphs <https://arxiv.org/abs/1508.02593>`_. ISWC '15.
    .. [lacroix2018] Lacroix, T., *et al.* (2018) `Canonical Tensor Decomposition for Knowledge Base Completion
       <https://arxiv.org/abs/1806.07297>`_. ICML '18.
    .. [zhang2020] Zhang, Z., Cai, J., and Wang, J. (2020) `Duality-Induced Regularizer for Tensor Factorization Based
       Knowledge Graph Completion <https://arxiv.org/abs/2011.05816>`_. NeurIPS '20.
    """

    #: The weight c⁻ of a negative; a loss may have it as a parameter
    negative_weight: float | None = 1.0

    def __init__(
        self,
        positive_weight: float = 1.0,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
        range_weight: float | None = None,
        head_weight: float | str | CountWeight | None = None,
        relation_weight: float | str | CountWeight | None = None,
        tail_weight: float | str | CountWeight | None = None,
        regularization_weight: float | None = None,
        regularization_power: float = 3.0,
        duality_weight: float | None = None,
        reduction: Reduction = "sum",
    ):
        r"""Initialize the loss.

        Weights that are ``None`` are derived from graph and model by this package's training loops, and recorded.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param query_weight: the weight of a query's negatives under the local closed world assumption, in addition to c⁻:
            the exponent a of $n_q^a$, with $n_q$ the number of its positives, or a function of the given entities, the
            relations and $n_q$
        :param candidate_weight: the weight of a candidate as a negative under the local closed world assumption, in addition
            to c⁻: the exponent b of $(1 + n_e)^b$, with $n_e$ the number of triples that it is the answer to, its name in
            :data:`POPULARITY`, or a function of the $n_e$ of all entities. The weights are scaled to a mean of 1.
        :param range_weight: the weight of a candidate as a negative under the local closed world assumption if it is in the
            range of the query's relation, which means that it answers any of the relation's queries: the exponent g ≥ 0 of
            $(|E| / n_r)^g$, with $n_r$ the size of the range. Such candidates are of the right type [krompass2015]_, and
            the hardest to tell from answers. With 0, they weigh as much as others; with 1, all members of a range together
            weigh as much as all candidates.
        :param head_weight: the weight of a negative by its head, in addition to c⁻ and under either assumption: likewise,
            with the number of triples that an entity is the head of. By default, all have the same weight.
        :param relation_weight: the weight of a negative by its relation, likewise
        :param tail_weight: the weight of a negative by its tail, likewise
        :param regularization_weight: ≥0, the weight λ of the vectors of each observed triple
        :param regularization_power: ≥1, the power p of their norm: 3 as in [lacroix2018]_, or 2
        :param duality_weight: ≥0, the weight μ of the query and the answer of each observed triple, for scores that are
            products; a distance has no such query
        :param reduction: ``"sum"`` as in [li2021]_, or ``"mean"``, which divides by the number of triples scored. Over all
            triples of a graph this is a very large number: optimizers whose step depends on the gradient's scale, and
            regularizers added to the loss, are easier to tune with the sum.
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        if reduction not in REDUCTIONS:
            raise ValueError(f"{reduction=} is not a way to reduce a loss: use {' or '.join(map(repr, REDUCTIONS))}.")
        super().__init__(reduction=reduction)
        self.positive_weight = as_number("positive_weight", positive_weight, 1.0, above=0)
        self.query_weight = _as_weight("query_weight", query_weight)
        self.candidate_weight = _as_weight("candidate_weight", candidate_weight, POPULARITY)
        self.range_weight = _as_optional("range_weight", range_weight, 0.25, least=0)
        self.head_weight = _as_weight("head_weight", head_weight, POPULARITY)
        self.relation_weight = _as_weight("relation_weight", relation_weight, POPULARITY)
        self.tail_weight = _as_weight("tail_weight", tail_weight, POPULARITY)
        self.regularization_weight = _as_optional("regularization_weight", regularization_weight, 0.03, least=0)
        self.regularization_power = as_number("regularization_power", regularization_power, 3.0, least=1)
        self.duality_weight = _as_optional("duality_weight", duality_weight, 0.1, least=0)

    @abstractmethod
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
        """Say what scores cost.

        :param label_smoothing: the label smoothing that the user trains with
        :param num_entities: the number of entities, for label smoothing
        :return: the objective
        """

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword-based parameters that recreate this loss."""
        names: dict[str, None] = {}
        for cls in type(self).__mro__:
            if issubclass(cls, MomentLoss) and "__init__" in vars(cls):
                parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
                names.update((p.name, None) for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        return {name: getattr(self, name) for name in names}

    def resolve(self: LossType, **weights: Any) -> LossType:
        """Return a copy with other weights."""
        loss = copy.copy(self)
        for name, weight in weights.items():
            setattr(loss, name, weight)
        return loss

    def __getstate__(self) -> dict[str, Any]:
        """Leave functions out of what is saved: a file with a model has to open where they do not exist."""
        functions = {name: value for name, value in self.kwargs.items() if callable(value)}
        return {**self.__dict__, **{name: UnsavedFunction(name, describe(value)) for name, value in functions.items()}}

    def __copy__(self: LossType) -> LossType:
        """Copy the loss, functions included."""
        loss = type(self).__new__(type(self))
        loss.__dict__.update(self.__dict__)
        return loss

    def __deepcopy__(self: LossType, memo: dict[int, Any]) -> LossType:
        """Copy the loss and its parts, functions included."""
        loss = memo[id(self)] = type(self).__new__(type(self))
        loss.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return loss

    # docstr-coverage: inherited
    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", **kwargs: Any) -> Any:  # noqa: D102
        # the parameters go into the metadata, so that a checkpoint has them, and other losses can load the state
        state = super().state_dict(*args, destination=destination, prefix=prefix, **kwargs)
        state._metadata[prefix[:-1]]["kwargs"] = self.plain_kwargs
        return state

    @property
    def plain_kwargs(self) -> dict[str, Any]:
        """The keyword-based parameters, with names in place of functions, for files and trackers."""
        return {name: describe(value) if callable(value) else value for name, value in self.kwargs.items()}

    def extra_repr(self) -> str:
        """Show the parameters. PyKEEN's checkpoints compare this text, so a changed weight is noticed."""
        return ", ".join(f"{name}={describe(value)}" for name, value in self.kwargs.items())

    # docstr-coverage: inherited
    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:  # noqa: D102
        raise NotImplementedError(
            f"{type(self).__name__} looks at all candidates of a query at once, which only this package's training loops "
            f"provide. Use training_loop='nonsamplinglcwa'."
        )


def as_exponent(weight: Any) -> Any:
    """Replace the name of an exponent with the exponent, and leave functions as they are."""
    return POPULARITY[weight] if isinstance(weight, str) else weight


def describe(value: Any) -> str:
    """Write a parameter as text that is the same in every process."""
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return repr(value)


def _as_optional(
    name: str, value: Any, example: float, above: float | None = None, least: float | None = None
) -> float | None:
    """Return ``None`` or a number in a range, and refuse anything else."""
    return None if value is None else as_number(name, value, example, above=above, least=least)


def _as_weight(name: str, weight: Any, names: Collection[str] = ()) -> Any:
    """Return ``None``, a finite number, a name or a function, and refuse anything else."""
    if weight is None or callable(weight) or (isinstance(weight, str) and weight in names):
        return weight
    others = ["a function of the numbers of triples", *map(repr, names)]
    otherwise = f", 0 for equal weights, {', '.join(others[:-1])}{', ' if names else ''}or {others[-1]}"
    if names and isinstance(weight, str):
        raise ValueError(f"{name}={weight!r} is not an exponent: use a number, e.g. {name}=0.5{otherwise}.")
    return as_number(name, weight, 0.5, otherwise=otherwise)


@parse_docdata
class NonSamplingLoss(MomentLoss):
    r"""The weighted squared loss over every triple, observed or not, from [li2021]_.

    .. math::

        L = \sum_{(h,r,t) \in \mathcal{T}} c^+ (f(h,r,t) - 1)^2 + \sum_{(h,r,t) \notin \mathcal{T}} c^- f(h,r,t)^2

    It is quadratic in the scores of negative triples, so it needs only the scores of positive triples and three moments of
    the scores over all triples, cf. :class:`~pykeen_nonsampling.objectives.SquaredObjective`. It is an ordinary loss for
    PyKEEN's sLCWA and LCWA training loops, too: there, the sums run over the triples that the loop scores.

    Negatives may weigh more or less by their head, relation and tail, e.g. by how often these occur: then $c^- w_h w_r w_t$
    takes the place of $c^-$, at no extra cost. It has the regularization by frequency of :class:`MomentLoss`.

    .. [li2021] Li, Z., *et al.* (2021) `Efficient Non-Sampling Knowledge Graph Embedding
       <https://doi.org/10.1145/3442381.3449859>`_. WWW '21.
    ---
    name: Non-sampling
    citation:
        author: Li
        year: 2021
        link: https://doi.org/10.1145/3442381.3449859
        arxiv: 2104.10796
    """

    #: The default strategy for optimizing the loss's hyper-parameters
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "negative_weight": {"type": float, "low": 1.0e-6, "high": 1.0e1, "log": True},
    }

    # all parameters by name: PyKEEN compares configurations with them
    def __init__(
        self,
        positive_weight: float = 1.0,
        negative_weight: float | None = None,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
        range_weight: float | None = None,
        head_weight: float | str | CountWeight | None = None,
        relation_weight: float | str | CountWeight | None = None,
        tail_weight: float | str | CountWeight | None = None,
        regularization_weight: float | None = None,
        regularization_power: float = 3.0,
        duality_weight: float | None = None,
        reduction: Reduction = "sum",
    ):
        r"""Initialize the loss.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param negative_weight: >0, the weight c⁻ of any other triple. There are many more of them, so it is small. If it is
            ``None``, this package's training loops derive it from graph and model; in others, it is
            :data:`NEGATIVE_WEIGHT`.
        :param query_weight: cf. :class:`MomentLoss`, as all that follow
        :param candidate_weight: likewise
        :param range_weight: likewise
        :param head_weight: likewise
        :param relation_weight: likewise
        :param tail_weight: likewise
        :param regularization_weight: likewise
        :param regularization_power: likewise
        :param duality_weight: likewise
        :param reduction: likewise
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(
            positive_weight=positive_weight,
            query_weight=query_weight,
            candidate_weight=candidate_weight,
            range_weight=range_weight,
            head_weight=head_weight,
            relation_weight=relation_weight,
            tail_weight=tail_weight,
            regularization_weight=regularization_weight,
            regularization_power=regularization_power,
            duality_weight=duality_weight,
            reduction=reduction,
        )
        self.negative_weight = _as_optional("negative_weight", negative_weight, NEGATIVE_WEIGHT, above=0)

    # docstr-coverage: inherited
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> SquaredObjective:  # noqa: D102
        labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
        return SquaredObjective(*apply_label_smoothing(labels, label_smoothing, num_entities).tolist())

    # docstr-coverage: inherited
    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.process_lcwa_scores(predictions=x, labels=target, weights=weight)

    # docstr-coverage: inherited
    def process_lcwa_scores(  # noqa: D102
        self,
        predictions: Tensor,
        labels: Tensor,
        label_smoothing: float | None = None,
        num_entities: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        used = [name for name in GRAPH_WEIGHTS if as_exponent(getattr(self, name))]
        if used:
            raise ValueError(
                f"{self} has weights that depend on the graph, which only this package's training loops use. Use "
                f"training_loop='nonsamplinglcwa', or remove {', '.join(used)}."
            )
        negative_weight = NEGATIVE_WEIGHT if self.negative_weight is None else self.negative_weight
        cost = torch.lerp(
            torch.full_like(predictions, negative_weight),
            torch.full_like(predictions, self.positive_weight),
            labels.to(predictions.dtype),
        )
        if weights is not None:
            cost = cost * weights
        labels = apply_label_smoothing(labels=labels, epsilon=label_smoothing, num_classes=num_entities)
        return self._reduction_method(squared_error(predictions, labels, cost))


@parse_docdata
class StandardizedLoss(MomentLoss):
    r"""How many standard deviations an answer scores above the negatives of its query, from [debrebisson2016]_.

    .. math::

        L = \sum_{(q,t) \in \mathcal{T}} \frac{1}{\alpha} \log\left(1 + e^{\alpha (\beta - z_{qt})}\right)
            + \gamma (f_{qt} - 1)^2
        \qquad
        z_{qt} = \frac{f_{qt} - \mu_q}{\sigma_q}

    The mean $\mu_q$ and the standard deviation $\sigma_q$ of the scores of the answer and all negatives of its query come
    from the same moments as the squared loss, and cost the same, cf.
    :class:`~pykeen_nonsampling.objectives.StandardizedObjective`. There is no weight of negatives to choose, and no target
    for them: all that counts is how far answers stand out. Since it compares the answers of a query with its negatives, this
    loss is for ``training_loop="nonsamplinglcwa"`` only.
    ---
    name: Standardized
    citation:
        author: de Brébisson
        year: 2016
        link: https://arxiv.org/abs/1604.08859
        arxiv: 1604.08859
    """

    #: The default strategy for optimizing the loss's hyper-parameters
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "margin": {"type": float, "low": 3.0, "high": 15.0, "q": 1.0},
        "sharpness": {"type": float, "low": 0.25, "high": 4.0, "log": True},
    }

    # all parameters by name: PyKEEN compares configurations with them
    def __init__(
        self,
        margin: float | None = None,
        sharpness: float | None = None,
        anchor: float | None = None,
        positive_weight: float = 1.0,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
        range_weight: float | None = None,
        head_weight: float | str | CountWeight | None = None,
        relation_weight: float | str | CountWeight | None = None,
        tail_weight: float | str | CountWeight | None = None,
        regularization_weight: float | None = None,
        regularization_power: float = 3.0,
        duality_weight: float | None = None,
        reduction: Reduction = "sum",
    ):
        r"""Initialize the loss.

        :param margin: the number β of standard deviations that answers should score above the mean negative. By default,
            it is derived from the number of entities: the more there are, the higher is the best of their scores.
        :param sharpness: >0, how abruptly the cost of an answer ends at the margin, α. By default, it depends on the model.
        :param anchor: ≥0, the weight γ of an answer's squared distance from a score of 1. With a weight of 0, vectors can
            shrink at no cost, so that regularization has no effect. By default, it depends on the model.
        :param positive_weight: >0, the weight of an observed triple
        :param query_weight: the weight of how much a query's answers stand out, relative to the anchor; otherwise cf.
            :class:`MomentLoss`, as all that follow
        :param candidate_weight: likewise
        :param range_weight: likewise
        :param head_weight: likewise
        :param relation_weight: likewise
        :param tail_weight: likewise
        :param regularization_weight: likewise
        :param regularization_power: likewise
        :param duality_weight: likewise
        :param reduction: likewise
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(
            positive_weight=positive_weight,
            query_weight=query_weight,
            candidate_weight=candidate_weight,
            range_weight=range_weight,
            head_weight=head_weight,
            relation_weight=relation_weight,
            tail_weight=tail_weight,
            regularization_weight=regularization_weight,
            regularization_power=regularization_power,
            duality_weight=duality_weight,
            reduction=reduction,
        )
        self.margin = _as_optional("margin", margin, 9.0)
        self.sharpness = _as_optional("sharpness", sharpness, 0.5, above=0)
        self.anchor = _as_optional("anchor", anchor, 1.0, least=0)

    # docstr-coverage: inherited
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> StandardizedObjective:  # noqa: D102
        if label_smoothing:
            raise ValueError(
                f"{label_smoothing=} does not apply to {type(self).__name__}, in which negatives have no target to smooth. "
                f"Remove it, or use loss='nonsampling'."
            )
        # without a graph to derive them from
        margin = 9.0 if self.margin is None else self.margin
        sharpness = 0.5 if self.sharpness is None else self.sharpness
        anchor = 1.0 if self.anchor is None else self.anchor
        return StandardizedObjective(margin, sharpness, anchor)


class AutomaticLoss(MomentLoss):
    """Stands for the loss that suits graph and model, which the training loops put in its place.

    It is what they use if no loss is given. In the closed world, and for most graphs, that is :class:`NonSamplingLoss`; cf.
    :func:`~pykeen_nonsampling.weighting.suitable_loss`.
    """

    # docstr-coverage: inherited
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:  # noqa: D102
        raise NotImplementedError(
            f"{type(self).__name__} depends on the graph: a training loop of this package puts another loss in its place."
        )

    def become(self, loss: type[MomentLoss]) -> MomentLoss:
        """Make a loss of another class, with the same weights."""
        return loss(**self.kwargs)


def check_loss(loss: type[Loss]) -> None:
    """Refuse a loss that has no objective, so that it cannot be computed from moments.

    :param loss: the class of the loss
    :raises ValueError: if it has none
    """
    if issubclass(loss, MomentLoss):
        return
    if callable(getattr(loss, "objective", None)):
        raise ValueError(
            f"{loss.__name__} has an objective, but not the weights that go with it. Derive it from "
            f"pykeen_nonsampling.MomentLoss."
        )
    raise ValueError(
        f"{loss.__name__} cannot be used without negative sampling: of the negatives' scores, only the sum and the sum of "
        f"squares are known, so the loss must be a function of these. Use loss='nonsampling', with "
        f"loss_kwargs=dict(positive_weight=1.0, negative_weight=1.0) for the mean squared error."
    )


loss_resolver.register(AutomaticLoss)
loss_resolver.register(NonSamplingLoss)
loss_resolver.register(StandardizedLoss)
