"""What is run for each part of the report, as data."""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from typing_extensions import override

from . import paper

#: PyKEEN's training loop with sampled negatives, and those without sampling
SAMPLED = "slcwa"
LOOPS = (SAMPLED, "nonsampling", "nonsamplinglcwa")


class ReportPart(NamedTuple):
    """A part of the report."""

    title: str
    #: what it shows
    shows: str


REPORT_PARTS: Mapping[str, ReportPart] = {
    "accuracy": ReportPart("Accuracy with the paper's settings", "the settings of the paper, with and without sampling"),
    "shipped": ReportPart("Accuracy with the configurations of this package", "the configurations of this package"),
    "stability": ReportPart("Stability", "the spread over random seeds, with the runs of accuracy"),
    "time": ReportPart("Training time", "training time and speed-up, from the runs of accuracy"),
    "dimension": ReportPart("Dimension", "the sweep over the dimension"),
    "weight": ReportPart("Weight of negatives", "the sweep over the weight of negatives"),
    "examples": ReportPart("Examples", "the best answers to a query, with and without sampling"),
    "quality": ReportPart("Time to quality", "MRR against seconds of training"),
}

#: How datasets are usually written
NAMES: Mapping[str, str] = {
    "fb15k237": "FB15k-237",
    "kinships": "Kinships",
    "nations": "Nations",
    "umls": "UMLS",
    "wn18rr": "WN18RR",
}

#: What stands for a configuration of this package where there is none for graph and model
DEFAULTS = "defaults"

#: Head, relation and tail, of which head or tail is None: it is to be predicted
Query = tuple[str | None, str, str | None]


