"""Bad input gets an exception before any training that names the value, the reason and the fix."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.models import CompGCN, ComplEx, ConvE, DistMult, ERModel, Model, RotatE, SimplE, TransE
from pykeen.models.baseline import MarginalDistributionBaseline
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction
from pykeen.pipeline import pipeline
from pykeen.training import NonFiniteLossError, training_loop_resolver
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import RelationLossWeighter
from pykeen.utils import complex_normalize

from pykeen_nonsampling import (
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
    NotDecomposableError,
)
from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.distributed.placement import Placement
from pykeen_nonsampling.factorizations import DistMultFactorization, factorize
from pykeen_nonsampling.losses import automatic
from pykeen_nonsampling.training.run import prepare

FACTORY = GRAPHS["ordinary"]


def train(model: Model, factory: CoreTriplesFactory = FACTORY, loop_kwargs: Any = None, **kwargs: Any) -> None:
    loop = NonSamplingTrainingLoop(model=model, triples_factory=factory, **(loop_kwargs or {}))
    before = [p.detach().clone() for p in model.parameters()]
    try:
        loop.train(factory, **{"num_epochs": 2, "use_tqdm": False, **kwargs})
    finally:
        assert not loop.losses_per_epochs
        assert loop._epoch == 0
        for x, y in zip(before, model.parameters(), strict=True):
            assert torch.equal(x, y)


def distmult(factory: CoreTriplesFactory = FACTORY, **kwargs: Any) -> Model:
    return DistMult(triples_factory=factory, embedding_dim=4, random_seed=0, loss=NonSamplingLoss(), **kwargs)


def run(**kwargs: Any) -> Any:
    """Run a small pipeline, as from a JSON file."""
    settings = dict(
        dataset="nations",
        model="DistMult",
        model_kwargs=dict(embedding_dim=4),
        training_loop="nonsamplinglcwa",
        training_kwargs=dict(num_epochs=20, use_tqdm=False),
        evaluation_kwargs=dict(use_tqdm=False),
        random_seed=0,
    )
    return pipeline(**{**settings, **kwargs})


class TestModels:
    def test_without_factorization(self) -> None:
        with pytest.raises(
            NotDecomposableError,
            match=r"ConvEInteraction cannot be decomposed: a convolution.*Closest supported: TuckER.*models",
        ):
            train(ConvE(triples_factory=FACTORY, random_seed=0))
        assert issubclass(NotDecomposableError, NotImplementedError)

    def test_without_interaction(self) -> None:
        model = MarginalDistributionBaseline(triples_factory=FACTORY)
        model.unused = torch.nn.Linear(1, 1)  # it has no parameters, which an optimizer does not like
        with pytest.raises(NotDecomposableError, match=r"MarginalDistributionBaseline cannot be decomposed.*ERModel"):
            train(model)

    def test_other_norms(self) -> None:
        with pytest.raises(NotDecomposableError, match=r"p=1 .*model_kwargs=dict\(scoring_fct_norm=2, power_norm=True\)"):
            train(TransE(triples_factory=FACTORY, random_seed=0))

    @pytest.mark.parametrize("clamp_score", [20.0, (-3.0, 5.0)])
    def test_clamped_scores(self, clamp_score: Any) -> None:
        """Without a loss that sees every score, which there is none of in the closed world."""
        message = r"NonSamplingLoss cannot be used .*clamped to \(.*loss='crossentropy'.*dict\(clamp_score=None\)"
        for training_loop in (NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop):
            model = SimplE(triples_factory=FACTORY, random_seed=0, clamp_score=clamp_score, loss=NonSamplingLoss())
            with pytest.raises(NotDecomposableError, match=message):
                training_loop(model=model, triples_factory=FACTORY).train(FACTORY, use_tqdm=False)

    @pytest.mark.parametrize("training_loop", [NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop])
    def test_clamped_scores_by_default(self, training_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the loss that sees every score takes too long."""
        monkeypatch.setattr(automatic, "MOST_SCORES", 0)
        model = SimplE(triples_factory=FACTORY, random_seed=0, clamp_score=3.0)
        with pytest.raises(NotDecomposableError, match=r"clamped to \(-3.0, 3.0\).*loss='crossentropy'"):
            training_loop(model=model, triples_factory=FACTORY).train(FACTORY, use_tqdm=False)

    def test_start_of_clamped_scores(self) -> None:
        model = SimplE(triples_factory=FACTORY, random_seed=0, clamp_score=3.0)
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=FACTORY, start_epochs=5)
        with pytest.raises(ValueError, match=r"start_epochs=5 starts with the squared loss.* clamped. Remove it"):
            loop.train(FACTORY, use_tqdm=False)

    @pytest.mark.parametrize(
        "factorization", ["distmult", DistMultFactorization, DistMultFactorization(DistMultInteraction())]
    )
    def test_factorization_of_another_interaction(self, factorization: Any) -> None:
        with pytest.raises(
            ValueError, match=r"DistMultFactorization factorizes DistMultInteraction, but the model has TransE"
        ):
            train(TransE(triples_factory=FACTORY, random_seed=0), loop_kwargs=dict(factorization=factorization))

    def test_unknown_factorization_arguments(self) -> None:
        with pytest.raises(ValueError, match=r"sclae.*do not fit TransEFactorization"):
            train(
                TransE(triples_factory=FACTORY, random_seed=0, scoring_fct_norm=2),
                loop_kwargs=dict(factorization_kwargs=dict(sclae=1.0)),
            )

    @pytest.mark.parametrize(
        "kwargs", [dict(scale=0.0), dict(scale=-1.0), dict(scale=float("nan")), dict(offset=float("inf"))]
    )
    def test_constants_of_the_affine_map(self, kwargs: dict[str, float]) -> None:
        model = TransE(triples_factory=FACTORY, random_seed=0, scoring_fct_norm=2)
        with pytest.raises(ValueError, match=rf"{next(iter(kwargs))}="):
            factorize(model.interaction, factorization_kwargs=kwargs)


