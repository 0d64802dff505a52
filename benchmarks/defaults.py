"""How far default settings carry over to graphs that they were not chosen for.

    python -m benchmarks defaults run --more DIRECTORY

trains models on fourteen graphs with several rules for the defaults, and writes the MRR on the validation triples to a file,
one line per training run. Runs that are in the file already are left out. The directory has two more datasets, ``wn18`` and
``nell23k``, as ``train.txt``, ``valid.txt`` and ``test.txt``; without it, these are left out.

    python -m benchmarks defaults report --loss softmax

prints, for each graph, what the rule of a loss reaches that is best on average on all other graphs: its MRR as a share of
the best that was found with this loss for the graph.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import click
import torch
from pykeen.datasets import Dataset, get_dataset
from pykeen.datasets.base import EagerDataset, PathDataset
from pykeen.models import RotatE
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import defaults
from pykeen_nonsampling.cli.curves import MRR
from pykeen_nonsampling.losses import constants as weighting
from pykeen_nonsampling.training import NonSamplingLCWATrainingLoop

from .results import add_row, file_option, read_rows

PRODUCTS, DISTANCES = ("ComplEx", "DistMult"), ("TransE", "RotatE")

#: Weights that do not depend on the number of features, or on that of triples per entity
ANY_SIZE = {"mass per feature": float("inf"), "mass on a sparse graph": float("inf")}

REGULARIZATION, DUALITY = "regularization of the softmax loss", "duality of the softmax loss"
SCALE = "scale of the softmax loss"
#: For RotatE, it is ten times as large
ADAGRAD = "Adagrad's learning rate"

#: Without the squared solution to start from, or with squares of distances in the place of norms
NO_START, SQUARES = {"epochs of the start": 0.0, ADAGRAD: 0.1}, {"squares": 1.0}

#: Rules for the local closed world: constants that replace those of the package, the learning rates of the squared and the
#: softmax loss, and what it starts from. Their names begin with the loss.
RULES: Mapping[tuple[str, ...], Mapping[str, Mapping[str, float]]] = {
    PRODUCTS: {
        "softmax": {},
        "softmax, lr 0.05": {ADAGRAD: 0.05},
        "softmax, lr 0.1": {ADAGRAD: 0.1},
        "softmax, no start, lr 0.1": NO_START,
        "softmax, no start, lr 0.3": {**NO_START, ADAGRAD: 0.3},
        "softmax, no start, lr 0.1, λ 0.02": {**NO_START, REGULARIZATION: 0.02},
        "softmax, no start, lr 0.1, λ 0.1": {**NO_START, REGULARIZATION: 0.1},
        "softmax, no start, lr 0.1, duality 0.05": {**NO_START, REGULARIZATION: 0.0, DUALITY: 0.05},
        "softmax, no start, lr 0.1, duality 0.1": {**NO_START, REGULARIZATION: 0.0, DUALITY: 0.1},
        "squared": {},
        "squared, any size": ANY_SIZE,
        "squared, λ 0.06": {**ANY_SIZE, "regularization": 0.06},
        "squared, λ 0.03, candidates 0.5, lr 0.02": {
            **ANY_SIZE,
            "regularization": 0.03,
            "exponent of candidates": 0.5,
            "learning rate": 0.02,
        },
        "squared, λ 0.1, candidates 0": {**ANY_SIZE, "regularization": 0.1, "exponent of candidates": 0.0},
        "squared, mass 15": {**ANY_SIZE, "mass of a query's candidates": 15.0},
        "squared, mass 40": {**ANY_SIZE, "mass of a query's candidates": 40.0},
        "squared, mass 250, λ 0.06": {
            **ANY_SIZE,
            "mass of a query's candidates": 250.0,
            "regularization": 0.06,
        },
        "squared, mass 196, λ 0.152": {**ANY_SIZE, "mass of a query's candidates": 196.0, "regularization": 0.152},
        "squared, mass 26.6, λ 0.128, candidates 0.5, lr 0.02": {
            **ANY_SIZE,
            "mass of a query's candidates": 26.6,
            "regularization": 0.128,
            "exponent of candidates": 0.5,
            "learning rate": 0.02,
        },
    },
    DISTANCES: {
        "softmax": {},
        "softmax, lr 0.05": {ADAGRAD: 0.05},
        "softmax, lr 0.1": {ADAGRAD: 0.1},
        "softmax, lr 0.2": {ADAGRAD: 0.2},
        "softmax, no start, lr 0.1": NO_START,
        "softmax, no start, lr 0.3": {**NO_START, ADAGRAD: 0.3},
        "softmax, no start, lr 0.1, scale 3": {**NO_START, SCALE: 3.0},
        "softmax, no start, lr 0.1, scale 12": {**NO_START, SCALE: 12.0},
        "softmax, no start, lr 0.1, squares": {**NO_START, **SQUARES},
        "softmax, no start, lr 0.1, squares, scale 3": {**NO_START, **SQUARES, SCALE: 3.0},
        "softmax, no start, lr 0.1, squares, scale 12": {**NO_START, **SQUARES, SCALE: 12.0},
        "softmax, no start, lr 0.1, squares, scale 25": {**NO_START, **SQUARES, SCALE: 25.0},
        "squared": {},
        "squared, mass 1": {**ANY_SIZE, "mass of a query's candidates": 1.0},
        "squared, mass 3": {**ANY_SIZE, "mass of a query's candidates": 3.0},
        "squared, mass 5": {**ANY_SIZE, "mass of a query's candidates": 5.0},
        "squared, mass 10": ANY_SIZE,
        "squared, mass 20": {**ANY_SIZE, "mass of a query's candidates": 20.0},
        "squared, mass 10, lr 0.02": {**ANY_SIZE, "learning rate": 0.02},
        "squared, mass 3, lr 0.02": {**ANY_SIZE, "mass of a query's candidates": 3.0, "learning rate": 0.02},
    },
}

#: The losses; the rule of the package has the same name
LOSSES = {"softmax": "softmax", "squared": "nonsampling"}


def restrict(dataset: Dataset, keep: Callable[[torch.Tensor], torch.Tensor]) -> Dataset:
    """Keep some of the triples, and number entities and relations anew, by what is left for training."""
    training, testing, validation = (
        x.mapped_triples[keep(x.mapped_triples)]
        for x in (dataset.training, dataset.testing, dataset.validation)
        if x is not None
    )
    entities, relations = (torch.unique(training[:, columns]) for columns in ([0, 2], [1]))

    def renumber(triples: torch.Tensor) -> CoreTriplesFactory:
        known = torch.isin(triples[:, [0, 2]], entities).all(dim=1) & torch.isin(triples[:, 1], relations)
        h, r, t = (x.contiguous() for x in triples[known].unbind(dim=1))
        renumbered = (torch.searchsorted(entities, h), torch.searchsorted(relations, r), torch.searchsorted(entities, t))
        return CoreTriplesFactory(torch.stack(renumbered, dim=1), len(entities), num_relations=len(relations))

    return EagerDataset(renumber(training), renumber(testing), validation=renumber(validation))


def by_relation(dataset: Dataset, relations: Sequence[int]) -> Dataset:
    """Keep some relations."""
    return restrict(dataset, lambda triples: torch.isin(triples[:, 1], torch.tensor(relations)))


def by_entity(dataset: Dataset, first: int, last: int) -> Dataset:
    """Keep the entities with a certain rank by their number of training triples."""
    degrees = dataset.training.mapped_triples[:, [0, 2]].reshape(-1).bincount(minlength=dataset.num_entities)
    ranked = degrees.argsort(descending=True, stable=True)[first:last]
    return restrict(dataset, lambda triples: torch.isin(triples[:, [0, 2]], ranked).all(dim=1))


def most_frequent(dataset: Dataset, number: int) -> list[int]:
    """List the most frequent relations."""
    return [r for r, _ in Counter(dataset.training.mapped_triples[:, 1].tolist()).most_common(number)]


def halve(dataset: Dataset) -> Dataset:
    """Keep a random half of the training triples."""
    generator = torch.Generator().manual_seed(0)
    triples = dataset.training.mapped_triples
    half = triples[torch.randperm(len(triples), generator=generator)[: len(triples) // 2]]
    factory = dataset.training.clone_and_exchange_triples(half)
    return restrict(EagerDataset(factory, dataset.testing, validation=dataset.validation), lambda x: x[:, 0] >= 0)


def people(dataset: Dataset) -> Dataset:
    """Keep relations of people, organizations, education, music and places, and entities with many of their triples."""
    prefixes = ("/people", "/organization", "/education", "/music", "/location/country", "/influence", "/government")
    ids = dataset.training.relation_to_id  # type: ignore[attr-defined]
    return by_entity(by_relation(dataset, [i for label, i in ids.items() if label.startswith(prefixes)]), 0, 2000)


def synthesize() -> Dataset:
    """Make up a graph of entities with types, popularity and hidden vectors, and relations from one type to another."""
    generator = torch.Generator().manual_seed(0)
    entities, types, relations, per_relation, dimension = 3000, 12, 20, 1500, 8
    of_type = torch.randint(types, (entities,), generator=generator)
    # a few are far more popular than the rest
    popularity = torch.rand(entities, generator=generator).log().neg().mul(0.8)
    vectors = torch.randn(entities, dimension, generator=generator)
    triples = []
    for r in range(relations):
        head_type, tail_type = torch.randint(types, (2,), generator=generator).tolist()
        heads, tails = ((of_type == x).nonzero().squeeze(dim=1) for x in (head_type, tail_type))
        mixing = torch.randn(dimension, dimension, generator=generator) / dimension**0.5
        noise = torch.rand(len(heads), len(tails), generator=generator).log().neg().log().neg()
        scores = (
            vectors[heads] @ mixing @ vectors[tails].T + 0.5 * popularity[heads][:, None] + popularity[tails] + 0.7 * noise
        )
        best = scores.view(-1).topk(per_relation).indices
        h, t = heads[best // len(tails)], tails[best % len(tails)]
        triples.append(torch.stack([h, torch.full_like(h, r), t], dim=1))
    factory = CoreTriplesFactory(torch.cat(triples), entities, num_relations=relations)
    training, testing, validation = factory.split([0.8, 0.1, 0.1], random_state=0)
    return restrict(EagerDataset(training, testing, validation=validation), lambda x: x[:, 0] >= 0)


def make_graphs(more: Path | None) -> dict[str, Callable[[], Dataset]]:
    """Say how to load or make each graph."""

    def load(name: str) -> Dataset:
        return get_dataset(dataset=name)

    def read(name: str) -> Dataset:
        train, test, valid = (Path(more or "") / name / f"{split}.txt" for split in ("train", "test", "valid"))
        return PathDataset(train, test, valid)

    graphs: dict[str, Callable[[], Dataset]] = {
        "Nations": lambda: load("nations"),
        "UMLS": lambda: load("umls"),
        "Kinships": lambda: load("kinships"),
        "UMLS, core": lambda: by_entity(load("umls"), 0, 30),
        "Kinships, core": lambda: by_entity(load("kinships"), 0, 30),
        "synthetic": synthesize,
        "FB15k-237, core": lambda: by_entity(load("fb15k237"), 0, 2000),
        "FB15k-237, people": lambda: people(load("fb15k237")),
        "FB15k-237, tenth": lambda: by_relation(load("fb15k237"), list(range(0, 237, 10))),
        "NELL23K": lambda: read("nell23k"),
        "WN18RR, half": lambda: halve(load("wn18rr")),
        "WN18RR": lambda: load("wn18rr"),
        "WN18": lambda: read("wn18"),
        "FB15k-237": lambda: load("fb15k237"),
    }
    return {name: make for name, make in graphs.items() if more is not None or name not in ("NELL23K", "WN18")}


def loss_of(rule: str) -> str:
    """Return the loss that a rule is for."""
    return rule.partition(",")[0]


def train(dataset: Dataset, model: str, loss: str, rule: Mapping[str, float], dim: int, epochs: int) -> dict[str, Any]:
    """Train with names, a dimension and a number of epochs, and the constants of a rule."""
    constants = {name: {None: rule[name]} if name in rule else values for name, values in weighting.CONSTANTS.items()}
    rates = defaults.LEARNING_RATE[NonSamplingLCWATrainingLoop]
    adagrad = rule.get(ADAGRAD, defaults.ADAGRAD_LEARNING_RATE)
    loop_kwargs: dict[str, Any] = {}
    if "epochs of the start" in rule:
        loop_kwargs["start_epochs"] = int(rule["epochs of the start"])
    if "squares" in rule:
        loop_kwargs["factorization_kwargs"] = dict(squared=True)
    with (
        patch.object(weighting, "CONSTANTS", constants),
        patch.dict(defaults.LEARNING_RATE, {NonSamplingLCWATrainingLoop: rule.get("learning rate", rates)}),
        patch.object(defaults, "ADAGRAD_LEARNING_RATE", adagrad),
        patch.dict(defaults.ADAGRAD_LEARNING_RATES, {RotatE: 10 * rule[ADAGRAD]} if ADAGRAD in rule else {}),
    ):
        result = pipeline(
            dataset=dataset,
            model=model,
            model_kwargs=dict(embedding_dim=dim),
            training_loop="nonsamplinglcwa",
            training_loop_kwargs=loop_kwargs,
            loss=LOSSES[loss],
            training_kwargs=dict(num_epochs=epochs, use_tqdm=False),
            evaluator="factorized",
            evaluation_kwargs=dict(use_tqdm=False),
            use_testing_data=False,
            random_seed=0,
        )
    return dict(
        mrr=round(float(result.get_metric(MRR)), 4),
        seconds=round(result.train_seconds, 1),
        entities=dataset.num_entities,
        relations=dataset.num_relations,
        triples=dataset.training.num_triples,
    )


FILE = file_option("defaults.jsonl")


@click.group(name="defaults")
def command() -> None:
    """Measure how far default settings carry over."""


@command.command()
@FILE
@click.option(
    "--more", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A directory with more datasets."
)
@click.option("--graph", "names", multiple=True, help="Only these graphs.")
@click.option("--model", "models", multiple=True, default=[*PRODUCTS, *DISTANCES], show_default=True)
@click.option("--rule", "chosen", multiple=True, help="Only these rules, e.g. 'squared'.")
@click.option("--dim", default=64, show_default=True)
@click.option("--epochs", default=60, show_default=True)
def run(
    file: Path,
    more: Path | None,
    names: tuple[str, ...],
    models: tuple[str, ...],
    chosen: tuple[str, ...],
    dim: int,
    epochs: int,
) -> None:
    """Train models on all graphs with all rules."""
    logging.disable(logging.WARNING)
    for name, make in make_graphs(more).items():
        if names and name not in names:
            continue
        dataset = make()
        for model in models:
            rules = next(rules for group, rules in RULES.items() if model in group)
            for rule, constants in rules.items():
                key = dict(graph=name, model=model, rule=rule, dim=dim, epochs=epochs)
                if (chosen and rule not in chosen) or any(key.items() <= row.items() for row in read_rows(file)):
                    continue
                row = {**key, **train(dataset, model, loss_of(rule), constants, dim, epochs)}
                add_row(file, row)
                click.echo(f"{name} {model} {rule}: {row['mrr']}")


def shares(rows: Sequence[Mapping[str, Any]], model: str) -> dict[str, dict[str, float]]:
    """Compute what each rule reaches on each graph, relative to the best rule there."""
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["model"] == model:
            table.setdefault(row["graph"], {})[row["rule"]] = row["mrr"]
    for graph, values in table.items():
        best = max(values.values())
        table[graph] = {rule: value / best for rule, value in values.items()}
    return table


@command.command()
@FILE
@click.option("--loss", type=click.Choice(list(LOSSES)), default="softmax", show_default=True)
def report(file: Path, loss: str) -> None:
    """Print what rules reach on graphs that they were not chosen for, as a table in Markdown."""
    rows = [row for row in read_rows(file) if loss_of(row["rule"]) == loss]
    models = [model for model in (*PRODUCTS, *DISTANCES) if any(row["model"] == model for row in rows)]
    graphs = [name for name in make_graphs(Path()) if any(row["graph"] == name for row in rows)]
    columns: dict[str, dict[str, float]] = {}
    chosen: dict[str, Counter[str]] = {}
    for model in models:
        table = shares(rows, model)
        columns[model], chosen[model] = {}, Counter()
        for graph in table:
            others = [values for name, values in table.items() if name != graph]
            everywhere = set.intersection(*map(set, table.values()))
            rule = max(sorted(everywhere), key=lambda rule: mean(values[rule] for values in others))
            columns[model][graph] = table[graph][rule]
            chosen[model][rule] += 1
    click.echo(f"| graph | entities | triples | {' | '.join(models)} |\n{'|---' * (3 + len(models))}|")
    for graph in graphs:
        size = next(row for row in rows if row["graph"] == graph)
        cells = [f"{columns[model][graph]:.1%}" if graph in columns[model] else "" for model in models]
        click.echo(f"| {graph} | {size['entities']:,} | {size['triples']:,} | {' | '.join(cells)} |")
    for name, summarize in (("mean", mean), ("least", min)):
        click.echo(f"| {name} | | | {' | '.join(f'{summarize(columns[model].values()):.1%}' for model in models)} |")
    click.echo()
    for model in models:
        ours = [values[loss] for values in shares(rows, model).values() if loss in values]
        click.echo(
            f"{model}: the defaults of the package reach {mean(ours):.1%} on average and at least {min(ours):.1%} on "
            f"{len(ours)} graphs"
        )
        for rule, count in chosen[model].most_common():
            click.echo(f"{model}: {rule!r} was best on average on the others for {count} of {len(columns[model])} graphs")
