"""The weights of triples, queries and candidates: from the parameters of a loss to tensors."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pykeen.triples.weights import LossWeighter
from torch import Tensor

from ..factorizations.moments import Weights
from ..graph.frequencies import Frequencies
from ..graph.index import TripleIndex
from ..graph.sides import Side, SideWeights
from .base import FactorizedLoss, UnsavedFunction, as_exponent, describe


def _check_negatives(
    loss: FactorizedLoss, dtype: torch.dtype, positives: Tensor | float, *factors: Tensor | float | None
) -> None:
    """Refuse weights of negatives that leave nothing of positives in the precision of the model, or are all 0.

    :param loss: the loss
    :param dtype: the data type of the model
    :param positives: the weights of positives
    :param factors: the factors of which the weights of negatives are the product
    :raises ValueError: if the largest product is too large, or 0
    """
    if loss.weighs_queries:
        positives = 1.0
    negative, positive = math.prod(map(_largest, factors)), _largest(positives)
    if negative > 0 and negative * torch.finfo(dtype).eps <= positive:
        return
    names = ["negative_weight", "query_weight", "candidate_weight", "head_weight", "relation_weight", "tail_weight"]
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


def weigh_triples(loss: FactorizedLoss, frequencies: Frequencies, dtype: torch.dtype) -> Weights:
    """Weigh all triples by their head, relation and tail.

    :param loss: the loss
    :param frequencies: what occurs in the training triples
    :param dtype: the data type of weights
    :return: the weights
    """
    return Weights(
        _by_count("head_weight", loss.head_weight, frequencies.heads.to(dtype)),
        _by_count("relation_weight", loss.relation_weight, frequencies.relations.to(dtype)),
        _by_count("tail_weight", loss.tail_weight, frequencies.tails.to(dtype)),
    )


def weigh_closed_world(
    loss: FactorizedLoss,
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
    for name in ("query_weight", "candidate_weight"):
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
    loss: FactorizedLoss,
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
    queries: Tensor | float = _given(loss.negative_weight)
    if loss.query_weight:
        queries = queries * _weigh("query_weight", loss.query_weight, counts, entities, relations, counts)
    if given is not None:
        queries = queries * given[entities]
    if weights.relations is not None:
        queries = queries * weights.relations[relations]
    positives: Tensor | float = loss.positive_weight
    if weighter is not None:
        whole = _weigh_queries(weighter, side).to(dtype)
        queries = queries * whole
        if not loss.weighs_queries:
            positives = positives * whole[index.query_index]
    answered = side.ends(frequencies.heads, frequencies.tails)[1].to(dtype)
    candidates = _by_count("candidate_weight", loss.candidate_weight, answered)
    if answers is not None:
        candidates = answers if candidates is None else answers * candidates
    by_answer: Tensor | float = 1.0 if candidates is None else candidates[index.answers]
    _check_negatives(loss, dtype, positives, queries, candidates)
    return SideWeights(positives, queries, candidates, by_answer)


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
