"""What is searched: the graph, the scales of trials, and the choices that a trial has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from random import Random
from typing import Any, NamedTuple, cast

import optuna
import torch
from optuna.trial import FrozenTrial
from pykeen.datasets import Dataset, get_dataset
from pykeen.hpo.hpo import suggest_kwargs
from pykeen.losses import loss_resolver
from pykeen.models import Model, model_resolver

from ..defaults import START_EPOCHS, model_defaults, optimization
from ..factorizations import Family
from ..free import free_memory
from ..graph.frequencies import Frequencies
from ..hpo import fits, known_losses, learning_rates, limit_sizes, loss_ranges
from ..losses import FactorizedLoss
from ..losses.automatic import choose_loss
from ..memory.dry_run import outline
from ..memory.outline import Outline
from ..training import NonSamplingLCWATrainingLoop
from ..training.loop import MOST_QUERIES, STEPS_PER_EPOCH

#: The metrics of a trial; the first one decides
REPORTED = ("MRR", "Hits@1", "Hits@3", "Hits@10")


class Rung(NamedTuple):
    """The scale of a trial, relative to the largest one."""

    dimension: float
    epochs: float


#: How many epochs with the squared loss, of one step each, an epoch of mini-batches takes the place of, if it has 20 steps.
#: If it has more of them, the number grows with their square root: on a large graph, there is no time for many epochs.
STEPS = 5

#: From a few epochs of small vectors to the whole
RUNGS = (Rung(1 / 4, 1 / 3), Rung(1 / 2, 2 / 3), Rung(1, 1))
LAST = len(RUNGS) - 1

#: The shares of the largest dimension that are searched
SHARES: Mapping[str, Any] = {"type": float, "low": 1 / 4, "high": 1.0, "log": True}

#: The parameters that are true or false
SWITCHES = ("create_inverse_triples", "start", "squared")

#: The standard deviation of a variation, as a share of the range, and the probability that each switch is turned
STEP, FLIP = 0.15, 0.2


@dataclass(frozen=True)
class Graph:
    """A dataset with and without inverse triples, each loaded once."""

    name: str
    #: the arguments of ``pipeline()`` that load it
    reference: Mapping[str, Any]

    def load(self, inverse: bool) -> Dataset:
        """Load the dataset."""
        return get_dataset(**self.arguments(inverse))

    def arguments(self, inverse: bool) -> dict[str, Any]:
        """Return the arguments of ``pipeline()`` that load the dataset, with or without inverse triples."""
        return {**self.reference, "dataset_kwargs": dict(create_inverse_triples=inverse)}

    @cached_property
    def datasets(self) -> Mapping[bool, Dataset]:
        """The dataset, without and with inverse triples."""
        return {inverse: self.load(inverse) for inverse in (False, True)}


class Choice(NamedTuple):
    """A configuration on any scale, without what follows from graph and model."""

    model: str
    loss: str
    inverse: bool
    share: float
    learning_rate: float
    loss_kwargs: Mapping[str, Any]
    #: whether a loss that sees every score starts from the squared solution
    start: bool = False
    #: whether it is trained on the square of a distance
    squared: bool = False


class Space:
    """What is searched: model, loss and its weights, what it starts from, inverse triples, dimension and learning rate."""

    def __init__(self, graph: Graph, models: Sequence[str], dimension: int, epochs: int, seed: int):
        """Initialize the space.

        :param graph: the graph
        :param models: the names of the models
        :param dimension: the largest embedding dimension
        :param epochs: the largest number of epochs
        :param seed: the random seed of all training runs, but for repetitions
        :raises ValueError: if a model does not fit the free memory
        :raises NotDecomposableError: if a model cannot be trained without sampling
        """
        self.graph = graph
        self.classes: dict[str, type[Model]] = {cls.__name__: cls for cls in map(model_resolver.lookup, models)}
        self.epochs = epochs
        self.seed = seed
        self.losses = known_losses()
        #: what trials have in common
        self.settings: dict[str, Any] = dict(
            model=list(self.classes), dim=dimension, epochs=epochs, seed=seed, loss=self.losses, graph=dict(graph.reference)
        )
        # which the names of parameters contain
        self.settings["switches"] = list(SWITCHES)
        self.settings["optimizer"] = [self._learning_rates(name, loss)[0] for name in self.classes for loss in self.losses]
        memory = free_memory(torch.device("cpu")) // 2
        #: the largest dimension of each model that fits the memory
        self.dimensions: dict[str, int] = {}
        self.families: dict[str, Family] = {}
        for name in self.classes:
            self.families[name] = self._outline(name, 1, inverse=True).family

            def fitting(sizes: Mapping[str, int], name: str = name) -> bool:
                return fits(self._outline(name, sizes["d"], inverse=True), memory)

            highs = limit_sizes({"d": (1, dimension)}, fitting)
            if highs is None:
                needed = self._outline(name, 1, inverse=True).memory().total
                raise ValueError(
                    f"{name} with a single dimension needs about {needed / 1e9:.3g} GB, more than half of the free memory, "
                    f"{memory / 1e9:.3g} GB. Use another model, or a smaller graph."
                )
            self.dimensions[name] = highs["d"]
        factory = graph.datasets[False].training
        #: the loss that suits the graph
        self.default_loss = choose_loss(Frequencies.of(factory), closed_world=False)
        queries = sum(len(factory.mapped_triples[:, pair].unique(dim=0)) for pair in ([0, 1], [1, 2]))
        #: how many epochs of the squared loss one of mini-batches takes the place of
        self.steps = STEPS * max(1.0, queries / MOST_QUERIES / STEPS_PER_EPOCH) ** 0.5
        self.ranges = {
            (loss, family): loss_ranges(
                NonSamplingLCWATrainingLoop, cast(FactorizedLoss, loss_resolver.make(loss)), factory, family
            )
            for loss in self.losses
            for family in set(self.families.values())
        }

    def _outline(self, model: str, dimension: int, inverse: bool) -> Outline:
        cls, factory = self.classes[model], self.graph.datasets[inverse].training
        task = partial(NonSamplingLCWATrainingLoop.plan_task, None, inverse=inverse)
        return outline(cls, {**model_defaults(cls), "embedding_dim": dimension}, factory, task)

    def _learning_rates(self, model: str, loss: str) -> tuple[str, dict[str, Any]]:
        needs_scores = cast(type[FactorizedLoss], loss_resolver.lookup(loss)).needs_scores
        return learning_rates(NonSamplingLCWATrainingLoop, self.classes[model], needs_scores)

    def default(self, model: str) -> dict[str, Any]:
        """Return the parameters of a trial with the defaults of a model."""
        loss = self.default_loss
        optimizer, lr = optimization(NonSamplingLCWATrainingLoop, self.classes[model], loss.needs_scores)
        name = loss_resolver.normalize_cls(loss)
        return {
            "model": model,
            "loss": name,
            **{switch: switch == "start" for switch in self._switches(model, name)},
            "share": 1.0,
            _rate(model, optimizer): lr,
        }

    def _switches(self, model: str, loss: str) -> list[str]:
        """List the parameters of a trial that are true or false."""
        if not cast(type[FactorizedLoss], loss_resolver.lookup(loss)).needs_scores:
            return ["create_inverse_triples"]
        return [x for x in SWITCHES if x != "squared" or self.families[model].is_distance]

    def suggest(self, trial: optuna.Trial, default: bool) -> Choice:
        """Choose the parameters of a trial.

        :param trial: the trial
        :param default: whether weights are left to be derived from the graph
        :return: the choice
        """
        model = trial.suggest_categorical("model", list(self.classes))
        loss = trial.suggest_categorical("loss", self.losses)
        switches = {name: trial.suggest_categorical(name, [False, True]) for name in self._switches(model, loss)}
        share = trial.suggest_float("share", SHARES["low"], SHARES["high"], log=True)
        optimizer, rates = self._learning_rates(model, loss)
        lr = trial.suggest_float(_rate(model, optimizer), rates["low"], rates["high"], log=True)
        family = self.families[model]
        ranges = {} if default else self.ranges[loss, family]
        # the ranges depend on the family, so each has parameters of its own
        loss_kwargs = suggest_kwargs(trial, prefix=_prefix(loss, family), kwargs_ranges=ranges)
        inverse = switches.pop("create_inverse_triples")
        return Choice(model, loss, inverse, share, lr, loss_kwargs, **switches)

    def vary(self, trial: FrozenTrial, random: Random) -> dict[str, Any]:
        """Change all parameters of a trial a little, but for model and loss.

        :param trial: the trial
        :param random: draws the changes
        :return: the new parameters
        """
        params = self._change(trial, lambda value, space: _step(value, space, random.gauss(0.0, STEP)))
        return params | {name: not params[name] for name in SWITCHES if name in params and random.random() < FLIP}

    def turn(self, trial: FrozenTrial, name: str) -> dict[str, Any]:
        """Turn a switch, and leave all other parameters as they are, as far as their ranges allow.

        :param trial: the trial
        :param name: the name of the switch
        :return: the new parameters
        """
        params = self._change(trial, lambda value, space: _step(value, space, 0.0))
        return {**params, name: not params[name]}

    def _change(self, trial: FrozenTrial, change: Callable[[float, Mapping[str, Any]], float]) -> dict[str, Any]:
        """Change the numbers among the parameters of a trial, each within its range."""
        params = dict(trial.params)
        prefix = _prefix(params["loss"], self.families[params["model"]])
        optimizer, rates = self._learning_rates(params["model"], params["loss"])
        spaces = {"share": SHARES, _rate(params["model"], optimizer): rates}
        for name, space in self.ranges[params["loss"], self.families[params["model"]]].items():
            spaces[f"{prefix}.{name}"] = space
            # derived, if the trial has the defaults
            params.setdefault(f"{prefix}.{name}", trial.user_attrs["configuration"]["loss_kwargs"][name])
        return params | {name: change(params[name], space) for name, space in spaces.items()}

    def configure(self, choice: Choice, rung: int, repetition: int = 0) -> dict[str, Any]:
        """Write a choice as arguments of ``pipeline()``, all but the dataset, and leave out no parameter of the model.

        :param choice: the choice
        :param rung: the rung to run it on
        :param repetition: how often it was run there before; each time has a seed of its own
        :return: the arguments, as in a configuration file
        """
        scale, cls = RUNGS[rung], self.classes[choice.model]
        steps = scale.epochs * self.epochs
        epochs = max(1, round(steps / self.steps if choice.loss == "softmax" else steps))
        dimension = max(1, round(scale.dimension * choice.share * self.dimensions[choice.model]))
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(cls).parameters.items()
            if isinstance(parameter.default, (bool, int, float, str))
        }
        return dict(
            model=choice.model,
            model_kwargs={
                **defaults,
                **model_defaults(cls),
                "embedding_dim": dimension,
            },
            training_loop="nonsamplinglcwa",
            training_loop_kwargs={
                # it does not look at the clock, so it must not take long
                "start_epochs": max(1, round(min(steps, scale.epochs * START_EPOCHS))) if choice.start else 0,
                **({"factorization_kwargs": dict(squared=True)} if choice.squared else {}),
            },
            loss=choice.loss,
            loss_kwargs=dict(choice.loss_kwargs),
            optimizer=self._learning_rates(choice.model, choice.loss)[0],
            optimizer_kwargs=dict(lr=choice.learning_rate),
            lr_scheduler="CosineAnnealingLR",
            lr_scheduler_kwargs=dict(T_max=epochs),
            training_kwargs=dict(num_epochs=epochs, batch_size=None),
            evaluator="factorized",
            random_seed=self.seed + repetition,
        )


def _rate(model: str, optimizer: str) -> str:
    """Name the learning rate, whose range depends on model and optimizer."""
    return f"lr of {model} with {optimizer}"


def _prefix(loss: str, family: Family) -> str:
    """Name the parameters of a loss, whose ranges depend on the family of the model."""
    return f"{loss} of {family.value}"


def _step(value: float, space: Mapping[str, Any], size: float) -> float:
    """Change a number by a share of its range, and keep it in there."""
    low, high, q = float(space["low"]), float(space["high"]), space.get("q")
    changed = value * (high / low) ** size if space.get("log") else value + size * (high - low)
    changed = min(max(changed, low), high)
    return low + round((changed - low) / q) * q if q else changed
