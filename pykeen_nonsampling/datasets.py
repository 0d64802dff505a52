"""Datasets: a synthetic graph of any size, and PyKEEN's datasets with all their evaluation triples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from docdata import parse_docdata
from pykeen.datasets.base import Dataset, EagerDataset, PackedZipRemoteDataset, PathDataset
from pykeen.triples import TriplesFactory
from torch import Tensor


@parse_docdata
class AllEntities(EagerDataset):
    """Another PyKEEN dataset, with all of its evaluation triples.

    PyKEEN drops evaluation triples with entities that do not occur in training, e.g. 28 of the 20,466 test triples of
    FB15k-237 and 210 of the 3,134 of WN18RR. Most publications keep them, although no model can rank them well, so results
    with and without them are not comparable. Here, all entities and relations of all splits have an id, so no triple is
    dropped.

    The numbers below are those of the default parameters.

    ---
    name: All Entities
    statistics:
        entities: 14
        relations: 55
        training: 1592
        testing: 201
        validation: 199
        triples: 1992
    """

    def __init__(self, dataset: str | type[Dataset] = "nations", create_inverse_triples: bool = False, **kwargs: Any):
        """Load the dataset.

        :param dataset: the name of the dataset
        :param create_inverse_triples: whether to create inverse triples for training
        :param kwargs: additional keyword-based parameters for the dataset
        """
        from pykeen.datasets import dataset_resolver

        base = dataset_resolver.make(dataset, kwargs)
        parts = [_read(base, split) for split in ("training", "testing", "validation")]
        entity_to_id, relation_to_id = (
            {label: i for i, label in enumerate(sorted(set().union(*labels)))}
            for labels in ([part.entity_to_id for part in parts], [part.relation_to_id for part in parts])
        )
        training, testing, validation = (
            TriplesFactory(
                mapped_triples=_renumber(part, entity_to_id, relation_to_id),
                entity_to_id=entity_to_id,
                relation_to_id=relation_to_id,
                create_inverse_triples=create_inverse_triples and part is parts[0],
            )
            for part in parts
        )
        super().__init__(training=training, testing=testing, validation=validation)


def _read(dataset: Dataset, split: str) -> TriplesFactory:
    """Read the triples of one split, with its own ids for the labels that occur in it."""
    if isinstance(dataset, PathDataset):
        path = getattr(dataset, f"{split}_path")
        return TriplesFactory.from_path(path, load_triples_kwargs=dataset.load_triples_kwargs)
    if isinstance(dataset, PackedZipRemoteDataset):
        return dataset._load_helper(getattr(dataset, f"relative_{split}_path"))
    raise ValueError(
        f"{type(dataset).__name__} does not have one file per split, so its triples cannot be read again. Use the dataset "
        f"itself: if its splits are made by PyKEEN, all of their entities occur in training."
    )


class Dropped(NamedTuple):
    """The evaluation triples that PyKEEN drops, since they have entities or relations that do not occur in training."""

    #: the number of distinct triples with such a label, and that of all
    number: int
    total: int
    #: the labels
    labels: list[str]


def find_dropped(dataset: Dataset, source: Dataset) -> dict[str, Dropped]:
    """Find the evaluation triples that PyKEEN drops.

    :param dataset: the dataset
    :param source: the same, not from PyKEEN's cache, which has lost them
    :return: by split; nothing for datasets without one file per split, which PyKEEN splits so that none are dropped
    """
    found = {}
    for split in ("testing", "validation"):
        kept = getattr(dataset, split)
        if kept is None or not isinstance(source, (PathDataset, PackedZipRemoteDataset)):
            continue
        part = _read(source, split)
        unknown = {*part.entity_to_id} - {*dataset.entity_to_id}, {*part.relation_to_id} - {*dataset.relation_to_id}
        found[split] = Dropped(part.num_triples - kept.num_triples, part.num_triples, sorted(set().union(*unknown)))
    return found


def _renumber(factory: TriplesFactory, entity_to_id: Mapping[str, int], relation_to_id: Mapping[str, int]) -> Tensor:
    """Give the triples of a factory new ids."""
    entities, relations = (
        torch.as_tensor([to_id[labels[i]] for i in range(len(labels))])
        for to_id, labels in (
            (entity_to_id, factory.entity_id_to_label),
            (relation_to_id, factory.relation_id_to_label),
        )
    )
    h, r, t = factory.mapped_triples.unbind(dim=-1)
    return torch.stack([entities[h], relations[r], entities[t]], dim=-1)


@parse_docdata
class SyntheticGraph(EagerDataset):
    """A random graph with a skewed degree distribution and a planted structure, the same for the same seed.

    Entities belong to communities, entity i to community ``i % num_communities``, and each relation maps every community to
    one other, by a random permutation of its own: a tail belongs to the community that the relation assigns to its head's. A
    model that learns the communities ranks the true tail among the members of one of them. Within a community, and among
    relations, some are drawn far more often than others.

    The numbers below are those of the default parameters.

    ---
    name: Synthetic Graph
    statistics:
        entities: 1000
        relations: 20
        training: 16000
        testing: 2000
        validation: 2000
        triples: 20000
    """

    def __init__(
        self,
        num_entities: int = 1_000,
        num_relations: int = 20,
        num_triples: int = 20_000,
        num_communities: int = 20,
        skew: float = 2.0,
        noise: float = 0.05,
        evaluation_ratio: float = 0.1,
        random_seed: int = 0,
        create_inverse_triples: bool = False,
    ):
        """Generate the graph.

        :param num_entities: the number of entities
        :param num_relations: the number of relations
        :param num_triples: the number of distinct triples in all three splits
        :param num_communities: the number of communities
        :param skew: ≥1, the n-th most frequent entity of a community occurs in proportion to n^(1/skew - 1); 1 is uniform
        :param noise: the share of triples whose tail is from any community
        :param evaluation_ratio: the share of triples for testing, and the same for validation
        :param random_seed: the seed
        :param create_inverse_triples: whether to create inverse triples for training
        :raises ValueError: if no such graph exists
        """
        capacity = num_entities * num_relations * num_entities // num_communities
        if not 1 <= num_communities <= num_entities:
            raise ValueError(f"{num_communities=} is out of range for {num_entities=}: choose from 1 to num_entities.")
        if not 0 < num_triples <= capacity // 4:
            raise ValueError(
                f"{num_triples=} do not fit: {num_entities=} in {num_communities=} with {num_relations=} have room for "
                f"{capacity} distinct triples, of which at most a quarter can be used. Use fewer triples or more entities."
            )
        if skew < 1 or not 0 <= noise <= 1 or not 0 <= evaluation_ratio < 0.5:
            raise ValueError(
                f"{skew=}, {noise=}, {evaluation_ratio=} are not all in range: choose skew ≥ 1, 0 ≤ noise ≤ 1 and "
                f"0 ≤ evaluation_ratio < ½."
            )
        generator = torch.Generator().manual_seed(random_seed)
        draw = _TripleGenerator(num_entities, num_relations, num_communities, skew, noise, generator)
        triples = draw.distinct(num_triples)
        triples = triples[torch.randperm(num_triples, generator=generator)]
        parts = _split(triples, num_entities, num_relations, num_evaluation=int(evaluation_ratio * num_triples))
        entity_to_id = {f"entity:{i}": i for i in range(num_entities)}
        relation_to_id = {f"relation:{i}": i for i in range(num_relations)}
        training, testing, validation = (
            TriplesFactory(
                mapped_triples=part,
                entity_to_id=entity_to_id,
                relation_to_id=relation_to_id,
                create_inverse_triples=create_inverse_triples and part is parts[0],
            )
            for part in parts
        )
        super().__init__(training=training, testing=testing, validation=validation)


class _TripleGenerator:
    """Draws triples of a graph with communities."""

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        num_communities: int,
        skew: float,
        noise: float,
        generator: torch.Generator,
    ):
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.num_communities = num_communities
        self.skew = skew
        self.noise = noise
        self.generator = generator
        #: the community that each relation assigns to each community, shape: (num_relations, num_communities)
        self.targets = torch.rand(num_relations, num_communities, generator=generator).argsort(dim=1)

    def _uniform(self, n: int) -> Tensor:
        return torch.rand(n, generator=self.generator, dtype=torch.float64)

    def _members(self, communities: Tensor) -> Tensor:
        """Draw a member of each community, skewed."""
        sizes = (self.num_entities - communities + self.num_communities - 1) // self.num_communities
        ranks = (sizes * self._uniform(len(communities)) ** self.skew).long()
        return communities + self.num_communities * ranks

    def _communities(self, n: int) -> Tensor:
        return (self.num_communities * self._uniform(n)).long()

    def draw(self, n: int) -> Tensor:
        """Draw triples, possibly with duplicates, shape: (n, 3)."""
        relations = (self.num_relations * self._uniform(n) ** self.skew).long()
        sources = self._communities(n)
        targets = torch.where(self._uniform(n) < self.noise, self._communities(n), self.targets[relations, sources])
        return torch.stack([self._members(sources), relations, self._members(targets)], dim=-1)

    def distinct(self, n: int) -> Tensor:
        """Draw n distinct triples, shape: (n, 3)."""
        keys = torch.empty(0, dtype=torch.long)
        while len(keys) < n:
            h, r, t = self.draw(n + n // 4).unbind(dim=-1)
            keys = torch.cat([keys, (h * self.num_relations + r) * self.num_entities + t]).unique()
        # which of them to keep must not depend on their order
        keys = keys[torch.randperm(len(keys), generator=self.generator)[:n]]
        keys, t = keys // self.num_entities, keys % self.num_entities
        return torch.stack([keys // self.num_relations, keys % self.num_relations, t], dim=-1)


def _split(triples: Tensor, num_entities: int, num_relations: int, num_evaluation: int) -> tuple[Tensor, Tensor, Tensor]:
    """Split shuffled triples so that every entity and relation that occurs also occurs in training."""
    positions = torch.arange(len(triples))
    needed = torch.zeros(len(triples), dtype=torch.bool)
    for columns, size in (([0, 2], num_entities), ([1], num_relations)):
        first = torch.full((size,), len(triples))
        for column in columns:
            first = first.scatter_reduce(0, triples[:, column], positions, reduce="amin")
        needed[first[first < len(triples)]] = True
    free = positions[~needed]
    testing, validation = free[:num_evaluation], free[num_evaluation : 2 * num_evaluation]
    training = torch.ones(len(triples), dtype=torch.bool)
    training[testing] = training[validation] = False
    return triples[training], triples[testing], triples[validation]
