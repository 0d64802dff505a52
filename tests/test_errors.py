"""Bad input gets an exception before any training that names the value, the reason and the fix."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.models import ComplEx, ConvE, DistMult, ERModel, Model, SimplE, TransE
from pykeen.models.baseline import MarginalDistributionBaseline
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import RelationLossWeighter

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop, NotDecomposableError
from pykeen_nonsampling.factorizations import DistMultFactorization, factorize

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
        with pytest.raises(NotDecomposableError, match=r"clamped to \(.*dict\(clamp_score=None\)"):
            train(SimplE(triples_factory=FACTORY, random_seed=0, clamp_score=clamp_score))

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

    @pytest.mark.parametrize("loss", ["marginranking", "crossentropy", "mse"])
    def test_named_loss_of_a_pipeline(self, loss: str) -> None:
        """Also the one that PyKEEN would fill in."""
        with pytest.raises(ValueError, match=r"cannot be used without negative sampling.*loss='nonsampling'"):
            pipeline(dataset="nations", model="DistMult", loss=loss, training_loop="nonsampling", epochs=1)
        with pytest.raises(ValueError, match=r"cannot be used without negative sampling.*loss='nonsampling'"):
            pipeline(
                dataset="nations", model="DistMult", model_kwargs=dict(loss=loss), training_loop="nonsampling", epochs=1
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


def test_complex_by_name_needs_nothing() -> None:
    """The counterpart: PyKEEN's ComplEx is complex as it comes."""
    model = ComplEx(triples_factory=FACTORY, embedding_dim=4, random_seed=0)
    loop = NonSamplingTrainingLoop(model=model, triples_factory=FACTORY)
    assert len(loop.train(FACTORY, num_epochs=2, use_tqdm=False) or []) == 2
