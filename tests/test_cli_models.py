"""Which models can be trained: the table knows every interaction, and what it says is so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from commands import run_python
from graphs import GRAPHS
from hypothesis import given, settings
from hypothesis import strategies as st
from pykeen.hpo import hpo_pipeline
from pykeen.models import ERModel, model_resolver
from pykeen.nn import modules
from pykeen.nn.modules import (
    BoxEInteraction,
    ConvEInteraction,
    ConvKBInteraction,
    DirectionAverageInteraction,
    ERMLPEInteraction,
    ERMLPInteraction,
    Interaction,
    KG2EInteraction,
    MuREInteraction,
    RotatEInteraction,
    SEInteraction,
    TorusEInteraction,
    TransDInteraction,
    TransEInteraction,
    TransformerInteraction,
    TransHInteraction,
    TransRInteraction,
    TuckERInteraction,
)
from pykeen.pipeline import pipeline

from pykeen_nonsampling import NonSamplingTrainingLoop, NotDecomposableError
from pykeen_nonsampling.cli import main
from pykeen_nonsampling.factorizations import factorization_resolver, factorize
from pykeen_nonsampling.factorizations.reasons import REASONS
from pykeen_nonsampling.factorizations.support import format_markdown, list_interactions
from pykeen_nonsampling.factorizations.wrappers import WRAPPERS, find_wrapper

DOCS = Path(__file__).parents[1] / "docs"

#: What is left of the loss of the first epoch at most; in the local closed world, the squared solution comes before it
LEARNED = {"nonsampling": 0.7, "nonsamplinglcwa": 0.96}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["models", *arguments])


class TestTable:
    def test_knows_every_interaction(self) -> None:
        """Fails if PyKEEN gets a new one, for which somebody has to say what it is."""
        wrapping = {cls.__name__ for cls in modules.interaction_resolver if find_wrapper(cls) is not None}
        known = {cls.interaction_cls.__name__ for cls in factorization_resolver} | {*REASONS, *wrapping}
        known |= {cls.__name__ for cls in WRAPPERS}
        public = {name for name in modules.__all__ if name.endswith("Interaction")} - {"Interaction", "NormBasedInteraction"}
        assert public | {cls.__name__ for cls in modules.interaction_resolver} == known

    def test_has_a_row_for_each(self) -> None:
        rows = {row.interaction: row for row in list_interactions()}
        assert {cls.__name__.removesuffix("Interaction") for cls in modules.interaction_resolver} <= set(rows)
        assert not any("not examined" in row.exact for row in rows.values())
        for row in rows.values():
            assert row.exact.startswith("no: ") == (not row.family) == (not row.features) == (not row.cost)

    def test_unknown_interaction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class NewInteraction(Interaction):  # type: ignore[misc]
            def forward(self, h: Any, r: Any, t: Any) -> Any:
                raise NotImplementedError

        lookup = {**modules.interaction_resolver.lookup_dict, "new": NewInteraction}
        monkeypatch.setattr(modules.interaction_resolver, "lookup_dict", lookup)
        assert any(row.interaction == "New" and "not examined" in row.exact for row in list_interactions())

    def test_in_the_documentation_is_current(self) -> None:
        """Else write what ``pykeen-nonsampling models --markdown`` prints."""
        assert format_markdown(list_interactions()) in (DOCS / "models.md").read_text(encoding="utf-8")

    def test_commands_in_the_documentation_print_what_it_says(self) -> None:
        page = (DOCS / "models.md").read_text(encoding="utf-8")
        console = page.partition("```console\n")[2].partition("```")[0]
        for command in console.split("$ ")[1:]:
            line, _, expected = command.partition("\n")
            assert run(*line.removeprefix("pykeen-nonsampling models ").split()).output == expected

    def test_printed(self) -> None:
        result = run()
        assert result.exit_code == 0, result.output
        for row in list_interactions():
            assert row.interaction in result.output
        assert "(|E| + |R|)·m² + |R|·m³" in result.output
        assert "train norms and clamps as they are" in result.output
        assert run("--markdown").output.strip() == format_markdown(list_interactions())


class TestCommand:
    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            (["TransE"], ["TransE(scoring_fct_norm=2) can be", "squared distance", "m=52", "ranks the same"]),
            (["distmult", "embedding_dim=7"], ["block-diagonal", "m=7", "nonsamplinglcwa"]),
            (["TuckER", "embedding_dim=4"], ["dropout_0=0.0", "full matrix", "|R|·m³"]),
            (["SimplE", "embedding_dim=7"], ["block-diagonal", "m=14"]),
            (
                ["SimplE", "embedding_dim=7", "clamp_score=3.0"],
                ["with the training loop nonsamplinglcwa and a loss that sees every score", "m=14"],
            ),
            (["DistMultLiteral"], ["block-diagonal"]),
            (["NodePiece"], ["block-diagonal"]),
            # what the errors below advise
            (["NTN", "non_linearity=identity", "embedding_dim=4"], ["full matrix", "m=5"]),
            (["CrossE", "combination_activation=identity", "combination_dropout=None"], ["sum of products"]),
            (["ProjE", "inner_non_linearity=identity"], ["sum of products"]),
            # no memory could hold this Gram matrix
            (["CP", "rank=128", "embedding_dim=10000"], ["block-diagonal", "m=1280000"]),
        ],
    )
    def test_can_be_trained(self, arguments: list[str], parts: list[str]) -> None:
        result = run("--model", *arguments)
        assert result.exit_code == 0, result.output
        assert all(part in result.output for part in parts)

    @pytest.mark.parametrize(
        ("arguments", "reason", "fix"),
        [
            (["TransE", "scoring_fct_norm=1"], "p=1 cannot be decomposed", "scoring_fct_norm=2"),
            (["RotatE", "relation_constrainer=null"], "needs rotations", "relation_constrainer='complex_normalize'"),
            (["TuckER", "dropout_1=0.2"], "[0.0, 0.2, 0.0]", "dropout_1=0"),
            (["SimplE", "clamp_score=3"], "clamp_score=3 is not an interval", "clamp_score=3.0"),
            (["MuRE", "power_norm=false"], "does not rank like its square", "power_norm=True"),
            (["NTN"], "Tanh()", "non_linearity='identity'"),
            (["CrossE", "combination_dropout=None"], "Tanh()", "combination_activation='identity'"),
            (["CrossE", "combination_activation=identity"], "dropout rate of 0.5", "combination_dropout=None"),
            (["ProjE"], "Tanh()", "inner_non_linearity='identity'"),
            (["ConvE"], "a convolution", "TuckER"),
            (["TransH"], "d²/2 features", "MuRE"),
            (["CooccurrenceFiltered"], "not computed by an interaction", "ERModel"),
            (["TransE", "no_such=3"], "no_such", ""),
            (["DistMult", "embedding_dim=0"], "embedding_dim=0 is out of range", "at least one dimension"),
            (["DistMult", "embedding_dim=-3"], "embedding_dim=-3 is out of range", "at least one dimension"),
            (["DistMultLiteralGated"], "cannot be created with {}", "PyKEEN raised TypeError"),
            (["TransE", "regularizer=True"], "cannot be used with", "Check the values"),
            (["MuRE", "power_norm=False"], "does not rank like its square", "power_norm=True"),
            (["NTN", "non_linearity=no_such"], "no_such", "relu"),
        ],
    )
    def test_cannot_be_trained(self, arguments: list[str], reason: str, fix: str) -> None:
        result = run("--model", *arguments)
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert reason in result.output
        assert fix in result.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["scoring_fct_norm=1"], "needs --model NAME"),
            (["--model", "TransE", "scoring_fct_norm"], "write NAME=VALUE"),
            (["--model", "NoSuchModel"], "PyKEEN has no model 'NoSuchModel'"),
            (["--model", "distmul"], "Did you mean DistMult"),
            (["--model", "TransE", "loss=mse"], "loss is set by this command"),
        ],
    )
    def test_usage(self, arguments: list[str], message: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert message in result.output


class TestProperties:
    """For any model, and any arguments."""

    names = st.sampled_from(sorted(cls.__name__ for cls in model_resolver)) | st.text(max_size=8)
    keys = st.sampled_from(["embedding_dim", "relation_dim", "rank", "p", "power_norm", "entity_initializer", "regularizer"])
    texts = st.sampled_from(["", "None", "False", "ones", "lp", "[]", "{}", "[1, 2]", '"a"', "NaN", "-1e99"])
    values = texts | st.integers(-2, 9).map(str) | st.floats(0, 3).map(str) | st.text(max_size=5)
    arguments = st.lists(st.tuples(keys | st.text(max_size=4), values).map("=".join) | st.text(max_size=4), max_size=2)

    @settings(max_examples=60)
    @given(name=names, arguments=arguments)
    def test_there_is_an_answer(self, name: str, arguments: list[str]) -> None:
        result = CliRunner().invoke(main, ["--debug", "models", "--model", name, *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code in (0, 1, 2)
        assert result.output

    @settings(max_examples=60)
    @given(what=st.sampled_from(["model", "dataset"]), name=st.text(max_size=12))
    def test_names_are_found_or_refused(self, what: str, name: str) -> None:
        for command in ("compare", "benchmark", "tune"):
            result = CliRunner().invoke(main, ["--debug", command, f"--{what}={name}", "--output", f"{__file__}/out"])
            assert isinstance(result.exception, SystemExit), repr(result.exception)
            assert "Error: " in result.output


def rank(interaction: Interaction, sizes: dict[str, int], num_entities: int = 40, num_relations: int = 6) -> int:
    """Compute the rank of all scores, from the end where it is larger: no factorization has fewer features."""
    generator = torch.Generator().manual_seed(0)

    def draw(n: int, shape: str) -> torch.Tensor:
        return torch.randn(n, *(sizes[symbol] for symbol in shape), generator=generator)

    entities = [draw(num_entities, shape) for shape in interaction.entity_shape]
    relations = [draw(num_relations, shape).abs() for shape in interaction.relation_shape]
    heads, tails = ([entities[i] for i in indices] for indices in (interaction.head_indices, interaction.tail_indices))
    torch.manual_seed(0)
    interaction.reset_parameters()
    interaction = interaction.double().eval()
    h, r, t = torch.cartesian_prod(*(torch.arange(n) for n in (num_entities, num_relations, num_entities))).unbind(dim=-1)
    inputs = ([x[i].double() for x in xs] for xs, i in ((heads, h), (relations, r), (tails, t)))
    with torch.no_grad():
        scores = interaction(*(x[0] if len(x) == 1 else tuple(x) for x in inputs))
        if getattr(interaction, "power_norm", True) is False:
            scores = -scores.square()
    scores = scores.view(num_entities, num_relations, num_entities)
    sides = scores.flatten(end_dim=1), scores.flatten(start_dim=1)
    return max(int(torch.linalg.matrix_rank(side, rtol=1e-9)) for side in sides)


SIZES = dict(d=4, e=4, c=1, k=2, s=1, h=8)


class TestReasons:
    """What is refused has no factorization with a number of features that does not grow with the graph."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: BoxEInteraction(p=2, power_norm=True),
            lambda: ConvEInteraction(embedding_dim=4, kernel_height=1, kernel_width=1, output_channels=40),
            lambda: ConvKBInteraction(embedding_dim=4, num_filters=8),
            lambda: ERMLPInteraction(embedding_dim=4, hidden_dim=8),
            lambda: ERMLPEInteraction(embedding_dim=4, hidden_dim=200),
            lambda: KG2EInteraction(),
            lambda: TorusEInteraction(p=2, power_norm=True),
            lambda: TransDInteraction(),
            lambda: TransRInteraction(p=2, max_projection_norm=1.0),
            lambda: TransformerInteraction(input_dim=4, num_heads=1, dim_feedforward=60),
            lambda: TransEInteraction(p=1),
        ],
    )
    def test_rank_grows_with_the_number_of_entities(self, make: Callable[[], Interaction]) -> None:
        small, large = (rank(make(), SIZES, num_entities=n) for n in (10, 40))
        assert large > 2 * 4 + 2
        assert large > small

    @pytest.mark.parametrize("cls", [SEInteraction, TransHInteraction])
    def test_rank_grows_with_the_square_of_the_dimension(self, cls: Any) -> None:
        """All monomials of degree 0, 1 and 2 are needed."""
        for d in (2, 3, 4):
            features = rank(cls(p=2, power_norm=True), dict(SIZES, d=d), num_relations=20)
            assert features == (d + 1) * (d + 2) // 2

    def test_few_features_suffice_for_the_others(self) -> None:
        """The counterpart: 2d + 2 at most for these."""
        for interaction in (TransEInteraction(p=2), MuREInteraction(p=2, power_norm=True)):
            assert rank(interaction, SIZES) <= 2 * 4 + 2

    def test_norm_beside_biases_does_not_rank_as_its_square(self) -> None:
        """So MuRE with the norm itself is refused."""
        distance, bias = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 2.5])
        assert (bias - distance).argmax() != (bias - distance.square()).argmax()
        with pytest.raises(NotDecomposableError, match="power_norm=True"):
            factorize(MuREInteraction(p=2, power_norm=False))

    def test_average_of_norms_does_not_rank_as_that_of_squares(self) -> None:
        norms = torch.tensor([[0.5, 4.5], [3.0, 3.0]])
        assert norms.mean(dim=1).argmin() != norms.square().mean(dim=1).argmin()
        for base in (TransEInteraction(p=2), RotatEInteraction()):
            with pytest.raises(NotDecomposableError, match="average of two norms"):
                factorize(DirectionAverageInteraction(base))

    def test_relations_that_are_no_rotations(self) -> None:
        model: ERModel = ERModel(
            triples_factory=GRAPHS["ordinary"],
            interaction=RotatEInteraction,
            entity_representations_kwargs=dict(shape=3, dtype=torch.cfloat),
            relation_representations_kwargs=dict(shape=3, dtype=torch.cfloat, initializer="normal_"),
            random_seed=0,
        )
        loop = NonSamplingTrainingLoop(model=model, triples_factory=GRAPHS["ordinary"])
        with pytest.raises(NotDecomposableError, match=r"absolute values from .*complex_normalize"):
            loop.train(GRAPHS["ordinary"], num_epochs=1, use_tqdm=False)

    def test_batch_normalization(self) -> None:
        interaction = TuckERInteraction(
            embedding_dim=3,
            head_dropout=0.0,
            relation_dropout=0.0,
            head_relation_dropout=0.0,
            apply_batch_normalization=True,
        )
        with pytest.raises(NotDecomposableError, match="batch normalization on"):
            factorize(interaction)


