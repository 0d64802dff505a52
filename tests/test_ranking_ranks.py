"""Ranks equal those that are counted one by one, with exact ties."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import make_factory
from pykeen.models import DistMult
from torch import Tensor

from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.ranking import candidates, ranks
from pykeen_nonsampling.ranking.candidates import Scorer
from pykeen_nonsampling.ranking.ranks import Ranking

NUM_ENTITIES, NUM_RELATIONS = 12, 2


class Progress:
    """Counts the triples that are done."""

    def __init__(self) -> None:
        self.done = 0

    def update(self, n: int) -> None:
        self.done += n


def draw_triples(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    highs = NUM_ENTITIES, NUM_RELATIONS, NUM_ENTITIES
    return torch.stack([torch.randint(high, (n,), generator=generator) for high in highs], dim=1)


@pytest.fixture(scope="module")
def model() -> DistMult:
    """Make a model whose scores are small integers, so that many are exactly the same."""
    factory = make_factory(draw_triples(5, seed=0).tolist(), NUM_ENTITIES, NUM_RELATIONS)
    made = DistMult(triples_factory=factory, embedding_dim=3, random_seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for x in made.parameters():
            x.copy_(torch.randint(-1, 2, x.shape, generator=generator))
    return made


def count(model: Any, target: str, triples: Tensor, known: Tensor | None, excluded: Tensor | None) -> list[list[int]]:
    """Count, for each triple, the candidates that score higher than its answer, the others that tie, and all of them."""
    e, r = (x[0](indices=None).long().tolist() for x in (model.entity_representations, model.relation_representations))

    def score(h: int, rel: int, t: int) -> int:
        return sum(a * b * c for a, b, c in zip(e[h], r[rel], e[t], strict=True))

    facts = set() if known is None else set(map(tuple, known.tolist()))
    counts = []
    for h, rel, t in triples.tolist():
        larger = equal = options = 0
        for candidate in range(NUM_ENTITIES):
            other = (candidate, rel, t) if target == "head" else (h, rel, candidate)
            itself = other == (h, rel, t)
            if not itself and ((excluded is not None and excluded[candidate]) or other in facts):
                continue
            options += 1
            larger += score(*other) > score(h, rel, t)
            equal += not itself and score(*other) == score(h, rel, t)
        counts.append([larger, equal, options])
    return counts


@pytest.mark.parametrize("target", ["head", "tail"])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize(("rows", "columns", "settled"), [(1, 1, 1), (7, 5, 2), (1000, 512, 64)], ids=str)
def test_are_those_of_the_definition(
    model: DistMult,
    target: Any,
    filtered: bool,
    restricted: bool,
    rows: int,
    columns: int,
    settled: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "CACHED_COLUMNS", columns)
    monkeypatch.setattr(ranks, "SETTLED_ROWS", settled)
    triples = draw_triples(40, seed=2)
    known = torch.cat([triples, draw_triples(60, seed=3)]) if filtered else None
    excluded = None
    if restricted:
        # answers are among those that count, as PyKEEN sees to
        excluded = torch.zeros(NUM_ENTITIES, dtype=torch.bool)
        excluded[[1, 4, 5]] = True
        triples = triples[~excluded[triples[:, [0, 2]]].any(dim=1)]
    scorer = Scorer.of(model)
    end = scorer.end(target, triples[:0] if known is None else known)
    ranking = Ranking(end, scorer.turn(target, triples), filtered, excluded, Group())
    progress = Progress()
    with torch.inference_mode():
        result = ranking.run(rows, progress)
    assert progress.done == len(triples) > 15
    larger, equal, options = torch.tensor(count(model, target, triples, known, excluded)).unbind(dim=1)
    assert (equal > 0).sum() > len(triples) / 4, "too few ties to test them"
    assert torch.equal(result.optimistic, 1 + larger)
    assert torch.equal(result.pessimistic, 1 + larger + equal)
    assert torch.equal(result.realistic, 1 + larger + equal / 2)
    assert torch.equal(result.number_of_options, options)


def test_no_triples(model: DistMult) -> None:
    triples, scorer = draw_triples(0, seed=0), Scorer.of(model)
    ranking = Ranking(scorer.end("tail", triples), triples, False, None, Group())
    assert ranking.run(10, Progress()).optimistic.shape == (0,)