class TestSteps:
    """What only holds until the first step is found before it."""

    @pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
    @pytest.mark.parametrize(("constrainer", "when"), [(None, "first step"), ("normalize", "")])
    def test_nothing_keeps_relations_rotations(self, training_loop: str, constrainer: str | None, when: str) -> None:
        model = RotatE(triples_factory=FACTORY, embedding_dim=4, random_seed=0, relation_constrainer=constrainer)
        before = [p.detach().clone() for p in model.parameters()]
        loop = training_loop_resolver.make(training_loop, model=model, triples_factory=FACTORY)
        with pytest.raises(NotDecomposableError, match=f"{when}.*rotations.*relation_constrainer='complex_normalize'"):
            loop.train(FACTORY, num_epochs=2, use_tqdm=False)
        assert not loop.losses_per_epochs
        for x, y in zip(before, model.parameters(), strict=True):
            assert torch.equal(x, y)

    def test_rotations_that_stay(self) -> None:
        """By a constrainer, by a normalizer, or since they are not trained."""
        for kwargs in (
            dict(constrainer="complex_normalize"),
            dict(normalizer=complex_normalize),
            dict(trainable=False),
        ):
            model: Model = ERModel(
                triples_factory=FACTORY,
                interaction="rotate",
                entity_representations_kwargs=dict(shape=4, dtype=torch.cfloat),
                relation_representations_kwargs=dict(shape=4, dtype=torch.cfloat, initializer="init_phases", **kwargs),
                random_seed=0,
            )
            before = model.relation_representations[0](indices=None).detach().clone()
            loop = NonSamplingTrainingLoop(model=model, triples_factory=FACTORY)
            prepare(loop, Placement(FACTORY.num_entities, Group()), FACTORY, NonSamplingLoss(), 0.0)
            assert torch.equal(model.relation_representations[0](indices=None), before)
            assert len(loop.train(FACTORY, num_epochs=2, use_tqdm=False) or []) == 2

    def test_nothing_is_left_of_the_trial(self) -> None:
        """CompGCN keeps what it has computed, and its relations depend on all of its parameters."""
        factory = GRAPHS["inverse triples"]
        kwargs = dict(embedding_dim=4, encoder_kwargs=dict(num_layers=1, layer_kwargs=dict(dropout=0.0)))
        model = CompGCN(triples_factory=factory, random_seed=0, **kwargs).eval()
        before = model.relation_representations[0](indices=None).detach().clone()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=factory)
        prepare(loop, Placement(factory.num_entities, Group()), factory, NonSamplingLoss(), 0.0)
        assert torch.equal(model.relation_representations[0](indices=None), before)


