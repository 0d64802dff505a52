"""The weights of triples, queries and candidates: from the parameters of a loss to tensors, and their defaults.

No other module knows a default weight of the training loops.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pykeen.triples.weights import LossWeighter
from torch import Tensor

from ..factorizations import Family
from ..factorizations.moments import Weights
from ..graph.frequencies import Frequencies
from ..graph.index import TripleIndex
from ..graph.sides import Ranges, Side, SideWeights
from . import MomentLoss, NonSamplingLoss, StandardizedLoss, UnsavedFunction, as_exponent, describe

#: The parts of a triple
PARTS = ("head", "relation", "tail")

#: The constants behind default weights: for any model, and for families of factorizations that have others
CONSTANTS: Mapping[str, Mapping[Family | None, float]] = {
    # the total weight of a query's candidates if it has one positive, relative to that positive. No score of unit vectors
    # is far from 1/3, so for distances the sum over all candidates is large, no matter what is learned.
    "mass of a query's candidates": {None: 100.0, Family.SQUARED_DISTANCE: 10.0},
    # the same per feature of a candidate, if that is less: with few features, even unrelated vectors have large products, so
    # that answers would hardly score more than 0
    "mass per feature": {None: 0.5, Family.SQUARED_DISTANCE: math.inf},
    # the same on a graph with one triple per entity, if that is less: distances between entities that occur in few triples
    # should follow from these, and not from all the candidates that they are kept away from
    "mass on a sparse graph": {None: math.inf, Family.SQUARED_DISTANCE: 0.5},
    # the exponent by which that grows with the number of triples per entity
    "exponent of triples per entity": {None: 1.25},
    # the total weight of all triples in the closed world, relative to all positives
    "mass of all triples": {None: 20.0, Family.SQUARED_DISTANCE: 3.0},
    # the exponent of the number of a query's positives, unless negatives would weigh more than positives
    "exponent of queries": {None: 0.5},
    # the exponent of the number of triples that a candidate is the answer to
    "exponent of candidates": {None: 0.25, Family.SQUARED_DISTANCE: 0.5},
    # the exponent of the number of entities by that of the range of a query's relation, for candidates in that range
    "exponent of ranges": {None: 0.0},
    # the weight of a triple's vectors, relative to its score; for distances, the lengths of vectors are meaningful
    "regularization": {None: 0.05, Family.SQUARED_DISTANCE: 0.0, Family.FULL_MATRIX: 0.0},
    "regularization in the closed world": {None: 0.03, Family.SQUARED_DISTANCE: 0.0},
    # the weight of a triple's query and answer, likewise: it takes the place of the vectors if relations are full matrices
    "duality": {None: 0.0, Family.FULL_MATRIX: 0.12},
    # the standardized loss, whose answers should stand out by this many standard deviations, times log |E|
    "margin": {None: 0.8, Family.SQUARED_DISTANCE: 0.65},
    # how abruptly its cost ends there; if answers may stand out more and more, models with many dimensions overfit
    "sharpness": {None: 2.0},
    # the weight of its anchor, relative to how far answers stand out
    "anchor": {None: 5.0, Family.SQUARED_DISTANCE: 3.0},
    # the weight of a triple's vectors, relative to how far its answer stands out
    "regularization of the standardized loss": {None: 0.35, Family.SQUARED_DISTANCE: 0.0},
    # the graphs that it suits have at least so many triples per entity,
    "triples per entity": {None: 10.0, Family.SQUARED_DISTANCE: 3.0, Family.TRANSLATION: 0.0},
    # and numbers of entities from this
    "fewest entities": {None: 500.0, Family.SQUARED_DISTANCE: 50.0, Family.TRANSLATION: 10.0},
    # to that; if relations are full matrices, regularization by query and answer does more for the squared loss
    "most entities": {
        None: 5000.0,
        Family.FULL_MATRIX: 0.0,
        Family.SQUARED_DISTANCE: math.inf,
        Family.TRANSLATION: 500.0,
    },
}


def format_markdown() -> str:
    """Write the constants as a table in Markdown."""
    families = (Family.FULL_MATRIX, Family.SQUARED_DISTANCE, Family.TRANSLATION)
    lines = ["| constant | any model | full matrices | squared distances | translations |", "|---|---|---|---|---|"]
    for name, values in CONSTANTS.items():
        cells = " | ".join(f"{constant(name, family):g}" for family in families)
        lines.append(f"| {name} | {values[None]:g} | {cells} |")
    return "\n".join(lines)


def constant(name: str, family: Family) -> float:
    """Look up a constant for a family of factorizations, or for the one that it is part of, or for any model."""
    values = CONSTANTS[name]
    return values.get(family, values.get(family.parent, values[None]))


def suitable_loss(frequencies: Frequencies, family: Family) -> type[MomentLoss]:
    """Choose a loss for the local closed world, if the user leaves it open.

    :param frequencies: what occurs in the training triples
    :param family: the family of the model's factorization
    :return: the standardized loss for distances, unless there are only a few entities or triples, or, for translations, many
        entities; and for graphs of medium size with many triples per entity, unless relations are full matrices; otherwise,
        the squared one
    """
    return choose_loss(frequencies.num_entities, frequencies.density, family)


def choose_loss(num_entities: int, density: float, family: Family) -> type[MomentLoss]:
    """Do the same from the numbers of entities, and of triples per entity."""
    dense = density >= constant("triples per entity", family)
    few, many = constant("fewest entities", family), constant("most entities", family)
    return StandardizedLoss if dense and few <= num_entities <= many else NonSamplingLoss


def closed_world_defaults(loss: MomentLoss, frequencies: Frequencies, family: Family) -> dict[str, float]:
    """Derive weights for the closed world from the graph and the model.

    :param loss: the loss, for what the user has set
    :param frequencies: what occurs in the training triples
    :param family: the family of the model's factorization
    :return: all weights, by the names of the loss's parameters
    """
    mass = constant("mass of all triples", family)
    share = frequencies.num_triples / (frequencies.num_entities**2 * frequencies.num_relations)
    return {
        "negative_weight": loss.positive_weight * min(1.0, mass * share),
        **_regularization_defaults(loss, constant("regularization in the closed world", family)),
    }


def local_closed_world_defaults(
    loss: MomentLoss, frequencies: Frequencies, family: Family, num_features: float = math.inf
) -> dict[str, float]:
    """Derive weights for the local closed world from the graph and the model.

    :param loss: the loss, for what the user has set
    :param frequencies: what occurs in the training triples
    :param family: the family of the model's factorization
    :param num_features: the number of features of an entity, if it is known
    :return: all weights, by the names of the loss's parameters
    """
    if isinstance(loss, StandardizedLoss):
        return {
            "margin": constant("margin", family) * math.log(frequencies.num_entities),
            "sharpness": constant("sharpness", family),
            "anchor": constant("anchor", family),
            "query_weight": 0.0,
            "candidate_weight": 0.0,
            "range_weight": 0.0,
            **_regularization_defaults(loss, constant("regularization of the standardized loss", family)),
        }
    mass = min(
        constant("mass of a query's candidates", family),
        constant("mass per feature", family) * num_features,
        constant("mass on a sparse graph", family)
        * frequencies.density ** constant("exponent of triples per entity", family),
    )
    exponent = constant("exponent of queries", family)
    negative_weight = loss.positive_weight * min(1.0, mass / frequencies.num_entities)
    # small graphs suffer from negatives that weigh more than positives, so the exponent is limited to avoid that
    most = frequencies.most_answers
    if most > 1:
        ratio = loss.positive_weight / (loss.negative_weight or negative_weight)
        exponent = min(exponent, max(0.0, math.log(ratio) / math.log(most)))
    # if the user sets weights for entities, no others are added
    by_entity = loss.tail_weight if loss.head_weight is None else loss.head_weight
    return {
        "negative_weight": negative_weight,
        "query_weight": exponent,
        "candidate_weight": constant("exponent of candidates", family) if by_entity is None else 0.0,
        "range_weight": constant("exponent of ranges", family),
        **_regularization_defaults(loss, constant("regularization", family), constant("duality", family)),
    }


def _regularization_defaults(loss: MomentLoss, by_frequency: float, by_query: float = 0.0) -> dict[str, float]:
    """Derive the weights of regularization. If the user sets one of them, the other is not added."""
    return {
        "regularization_weight": 0.0 if loss.duality_weight else by_frequency,
        "duality_weight": by_query if loss.regularization_weight is None else 0.0,
    }


def check_precision(loss: MomentLoss, dtype: torch.dtype) -> None:
    """Refuse parameters of a loss that leave nothing of its other terms in the precision of the model.

    Weights of negatives are not among them: they depend on the graph, and are checked when it is known.

    :param loss: the loss, with all its weights
    :param dtype: the data type of the model
    :raises ValueError: if a parameter is too large or too small
    """
    limits, positive = torch.finfo(dtype), loss.positive_weight
    if not limits.tiny**0.5 < positive < limits.max**0.5:
        raise ValueError(
            f"positive_weight={positive:g} is too {'large' if positive > 1 else 'small'}: gradients grow with it, and the "
            f"squares that optimizers take of them do not fit into {dtype}. Use e.g. positive_weight=1.0, and other weights "
            f"relative to it."
        )
    margin, sharpness = getattr(loss, "margin", None), getattr(loss, "sharpness", None)
    for name, size, what, beside in (
        ("regularization_weight", loss.regularization_weight, f"positive_weight={positive:g}", positive),
        ("duality_weight", loss.duality_weight, f"positive_weight={positive:g}", positive),
        ("anchor", getattr(loss, "anchor", None), "how far answers stand out", 1.0),
        ("margin", None if margin is None else abs(margin), "how far answers stand out", 1.0),
        ("sharpness", None if sharpness is None else 1 / sharpness, "how far answers stand out", 1.0),
    ):
        if size is not None and size * limits.eps > beside:
            raise ValueError(
                f"{name}={getattr(loss, name):g} leaves nothing of {what} after rounding to {dtype}. Use a value closer to "
                f"1, or leave it out: it is then derived from graph and model."
            )


def _check_negatives(
    loss: MomentLoss, dtype: torch.dtype, positives: Tensor | float, *factors: Tensor | float | None
) -> None:
    """Refuse weights of negatives that leave nothing of positives in the precision of the model, or are all 0.

    :param loss: the loss
    :param dtype: the data type of the model
    :param positives: the weights of positives
    :param factors: the factors of which the weights of negatives are the product
    :raises ValueError: if the largest product is too large, or 0
    """
    if isinstance(loss, StandardizedLoss):
        # there, they weigh all that an answer costs, beside its negatives and on its own
        positives = 1.0
    negative, positive = math.prod(map(_largest, factors)), _largest(positives)
    if negative > 0 and negative * torch.finfo(dtype).eps <= positive:
        return
    names = ("negative_weight", "query_weight", "candidate_weight", "range_weight", *(f"{x}_weight" for x in PARTS))
    used = [f"{x}={describe(loss.kwargs[x])}" for x in names if as_exponent(loss.kwargs.get(x))]
    raise ValueError(
        f"With {', '.join(used)}, negatives weigh up to {negative:g}, and positives up to {positive:g}: in {dtype}, one of "
        f"them leaves nothing of the other. Use weights closer to positive_weight, or leave them out: they are then derived "
        f"from graph and model."
    )


def _largest(weights: Tensor | float | None) -> float:
    """Return the largest weight; 1, if there are none."""
    if weights is None:
        return 1.0
    return float(weights.max()) if isinstance(weights, Tensor) else weights


def weigh_triples(loss: MomentLoss, frequencies: Frequencies, dtype: torch.dtype) -> Weights:
    """Weigh all triples by their head, relation and tail.

    :param loss: the loss
    :param frequencies: what occurs in the training triples
    :param dtype: the data type of weights
    :return: the weights
    """
    return Weights(
        *(
            _by_count(f"{name}_weight", getattr(loss, f"{name}_weight"), counts.to(dtype))
            for name, counts in zip(PARTS, (frequencies.heads, frequencies.relations, frequencies.tails), strict=True)
        )
    )


def weigh_closed_world(
    loss: MomentLoss,
    index: TripleIndex,
    weights: Weights,
    weighter: LossWeighter | None,
    dtype: torch.dtype,
) -> SideWeights:
    """Weigh the triples of a graph in the closed world.

    :param loss: the loss, with all its weights
    :param index: the triples, from heads to tails
    :param weights: the weights of all triples as negatives
    :param weighter: weighs positives
    :param dtype: the data type of weights
    :return: the weights
    :raises ValueError: if the loss has weights of queries or candidates
    """
    for name in ("query_weight", "candidate_weight", "range_weight"):
        value = getattr(loss, name)
        if as_exponent(value):
            raise ValueError(
                f"{name}={value} does not apply in the closed world, where all triples count and none belongs to a query. "
                f"Use head_weight, relation_weight and tail_weight, or training_loop='nonsamplinglcwa'."
            )
    positives: Tensor | float = loss.positive_weight
    if weighter is not None:
        by_triple = weighter.weight_triples(index.triples).to(dtype).expand(len(index))
        positives = positives * _check_weights(by_triple, str(weighter))
    _check_negatives(loss, dtype, positives, loss.negative_weight, weights.heads, weights.relations, weights.tails)
    answers = 1.0 if weights.are_equal else weights.of(index.triples)
    return SideWeights(positives, queries=_given(loss.negative_weight), answers=answers)


def weigh_local_closed_world(
    loss: MomentLoss,
    side: Side,
    frequencies: Frequencies,
    weights: Weights,
    weighter: LossWeighter | None,
    dtype: torch.dtype,
) -> SideWeights:
    """Weigh the triples, queries and candidates of one side in the local closed world.

    :param loss: the loss, with all its weights
    :param side: the triples, seen from the end that answers
    :param frequencies: what occurs in the training triples
    :param weights: the weights of all triples as negatives
    :param weighter: weighs queries, positives and negatives alike, as in PyKEEN's LCWA loop
    :param dtype: the data type of weights
    :return: the weights
    """
    index = side.index
    (entities, relations), counts = index.pairs.unbind(dim=-1), index.counts.to(dtype)
    given, answers = side.ends(weights.heads, weights.tails)
    queries = _given(loss.negative_weight) * _weigh("query_weight", loss.query_weight, counts, entities, relations, counts)
    if given is not None:
        queries = queries * given[entities]
    if weights.relations is not None:
        queries = queries * weights.relations[relations]
    positives: Tensor | float = loss.positive_weight
    if weighter is not None:
        whole = _weigh_queries(weighter, side).to(dtype)
        queries, positives = queries * whole, positives * whole[index.query_index]
    answered = side.ends(frequencies.heads, frequencies.tails)[1].to(dtype)
    candidates = _by_count("candidate_weight", loss.candidate_weight, answered)
    if answers is not None:
        candidates = answers if candidates is None else answers * candidates
    by_answer: Tensor | float = 1.0 if candidates is None else candidates[index.answers]
    if not loss.range_weight:
        _check_negatives(loss, dtype, positives, queries, candidates)
        return SideWeights(positives, queries, candidates, by_answer)
    offsets, members = index.range_members()
    sizes = offsets.diff()
    factors = (index.num_entities / sizes.clamp(min=1).to(dtype)).pow(loss.range_weight)
    _check_negatives(loss, dtype, positives, queries, candidates, factors)
    weights_in_range = (factors - 1).repeat_interleave(sizes)
    if candidates is not None:
        weights_in_range *= candidates[members]
    # each answer is in the range of its relation
    by_answer = by_answer * factors[relations][index.query_index]
    return SideWeights(positives, queries, candidates, by_answer, Ranges(offsets.tolist(), members, weights_in_range))


def _given(weight: float | None) -> float:
    return 1.0 if weight is None else weight


def _weigh_queries(weighter: LossWeighter, side: Side) -> Tensor:
    """Let a loss weighter weigh whole queries."""
    e, r = side.index.pairs[:, :1], side.index.pairs[:, 1:]
    h, t = side.ends(e, None)
    advice = "Use one whose weights depend on the relation and the given entity alone, e.g. RelationLossWeighter."
    try:
        weights = weighter(h=h, r=r, t=t)
    except Exception as error:
        raise ValueError(
            f"{weighter} cannot weigh all candidates of a query at once, for which it is called with {side.target}=None: "
            f"{error!r}. {advice}"
        ) from error
    if weights.numel() > 1 and weights.shape != e.shape:
        raise ValueError(
            f"{weighter} gives weights of shape {tuple(weights.shape)} for {len(e)} queries, which differ among the "
            f"candidates of a query. {advice}"
        )
    return _check_weights(weights.expand(e.shape).squeeze(dim=-1), str(weighter))


def _by_count(name: str, weight: Any, counts: Tensor) -> Tensor | None:
    """Weigh entities or relations by how often they occur, so that the mean of the weights is 1.

    :param name: the name of the loss's parameter
    :param weight: an exponent, its name, or a function of the numbers; ``None``, if all weigh the same
    :param counts: the numbers
    :return: the weights
    """
    exponent = as_exponent(weight)
    if not exponent:
        return None
    weights = _weigh(name, exponent, 1 + counts, counts)
    mean = weights.mean()
    if not 0 < mean < math.inf:
        raise ValueError(
            f"{name}={describe(weight)} gives weights up to {weights.max():g}, whose mean is {mean:g} in {mean.dtype}. Use "
            f"weights that are closer to 1."
        )
    return weights / mean


def _weigh(name: str, weight: Any, base: Tensor, *arguments: Tensor) -> Tensor:
    """Compute weights from an exponent, or with a function.

    :param name: the name of the loss's parameter
    :param weight: the exponent, or the function; ``None`` stands for an exponent of 0
    :param base: the base of the power
    :param arguments: the arguments of the function
    :return: the weights, one per number
    """
    if callable(weight):
        return _check_weights(_call(name, weight, base, arguments), f"{name}={describe(weight)}")
    exponent = weight or 0.0
    advice = f"The largest base is {base.max():g}. Use an exponent closer to 0, e.g. {name}=0.5."
    return _check_weights(base.pow(exponent), f"The exponent {name}={exponent:g}", advice)


def _call(name: str, function: Callable[..., Any], like: Tensor, arguments: Sequence[Tensor]) -> Tensor:
    """Let a function of the user compute weights, and check that it gives one per number."""
    giver, shape = f"{name}={describe(function)}", tuple(like.shape)
    try:
        weights = function(*arguments)
    except Exception as error:
        if isinstance(function, UnsavedFunction):
            raise
        raise ValueError(
            f"{giver} fails, called with {len(arguments)} tensor(s) of shape {shape}: {error!r}. It has to return a tensor "
            f"of the same shape, with one weight ≥ 0 each."
        ) from error
    if not isinstance(weights, Tensor) or weights.is_complex():
        kind = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(
            f"{giver} gives {reprlib.repr(weights)} of type {kind}, but has to return a tensor of shape {shape}, with one "
            f"weight ≥ 0 each, e.g. torch.ones_like({'positives' if name == 'query_weight' else 'counts'})."
        )
    if weights.shape != like.shape:
        raise ValueError(f"{giver} gives weights of shape {tuple(weights.shape)}, but the shape must be {shape}.")
    # weights are constants
    return weights.detach().to(like)


def _check_weights(weights: Tensor, giver: str, advice: str = "") -> Tensor:
    """Refuse weights that are not finite numbers ≥ 0, or are all 0."""
    low, high = (x.item() for x in weights.aminmax())
    if math.isfinite(high) and low >= 0 and high > 0:
        return weights
    if low == high == 0:
        raise ValueError(f"{giver} gives only zeros, but some weights have to be > 0. {advice}".rstrip())
    raise ValueError(
        f"{giver} gives weights from {low} to {high} in {weights.dtype}, but a weight must be a finite number ≥ 0. "
        f"{advice}".rstrip()
    )