#: All models by name whose score can be decomposed, and what has to be said about them
MODELS: dict[str, dict[str, Any]] = {
    "AutoSF": {},
    "CP": dict(rank=2),
    "ComplEx": {},
    "CrossE": dict(combination_activation="identity", combination_dropout=None),
    "DistMA": {},
    "DistMult": {},
    "HolE": {},
    "MuRE": {},
    "NTN": dict(non_linearity="identity", entity_initializer="xavier_normal"),
    "PairRE": {},
    "ProjE": dict(inner_non_linearity="identity"),
    "QuatE": {},
    "RESCAL": {},
    "RotatE": {},
    "SimplE": {},
    "TransE": {},
    "TransF": {},
    "TuckER": {},
    "UM": {},
}


def test_all_models_by_name_are_tried() -> None:
    decomposable = {row.interaction.lower() for row in list_interactions() if row.family}
    assert {name.lower() for name in MODELS} == decomposable & set(model_resolver.lookup_dict)


@pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
@pytest.mark.parametrize("model", MODELS)
def test_trains_from_a_pipeline(model: str, training_loop: str) -> None:
    """By names alone, the loss falls, and the true entity is found far better than by chance."""
    # with cross-entropy, an epoch has 20 steps
    epochs = {"nonsampling": 100, "nonsamplinglcwa": 10}[training_loop]
    if model in {"NTN", "ProjE"}:
        # they have parameters that start from large values whatever one says
        epochs *= 3
    result = pipeline(
        dataset="umls",
        model=model,
        model_kwargs=dict(embedding_dim=16, **MODELS[model]),
        training_loop=training_loop,
        epochs=epochs,
        training_kwargs=dict(use_tqdm=False),
        evaluator="factorized",
        evaluation_kwargs=dict(use_tqdm=False),
        random_seed=0,
    )
    assert result.losses[-1] < LEARNED[training_loop] * result.losses[0]
    chance = sum(1 / n for n in range(1, 136)) / 135
    assert result.get_metric("mrr") > 2 * chance