class Run(ABC):
    """One thing to do whose result is stored. Runs with the same key have the same result, and are done once."""

    dataset: str
    model: str
    loop: str
    dim: int

    @property
    def key(self) -> str:
        """Describe the run completely, as JSON."""
        return json.dumps({"kind": type(self).__name__.lower(), **asdict(self)}, sort_keys=True)  # type: ignore[call-overload]

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what it is."""


@dataclass(frozen=True)
class Training(Run):
    """Training one model, and ranking all test triples."""

    dataset: str
    model: str
    loop: str
    seed: int
    dim: int
    epochs: int
    #: None for configurations, which have their own
    learning_rate: float | None = None
    negative_weight: float | None = None
    #: the seconds of training after which it ends, in the midst of an epoch if need be
    budget: float | None = None
    #: the name of a configuration in ``experiments/``, or "defaults"
    configuration: str | None = None
    #: what to predict in the end
    query: Query | None = None
    #: the seed of the initial vectors, if it is another one than that of all else
    start: int | None = None

    @override
    def describe(self) -> str:
        what = "" if self.configuration is None else ", defaults" if self.configuration == DEFAULTS else ", shipped"
        weight = "" if self.negative_weight in (None, paper.NEGATIVE_WEIGHT) else f", c⁻={self.negative_weight:g}"
        start = "" if self.start is None else ", same initial vectors"
        return f"{self.model} on {self.dataset}, {self.loop}{what}, d={self.dim}{weight}, seed {self.seed}{start}"


@dataclass(frozen=True)
class Search(Run):
    """Finding settings for a training loop in a given time, and recording its MRR against seconds with the best of them."""

    dataset: str
    model: str
    loop: str
    dim: int
    budget_seconds: float
    search_seconds: float
    trials: int
    repeats: int

    @override
    def describe(self) -> str:
        return f"{self.model} on {self.dataset}, {self.loop}, d={self.dim}, {self.budget_seconds:g} s after a search"


@dataclass(frozen=True)
class Preset:
    """What is run, and for how long."""

    datasets: Sequence[str]
    models: Sequence[str]
    seeds: int
    dim: int
    epochs: int
    #: the minutes of training that a run with sampled negatives gets; None is as many as it needs
    budget: float | None
    dims: Sequence[int]
    weights: Sequence[float]
    #: the number of seeds for configurations of this package, and the minutes of training up to which they are run
    shipped_seeds: int
    shipped_minutes: float | None
    #: the seconds of training, and of the search before it, for each loop in the part on quality
    quality_seconds: float
    search_seconds: float
    trials: int
    quality_repeats: int

    @property
    def learning_rate(self) -> float:
        """The learning rate with which all epochs together can move a parameter as far as in the paper."""
        return paper.LEARNING_RATE * paper.EPOCHS / self.epochs


#: What two cores can do in about 100 minutes, where sampling is cut short; the paper's own sizes, for a GPU; small graphs,
#: on which sampling is not cut short; and what takes seconds
PRESETS: Mapping[str, Preset] = {
    "cpu": Preset(
        datasets=("fb15k237", "wn18rr"),
        models=paper.MODELS,
        seeds=paper.SEEDS,
        dim=paper.DIM,
        epochs=40,
        budget=0.5,
        dims=(50, 100, 200, 400),
        weights=paper.WEIGHTS,
        shipped_seeds=1,
        shipped_minutes=1.0,
        quality_seconds=40.0,
        search_seconds=20.0,
        trials=3,
        quality_repeats=1,
    ),
    "gpu": Preset(
        datasets=("fb15k237", "wn18rr"),
        models=paper.MODELS,
        seeds=paper.SEEDS,
        dim=paper.DIM,
        epochs=paper.EPOCHS,
        budget=None,
        dims=paper.DIMENSIONS,
        weights=paper.WEIGHTS,
        shipped_seeds=paper.SEEDS,
        shipped_minutes=None,
        quality_seconds=600.0,
        search_seconds=600.0,
        trials=10,
        quality_repeats=3,
    ),
    "small": Preset(
        datasets=("umls", "kinships"),
        models=paper.MODELS,
        seeds=paper.SEEDS,
        dim=32,
        epochs=100,
        budget=None,
        dims=(16, 32, 64, 128, 256),
        weights=paper.WEIGHTS,
        shipped_seeds=2,
        shipped_minutes=None,
        quality_seconds=10.0,
        search_seconds=10.0,
        trials=4,
        quality_repeats=1,
    ),
    "quick": Preset(
        datasets=("nations",),
        models=("DistMult", "TransE"),
        seeds=2,
        dim=16,
        epochs=20,
        budget=0.005,
        dims=(8, 16),
        weights=(1e-3, 1e-1),
        shipped_seeds=1,
        shipped_minutes=None,
        quality_seconds=0.1,
        search_seconds=0.1,
        trials=2,
        quality_repeats=1,
    ),
}


def display_name(dataset: str) -> str:
    """Return how a dataset is usually written."""
    return NAMES.get(dataset, dataset)


@cache
def find_configuration(dataset: str, model: str, loop: str) -> tuple[str, Mapping[str, Any]] | None:
    """Find the configuration of this package for a graph and a model.

    :return: its name in ``experiments/`` and its content, if there is one
    """
    name = f"{loop}/{model.lower()}_{dataset}.json"
    path = files("pykeen_nonsampling") / "experiments" / name
    return (name, json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def plan_part(part: str, preset: Preset, queries: Mapping[str, Sequence[Query]]) -> list[Run]:
    """List the runs of a part: one seed of everything, then the next.

    :param part: the part
    :param preset: how much of it
    :param queries: what to predict for the examples, by dataset
    :return: the runs
    """
    graphs = list(itertools.product(preset.datasets, preset.models))
    if part in ("accuracy", "stability", "time"):
        cells = itertools.product(range(preset.seeds), graphs, LOOPS)
        runs: list[Run] = [_paper(preset, dataset, model, loop, seed) for seed, (dataset, model), loop in cells]
        return runs + _same_start(preset) if part == "stability" else runs
    if part == "shipped":
        return list(_shipped(preset, graphs))
    if part in paper.SWEEPS:
        values: Sequence[float] = preset.dims if part == "dimension" else preset.weights
        return [
            replace(_paper(preset, dataset, model, "nonsampling", 0), **{paper.SWEEPS[part].column: value})  # type: ignore[arg-type]
            for (dataset, model), value in itertools.product(graphs, values)
        ]
    # one model is enough for what follows
    model = preset.models[0]
    if part == "examples":
        asked = [(dataset, query) for dataset, some in queries.items() for query in some]
        return [
            replace(_paper(preset, x, model, loop, 0), query=query) for (x, query), loop in itertools.product(asked, LOOPS)
        ]
    times = preset.quality_seconds, preset.search_seconds, preset.trials, preset.quality_repeats
    return [Search(x, model, loop, preset.dim, *times) for x, loop in itertools.product(preset.datasets, LOOPS)]


def _paper(preset: Preset, dataset: str, model: str, loop: str, seed: int) -> Training:
    """Describe a training with the paper's settings."""
    sampled = loop == SAMPLED
    return Training(
        dataset=dataset,
        model=model,
        loop=loop,
        seed=seed,
        dim=preset.dim,
        epochs=preset.epochs,
        learning_rate=preset.learning_rate,
        negative_weight=None if sampled else paper.NEGATIVE_WEIGHT,
        budget=60 * preset.budget if sampled and preset.budget is not None else None,
    )


def _same_start(preset: Preset) -> list[Run]:
    """Describe trainings that begin with the same vectors, so that only sampling makes seeds differ."""
    cells = itertools.product(range(preset.seeds), preset.datasets, LOOPS[:2])
    return [replace(_paper(preset, x, preset.models[0], loop, seed), start=0) for seed, x, loop in cells]


def _shipped(preset: Preset, graphs: Sequence[tuple[str, str]]) -> Iterator[Training]:
    """Describe trainings with the configurations of this package, but for those that would take too long."""
    for seed, (dataset, model), loop in itertools.product(range(preset.shipped_seeds), graphs, LOOPS[1:]):
        found = find_configuration(dataset, model, loop)
        if found is None:
            yield Training(dataset, model, loop, seed, preset.dim, preset.epochs, configuration=DEFAULTS)
            continue
        name, content = found
        minutes = max(content["metadata"]["results"]["training_seconds"]) / 60
        if preset.shipped_minutes is None or minutes <= preset.shipped_minutes:
            settings = content["pipeline"]
            dim, epochs = settings["model_kwargs"]["embedding_dim"], settings["training_kwargs"]["num_epochs"]
            yield Training(dataset, model, loop, seed, dim, epochs, configuration=name)
