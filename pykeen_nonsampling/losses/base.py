"""What all losses have in common: the weights of triples, and regularization."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch
from pykeen.losses import PointwiseLoss, Reduction
from torch import Tensor
from typing_extensions import override

from ..factorizations.base import Family
from ..validation import as_number
from .constants import constant
from .objective import AnyObjective

if TYPE_CHECKING:
    from ..graph.batches import Batch

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

LossType = TypeVar("LossType", bound="FactorizedLoss")


class Numbers(Protocol):
    """The numbers of a graph that default weights follow from."""

    @property
    def num_entities(self) -> int:
        """The number of entities."""

    @property
    def num_relations(self) -> int:
        """The number of relations."""

    @property
    def num_triples(self) -> int:
        """The number of triples to train on."""

    @property
    def density(self) -> float:
        """The number of triples per entity, without inverse ones."""

    @property
    def most_answers(self) -> int:
        """The largest number of answers of a query."""

    @property
    def inverse(self) -> bool:
        """Whether half of the triples are the inverse ones of the others."""

    @property
    def is_divided(self) -> bool:
        """Whether the entities are divided among processes."""


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


class FactorizedLoss(PointwiseLoss, ABC):
    r"""A loss over all candidates of a factorized score, as defined by its objective.

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

    .. [lacroix2018] Lacroix, T., *et al.* (2018) `Canonical Tensor Decomposition for Knowledge Base Completion
       <https://arxiv.org/abs/1806.07297>`_. ICML '18.
    .. [zhang2020] Zhang, Z., Cai, J., and Wang, J. (2020) `Duality-Induced Regularizer for Tensor Factorization Based
       Knowledge Graph Completion <https://arxiv.org/abs/2011.05816>`_. NeurIPS '20.
    """

    #: The weight c⁻ of a negative; a loss may have it as a parameter
    negative_weight: float | None = 1.0

    #: Whether the objective sees every score, and not only moments of them
    needs_scores: ClassVar[bool] = False

    #: Whether the weight of an answer is that of its whole query, negatives included
    weighs_queries: ClassVar[bool] = False

    #: How far from its default a weight is searched: the factors of the lower and the upper end of the range
    hpo_factors: ClassVar[Mapping[str, tuple[float, float]]] = {
        "regularization_weight": (1 / 10, 4),
        "duality_weight": (1 / 10, 4),
    }

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Name all parameters of a constructor that passes some on: PyKEEN compares configurations with its signature."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__.__signature__ = _whole_signature(cls)  # type: ignore[attr-defined]

    def __init__(
        self,
        positive_weight: float = 1.0,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
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
        :param head_weight: the weight of a negative by its head, in addition to c⁻ and under either assumption: an exponent,
            its name or a function as for ``candidate_weight``, of the number of triples that an entity is the head of. By
            default, all have the same weight.
        :param relation_weight: the same by its relation
        :param tail_weight: the same by its tail
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
        self.head_weight = _as_weight("head_weight", head_weight, POPULARITY)
        self.relation_weight = _as_weight("relation_weight", relation_weight, POPULARITY)
        self.tail_weight = _as_weight("tail_weight", tail_weight, POPULARITY)
        self.regularization_weight = as_optional("regularization_weight", regularization_weight, 0.03, least=0)
        self.regularization_power = as_number("regularization_power", regularization_power, 3.0, least=1)
        self.duality_weight = as_optional("duality_weight", duality_weight, 0.1, least=0)

    @abstractmethod
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> AnyObjective:
        """Say what scores cost.

        :param label_smoothing: the label smoothing that the user trains with
        :param num_entities: the number of entities, for label smoothing
        :return: the objective
        """

    def batch_objective(
        self, batch: Batch, num_scores: float, label_smoothing: float = 0.0, num_entities: int | None = None
    ) -> tuple[AnyObjective, float]:
        """Say what the scores of a batch cost.

        :param batch: the batch
        :param num_scores: the number of its scores
        :param label_smoothing: the label smoothing that the user trains with
        :param num_entities: the number of entities, for label smoothing
        :return: the objective, and what its sum over the batch is divided by for a mean
        """
        return self.objective(label_smoothing, num_entities), num_scores

    def default_weights(
        self, graph: Numbers, family: Family, closed_world: bool, num_features: float = math.inf
    ) -> dict[str, float]:
        """Derive weights from graph and model.

        :param graph: the numbers of the graph
        :param family: the family of the model's factorization
        :param closed_world: whether all triples are summed, and not the candidates of observed queries
        :param num_features: the number of features of an entity, if it is known
        :return: all weights, by the names of parameters
        """
        if closed_world:
            share = graph.num_triples / (graph.num_entities**2 * graph.num_relations)
            return {
                "negative_weight": self.positive_weight * min(1.0, constant("mass of all triples", family) * share),
                **self._default_regularization(constant("regularization in the closed world", family)),
            }
        mass = min(
            constant("mass of a query's candidates", family),
            constant("mass per feature", family) * num_features,
            constant("mass on a sparse graph", family) * graph.density ** constant("exponent of triples per entity", family),
        )
        exponent = constant("exponent of queries", family)
        negative_weight = self.positive_weight * min(1.0, mass / graph.num_entities)
        # small graphs suffer from negatives that weigh more than positives, so the exponent is limited to avoid that
        if graph.most_answers > 1:
            ratio = self.positive_weight / (self.negative_weight or negative_weight)
            exponent = min(exponent, max(0.0, math.log(ratio) / math.log(graph.most_answers)))
        # if the user sets weights for entities, no others are added
        by_entity = self.tail_weight if self.head_weight is None else self.head_weight
        return {
            "negative_weight": negative_weight,
            "query_weight": exponent,
            "candidate_weight": constant("exponent of candidates", family) if by_entity is None else 0.0,
            **self._default_regularization(constant("regularization", family), constant("duality", family)),
        }

    def _default_regularization(self, by_frequency: float, by_query: float = 0.0) -> dict[str, float]:
        """Derive the weights of regularization. If the user sets one of them, the other is not added."""
        return {
            "regularization_weight": 0.0 if self.duality_weight else by_frequency,
            "duality_weight": by_query if self.regularization_weight is None else 0.0,
        }

    def hpo_ranges(self, defaults: Mapping[str, float], more: Mapping[str, Any]) -> dict[str, Any]:
        """Derive what to search.

        Weights are searched around their defaults, and those that are 0 by default not at all. Negatives never weigh more
        than positives.

        :param defaults: the default weights, cf. :meth:`default_weights`
        :param more: what to search in addition to ``hpo_default``
        :return: the ranges, in PyKEEN's format
        """
        ranges: dict[str, Any] = {**getattr(type(self), "hpo_default", {}), **more}
        for name, (low, high) in self.hpo_factors.items():
            if not defaults.get(name):
                ranges.pop(name, None)
                continue
            most = self.positive_weight if name == "negative_weight" else math.inf
            scale = {"log": True} if ranges.get(name, {"log": True}).get("log") else {}
            ranges[name] = {"type": float, "low": low * defaults[name], "high": min(high * defaults[name], most), **scale}
        return ranges

    def check_precision(self, dtype: torch.dtype) -> None:
        """Refuse parameters that leave nothing of other terms in the precision of the model.

        Weights of negatives are not among them: they depend on the graph, and are checked when it is known.

        :param dtype: the data type of the model
        :raises ValueError: if a parameter is too large or too small
        """
        limits, positive = torch.finfo(dtype), self.positive_weight
        if not limits.tiny**0.5 < positive < limits.max**0.5:
            raise ValueError(
                f"positive_weight={positive:g} is too {'large' if positive > 1 else 'small'}: gradients grow with it, and "
                f"the squares that optimizers take of them do not fit into {dtype}. Use e.g. positive_weight=1.0, and other "
                f"weights relative to it."
            )
        for name in ("regularization_weight", "duality_weight"):
            size = getattr(self, name)
            if size is not None and size * limits.eps > positive:
                raise ValueError(
                    f"{name}={size:g} swamps positive_weight={positive:g} in {str(dtype).removeprefix('torch.')}. Use a "
                    f"value closer to 1, or leave it out: it is then derived from graph and model."
                )

    @property
    def name(self) -> str:
        """The name of the class that the user has chosen."""
        return type(self).__name__

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword-based parameters that recreate this loss."""
        names: dict[str, None] = {}
        for cls in type(self).__mro__:
            if issubclass(cls, FactorizedLoss) and "__init__" in vars(cls):
                parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
                names.update((p.name, None) for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        return {name: getattr(self, name) for name in names}

    def replace(self: LossType, **weights: Any) -> LossType:
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

    @override
    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", **kwargs: Any) -> Any:
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

    @override
    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        raise NotImplementedError(
            f"{type(self).__name__} looks at all candidates of a query at once, which only this package's training loops "
            f"provide. Use training_loop='nonsamplinglcwa'."
        )


def _whole_signature(cls: type[FactorizedLoss]) -> inspect.Signature:
    """Put the parameters of a parent's constructor in the place of ``**kwargs``."""
    own = inspect.signature(cls.__init__)
    if not any(x.kind is x.VAR_KEYWORD for x in own.parameters.values()):
        return own
    inherited = inspect.signature(super(cls, cls).__init__).parameters
    named = {name: x for name, x in own.parameters.items() if x.kind is not x.VAR_KEYWORD}
    more = [x.replace(kind=x.KEYWORD_ONLY) for name, x in inherited.items() if name not in named]
    return own.replace(parameters=[*named.values(), *more])


def as_exponent(weight: Any) -> Any:
    """Replace the name of an exponent with the exponent, and leave functions as they are."""
    return POPULARITY[weight] if isinstance(weight, str) else weight


def describe(value: Any) -> str:
    """Write a parameter as text that is the same in every process."""
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return repr(value)


def as_optional(
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
