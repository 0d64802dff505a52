"""How accurate the embeddings are: search on validation triples, and test the result.

    python -m benchmarks accuracy search pykeen_nonsampling/experiments/nonsamplinglcwa/distmult_fb15k237.json \
        --vary loss_kwargs.negative_weight=0.005,0.01,0.02 --vary loss_kwargs.candidate_weight=0,0.5

tries all combinations, one training run each, and prints the metrics on the validation triples. As in LibKGE, candidates
that make a triple of the training, validation or test set are left out of a ranking. Test triples serve no other purpose.

    python -m benchmarks accuracy test pykeen_nonsampling/experiments/*/*.json

trains each configuration and writes its metrics on the test triples, and the training time, into the file.

    python -m benchmarks accuracy report pykeen_nonsampling/experiments/*/*.json

prints these results as a table, beside those that others report. With --summary, it is the short one of the README.

    python -m benchmarks accuracy defaults --dataset nations --model ComplEx --dim 128 --epochs 100

trains with nothing but names, a dimension and a number of epochs.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import click
import torch
from pykeen.datasets import get_dataset
from pykeen.pipeline import PipelineResult, pipeline

from pykeen_nonsampling.ranking.metrics import get_metrics

#: The names of metrics in files
RECORDED = {"MRR": "mrr", "Hits@1": "hits_at_1", "Hits@3": "hits_at_3", "Hits@10": "hits_at_10", "MR": "mean_rank"}
DATASETS = {"fb15k237": "FB15k-237", "wn18rr": "WN18RR"}
MODELS = ("DistMult", "SimplE", "ComplEx", "TransE", "RotatE", "RESCAL")
#: The MRR that others report: Li et al. (2021), the best without sampling, and LibKGE (https://github.com/uma-pi1/kge)
REPORTED: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "fb15k237": {
        "DistMult": (0.227, 0.343),
        "SimplE": (0.222, None),
        "ComplEx": (0.243, 0.348),
        "TransE": (0.261, 0.313),
        "RotatE": (None, 0.333),
        "RESCAL": (None, 0.356),
    },
    "wn18rr": {
        "DistMult": (0.411, 0.452),
        "SimplE": (0.406, None),
        "ComplEx": (0.429, 0.475),
        "TransE": (0.156, 0.228),
        "RotatE": (None, 0.478),
        "RESCAL": (None, 0.467),
    },
}
FILES = click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))


def run(configuration: Mapping[str, Any], seed: int, testing: bool) -> PipelineResult:
    """Run the pipeline of a configuration, and evaluate on the test or on the validation triples."""
    kwargs = {**configuration, "random_seed": seed, "use_testing_data": testing}
    kwargs["training_kwargs"] = {**kwargs.get("training_kwargs", {}), "use_tqdm": False}
    kwargs["evaluation_kwargs"] = {**kwargs.get("evaluation_kwargs", {}), "use_tqdm": False}
    if not testing:
        # otherwise, a model that ranks the answers in the test set high would seem to be the worse one
        dataset = get_dataset(dataset=kwargs["dataset"], dataset_kwargs=kwargs.get("dataset_kwargs"))
        kwargs["evaluation_kwargs"]["additional_filter_triples"] = [dataset.testing.mapped_triples]
    return pipeline(**kwargs)


def summarize(result: PipelineResult) -> dict[str, float]:
    """Collect the metrics and the seconds of training."""
    summary = {RECORDED[name]: round(value, 4) for name, value in get_metrics(result).items()}
    return {**summary, "training_seconds": round(result.train_seconds, 1)}


def variants(configuration: dict[str, Any], vary: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Combine all values of the parameters that vary."""
    names, values = [], []
    for option in vary:
        name, _, choices = option.partition("=")
        names.append(name.split("."))
        values.append(choices.split(","))
    for combination in itertools.product(*values):
        variant = copy.deepcopy(configuration)
        for path, value in zip(names, combination, strict=True):
            target = variant
            for key in path[:-1]:
                target = target.setdefault(key, {})
            target[path[-1]] = json.loads(value)
        epochs = variant["training_kwargs"]["num_epochs"]
        if variant.get("lr_scheduler") == "CosineAnnealingLR":
            variant["lr_scheduler_kwargs"] = dict(T_max=epochs)
        yield " ".join(f"{'.'.join(path)}={value}" for path, value in zip(names, combination, strict=True)), variant


@click.group(name="accuracy")
def command() -> None:
    """Search for, and test, hyper-parameters."""


@command.command()
@FILES
@click.option("--vary", multiple=True, help="A parameter of pipeline() and its values, as in a.b=1,2")
@click.option("--seed", default=0, show_default=True)
def search(paths: tuple[Path, ...], vary: tuple[str, ...], seed: int) -> None:
    """Train variants of configurations, and print their metrics on the validation triples."""
    for path in paths:
        for name, variant in variants(json.loads(path.read_text())["pipeline"], vary):
            click.echo(f"{path.stem} {name}: {summarize(run(variant, seed, testing=False))}")


