"""The local closed world: PyKEEN's LCWA loop, without scoring a candidate."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import GRAPHS
from pykeen.datasets import Nations
from pykeen.models import DistMult, ERModel, Model
from pykeen.nn.modules import DistMultInteraction
from pykeen.training import LCWATrainingLoop
from pykeen.training.training_loop import CheckpointMismatchError
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, RelationLossWeighter
from steps import Recorder
from torch import Tensor
from weights import UNIFORM, TripleWeighter

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop

FACTORY = GRAPHS["ordinary"]


def make_distmult(factory: CoreTriplesFactory = FACTORY, **loss_kwargs: Any) -> Model:
    loss = NonSamplingLoss(**{"negative_weight": 0.1, **UNIFORM, **loss_kwargs})
    return DistMult(triples_factory=factory, embedding_dim=4, random_seed=0, loss=loss, regularizer=None).double()


def train(model: Model, factory: CoreTriplesFactory = FACTORY, num_epochs: int = 1, **kwargs: Any) -> tuple[Recorder, float]:
    recorder = Recorder()
    loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, **kwargs)
    # the parameters are drawn when training begins
    torch.manual_seed(0)
    losses = loop.train(factory, num_epochs=num_epochs, callbacks=recorder, use_tqdm=False)
    assert losses is not None
    return recorder, losses[0]


class TestLikePyKEENsLoop:
    """The loss and the gradient are those of PyKEEN's loop with the same loss, which scores all candidates."""

    @pytest.mark.parametrize("target", ["tail", "head", 2, 0])
    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("create_inverse_triples", [False, True])
    def test_first_step(self, target: Any, reduction: Any, weighted: bool, create_inverse_triples: bool) -> None:
        factory = Nations(create_inverse_triples=create_inverse_triples).training
        weights = torch.linspace(0.1, 2.0, factory.num_relations, dtype=torch.double)
        loss_weighter = RelationLossWeighter(weights) if weighted else None
        ours, recorder = make_distmult(factory, reduction=reduction), Recorder()
        gradients, loss = train(ours, factory, target=target, loss_weighter=loss_weighter)
        theirs = LCWATrainingLoop(
            model=make_distmult(factory, reduction=reduction, query_weight=None, candidate_weight=None),
            triples_factory=factory,
            target=target,
            loss_weighter=loss_weighter,
            automatic_memory_optimization=False,
        )
        torch.manual_seed(0)
        losses = theirs.train(factory, num_epochs=1, batch_size=10**6, callbacks=recorder, use_tqdm=False)
        assert losses is not None
        # PyKEEN has 32 bits for labels
        assert loss == pytest.approx(losses[0], rel=1e-5)
        for name, gradient in gradients.gradients[0].items():
            torch.testing.assert_close(gradient, recorder.gradients[0][name], rtol=1e-4, atol=1e-6)

    def test_both_ends_are_the_sum_of_either(self) -> None:
        both, tail, head = (train(make_distmult(), target=target)[1] for target in ("both", "tail", "head"))
        assert both == pytest.approx(tail + head, rel=1e-12)


class TestTargets:
    def test_both_by_default(self) -> None:
        assert train(make_distmult())[1] == train(make_distmult(), target="both")[1]

    def test_tails_only_with_inverse_triples(self) -> None:
        factory = GRAPHS["inverse triples"]
        assert train(make_distmult(factory), factory)[1] == train(make_distmult(factory), factory, target="tail")[1]
        assert train(make_distmult(factory), factory)[1] != train(make_distmult(factory), factory, target="both")[1]

    @pytest.mark.parametrize("target", ["relation", 1, "tails", 7])
    def test_others_are_refused(self, target: Any) -> None:
        with pytest.raises(ValueError, match=r"target=.*use 'tail', 'head' or 'both'"):
            train(make_distmult(), target=target)

    def test_checkpoint_of_another_end_is_refused(self, tmp_path: Path) -> None:
        options: dict[str, Any] = dict(num_epochs=2, use_tqdm=False, checkpoint_name="x.pt", checkpoint_directory=tmp_path)
        for target, context in (("tail", contextlib.nullcontext()), ("head", pytest.raises(CheckpointMismatchError))):
            loop = NonSamplingLCWATrainingLoop(model=make_distmult(), triples_factory=FACTORY, target=target)
            with context:
                loop.train(FACTORY, **options)


class TestErrors:
    @pytest.mark.parametrize("name", ["query_weight", "candidate_weight"])
    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_exponents(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=f"{name}={value} is out of range"):
            NonSamplingLoss(**{name: value})

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            (dict(regularization_weight=-1.0), "regularization_weight=-1.0 is out of range"),
            (dict(regularization_weight=float("nan")), "regularization_weight=nan is out of range"),
            (dict(regularization_power=0.5), "regularization_power=0.5 is out of range"),
            (dict(duality_weight=-1.0), "duality_weight=-1.0 is out of range"),
        ],
    )
    def test_weights_out_of_range(self, kwargs: dict[str, float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            NonSamplingLoss(**kwargs)  # type: ignore[arg-type]

    def test_functions_of_the_wrong_shape(self) -> None:
        with pytest.raises(ValueError, match=r"query_weight=.* gives weights of shape \(1,\), but the shape must be \(5,\)"):
            train(make_distmult(query_weight=lambda e, r, n: torch.ones(1)))

    def test_functions_of_negative_values(self) -> None:
        with pytest.raises(ValueError, match=r"candidate_weight=.* gives weights from -"):
            train(make_distmult(candidate_weight=lambda n: n - 5))

    @pytest.mark.parametrize("name", ["query_weight", "candidate_weight"])
    def test_closed_world_has_no_queries(self, name: str) -> None:
        loop = NonSamplingTrainingLoop(model=make_distmult(**{name: 0.5}), triples_factory=FACTORY)
        with pytest.raises(ValueError, match=f"{name}=0.5 does not apply in the closed world"):
            loop.train(FACTORY, num_epochs=1, use_tqdm=False)

    def test_loss_weighter_of_single_triples(self) -> None:
        class Popular(LossWeighter):
            def __call__(self, h: Tensor | None, r: Tensor | None, t: Tensor | None) -> Tensor:
                return torch.linspace(1, 2, 5) if t is None else torch.ones(())

        for weighter, message in (
            (TripleWeighter(), "cannot weigh all candidates of a query at once"),
            (Popular(), r"gives weights of shape \(5,\) for 5 queries, which differ among the candidates"),
        ):
            with pytest.raises(ValueError, match=rf"{message}.*RelationLossWeighter"):
                train(make_distmult(), loss_weighter=weighter, target="tail")

    def test_queries_that_are_not_linear_in_the_heads(self) -> None:
        from pykeen_nonsampling.factorizations import DistMultFactorization, Form, FunctionForm, NotDecomposableError

        class Shifted(DistMultInteraction):
            def forward(self, h, r, t):  # type: ignore[no-untyped-def]
                return ((h * r + 1) * t).sum(dim=-1)

        class ShiftedFactorization(DistMultFactorization):
            interaction_cls = Shifted

            @property
            def form(self) -> Form:
                return FunctionForm(lambda heads, relations: heads * relations + 1)

        model: Any = ERModel(
            triples_factory=FACTORY,
            interaction=Shifted,
            entity_representations_kwargs=dict(shape=4),
            relation_representations_kwargs=dict(shape=4),
            loss=NonSamplingLoss(),
        )
        with pytest.raises(NotDecomposableError, match="ShiftedFactorization gives other scores from its other end"):
            train(model, factorization=ShiftedFactorization)
