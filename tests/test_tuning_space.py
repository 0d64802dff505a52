"""What is searched: choices within their ranges, on every scale."""

from __future__ import annotations

from random import Random
from typing import Any

import optuna
import pytest
from searches import make_space

from pykeen_nonsampling.hpo import fits, known_losses
from pykeen_nonsampling.tuning import LAST, RUNGS, Graph, Space, Tuner, space
from pykeen_nonsampling.tuning.space import SHARES, Choice


@pytest.fixture(scope="module")
def searched() -> Space:
    return make_space(("DistMult", "TransE"))


def ask(params: dict[str, Any] | None = None) -> optuna.Trial:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    if params is not None:
        study.enqueue_trial(params)
    return study.ask()


class TestGraph:
    def test_is_loaded_with_and_without_inverse_triples(self) -> None:
        graph = Graph("nations", dict(dataset="nations"))
        assert graph.arguments(True) == dict(dataset="nations", dataset_kwargs=dict(create_inverse_triples=True))
        assert {inverse: x.training.create_inverse_triples for inverse, x in graph.datasets.items()} == {
            False: False,
            True: True,
        }
        assert graph.datasets is graph.datasets


class TestScales:
    def test_each_rung_is_larger_than_the_one_before(self) -> None:
        for scales in zip(*RUNGS, strict=True):
            assert list(scales) == sorted(set(scales))
            assert scales[0] > 0
        assert tuple(RUNGS[LAST]) == (1, 1)

    @pytest.mark.parametrize(
        ("rung", "share", "dimension", "epochs"),
        [(0, 1.0, 4, 10), (1, 1.0, 8, 20), (2, 1.0, 16, 30), (2, 0.5, 8, 30), (0, 0.25, 1, 10), (0, 0.01, 1, 10)],
    )
    def test_sizes(self, searched: Space, rung: int, share: float, dimension: int, epochs: int) -> None:
        """Of at most 16 dimensions and 30 epochs."""
        choice = Choice("DistMult", "nonsampling", False, share, 0.02, dict(query_weight=0.5))
        configuration = searched.configure(choice, rung)
        assert configuration["model_kwargs"]["embedding_dim"] == dimension
        assert configuration["training_kwargs"]["num_epochs"] == epochs
        # the schedule ends with the last epoch
        assert configuration["lr_scheduler_kwargs"] == dict(T_max=epochs)
        assert configuration["optimizer_kwargs"] == dict(lr=0.02)
        assert (configuration["loss"], configuration["loss_kwargs"]) == ("nonsampling", dict(query_weight=0.5))
        assert configuration["random_seed"] == 0

    def test_what_a_model_needs_is_in_there(self, searched: Space) -> None:
        configuration = searched.configure(Choice("TransE", "nonsampling", True, 1.0, 0.02, {}), LAST)
        assert configuration["model_kwargs"]["scoring_fct_norm"] == 2
        assert configuration["model_kwargs"]["power_norm"] is False

    def test_at_least_one_epoch(self) -> None:
        configuration = make_space(epochs=1).configure(Choice("DistMult", "nonsampling", False, 1.0, 0.02, {}), 0)
        assert configuration["training_kwargs"]["num_epochs"] == 1

    def test_a_start_has_the_epochs_of_the_squared_loss(self, searched: Space) -> None:
        choice = Choice("TransE", "softmax", False, 1.0, 0.02, {}, start=True, squared=True)
        configuration = searched.configure(choice, LAST)
        assert configuration["training_kwargs"]["num_epochs"] == 6
        assert configuration["training_loop_kwargs"] == dict(start_epochs=30, factorization_kwargs=dict(squared=True))
        assert searched.configure(choice._replace(start=False, squared=False), LAST)["training_loop_kwargs"] == dict(
            start_epochs=0
        )

    @pytest.mark.parametrize(("queries", "epochs"), [(1000, 6), (10, 3), (1, 1)])
    def test_fewer_epochs_if_they_have_more_steps(self, queries: int, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """There are 909 queries."""
        monkeypatch.setattr(space, "MOST_QUERIES", queries)
        configuration = make_space().configure(Choice("DistMult", "softmax", False, 1.0, 0.02, {}), LAST)
        assert configuration["training_kwargs"]["num_epochs"] == epochs


class TestMemory:
    def test_dimensions_are_the_largest_that_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = make_space(dimension=64)
        sizes = [whole._outline("DistMult", d, inverse=True) for d in range(1, 65)]
        free = 2 * sizes[40].memory().total
        expected = max(d for d, made in enumerate(sizes, start=1) if fits(made, free // 2))
        assert 1 < expected < 64
        assert whole.dimensions == {"DistMult": 64}
        monkeypatch.setattr(space, "free_memory", lambda _: free)
        assert make_space(dimension=64).dimensions == {"DistMult": expected}

    def test_none_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(space, "free_memory", lambda _: 2_000)
        with pytest.raises(ValueError, match=r"DistMult with a single dimension needs about .* GB, more than half of"):
            make_space()


class TestSuggestions:
    @pytest.mark.parametrize("model", ["DistMult", "TransE"])
    def test_defaults_leave_weights_to_the_graph(self, searched: Space, model: str) -> None:
        params = searched.default(model)
        trial = ask(params)
        choice = searched.suggest(trial, default=True)
        assert trial.params == params
        assert (choice.model, choice.inverse, choice.share, choice.loss_kwargs) == (model, False, 1.0, {})
        assert choice.loss == "softmax"

    @pytest.mark.parametrize("model", ["DistMult", "TransE"])
    @pytest.mark.parametrize("loss", known_losses())
    def test_others_choose_all_weights(self, searched: Space, model: str, loss: str) -> None:
        trial = ask(dict(model=model, loss=loss))
        choice = searched.suggest(trial, default=False)
        ranges = searched.ranges[loss, searched.families[model]]
        assert choice.loss_kwargs.keys() == ranges.keys() != set()
        for name, value in choice.loss_kwargs.items():
            assert ranges[name]["low"] <= value <= ranges[name]["high"]
        assert SHARES["low"] <= choice.share <= SHARES["high"]
        low, high = dict(nonsampling=(0.005, 0.1), softmax=(0.02, 0.5))[loss]
        assert low <= choice.learning_rate <= high
        assert searched.configure(choice, LAST)["optimizer"] == dict(nonsampling="Adam", softmax="Adagrad")[loss]


class TestSteps:
    @pytest.mark.parametrize(
        ("value", "size", "expected"), [(5.0, 0.0, 5.0), (5.0, 0.25, 7.5), (5.0, -0.25, 2.5), (5.0, 3, 10), (5.0, -3, 0)]
    )
    def test_are_shares_of_the_range(self, value: float, size: float, expected: float) -> None:
        assert space._step(value, dict(low=0, high=10), size) == pytest.approx(expected)

    @pytest.mark.parametrize(("size", "expected"), [(0.0, 0.1), (0.5, 1.0), (-0.5, 0.01), (7, 1.0), (-7, 0.01)])
    def test_of_logarithms(self, size: float, expected: float) -> None:
        assert space._step(0.1, dict(low=0.01, high=1.0, log=True), size) == pytest.approx(expected)

    @pytest.mark.parametrize(("size", "expected"), [(0.0, 4), (0.12, 6), (0.08, 4), (1, 12)])
    def test_of_a_grid(self, size: float, expected: int) -> None:
        """From 2 to 12, in steps of 2."""
        assert space._step(4, dict(low=2, high=12, q=2), size) == expected


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuner:
    """Run some trials."""
    found = make_space(("DistMult", "TransE"), dimension=8, epochs=3)
    tuner = Tuner(found, tmp_path_factory.mktemp("tuned"), storage="sqlite:///:memory:")
    tuner.run(seconds=60, trials=6)
    assert tuner.finished
    return tuner


def test_variations_stay_in_their_ranges(tuned: Tuner) -> None:
    """Of trials with the defaults, too, whose weights are derived."""
    random = Random(0)  # noqa: S311
    for trial in tuned.finished:
        for _ in range(8):
            params = tuned.space.vary(trial, random)
            assert (params["model"], params["loss"]) == (trial.params["model"], trial.params["loss"])
            assert params != trial.params
            tuned.study.enqueue_trial(params)
            asked = tuned.study.ask()
            tuned.space.suggest(asked, default=False)
            # nothing was out of range, which Optuna would correct
            assert asked.params == params


class TestInversion:
    def test_only_inverse_triples_change(self, tuned: Tuner) -> None:
        for trial in tuned.finished:
            params = tuned.space.turn(trial, "create_inverse_triples")
            changed = {name for name, value in trial.params.items() if params[name] != pytest.approx(value)}
            assert changed == {"create_inverse_triples"}
            assert params["create_inverse_triples"] is not trial.params["create_inverse_triples"]
            # what was derived is said
            weights = trial.user_attrs["configuration"]["loss_kwargs"]
            prefix = space._prefix(params["loss"], tuned.space.families[params["model"]])
            for name, range_ in tuned.space.ranges[params["loss"], tuned.space.families[params["model"]]].items():
                expected = min(max(weights[name], range_["low"]), range_["high"])
                assert params[f"{prefix}.{name}"] == pytest.approx(expected, abs=(range_.get("q") or 0) / 2)


def test_settings_tell_searches_apart() -> None:
    one, other = make_space().settings, make_space(epochs=31).settings
    assert {name for name in one if one[name] != other[name]} == {"epochs"}
    assert one["model"] == ["DistMult"]
    assert one["graph"] == dict(dataset="nations")