@command.command()
@FILES
@click.option("--seeds", default=1, show_default=True, help="The number of random seeds.")
def test(paths: tuple[Path, ...], seeds: int) -> None:
    """Train configurations, and write their metrics on the test triples into their files."""
    for path in paths:
        content = json.loads(path.read_text())
        runs = [summarize(run(content["pipeline"], seed, testing=True)) for seed in range(seeds)]
        # results outside of the metadata mean something else to PyKEEN
        content["metadata"]["results"] = {
            "seeds": list(range(seeds)),
            **{name: [result[name] for result in runs] for name in runs[0]},
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
        }
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        click.echo(f"{path.stem}: {content['metadata']['results']}")


@command.command()
@FILES
@click.option("--summary", is_flag=True, help="Only the MRR of nonsamplinglcwa, by model and dataset.")
def report(paths: tuple[Path, ...], summary: bool) -> None:
    """Print the results in the files of configurations as a table."""
    contents = [(path, json.loads(path.read_text())) for path in paths]
    contents.sort(key=lambda x: _order(x[1]["pipeline"]))
    if summary:
        _summarize_all(content for _, content in contents)
        return
    columns = ("", "d", "MRR", "Hits@10", "seeds", "training", "cores", "Li et al. (2021)", "LibKGE", "configuration")
    click.echo(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for path, content in contents:
        settings, metadata = content["pipeline"], content["metadata"]
        results, dataset, model = metadata["results"], settings["dataset_kwargs"]["dataset"], settings["model"]
        cells = [
            f"{model}, {DATASETS[dataset]}",
            settings["model_kwargs"]["embedding_dim"],
            _with_spread(results["mrr"]),
            f"{mean(results['hits_at_10']):.3f}",
            len(results["seeds"]),
            f"{mean(results['training_seconds']):.0f} s",
            results["threads"],
            *("–" if x is None else f"{x:.3f}" for x in REPORTED[dataset][model]),
            f"`{path.name}` in `{path.parent.name}`",
        ]
        click.echo(f"| {' | '.join(map(str, cells))} |")


def _summarize_all(contents: Iterable[Mapping[str, Any]]) -> None:
    """Print the MRR of each model with the local closed world, beside those that others report."""
    ours: dict[tuple[str, str], float] = {}
    for content in contents:
        settings = content["pipeline"]
        if settings["training_loop"] == "nonsamplinglcwa":
            ours[settings["dataset_kwargs"]["dataset"], settings["model"]] = mean(content["metadata"]["results"]["mrr"])
    columns = [column for name in DATASETS.values() for column in (name, "Li *et al.*", "LibKGE")]
    click.echo(f"| | {' | '.join(columns)} |\n{'|---' * (1 + len(columns))}|")
    for model in MODELS:
        values = [value for dataset in DATASETS for value in (ours[dataset, model], *REPORTED[dataset][model])]
        click.echo(f"| {model} | {' | '.join('–' if value is None else f'{value:.3f}' for value in values)} |")


def _order(settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Sort by training loop, dataset and model."""
    loops, datasets = ("nonsamplinglcwa", "nonsampling"), list(DATASETS)
    keys = (
        (loops, settings["training_loop"]),
        (datasets, settings["dataset_kwargs"]["dataset"]),
        (MODELS, settings["model"]),
    )
    return tuple(values.index(key) for values, key in keys)


def _with_spread(values: Sequence[float]) -> str:
    """Write the mean, and, if there are several values, their standard deviation."""
    spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.3f}{spread}"


@command.command()
@click.option("--dataset", "datasets", multiple=True, required=True)
@click.option(
    "--model", "models", multiple=True, default=["DistMult", "SimplE", "ComplEx", "TransE", "RotatE"], show_default=True
)
@click.option("--loop", default="nonsamplinglcwa", show_default=True)
@click.option("--dim", default=200, show_default=True)
@click.option("--epochs", default=100, show_default=True)
@click.option("--seed", default=0, show_default=True)
def defaults(datasets: tuple[str, ...], models: tuple[str, ...], loop: str, dim: int, epochs: int, seed: int) -> None:
    """Train with the defaults, and print the metrics on the test triples."""
    for dataset, model in itertools.product(datasets, models):
        configuration = dict(
            dataset="allentities",
            dataset_kwargs=dict(dataset=dataset),
            model=model,
            model_kwargs=dict(embedding_dim=dim),
            training_loop=loop,
            training_kwargs=dict(num_epochs=epochs),
            evaluator="factorized",
        )
        click.echo(f"{dataset} {model}: {summarize(run(configuration, seed, testing=True))}")