class TestLosses:
    @pytest.mark.parametrize("name", ["positive_weight", "negative_weight"])
    @pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
    def test_weights(self, name: str, value: float) -> None:
        with pytest.raises(ValueError, match=rf"{name}={value} .*use a finite number > 0"):
            NonSamplingLoss(**{name: value})

    def test_named_loss_of_a_model(self) -> None:
        model = DistMult(triples_factory=FACTORY, random_seed=0, loss="softplus")
        with pytest.raises(ValueError, match=r"SoftplusLoss cannot be used"):
            train(model)

    @pytest.mark.parametrize(
        ("loss", "training_loop", "advice"),
        [
            ("marginranking", "nonsampling", "for the mean squared error.$"),
            ("marginranking", "nonsamplinglcwa", "loss='crossentropy'"),
            ("crossentropy", "nonsampling", "training_loop='nonsamplinglcwa'"),
            ("mse", "nonsampling", "training_loop='nonsamplinglcwa'"),
        ],
    )
    def test_named_loss_of_a_pipeline(self, loss: str, training_loop: str, advice: str) -> None:
        """Also the one that PyKEEN would fill in."""
        message = rf"cannot be used without negative sampling.*loss='nonsampling'.*{advice}"
        with pytest.raises(ValueError, match=message):
            pipeline(dataset="nations", model="DistMult", loss=loss, training_loop=training_loop, epochs=1)
        with pytest.raises(ValueError, match=message):
            pipeline(
                dataset="nations", model="DistMult", model_kwargs=dict(loss=loss), training_loop=training_loop, epochs=1
            )


class TestFactories:
    def test_empty(self) -> None:
        with pytest.raises(ValueError, match=r"no triples.*nothing to train on"):
            train(distmult(), make_factory([], 5, 3))

    @pytest.mark.parametrize(
        ("num_entities", "num_relations", "what"), [(6, 3, "entities"), (4, 3, "entities"), (5, 4, "relations")]
    )
    def test_of_another_size_than_the_model(self, num_entities: int, num_relations: int, what: str) -> None:
        factory = make_factory([(0, 0, 1)], num_entities, num_relations)
        given = num_entities if what == "entities" else num_relations
        with pytest.raises(ValueError, match=rf"has {given} {what}, but the model has"):
            train(distmult(), factory)

    def test_inverse_triples_on_one_side_only(self) -> None:
        with pytest.raises(ValueError, match=r"6 relations, but the model has 3.*create_inverse_triples"):
            train(distmult(), make_factory([(0, 0, 1)], 5, 3, create_inverse_triples=True))

    @pytest.mark.parametrize(
        ("triple", "what"),
        [((5, 0, 0), "head id 5"), ((0, 3, 0), "relation id 3"), ((0, 0, 9), "tail id 9"), ((-1, 0, 0), "head id -1")],
    )
    def test_ids_out_of_range(self, triple: tuple[int, int, int], what: str) -> None:
        factory = make_factory([(0, 0, 1)], 5, 3)
        # PyKEEN looks at the ids when a factory is made, so these came later
        factory.mapped_triples = torch.tensor([(0, 0, 1), triple])
        with pytest.raises(ValueError, match=rf"{what}, but ids range from 0 to"):
            train(distmult(), factory)

    def test_weights_of_triples(self) -> None:
        weighter = RelationLossWeighter(weights=torch.tensor([1.0, -2.0, 1.0]))
        with pytest.raises(ValueError, match=r"weights from -2.0 to 1.0"):
            train(distmult(), loop_kwargs=dict(loss_weighter=weighter))


class TestTypes:
    """Of the numbers in a model."""

    def test_different(self) -> None:
        model = distmult()
        model.entity_representations.double()
        with pytest.raises(ValueError, match=r"Heads have dtype torch.float64, relations torch.float32.*model.to\("):
            train(model)

    @pytest.mark.parametrize(
        ("interaction", "dtype", "message"),
        [
            (DistMultInteraction, torch.cfloat, "complex64, for which its score is not a real number"),
            (ComplExInteraction, torch.float, "ComplEx needs complex representations, got dtype torch.float32"),
        ],
    )
    def test_complex_or_not(self, interaction: Any, dtype: torch.dtype, message: str) -> None:
        model: Model = ERModel(
            triples_factory=FACTORY,
            interaction=interaction,
            entity_representations_kwargs=dict(shape=4, dtype=dtype),
            relation_representations_kwargs=dict(shape=4, dtype=dtype),
            random_seed=0,
        )
        with pytest.raises(ValueError, match=message):
            train(model)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("model", [DistMult, ComplEx])
    def test_half_precision(self, model: Any, dtype: torch.dtype) -> None:
        """Refused before anything is computed, since some processors lack the instructions."""
        made = model(triples_factory=FACTORY, embedding_dim=4, random_seed=0, loss=NonSamplingLoss()).to(dtype=dtype)
        with pytest.raises(ValueError, match=rf"{model.__name__} has parameters of {dtype}.*torch.float32.*model.float\(\)"):
            train(made)

    def test_no_values(self) -> None:
        with pytest.raises(ValueError, match=r"on the device 'meta', where tensors have no values.*device='cpu'"):
            run(device="meta")


