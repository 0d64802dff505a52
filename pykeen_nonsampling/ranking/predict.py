"""The best answers to queries, found by a matrix product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pykeen.models import Model
from pykeen.predict import ScorePack, TriplePredictions
from pykeen.triples import AnyTriples, CoreTriplesFactory, TriplesFactory, get_mapped_triples
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, InductiveMode, Target
from torch import Tensor

from ..factorizations import NotDecomposableError
from ..free import check_memory_budget
from .candidates import End, Hidden, Scorer

#: More candidates than asked for that the model scores, since the last ones may differ from the next by rounding only
SPARE = 8

#: The number of features of candidates that the model scores at once
SCORED_AT_ONCE = 2**22

#: Entities or relations, by their labels or ids: one, or one for each query
Names = str | int | Sequence[str | int] | Tensor


@torch.inference_mode()
def predict_targets(
    model: Model,
    *,
    head: Names | None = None,
    relation: Names | None = None,
    tail: Names | None = None,
    triples_factory: CoreTriplesFactory | None = None,
    k: int | None = 10,
    filter_triples: AnyTriples | Sequence[AnyTriples] | None = None,
    mode: InductiveMode | None = None,
    memory_budget: int | None = None,
) -> TriplePredictions:
    r"""Find the best tails for pairs of head and relation, or the best heads for pairs of relation and tail.

    :func:`pykeen.predict.predict_target` answers one query, and scores all candidates one by one. This function answers any
    number of queries. It finds their best candidates by a matrix product, $q(h, r)^\top k(t)$, and lets the model score only
    these. So the scores are the model's own. Candidates whose scores differ by rounding only may be in any order.

    :param model: the model
    :param head: the heads, by label or id; none, to predict heads. A single one belongs to all queries.
    :param relation: the relations, in the same form
    :param tail: the tails, in the same form; none, to predict tails
    :param triples_factory: the factory of the training triples, which knows the labels. Without it, there are only ids.
    :param k: >0, the number of candidates for each query; all, if there is none
    :param filter_triples: known triples, which are not predicted: a factory, triples, or a list of these
    :param mode: the inductive mode
    :param memory_budget: >0, the number of bytes for scores. Defaults to a quarter of what is free.
    :return: the triples with their scores, query by query in their order, and from the best to the worst. The data frame
        ``.df`` has PyKEEN's columns.
    :raises ValueError: if the queries are incomplete, or have unknown labels or ids
    :raises NotDecomposableError: if the model has no factorization
    """
    check_memory_budget(memory_budget)
    if k is not None and k < 1:
        raise ValueError(f"k={k} leaves nothing to predict. Use k≥1, or k=None for all candidates.")
    if relation is None or (head is None) == (tail is None):
        raise ValueError(
            "A query is a relation with either a head or a tail. Use predict_targets(model, head=…, relation=…) to predict "
            "tails, and predict_targets(model, relation=…, tail=…) to predict heads. To predict relations, use "
            "pykeen.predict.predict_target(model, head=…, tail=…)."
        )
    target: Target = LABEL_HEAD if head is None else LABEL_TAIL
    model = model.eval()
    try:
        scorer = Scorer.of(model, mode)
    except NotDecomposableError as error:
        message = f"{error} To score candidates one by one, use pykeen.predict.predict_target(…)."
        raise NotDecomposableError(message) from error
    queries = _triples(scorer, triples_factory, head, relation, tail).to(model.device)
    known = _known(filter_triples, triples_factory).to(model.device)
    end = scorer.end(target, known)
    pairs = scorer.turn(target, queries)[:, :2]
    k = scorer.num_entities if k is None else min(k, scorer.num_entities)
    # scores, the best ones so far, and those of the next block, which have ids of 8 bytes
    columns = scorer.num_columns
    rows = scorer.num_rows(memory_budget, copies=2 + 6 * (k + SPARE) // columns)
    space = end.keys.new_empty(min(rows, len(pairs)) * columns)
    results = []
    for some, given in zip(queries.split(rows), pairs.split(rows), strict=True):
        index, answers, scores = _best(end, given, k, space)
        triples = some[index]
        triples[:, 0 if target == LABEL_HEAD else 2] = answers
        results.append((triples.cpu(), scores.cpu()))
    result, scores = (torch.cat(parts) for parts in zip(*results, strict=True))
    return ScorePack(result, scores).process(triples_factory)


def _best(end: End, pairs: Tensor, k: int, space: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best candidates of pairs of given entity and relation: the position of their pair, the entity, the score."""
    wanted = min(k + SPARE, end.scorer.num_entities)
    hidden = Hidden(*end.side.index.lookup(pairs))
    best, entities = end.keys.new_empty(len(pairs), 0), pairs.new_empty(len(pairs), 0)
    for candidates, scores in end.scores(end.queries(pairs), out=space):
        hidden.hide(scores, candidates)
        values, columns = scores.topk(min(wanted, scores.shape[1]), dim=1)
        best, entities = torch.cat([best, values], dim=1), torch.cat([entities, columns + candidates.start], dim=1)
        best, order = best.topk(min(wanted, best.shape[1]), dim=1)
        entities = entities.gather(1, order)
    scores = _score(end, pairs, entities).masked_fill_(best == -torch.inf, -torch.inf)
    scores, order = scores.topk(k, dim=1)
    index, column = (scores > -torch.inf).nonzero(as_tuple=True)
    return index, entities.gather(1, order)[index, column], scores[index, column]


