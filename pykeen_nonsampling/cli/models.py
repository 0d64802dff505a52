"""Which models can be trained without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import torch
from pykeen.datasets.nations import Nations, NationsLiteral
from pykeen.models import LiteralModel, Model, model_resolver
from pykeen.triples import CoreTriplesFactory

from ..defaults import model_defaults
from ..factorizations import MatrixFactorization
from ..factorizations.features import factorize_model, features
from ..factorizations.support import format_markdown, list_interactions
from ..losses import NonSamplingLoss, SoftmaxLoss
from ..memory.dry_run import outline
from ..training import FactorizedTrainingLoop, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from .console import lookup, parse_argument, silence

#: What the command sets itself
RESERVED = "loss", "random_seed", "triples_factory"

#: Models that take more bytes than this for a small graph are looked at without values
LARGE = 2**27


def inspect_model(model: type[Model], model_kwargs: Mapping[str, Any]) -> str:
    """Create a model for a small graph, train it for one step with each of the training loops, and describe it.

    A model with so many features that even this would take a while is created without values, and not trained.

    :param model: the class of the model
    :param model_kwargs: its keyword-based parameters; those missing have the defaults of a pipeline
    :return: the description
    :raises NotDecomposableError: if the model cannot be trained
    :raises ValueError: if it cannot be created, or not be used
    """
    kwargs = {**model_defaults(model), **model_kwargs}
    is_large = _is_large(model, kwargs)
    instance, triples_factory = _make(model, kwargs, torch.device("meta" if is_large else "cpu"))
    try:
        factorization = factorize_model(instance)
        loops: list[type[FactorizedTrainingLoop]] = [NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop]
        if factorization.no_moments is not None:
            instance.loss = SoftmaxLoss()
            loops = [NonSamplingLCWATrainingLoop]
        for training_loop in () if is_large else loops:
            loop: FactorizedTrainingLoop = training_loop(model=instance, triples_factory=triples_factory)
            loop.train(triples_factory, num_epochs=1, use_tqdm=False)
        with torch.no_grad():
            heads, _, tails = features(instance, factorization)
    except (NotImplementedError, ValueError):
        raise
    except Exception as error:
        if not model_kwargs:
            raise
        # PyKEEN uses some arguments, such as regularizers, only now
        raise ValueError(_describe(model, kwargs, "used", error)) from error
    matrices = ", and |R|·m³ for the relations' matrices" if isinstance(factorization, MatrixFactorization) else ""
    arguments = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
    how = "the training loops nonsampling and nonsamplinglcwa"
    cost = f"the sum over all triples costs (|E| + |R|)·m²{matrices}"
    more = ""
    if factorization.no_moments is not None:
        how = "the training loop nonsamplinglcwa and a loss that sees every score: softmax, or one of PyKEEN's"
        cost = "each score costs m, and every candidate of every query is scored"
    elif factorization.squares:
        more = (
            "\nThe loss nonsampling trains the square of its norm, which ranks the same; softmax and PyKEEN's losses train "
            "the norm itself."
        )
    return (
        f"{model.__name__}({arguments}) can be trained without sampling, exactly, with {how}.\n"
        f"Its score belongs to the family {factorization.family.value!r}, with m={max(heads.shape[1], tails.shape[1])} "
        f"features per entity: {cost}.{more}"
    )


def _is_large(model: type[Model], kwargs: Mapping[str, Any]) -> bool:
    """Whether a model would take much memory even for a small graph."""
    try:
        return outline(model, kwargs, Nations().training).memory().training > LARGE
    except Exception:
        # what is wrong with it shows when it is made
        return False


def _make(model: type[Model], kwargs: Mapping[str, Any], device: torch.device) -> tuple[Model, CoreTriplesFactory]:
    """Create a model for a small graph that has what it needs: literals, or inverse triples."""
    dataset = NationsLiteral if issubclass(model, LiteralModel) else Nations
    for name, value in kwargs.items():
        if name.endswith("_dim") and isinstance(value, int) and value < 1:
            raise ValueError(
                f"{name}={value} is out of range: {model.__name__} needs at least one dimension. Use 1 or more."
            )
    errors = []
    for inverse in (False, True):
        triples_factory = dataset(create_inverse_triples=inverse).training
        try:
            with device:
                made = model(triples_factory=triples_factory, loss=NonSamplingLoss(), random_seed=0, **kwargs)
            return made, triples_factory
        except Exception as error:
            # whatever PyKEEN raises for these arguments
            errors.append(error)
    raise ValueError(_describe(model, kwargs, "created", errors[0])) from errors[0]


def _describe(model: type[Model], kwargs: Mapping[str, Any], action: str, error: Exception) -> str:
    """Say that it is arguments with which PyKEEN fails."""
    reason = error.args[0] if error.args else ""
    return (
        f"{model.__name__} cannot be {action} with {dict(kwargs)}. PyKEEN raised {type(error).__name__}: {reason}. Check "
        f"the values, or leave them out."
    )


@click.command(name="models")
@click.option("--model", help="The name of a PyKEEN model to check, followed by its keyword arguments.")
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, as in the documentation.")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
def command(model: str | None, markdown: bool, arguments: tuple[str, ...]) -> None:
    """List the models that can be trained without sampling.

    Prints a table of all interactions of PyKEEN: whether their sum over all triples has an exact closed form, under which
    condition, or why not; the number m of features per entity, and what the sum costs. d, e, k are the sizes in PyKEEN's
    shapes.

    With --model, creates that model with the given keyword arguments (values are JSON, or else plain text; all others have
    the defaults of a pipeline), and says whether it can be trained, and if not, what to change:

        pykeen-nonsampling models --model TransE scoring_fct_norm=1
    """
    if model is None:
        if arguments:
            raise click.UsageError(f"{' '.join(arguments)} needs --model NAME, the model that these arguments are for.")
        _print_table(markdown)
        return
    silence()
    kwargs = dict(map(parse_argument, arguments))
    for name in RESERVED:
        if name in kwargs:
            raise click.UsageError(f"{name} is set by this command, and does not matter for its answer: leave it out.")
    try:
        click.echo(inspect_model(lookup(model_resolver, model, "model"), kwargs))
    except (NotImplementedError, ValueError) as error:
        raise click.ClickException(str(error)) from error


def _print_table(markdown: bool) -> None:
    """Print the table of all interactions."""
    rows = list(list_interactions())
    if markdown:
        click.echo(format_markdown(rows))
        return
    trained = [row for row in rows if row.family]
    table = [("interaction", "family", "m", "exact", "cost")]
    table += [(row.interaction, row.family, row.features, row.exact, row.cost) for row in trained]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    click.echo("\nm: the number of features per entity; d, k: sizes in PyKEEN's shapes; m₀: the base's m.")
    click.echo(
        "Losses that see every score, i.e. softmax and PyKEEN's, train norms and clamps as they are. The loss nonsampling "
        "trains\nthe square of a norm, which ranks the same, and no clamps."
    )
    click.echo("\nThese cannot be trained without sampling:\n")
    for row in rows:
        if not row.family:
            click.echo(
                click.wrap_text(f"{row.interaction}: {row.exact.removeprefix('no: ')}", width=100, subsequent_indent="    ")
            )