class TestArguments:
    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            (dict(slice_size=2), "slice_size=2 does not apply here.*sub_batch_size"),
            (dict(sampler="schlichtkrull"), "sampler='schlichtkrull' does not apply here"),
            (dict(num_epochs=-1), "num_epochs=-1 is out of range: use an integer ≥ 0"),
            (dict(batch_size=0), "batch_size=0 is out of range: use an integer ≥ 1.*whole graph"),
            (dict(sub_batch_size=-1), "sub_batch_size=-1 is out of range: use an integer ≥ 1"),
            (dict(label_smoothing=1.0), "label_smoothing=1.0 is out of range: use a finite number ≥ 0 and < 1"),
            (dict(label_smoothing=-0.1), "label_smoothing=-0.1 is out of range: use a finite number ≥ 0 and < 1"),
        ],
    )
    def test_of_training(self, kwargs: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            train(distmult(), **kwargs)

    @pytest.mark.parametrize(
        ("where", "name", "what"),
        [
            ("loss_kwargs", "positive_weight", "a number: use a finite number > 0"),
            ("loss_kwargs", "negative_weight", "a number: use a finite number > 0"),
            ("loss_kwargs", "query_weight", "a number: use a finite number"),
            ("loss_kwargs", "regularization_weight", "a number: use a finite number ≥ 0"),
            ("loss_kwargs", "regularization_power", "a number: use a finite number ≥ 1"),
            ("loss_kwargs", "duality_weight", "a number: use a finite number ≥ 0"),
            ("training_kwargs", "num_epochs", "an integer: use an integer ≥ 0"),
            ("training_kwargs", "batch_size", "an integer: use an integer ≥ 1"),
            ("training_kwargs", "sub_batch_size", "an integer: use an integer ≥ 1"),
            ("training_kwargs", "label_smoothing", "a number: use a finite number ≥ 0 and < 1"),
            ("training_loop_kwargs", "memory_budget", "an integer: use an integer ≥ 1"),
        ],
    )
    @pytest.mark.parametrize("value", ["0.1", True, [1], {"low": 1}], ids=repr)
    def test_of_the_wrong_type(self, where: str, name: str, what: str, value: Any) -> None:
        kwargs = dict(loss="nonsampling") if where == "loss_kwargs" else {}
        message = rf"{name}={re.escape(repr(value))} is of type {type(value).__name__}, but has to be {what}.*e\.g\. {name}="
        with pytest.raises(TypeError, match=message):
            run(**kwargs, **{where: {name: value}})

    @pytest.mark.parametrize("name", ["candidate_weight", "head_weight", "relation_weight", "tail_weight"])
    def test_unknown_names_and_types_of_exponents(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"{name}='popular' is not an exponent.*'popularity'"):
            run(loss="nonsampling", loss_kwargs={name: "popular"})
        with pytest.raises(TypeError, match=rf"{name}=\[0.5\] is of type list.*'popularity'"):
            run(loss="nonsampling", loss_kwargs={name: [0.5]})

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9, 0.5])
    def test_memory_is_a_number_of_bytes(self, value: float) -> None:
        with pytest.raises(
            TypeError, match=rf"memory_budget={re.escape(str(value))} is of type float, but has to be an integer"
        ):
            run(training_loop_kwargs=dict(memory_budget=value))

    @pytest.mark.parametrize("target", [["tail"], {"tail": 1}, False, 2.0])
    def test_target_of_the_wrong_type(self, target: Any) -> None:
        with pytest.raises(ValueError, match=rf"target={re.escape(repr(target))} .*use 'tail', 'head' or 'both'"):
            run(training_loop_kwargs=dict(target=target))

    @pytest.mark.parametrize("reduction", ["foo", None, ["sum"], 1])
    def test_reduction(self, reduction: Any) -> None:
        with pytest.raises(ValueError, match=rf"reduction={re.escape(repr(reduction))} .*use 'sum' or 'mean'"):
            NonSamplingLoss(reduction=reduction)

    def test_an_integer_too_large_for_a_float(self) -> None:
        with pytest.raises(ValueError, match=r"negative_weight=10+ is out of range: use a finite number > 0"):
            run(loss="nonsampling", loss_kwargs=dict(negative_weight=10**400))

    @pytest.mark.parametrize("scale", ["1", [1]])
    def test_of_a_factorization(self, scale: Any) -> None:
        with pytest.raises(ValueError, match=rf"scale={re.escape(repr(scale))} is of type .*, but has to be a number"):
            run(model="TransE", training_loop_kwargs=dict(factorization_kwargs=dict(scale=scale)))

    @pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
    def test_no_query_of_a_distance(self, training_loop: str) -> None:
        with pytest.raises(ValueError, match=r"duality_weight=0.1 applies to .* the score of RotatE is a distance"):
            pipeline(
                dataset="nations",
                model="RotatE",
                training_loop=training_loop,
                loss="nonsampling",
                loss_kwargs=dict(duality_weight=0.1),
            )

    def test_label_smoothing_over_one_entity(self) -> None:
        factory = GRAPHS["one entity"]
        with pytest.raises(ValueError, match=r"label_smoothing=0.1 is spread over all other entities"):
            train(distmult(factory), factory, label_smoothing=0.1)

    @pytest.mark.parametrize(
        "kwargs", [dict(negative_sampler="basic"), dict(negative_sampler_kwargs=dict(num_negs_per_pos=3))]
    )
    def test_negative_sampler(self, kwargs: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"does not apply here: this loop trains on every negative"):
            NonSamplingTrainingLoop(model=distmult(), triples_factory=FACTORY, **kwargs)
        with pytest.raises(ValueError, match=r"does not apply here: this loop trains on every negative"):
            pipeline(dataset="nations", model="DistMult", training_loop="nonsampling", **kwargs)