def _score(end: End, pairs: Tensor, entities: Tensor) -> Tensor:
    """Let the model score candidates of their own for each pair, shape: (len(pairs), number of candidates)."""
    model, mode = end.scorer.model, end.scorer.mode
    rows = max(1, SCORED_AT_ONCE // (entities.shape[1] * end.keys.shape[1]))
    scores = []
    for given, candidates in zip(pairs.split(rows), entities.split(rows), strict=True):
        if end.side.target == LABEL_HEAD:
            scores.append(model.score_h(rt_batch=given.flip(1), heads=candidates, mode=mode))
        else:
            scores.append(model.score_t(hr_batch=given, tails=candidates, mode=mode))
    result = torch.cat(scores)
    return result.sigmoid() if model.predict_with_sigmoid else result


def _known(triples: Any, factory: CoreTriplesFactory | None) -> Tensor:
    """Collect known triples."""
    if triples is None:
        return torch.empty(0, 3, dtype=torch.long)
    is_list = isinstance(triples, (list, tuple)) and not (triples and isinstance(triples[0], (str, list, tuple)))
    parts = [get_mapped_triples(part, factory=factory) for part in (triples if is_list else [triples])]
    return torch.cat([part.cpu() for part in parts]) if parts else torch.empty(0, 3, dtype=torch.long)


def _triples(scorer: Scorer, factory: CoreTriplesFactory | None, head: Any, relation: Any, tail: Any) -> Tensor:
    """Translate queries to triples of ids, with 0 for what is to be predicted."""
    model, labels = scorer.model, factory if isinstance(factory, TriplesFactory) else None
    entities = ("entity", scorer.num_entities, labels and labels.entity_to_id)
    relations = ("relation", model.num_real_relations, labels and labels.relation_to_id)
    columns = [
        _ids(names, name, *what)
        for name, names, what in (("head", head, entities), ("relation", relation, relations), ("tail", tail, entities))
    ]
    lengths = {len(column) for column in columns if len(column) != 1}
    if len(lengths) > 1:
        raise ValueError(
            f"There are {' and '.join(map(str, sorted(lengths)))} parts of queries, which do not go together. Give as many "
            f"relations as entities, or a single one for all queries."
        )
    size = lengths.pop() if lengths else 1
    return torch.stack([column.expand(size) for column in columns], dim=1)


def _ids(names: Any, name: str, kind: str, number: int, labels: Mapping[str, int] | None) -> Tensor:
    """Translate labels to ids, and check these."""
    if names is None:
        return torch.zeros(1, dtype=torch.long)
    names = [names] if isinstance(names, (str, int)) else names.tolist() if isinstance(names, Tensor) else list(names)
    for x in names:
        if isinstance(x, str):
            if labels is None:
                raise ValueError(f"{name}={x!r} is a label, which only a factory knows. Use triples_factory=…, or an id.")
            if x not in labels:
                raise ValueError(
                    f"The triples factory has no {kind} {x!r}. Use one of the labels in "
                    f"triples_factory.{kind}_to_id, e.g. {next(iter(labels), None)!r}."
                )
        elif not 0 <= x < number:
            raise ValueError(f"There is no {kind} with the id {x}: ids range from 0 to {number - 1}.")
    return torch.as_tensor([labels[x] if labels and isinstance(x, str) else x for x in names], dtype=torch.long)
