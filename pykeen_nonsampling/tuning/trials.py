"""What was tried: the trials of a search, as recorded, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import optuna
import pandas as pd
from optuna.trial import FrozenTrial, TrialState

from .space import RUNGS, SWITCHES, Space

#: How the time of an epoch grows with the dimension: by its square, if matrices are large, and less if they are small
TIME_EXPONENT = 1.5

#: Why a trial did not finish, if it would have: it may be run again
UNFINISHED = (None, "stopped at the end of the time", "interrupted")


class Trials:
    """The trials of a search, in Optuna's storage, which is written after each of them.

    A trial that reached the last rung is complete. All others count as pruned, which Optuna ranks behind, by rung.
    """

    def __init__(self, space: Space, storage: str):
        """Open the search, or create it.

        :param space: what to search
        :param storage: the address of Optuna's storage
        :raises ValueError: if the storage has a search of that graph with other settings
        """
        self.space = space
        self.study = optuna.create_study(
            storage=storage, study_name=space.graph.name, direction="maximize", load_if_exists=True
        )
        known = self.study.user_attrs.get("settings")
        if known is None:
            self.study.set_user_attr("settings", space.settings)
            self.study.set_user_attr("dimensions", space.dimensions)
        else:
            self._check_settings(known, storage)
            # what fits the memory may have changed, but trials are compared with earlier ones
            space.dimensions = self.study.user_attrs["dimensions"]
        for trial in self._trials(TrialState.RUNNING):
            # of a process that was killed
            self.study.tell(trial.number, state=TrialState.FAIL)
        for _ in self._trials(TrialState.WAITING):
            # the same, a moment earlier: Optuna hands these out first
            self.study.tell(self.study.ask(), state=TrialState.FAIL)
        # other random numbers than before
        self.study.sampler = optuna.samplers.TPESampler(seed=space.seed + len(self.study.trials), multivariate=False)
        #: the seconds of earlier runs
        self.before = max((x.user_attrs.get("finished", 0.0) for x in self.study.trials), default=0.0)
        self.started = len(self.study.trials)

    def _check_settings(self, known: Mapping[str, Any], storage: str) -> None:
        """Refuse to mix trials that cannot be compared."""
        for name, value in self.space.settings.items():
            if known.get(name) != value:
                raise ValueError(
                    f"{storage} has a search of {self.space.graph.name} with {name}={known.get(name)}, but now it is "
                    f"{name}={value}, so that trials could not be compared. Use the same settings, or another directory."
                )

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states)

    @property
    def finished(self) -> list[FrozenTrial]:
        """All trials with a result."""
        return [x for x in self._trials(TrialState.COMPLETE, TrialState.PRUNED) if x.value is not None]

    @property
    def ranking(self) -> list[FrozenTrial]:
        """One trial per configuration and rung, that of the better seed, by the mean over all seeds it was run with.

        So a result with one seed counts as much as a mean over several. What failed with any seed is left out.
        """
        seeds: dict[tuple[int, int], list[FrozenTrial]] = {}
        for trial in self._attempts():
            seeds.setdefault(_place(trial), []).append(trial)
        ranked = sorted(seeds.values(), key=mean_mrr, reverse=True)
        return [max(trials, key=mrr) for trials in ranked if mean_mrr(trials) > -math.inf]

    @property
    def best(self) -> FrozenTrial | None:
        """The first trial of the ranking: the best result on the validation triples, on any rung, as a mean over seeds."""
        return next(iter(self.ranking), None)

    @property
    def best_default(self) -> FrozenTrial | None:
        """The best trial with the defaults, on the highest rung that any of them has reached."""
        defaults = [x for x in self.ranking if x.user_attrs["default"]]
        return max(defaults, key=lambda x: x.user_attrs["rung"], default=None)

    def repetitions(self, trial: FrozenTrial) -> list[FrozenTrial]:
        """Return all trials with the configuration and rung of one, that one among them, which differ by their seeds."""
        return [x for x in self.finished if _place(x) == _place(trial)]

    def _attempts(self) -> list[FrozenTrial]:
        """Return all trials that need not be run again."""
        failed = [x for x in self._trials(TrialState.FAIL) if x.user_attrs.get("reason") not in UNFINISHED]
        return self.finished + [x for x in failed if "root" in x.user_attrs and "model" in x.params]

    def _reached(self) -> dict[int, int]:
        """Find the highest rung that each configuration was tried on."""
        reached: dict[int, int] = {}
        for trial in self._attempts():
            root = trial.user_attrs["root"]
            reached[root] = max(reached.get(root, 0), trial.user_attrs["rung"])
        return reached

    def _expect(self, trial: FrozenTrial, rung: int) -> float:
        """Estimate how long a configuration takes on a rung."""
        return self._estimate(trial.params["model"], trial.params["loss"], trial.params["share"], rung)

    def _expect_new(self, model: str) -> float:
        return self._estimate(model, None, 1.0, 0)

    def _estimate(self, model: str, loss: str | None, share: float, rung: int) -> float:
        """Estimate the seconds of a trial from the most similar one, with the same model and loss, if there is any."""
        finished = self.finished
        similar = [x for x in finished if x.params["model"] == model] or finished
        similar = [x for x in similar if x.params["loss"] == loss] or similar
        if not similar:
            return 0.0
        scale = RUNGS[rung]

        def ratios(trial: FrozenTrial) -> tuple[float, float]:
            other = RUNGS[trial.user_attrs["rung"]]
            return scale.dimension * share / (other.dimension * trial.params["share"]), scale.epochs / other.epochs

        closest = min(similar, key=lambda x: sum(abs(math.log(ratio)) for ratio in ratios(x)))
        dimensions, epochs = ratios(closest)
        return float(closest.user_attrs["seconds"]) * epochs * dimensions**TIME_EXPONENT

    def experiment(self, trial: FrozenTrial, **metadata: Any) -> dict[str, Any]:
        """Write a trial as an experiment that PyKEEN can run, with nothing left to defaults.

        :param trial: the trial
        :param metadata: further metadata
        :return: the experiment
        """
        configuration = trial.user_attrs["configuration"]
        seeds = self.repetitions(trial)
        return dict(
            metadata=dict(
                title=f"{configuration['model']} on {self.space.graph.name}, found by pykeen-nonsampling tune",
                trial=trial.number,
                trials=len(self.finished),
                search_seconds=round(max(x.user_attrs["finished"] for x in self.finished), 1),
                validation=trial.user_attrs["metrics"],
                repeated=len(seeds) > 1,
                validation_seeds={str(x.user_attrs["configuration"]["random_seed"]): mrr(x) for x in seeds},
                validation_mean=mean_mrr(seeds),
                **metadata,
            ),
            pipeline={**self.space.graph.arguments(trial.params["create_inverse_triples"]), **configuration},
        )

    def table(self) -> pd.DataFrame:
        """Return one row per trial, in the order in which they started."""
        rows = []
        for trial in self.study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            configuration = attributes.get("configuration", {})
            rows.append(
                {
                    "trial": trial.number,
                    "configuration": attributes.get("root"),
                    "rung": attributes.get("rung"),
                    "seed": configuration.get("random_seed"),
                    "state": {"COMPLETE": "finished", "PRUNED": "finished"}.get(trial.state.name, trial.state.name.lower()),
                    "reason": attributes.get("reason", "killed" if trial.state is TrialState.FAIL else None),
                    "defaults": attributes.get("default"),
                    **({} if trial.state is TrialState.FAIL else attributes.get("metrics", {})),
                    "seconds": attributes.get("seconds"),
                    "finished": attributes.get("finished"),
                    "model": configuration.get("model"),
                    "embedding_dim": configuration.get("model_kwargs", {}).get("embedding_dim"),
                    **{name: trial.params.get(name) for name in SWITCHES},
                    "epochs": configuration.get("training_kwargs", {}).get("num_epochs"),
                    "lr": configuration.get("optimizer_kwargs", {}).get("lr"),
                    "loss": configuration.get("loss"),
                    **configuration.get("loss_kwargs", {}),
                }
            )
        return pd.DataFrame(rows).dropna(axis="columns", how="all")


def mrr(trial: FrozenTrial) -> float:
    """Return the result of a trial; less than any other, if it has none."""
    return float(trial.value if trial.value is not None else -math.inf)


def mean_mrr(trials: Iterable[FrozenTrial]) -> float:
    """Return the mean result of trials; less than any other, if one of them has none."""
    return fmean(map(mrr, trials))


def _place(trial: FrozenTrial) -> tuple[int, int]:
    """Name configuration and rung of a trial."""
    return trial.user_attrs["root"], trial.user_attrs["rung"]
