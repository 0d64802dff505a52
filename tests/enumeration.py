"""Scores and losses by their definition: a triple at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from pykeen.models import ERModel
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter
from torch import Tensor

from pykeen_nonsampling import Factorization, FactorizedLoss, NonSamplingLoss
from pykeen_nonsampling.factorizations.features import features
from pykeen_nonsampling.losses import as_exponent


def all_triples(num_entities: int, num_relations: int) -> Tensor:
    """Enumerate all triples."""
    return torch.cartesian_prod(torch.arange(num_entities), torch.arange(num_relations), torch.arange(num_entities))


def enumerated_scores(model: ERModel, factorization: Factorization, own: bool = False) -> Tensor:
    """Score all triples, one by one, by the model's own interaction; shape: (num_entities, num_relations, num_entities).

    Unless told otherwise, these are mapped to the factorized scores.
    """
    h, r, t = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
    entities = [representation(indices=None)[: model.num_entities] for representation in model.entity_representations]
    relations = [representation(indices=None) for representation in model.relation_representations]
    hh, rr, tt = (
        [x[indices] for x in xs]
        for indices, xs in (
            (h, [entities[i] for i in model.interaction.head_indices]),
            (r, relations),
            (t, [entities[i] for i in model.interaction.tail_indices]),
        )
    )
    scores = model.interaction(*(x[0] if len(x) == 1 else tuple(x) for x in (hh, rr, tt)))
    scores = scores if own else factorization.transform(scores)
    return scores.view(model.num_entities, model.num_relations, model.num_entities)


def enumerated_weights(name: str, loss: FactorizedLoss, ids: Tensor, size: int) -> Tensor:
    """Weigh entities or relations by their numbers of triples, as the loss says."""
    counts = torch.tensor([sum(i == x for i in ids.tolist()) for x in range(size)], dtype=torch.double)
    weight = as_exponent(getattr(loss, name))
    if weight is None:
        return torch.ones_like(counts)
    weights = weight(counts) if callable(weight) else (1 + counts) ** weight
    return weights / weights.mean()


def enumerated_loss(
    model: ERModel,
    factory: CoreTriplesFactory,
    factorization: Factorization,
    loss: NonSamplingLoss,
    label_smoothing: float = 0.0,
    weighter: LossWeighter | None = None,
) -> Tensor:
    """Compute the loss by its definition, over all triples, one by one."""
    scores = enumerated_scores(model, factorization)
    observed = factory._add_inverse_triples_if_necessary(factory.mapped_triples).unique(dim=0)
    h, r, t = observed.unbind(dim=-1)
    labels = torch.zeros_like(scores)
    w_h, w_r, w_t = (
        enumerated_weights(f"{name}_weight", loss, ids, size)
        for name, ids, size in zip(("head", "relation", "tail"), (h, r, t), scores.shape, strict=True)
    )
    weights = require(loss.negative_weight) * w_h[:, None, None] * w_r[:, None] * w_t
    labels[h, r, t] = 1.0
    weights[h, r, t] = loss.positive_weight
    if weighter is not None:
        weights[h, r, t] *= weighter.weight_triples(observed)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + (1 - labels) * label_smoothing / (model.num_entities - 1)
    costs = weights * (scores - labels).square()
    total = costs.sum() + enumerated_regularization(model, observed, loss)
    total = total + enumerated_duality(model, observed, factorization, loss, ["tail"])
    if loss.reduction == "mean":
        total = total / costs.numel()
    return total + model.collect_regularization_term()


def enumerated_regularization(model: ERModel, observed: Tensor, loss: FactorizedLoss) -> Tensor | float:
    """Compute the norms of the vectors of observed triples, one by one."""
    if not loss.regularization_weight:
        # a representation's own regularizer would count each call
        return 0.0
    entities, relations = (
        [representation(indices=None) for representation in representations]
        for representations in (model.entity_representations, model.relation_representations)
    )
    vectors = [x[i] for h, r, t in observed.tolist() for xs, i in ((entities, h), (relations, r), (entities, t)) for x in xs]
    return (
        require(loss.regularization_weight)
        * torch.stack([x.abs().pow(loss.regularization_power).sum() for x in vectors]).sum()
    )


def enumerated_duality(
    model: ERModel, observed: Tensor, factorization: Factorization, loss: FactorizedLoss, targets: Sequence[str]
) -> Tensor | float:
    """Compute the norms of queries and answers of observed triples, one by one."""
    if not loss.duality_weight:
        return 0.0
    heads, relations, tails = features(model, factorization)
    norms = []
    for h, r, t in observed.tolist():
        r = r if len(relations) > 1 else 0
        x, y, z = heads[h : h + 1], relations[r : r + 1], tails[t : t + 1]
        for target in targets:
            form = factorization.form
            query, answer = (form.queries(x, y), z) if target == "tail" else (form.reverse.queries(z, y), x)
            norms += [query.square().sum(), answer.square().sum()]
    return loss.duality_weight * torch.stack(norms).sum()


def require(x: float | None) -> float:
    assert x is not None
    return x


def enumerated_queries(
    model: ERModel,
    factory: CoreTriplesFactory,
    factorization: Factorization,
    loss: FactorizedLoss,
    cost: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor],
    targets: Sequence[str] = ("tail", "head"),
    weighter: LossWeighter | None = None,
) -> Tensor:
    """Compute the local closed-world loss by its definition: a query at a time, its candidates one by one.

    The cost of a query is a function of the scores of all candidates, which of them are answers, their weights as answers,
    the weight of the query's negatives, and the weights of candidates as negatives.
    """
    own = loss.needs_scores and not getattr(factorization, "squared", False)
    scores = enumerated_scores(model, factorization, own)
    observed = factory._add_inverse_triples_if_necessary(factory.mapped_triples).unique(dim=0)
    labels = torch.zeros_like(scores)
    labels[observed.unbind(dim=-1)] = 1.0
    by_entity = {
        0: enumerated_weights("head_weight", loss, observed[:, 0], model.num_entities),
        2: enumerated_weights("tail_weight", loss, observed[:, 2], model.num_entities),
    }
    by_relation = enumerated_weights("relation_weight", loss, observed[:, 1], model.num_relations)
    costs = []
    for target in targets:
        given, column = (2, 0) if target == "head" else (0, 2)
        candidates = enumerated_weights("candidate_weight", loss, observed[:, column], model.num_entities)
        for entity, relation in observed[:, [given, 1]].unique(dim=0).tolist():
            where = (slice(None), relation, entity) if target == "head" else (entity, relation)
            n = labels[where].sum()
            if callable(loss.query_weight):
                weight = loss.query_weight(torch.tensor([entity]), torch.tensor([relation]), n[None])[0]
            else:
                weight = n ** require(loss.query_weight)
            weight = require(loss.negative_weight) * weight * by_entity[given][entity] * by_relation[relation]
            positive_weights = torch.full_like(scores[where], loss.positive_weight)
            if weighter is not None:
                e, r = torch.tensor(entity), torch.tensor(relation)
                whole = weighter(h=None, r=r, t=e) if target == "head" else weighter(h=e, r=r, t=None)
                weight = weight * whole
                if not loss.weighs_queries:
                    positive_weights = positive_weights * whole
            weights = candidates * by_entity[column]
            costs.append(cost(scores[where], labels[where] == 1, positive_weights, weight, weights))
    total = torch.stack(costs).sum() + len(targets) * enumerated_regularization(model, observed, loss)
    total = total + enumerated_duality(model, observed, factorization, loss, targets)
    if loss.reduction == "mean":
        total = total / (len(costs) * model.num_entities)
    return total + model.collect_regularization_term()


def squared_cost(
    scores: Tensor,
    positive: Tensor,
    positive_weights: Tensor,
    query_weight: Tensor,
    candidate_weights: Tensor,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute the squared cost of one query."""
    labels = positive.to(scores.dtype)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + (1 - labels) * label_smoothing / (len(scores) - 1)
    weights = torch.where(positive, positive_weights, query_weight * candidate_weights)
    return (weights * (scores - labels).square()).sum()


