"""A small search, with trials that nobody has run."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import TrialState

from pykeen_nonsampling.tuning import Graph, Space, Trials


def make_space(models: tuple[str, ...] = ("DistMult",), dimension: int = 16, epochs: int = 30, seed: int = 0) -> Space:
    return Space(Graph("nations", dict(dataset="nations")), models, dimension=dimension, epochs=epochs, seed=seed)


def add(
    trials: Trials,
    rung: int,
    value: float | None,
    seconds: float = 1.0,
    root: int | None = None,
    default: bool | None = None,
    inverse: bool = False,
    model: str = "DistMult",
    share: float = 1.0,
    state: TrialState | None = None,
    seed: int = 0,
    **attributes: Any,
) -> None:
    """Add a trial; one that failed has no value."""
    number = len(trials.study.trials)
    weights = dict(negative_weight=0.1, query_weight=0.5, candidate_weight=0.5)
    weights["regularization_weight"] = 0.05
    attributes = dict(
        rung=rung,
        root=number if root is None else root,
        default=number == 0 if default is None else default,
        seconds=seconds,
        finished=float(number),
        configuration=dict(model=model, loss_kwargs=weights, random_seed=seed),
        metrics=dict(MRR=value),
        **attributes,
    )
    rate = f"lr of {model} with Adam"
    params = {"model": model, "loss": "nonsampling", "create_inverse_triples": inverse, "share": share, rate: 0.05}
    models = list(trials.space.classes)
    categories = dict(model=models, loss=trials.space.losses, create_inverse_triples=[False, True])
    distributions: dict[str, Any] = {
        **{name: optuna.distributions.CategoricalDistribution(values) for name, values in categories.items()},
        "share": optuna.distributions.FloatDistribution(0.25, 1.0, log=True),
        rate: optuna.distributions.FloatDistribution(0.005, 0.1, log=True),
    }
    trial = optuna.trial.create_trial(
        value=value, params=params, distributions=distributions, user_attrs=attributes, state=state or TrialState.COMPLETE
    )
    trials.study.add_trial(trial)
