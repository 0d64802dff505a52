"""The loss, in and outside of the loop that needs no scores of negatives."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.losses import Loss, MarginRankingLoss, MSELoss, loss_resolver
from pykeen.pipeline import pipeline

from pykeen_nonsampling import NonSamplingLoss
from pykeen_nonsampling.factorizations.moments import ScoreMoments
from pykeen_nonsampling.losses import check_loss
from pykeen_nonsampling.losses.objective import Objective, Scores
from pykeen_nonsampling.losses.squared import SquaredObjective


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.double)


@pytest.fixture
def labels() -> torch.Tensor:
    return (torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.3).double()


def test_definition(scores: torch.Tensor, labels: torch.Tensor) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    expected = (2.0 * labels * (scores - 1) ** 2 + 0.1 * (1 - labels) * scores**2).sum()
    torch.testing.assert_close(loss(scores, labels), expected)
    mean = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1, reduction="mean")
    torch.testing.assert_close(mean(scores, labels), expected / scores.numel())


def test_equal_weights_are_the_squared_error(scores: torch.Tensor, labels: torch.Tensor) -> None:
    for reduction in ("sum", "mean"):
        ours, pykeens = NonSamplingLoss(1.0, 1.0, reduction=reduction), MSELoss(reduction=reduction)  # type: ignore[arg-type]
        for smoothing in (None, 0.2):
            arguments: dict[str, Any] = dict(predictions=scores, labels=labels, label_smoothing=smoothing, num_entities=7)
            torch.testing.assert_close(ours.process_lcwa_scores(**arguments), pykeens.process_lcwa_scores(**arguments))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_objective_and_scores_give_the_same(scores: torch.Tensor, labels: torch.Tensor, label_smoothing: float) -> None:
    """What this package's training loops compute from moments, PyKEEN's compute from scores."""
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    weights = torch.rand(5, 7, dtype=torch.double)
    positive = labels.bool()
    seen = Scores(
        positives=scores[positive],
        query_index=positive.nonzero()[:, 0],
        candidates=ScoreMoments(count=7, first=scores.sum(dim=1), second=scores.square().sum(dim=1)),
        positive_weights=2.0 * weights[positive],
        query_weights=0.1,
    )
    expected = loss.process_lcwa_scores(
        scores, labels, label_smoothing, num_entities=7, weights=torch.where(positive, weights, 1.0)
    )
    objective = loss.objective(label_smoothing, num_entities=7)
    torch.testing.assert_close(objective.cost(seen), expected)
    torch.testing.assert_close(objective.costs(seen).total, expected)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_weight_outside_of_this_packages_loops(scores: torch.Tensor, labels: torch.Tensor, reduction: Any) -> None:
    default, explicit = (NonSamplingLoss(negative_weight=weight, reduction=reduction) for weight in (None, 1e-3))
    torch.testing.assert_close(default(scores, labels), explicit(scores, labels))


@pytest.mark.parametrize(
    "kwargs", [dict(query_weight=0.5), dict(candidate_weight=0.5), dict(regularization_weight=0.1)], ids=str
)
def test_what_other_loops_cannot_use_is_refused(scores: torch.Tensor, labels: torch.Tensor, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))}=0.*training_loop='nonsamplinglcwa'"):
        NonSamplingLoss(**kwargs)(scores, labels)


def test_sampled_scores_mean_the_same(scores: torch.Tensor) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    actual = loss.process_slcwa_scores(
        scores[:, :1].contiguous(),
        scores[:, 1:].contiguous(),
        pos_weights=torch.full((5, 1), 3.0),
        neg_weights=torch.full((5, 6), 0.5),
    )
    torch.testing.assert_close(actual, 6.0 * (scores[:, 0] - 1).square().sum() + 0.05 * scores[:, 1:].square().sum())


@pytest.mark.parametrize("training_loop", ["slcwa", "lcwa", "symmetriclcwa"])
def test_ordinary_loss_in_pykeens_loops(training_loop: str) -> None:
    result = pipeline(
        dataset="nations",
        model="DistMult",
        model_kwargs=dict(embedding_dim=16, entity_constrainer=None),
        loss="nonsampling",
        loss_kwargs=dict(negative_weight=0.1),
        training_loop=training_loop,
        epochs=15,
        optimizer_kwargs=dict(lr=0.01),
        use_tqdm=False,
        random_seed=0,
    )
    assert result.losses[-1] < 0.8 * result.losses[0]


def test_registered_under_its_name() -> None:
    assert loss_resolver.lookup("nonsampling") is NonSamplingLoss
    assert loss_resolver.lookup("NonSamplingLoss") is NonSamplingLoss


def test_search_space_is_made_of_parameters() -> None:
    assert set(NonSamplingLoss.hpo_default) == {"negative_weight"}
    space = NonSamplingLoss.hpo_default["negative_weight"]
    assert (space["low"], space["high"], space["log"]) == (1e-6, 1e1, True)


def test_losses_that_need_scores_are_refused() -> None:
    check_loss(NonSamplingLoss, closed_world=True)

    class WithObjective(MSELoss):
        def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
            return SquaredObjective()

    with pytest.raises(ValueError, match=r"Derive it from pykeen_nonsampling.FactorizedLoss"):
        check_loss(WithObjective, closed_world=False)
    others: list[type[Loss]] = [MarginRankingLoss, MSELoss]
    for other in others:
        with pytest.raises(ValueError, match=f"{other.__name__} cannot be used.*loss='nonsampling'"):
            check_loss(other, closed_world=True)


class TestParameters:
    def test_make_the_loss_again(self) -> None:
        loss = NonSamplingLoss(2.0, 0.1, query_weight=0.5, candidate_weight="popularity", regularization_power=2.0)
        assert NonSamplingLoss(**loss.kwargs).kwargs == loss.kwargs
        assert repr(NonSamplingLoss(**loss.kwargs)) == repr(loss)
        assert "negative_weight=0.1, query_weight=0.5, candidate_weight='popularity'" in repr(loss)

    def test_of_a_subclass(self) -> None:
        class Tempered(NonSamplingLoss):
            def __init__(self, temperature: float = 1.0, **kwargs: Any):
                super().__init__(**kwargs)
                self.temperature = temperature

        loss = Tempered(temperature=3.0, negative_weight=0.2)
        assert loss.kwargs["temperature"] == 3.0
        assert Tempered(**loss.kwargs).kwargs == loss.kwargs

    def test_resolved_copy_leaves_the_original(self) -> None:
        loss = NonSamplingLoss()
        resolved = loss.replace(negative_weight=0.3)
        assert (loss.negative_weight, resolved.negative_weight) == (None, 0.3)
        assert type(resolved) is NonSamplingLoss


class TestFunctions:
    """They are part of a loss, but not of a file: a trained model needs none of them."""

    def test_model_opens_where_they_do_not_exist(self, tmp_path: Path) -> None:
        functions = {"<lambda>": lambda counts: 1 + counts, "weigh": weigh, "Weigh": Weigh()}
        for i, function in enumerate(functions.values()):
            result = pipeline(
                dataset="nations",
                model="DistMult",
                model_kwargs=dict(embedding_dim=4),
                training_loop="nonsamplinglcwa",
                loss="nonsampling",
                loss_kwargs=dict(candidate_weight=function),
                epochs=20,
                random_seed=0,
                use_tqdm=False,
            )
            assert result.model.loss.candidate_weight is function
            result.save_to_directory(tmp_path / str(i))
        tmp_path.joinpath("use.py").write_text(USE)
        lines = run_python("use.py", *map(str, range(len(functions))), cwd=tmp_path).splitlines()
        for name, parameter, message in zip(functions, lines[::2], lines[1::2], strict=True):
            assert parameter.endswith(name)
            assert re.match(
                rf"candidate_weight=.*{name} is a function that was not saved with .*candidate_weight to it", message
            )

    @pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
    def test_copies_keep_them(self, copied: Any) -> None:
        def weigh(counts: torch.Tensor) -> torch.Tensor:
            return counts

        loss = NonSamplingLoss(candidate_weight=weigh, head_weight=0.5)
        other = copied(loss)
        assert other.candidate_weight is weigh
        assert (repr(other), other.kwargs) == (repr(loss), loss.kwargs)
        other.head_weight = 1.0
        assert loss.head_weight == 0.5


def weigh(counts: torch.Tensor) -> torch.Tensor:
    return 1 + counts


class Weigh:
    def __call__(self, counts: torch.Tensor) -> torch.Tensor:
        return 1 + counts


#: Uses models elsewhere: without the function for prediction, and with it to train on
USE = """
import sys
import torch
from pykeen.datasets import Nations
from pykeen_nonsampling import NonSamplingLCWATrainingLoop

nations = Nations()

def train(model):
    loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=nations.training)
    return loop.train(nations.training, num_epochs=20, use_tqdm=False)

for directory in sys.argv[1:]:
    model = torch.load(f"{directory}/trained_model.pkl", weights_only=False)
    assert model.predict_hrt(nations.testing.mapped_triples).isfinite().all()
    print(model.loss.plain_kwargs["candidate_weight"])
    try:
        train(model)
    except ValueError as error:
        print(error)
    model.loss.candidate_weight = lambda counts: 1 + counts
    assert len(train(model)) == 20
"""