class TestDivergence:
    """A loss that explodes says so, and what to do about it."""

    def test_no_finite_number_before_the_first_step(self) -> None:
        initializer = partial(torch.nn.init.constant_, val=1e20)
        with pytest.raises(NonFiniteLossError, match=r"epoch 1, before the first step.*entity_initializer=.*weight=1.0"):
            run(model_kwargs=dict(embedding_dim=4, entity_initializer=initializer), loss="nonsampling")

    def test_no_finite_number_later(self) -> None:
        message = r"epoch 2. It was .* in the epoch before. The learning rate 1e\+20 of Adam .*lr=0.01.*negative_weight=0.5"
        with pytest.raises(NonFiniteLossError, match=message):
            run(
                optimizer="Adam",
                optimizer_kwargs=dict(lr=1e20),
                loss="nonsampling",
                loss_kwargs=dict(negative_weight=0.5),
            )

    @pytest.mark.parametrize(("lr", "warns"), [(1e3, True), (0.01, False)])
    @pytest.mark.parametrize("lr_scheduler", [None, "CosineAnnealingLR"])
    def test_finite_but_larger_than_at_first(
        self, lr: float, warns: bool, lr_scheduler: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        result = run(loss="nonsampling", optimizer="Adam", optimizer_kwargs=dict(lr=lr), lr_scheduler=lr_scheduler)
        assert (result.losses[-1] > 10 * result.losses[0]) == warns
        messages = [r.getMessage() for r in caplog.records if "The loss has grown" in r.getMessage()]
        assert len(messages) == warns
        assert all("The learning rate 1000 of Adam" in x and "optimizer_kwargs=dict(lr=0.01)" in x for x in messages)


def test_complex_by_name_needs_nothing() -> None:
    """The counterpart: PyKEEN's ComplEx is complex as it comes."""
    model = ComplEx(triples_factory=FACTORY, embedding_dim=4, random_seed=0)
    loop = NonSamplingTrainingLoop(model=model, triples_factory=FACTORY)
    assert len(loop.train(FACTORY, num_epochs=2, use_tqdm=False) or []) == 2
