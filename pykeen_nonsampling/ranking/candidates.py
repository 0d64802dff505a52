"""Scores of all candidates of queries, by a matrix product, in blocks that fit the cache and the memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import Model
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, InductiveMode, Target
from torch import Tensor

from ..distributed.model import find_sharding
from ..factorizations import Factorization, NotDecomposableError
from ..factorizations.features import Features, Vectors, factorize_model, features, represent
from ..free import free_memory
from ..graph.index import TripleIndex
from ..graph.sides import Side

#: Rows and columns of scores computed at once on a CPU: few enough for the cache to hold them while they are looked at, and
#: enough for the matrix product. With all columns at once, it takes almost twice as long in MKL.
CACHED_ROWS, CACHED_COLUMNS = 1024, 512


@dataclass(frozen=True)
class Scorer:
    """A model with its vectors and features."""

    model: Any
    mode: InductiveMode | None
    factorization: Factorization
    vectors: Vectors
    features: Features

    @classmethod
    def of(
        cls,
        model: Model,
        mode: InductiveMode | None = None,
        factorization: HintOrType[Factorization] = None,
        factorization_kwargs: OptionalKwargs = None,
    ) -> Scorer:
        """Prepare to score with a model, which must be in evaluation mode.

        :param model: the model
        :param mode: the inductive mode
        :param factorization: the factorization, or a hint for it
        :param factorization_kwargs: additional keyword-based parameters for the factorization
        :return: the scorer
        :raises NotDecomposableError: if the model's scores are not products, or not finite ones
        """
        instance = factorize_model(model, factorization, factorization_kwargs)
        with torch.inference_mode():
            vectors = represent(model, mode=mode)
            all_features = features(model, instance, vectors=vectors)
            instance.check_head_queries(*all_features, up_to_constants=True)
        if not all(x.isfinite().all() for x in all_features):
            raise NotDecomposableError("Some of the model's features are not finite.")
        return cls(model, mode, instance, vectors, all_features)

    @property
    def num_entities(self) -> int:
        """The number of candidates, in all processes that they are divided among."""
        sharding = find_sharding(self.model)
        return len(self.features.tails) if sharding is None else sharding.num_entities

    @property
    def num_columns(self) -> int:
        """The number of candidates to score at once."""
        here = len(self.features.tails)
        return min(here, CACHED_COLUMNS) if self._on_cpu else here

    def num_rows(self, memory_budget: int | None, copies: int) -> int:
        """Determine the number of queries to score at once.

        :param memory_budget: the number of bytes for scores. Defaults to a quarter of what is free.
        :param copies: the number of matrices of the size of the scores
        :return: the number of queries
        """
        tails = self.features.tails
        budget = free_memory(tails.device) // 4 if memory_budget is None else memory_budget
        rows = budget // (copies * self.num_columns * tails.element_size())
        return max(1, min(rows, CACHED_ROWS) if self._on_cpu else rows)

    @property
    def _on_cpu(self) -> bool:
        return self.features.tails.device.type == "cpu"

    def turn(self, target: Target, triples: Tensor) -> Tensor:
        """Bring triples into the form (given entity, relation as the model knows it, answer)."""
        if self.model.use_inverse_triples:
            # PyKEEN predicts heads as tails of inverse triples
            triples = self.model.relation_inverter.map(batch=triples, index=1, invert=target == LABEL_HEAD)
        return triples.flip(1) if target == LABEL_HEAD else triples

    def end(self, target: Target, known: Tensor) -> End:
        """Prepare to score the candidates for one end of triples.

        :param target: the end
        :param known: shape: (n, 3), triples of which something is to be looked up
        :return: the end
        """
        facts = self.turn(target, known)
        index = TripleIndex(facts, self.num_entities, int(facts[:, 1].max()) + 1 if len(facts) else 1)
        return End(self, Side(LABEL_TAIL if self.model.use_inverse_triples else target, index))


@dataclass(frozen=True)
class End:
    """One end of triples, for which all entities are candidates."""

    scorer: Scorer
    #: the end as the model sees it, and all that is known about it
    side: Side

    @property
    def keys(self) -> Tensor:
        """The features of all candidates."""
        return self.side.ends(self.scorer.features.heads, self.scorer.features.tails)[1]

    def queries(self, pairs: Tensor) -> Tensor:
        """Compute the queries of pairs of given entity and relation."""
        heads, relations, tails = self.scorer.features
        given, _ = self.side.ends(heads, tails)
        return self.side.face(self.scorer.factorization.form).of_pairs(given, relations, pairs)

    def scores(self, queries: Tensor, out: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Score the candidates of some queries, block by block.

        :param queries: shape: (q, l), the queries
        :param out: shape: (≥ q·num_columns,), memory for the scores of a block
        :return: the candidates of each block, and their scores, which the next block overwrites
        """
        keys, columns = self.keys, self.scorer.num_columns
        for start in range(0, len(keys), columns):
            block = keys[start : start + columns]
            scores = out[: len(queries) * len(block)].view(len(queries), len(block))
            yield slice(start, start + len(block)), torch.mm(queries, block.T, out=scores)

    def model_scores(self, pairs: Tensor, candidates: Tensor) -> Tensor:
        """Score candidates for pairs of given entity and relation by the model itself, shape: (len(pairs), len(candidates)).

        How PyKEEN rounds depends on whether it scores one pair or more, so it never gets a single one. For some models, it
        also depends on a candidate's position, so of candidates with the same vectors, it gets only the first one.
        """
        model, mode = self.scorer.model, self.scorer.mode
        classes = self._vectors(candidates).unique(dim=0, return_inverse=True)[1]
        positions = torch.arange(len(candidates), device=candidates.device)
        first = torch.full_like(positions, len(candidates)).scatter_reduce_(0, classes, positions, "amin")
        candidates = candidates[first[: int(classes.max()) + 1]]
        rows = max(2, 2**22 // (len(candidates) * self.keys.shape[1]))
        scores = []
        for some in pairs.split(rows):
            given = some if len(some) > 1 else some.expand(2, -1)
            if self.side.target == LABEL_HEAD:
                result = model.score_h(rt_batch=given.flip(1), heads=candidates, mode=mode)
            else:
                result = model.score_t(hr_batch=given, tails=candidates, mode=mode)
            scores.append(result[: len(some)])
        return torch.cat(scores)[:, classes]

    def _vectors(self, candidates: Tensor) -> Tensor:
        """Return all that the model knows of candidates, at this end, shape: (len(candidates), …)."""
        interaction, entities = self.scorer.model.interaction, self.scorer.vectors.entities
        indices = interaction.head_indices if self.side.target == LABEL_HEAD else interaction.tail_indices
        parts = (entities[i][candidates] for i in indices)
        return torch.cat([(torch.view_as_real(x) if x.is_complex() else x).reshape(len(x), -1) for x in parts], dim=1)


class Hidden:
    """Candidates that do not count, each in its row of scores."""

    def __init__(self, rows: Tensor, entities: Tensor):
        """Initialize the set.

        :param rows: shape: (n,), the rows
        :param entities: shape: (n,), the candidates
        """
        # those of a block of candidates are adjacent
        self.entities, order = entities.sort()
        self.rows = rows[order]
        self.done = 0

    def hide(self, scores: Tensor, candidates: slice) -> None:
        """Give those among the next candidates the lowest score. Blocks of candidates come in their order."""
        stop = int(torch.searchsorted(self.entities, candidates.stop))
        part = slice(self.done, stop)
        scores[self.rows[part], self.entities[part] - candidates.start] = -torch.inf
        self.done = stop