def test_activation_functions_are_left_out_from_json(tmp_path: Path) -> None:
    """As the errors advise; in JSON, None is null."""
    configuration = dict(
        dataset="nations",
        model="CrossE",
        model_kwargs=dict(embedding_dim=8, combination_activation="identity", combination_dropout=None),
        training_loop="nonsamplinglcwa",
        training_kwargs=dict(num_epochs=20),
    )
    (tmp_path / "crosse.json").write_text(json.dumps(dict(metadata={}, pipeline=configuration)))
    run_python("-m", "pykeen", "experiments", "run", "crosse.json", "--directory", "results", cwd=tmp_path)
    (path,) = tmp_path.glob("results/*/replicates/replicate-00000/results.json")
    losses = json.loads(path.read_text())["losses"]
    assert len(losses) == 20
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("model", ["MuRE", "RESCAL", "TuckER"])
def test_study_searches_only_what_can_be_trained(model: str) -> None:
    """Neither other norms, nor dropout, nor a regularizer beside the loss's."""
    result = hpo_pipeline(
        dataset="nations",
        model=model,
        model_kwargs_ranges=dict(embedding_dim=dict(type=int, low=8, high=16, q=8)),
        training_loop="nonsamplinglcwa",
        training_kwargs=dict(num_epochs=20, use_tqdm=False),
        n_trials=1,
    )
    (trial,) = result.study.trials
    assert trial.state.name == "COMPLETE"
    model_parameters = {name for name in trial.params if name.startswith(("model.", "regularizer."))}
    assert model_parameters <= {"model.embedding_dim", "model.relation_dim"}


