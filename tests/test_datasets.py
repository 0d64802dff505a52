"""The datasets are what they say."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from pykeen.datasets import get_dataset
from pykeen.datasets.base import PackedZipRemoteDataset, PathDataset
from pykeen.pipeline import pipeline

from pykeen_nonsampling import AllEntities, SyntheticGraph


def all_triples(dataset: SyntheticGraph) -> torch.Tensor:
    return torch.cat([factory.mapped_triples for factory in dataset.factory_dict.values()])


def test_sizes_are_those_in_the_documentation() -> None:
    dataset, statistics = SyntheticGraph(), SyntheticGraph.docdata("statistics")
    assert (dataset.num_entities, dataset.num_relations) == (statistics["entities"], statistics["relations"])
    for split in ("training", "testing", "validation"):
        assert getattr(dataset, split).num_triples == statistics[split]
    assert len(all_triples(dataset)) == len(all_triples(dataset).unique(dim=0)) == statistics["triples"]


def test_seed_decides() -> None:
    a, b, c = (all_triples(SyntheticGraph(random_seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    ("num_entities", "num_relations", "num_triples", "num_communities"),
    [(50, 2, 100, 5), (1000, 7, 30_000, 3), (30, 1, 30, 1)],
)
def test_any_size(num_entities: int, num_relations: int, num_triples: int, num_communities: int) -> None:
    dataset = SyntheticGraph(num_entities, num_relations, num_triples, num_communities)
    triples = all_triples(dataset)
    assert len(triples) == len(triples.unique(dim=0)) == num_triples
    assert triples.min() >= 0
    assert triples[:, [0, 2]].max() < num_entities
    assert triples[:, 1].max() < num_relations


def test_evaluation_triples_have_known_entities_and_relations() -> None:
    dataset = SyntheticGraph(num_entities=5000, num_triples=20_000)
    for columns in ([0, 2], [1]):
        known = dataset.training.mapped_triples[:, columns].unique()
        for factory in (dataset.testing, dataset.validation):
            assert factory is not None
            assert torch.isin(factory.mapped_triples[:, columns], known).all()


def test_degrees_are_skewed() -> None:
    """The most frequent tenth of entities has about 10 ** (-1 / skew) of the triples, here a third, in place of a tenth."""
    for skew, low, high in ((1.0, 0.1, 0.2), (2.0, 0.25, 0.4)):
        heads = all_triples(SyntheticGraph(skew=skew))[:, 0].bincount(minlength=1000).sort(descending=True).values
        assert low < heads[:100].sum() / heads.sum() < high


def test_planted_structure() -> None:
    """Without noise, head community and relation decide the tail's community."""
    h, r, t = all_triples(SyntheticGraph(noise=0.0, num_communities=10)).unbind(dim=-1)
    assert len(torch.stack([h % 10, r, t % 10]).unique(dim=1).T) == len(torch.stack([h % 10, r]).unique(dim=1).T)


def test_a_model_can_learn_it() -> None:
    result = pipeline(
        dataset="syntheticgraph",
        dataset_kwargs=dict(num_entities=300, num_relations=8, num_triples=6000, num_communities=10),
        model="ComplEx",
        model_kwargs=dict(embedding_dim=32, entity_initializer="xavier_normal", relation_initializer="xavier_normal"),
        training_loop="nonsampling",
        loss_kwargs=dict(negative_weight=0.03),
        optimizer_kwargs=dict(lr=0.02),
        epochs=100,
        random_seed=0,
        use_tqdm=False,
    )
    # by popularity alone, and at random, it is below 0.05
    assert result.get_metric("mrr") > 0.12


def test_by_name_with_inverse_triples() -> None:
    dataset = get_dataset(dataset="syntheticgraph", dataset_kwargs=dict(create_inverse_triples=True, num_triples=1000))
    assert dataset.training.num_relations == 40
    assert dataset.testing.num_relations == 20


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(num_triples=10**9), "num_triples=1000000000 do not fit"),
        (dict(num_communities=2000), "num_communities=2000 is out of range"),
        (dict(skew=0.5), "skew=0.5"),
    ],
)
def test_impossible_graphs_are_refused(kwargs: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SyntheticGraph(**kwargs)  # type: ignore[arg-type]


class TestAllEntities:
    """Nothing is dropped, and nothing else changes."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        (tmp_path / "train.txt").write_text("a\tr\tb\nb\ts\tc\n")
        (tmp_path / "test.txt").write_text("a\tr\td\nb\tr\tc\n")
        (tmp_path / "valid.txt").write_text("e\tu\ta\n")
        return tmp_path

    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("create_inverse_triples", [False, True])
    def test_triples_are_those_of_the_files(self, directory: Path, packed: bool, create_inverse_triples: bool) -> None:
        splits, names = ["training", "testing", "validation"], ["train.txt", "test.txt", "valid.txt"]
        base: dict[str, Any]
        if packed:
            # PyKEEN appends the name of the dataset's class
            (directory / "packedzipremotedataset").mkdir()
            with zipfile.ZipFile(directory / "packedzipremotedataset" / "data.zip", mode="w") as archive:
                for name in names:
                    archive.write(directory / name, arcname=name)
            base = {f"relative_{split}_path": name for split, name in zip(splits, names, strict=True)}
            base |= dict(dataset=PackedZipRemoteDataset, name="data.zip", cache_root=directory)
        else:
            base = {f"{split}_path": directory / name for split, name in zip(splits, names, strict=True)}
            base |= dict(dataset=PathDataset)
        dataset = AllEntities(create_inverse_triples=create_inverse_triples, **base)
        assert sorted(dataset.entity_to_id) == list("abcde")
        assert sorted(dataset.relation_to_id) == list("rsu")
        for name, factory in zip(names, (dataset.training, dataset.testing, dataset.validation), strict=True):
            assert factory is not None
            lines = {"\t".join(triple) for triple in factory.label_triples(factory.mapped_triples).tolist()}
            assert lines == set((directory / name).read_text().splitlines())
            assert factory.create_inverse_triples == (create_inverse_triples and factory is dataset.training)
            assert factory.num_entities == 5

    def test_by_name(self) -> None:
        dataset = get_dataset(dataset="allentities", dataset_kwargs=dict(dataset="umls"))
        other = get_dataset(dataset="umls")
        assert (dataset.num_entities, dataset.testing.num_triples) == (other.num_entities, other.testing.num_triples)

    def test_sizes_are_those_in_the_documentation(self) -> None:
        dataset, statistics = AllEntities(), AllEntities.docdata("statistics")
        assert (dataset.num_entities, dataset.num_relations) == (statistics["entities"], statistics["relations"])
        for split in ("training", "testing", "validation"):
            assert getattr(dataset, split).num_triples == statistics[split]

    def test_datasets_without_files_are_refused(self) -> None:
        with pytest.raises(ValueError, match="SyntheticGraph does not have one file per split"):
            AllEntities(dataset="syntheticgraph")