def softmax_cost(
    scores: Tensor,
    positive: Tensor,
    positive_weights: Tensor,
    query_weight: Tensor,
    candidate_weights: Tensor,
    *,
    scale: float = 1.0,
    filtered: bool = False,
) -> Tensor:
    """Compute the cross-entropy of one query: each answer among all candidates, or among the negatives."""
    costs = []
    for answer in positive.nonzero().squeeze(dim=-1):
        among = ~positive if filtered else torch.ones_like(positive)
        among[answer] = True
        # all exponents relative to the answer
        sum_of_all = (candidate_weights[among] * (scale * (scores[among] - scores[answer])).exp()).sum()
        costs.append(positive_weights[answer] * sum_of_all.log())
    return query_weight * torch.stack(costs).mean()


def enumerated_local_loss(
    model: ERModel,
    factory: CoreTriplesFactory,
    factorization: Factorization,
    loss: NonSamplingLoss,
    targets: Sequence[str] = ("tail", "head"),
    label_smoothing: float = 0.0,
    weighter: LossWeighter | None = None,
) -> Tensor:
    """Compute the squared local closed-world loss by its definition."""
    cost = partial(squared_cost, label_smoothing=label_smoothing)
    return enumerated_queries(model, factory, factorization, loss, cost, targets, weighter)