@pytest.mark.parametrize("interaction", ["LineaRE", "TripleRE", "MultiLinearTucker"])
@pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
def test_interactions_without_a_model(interaction: str, training_loop: str) -> None:
    """They are trained as they are with PyKEEN, by an ERModel."""
    kwargs = dict(head_dim=16) if interaction == "MultiLinearTucker" else dict(p=2)
    small = dict(shape=16, initializer="normal_", initializer_kwargs=dict(std=0.1))
    made = modules.interaction_resolver.make(interaction, kwargs)
    result = pipeline(
        dataset="umls",
        model=ERModel,
        model_kwargs=dict(
            interaction=made,
            entity_representations_kwargs=[small] * len(made.entity_shape),
            relation_representations_kwargs=[small] * len(made.relation_shape),
        ),
        training_loop=training_loop,
        epochs={"nonsampling": 100, "nonsamplinglcwa": 20}[training_loop],
        training_kwargs=dict(use_tqdm=False),
        evaluator="factorized",
        evaluation_kwargs=dict(use_tqdm=False),
        random_seed=0,
    )
    assert result.losses[-1] < LEARNED[training_loop] * result.losses[0]
    assert result.get_metric("mrr") > 0.3


@pytest.mark.parametrize("model", ["DistMultLiteral", "ComplExLiteral"])
def test_literals(model: str) -> None:
    """Entities are made of vectors and numeric literals, and are taken whole."""
    result = pipeline(
        dataset="nationsliteral",
        model=model,
        model_kwargs=dict(embedding_dim=16, input_dropout=0.0),
        training_loop="nonsamplinglcwa",
        epochs=60,
        training_kwargs=dict(use_tqdm=False),
        evaluation_kwargs=dict(use_tqdm=False),
        random_seed=0,
    )
    assert result.losses[-1] < LEARNED["nonsamplinglcwa"] * result.losses[0]
    assert result.get_metric("mrr") > 0.4
