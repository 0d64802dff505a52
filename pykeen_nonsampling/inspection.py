"""Whether a model can be trained without sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pykeen.datasets.nations import Nations, NationsLiteral
from pykeen.models import LiteralModel, Model
from pykeen.triples import CoreTriplesFactory

from .defaults import model_defaults
from .factorizations import MatrixFactorization
from .losses import NonSamplingLoss
from .models import factorize_model, features
from .training import FactorizedTrainingLoop, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop

__all__ = [
    "inspect_model",
]


def inspect_model(model: type[Model], model_kwargs: Mapping[str, Any]) -> str:
    """Make a model for a small graph, train it for a step by each of the training loops, and tell what it is like.

    :param model: the class of the model
    :param model_kwargs: its keyword-based parameters; what is missing has the default that it has in a pipeline
    :return: what there is to tell
    :raises NotDecomposableError: if the model cannot be trained
    """
    kwargs = {**model_defaults(model, model_kwargs), **model_kwargs}
    instance, triples_factory = _make(model, kwargs)
    factorization = factorize_model(instance)
    for training_loop in (NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop):
        loop: FactorizedTrainingLoop[Any] = training_loop(model=instance, triples_factory=triples_factory)
        loop.train(triples_factory, num_epochs=1, use_tqdm=False)
    with torch.no_grad():
        heads, _, tails = features(instance, factorization)
    matrices = ", and |R|·m³ for the relations' matrices" if isinstance(factorization, MatrixFactorization) else ""
    arguments = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
    square = "\nIt is trained on the square of its norm, which ranks the same." if factorization.squares else ""
    return (
        f"{model.__name__}({arguments}) can be trained without sampling, exactly, by the training loops nonsampling and "
        f"nonsamplinglcwa.\n"
        f"Its score is of the family {factorization.family!r}, with m={max(heads.shape[1], tails.shape[1])} features an "
        f"entity: the sum over all triples costs (|E| + |R|)·m²{matrices}.{square}"
    )


def _make(model: type[Model], kwargs: Mapping[str, Any]) -> tuple[Model, CoreTriplesFactory]:
    """Make a model for a small graph that has what it needs: literals, or inverse triples."""
    dataset = NationsLiteral if issubclass(model, LiteralModel) else Nations
    errors = []
    for inverse in (False, True):
        triples_factory = dataset(create_inverse_triples=inverse).training
        try:
            return model(triples_factory=triples_factory, loss=NonSamplingLoss(), random_seed=0, **kwargs), triples_factory
        except (AssertionError, ValueError) as error:
            errors.append(error)
    raise ValueError(f"{model.__name__} cannot be made of {dict(kwargs)}: {errors[0]}") from errors[0]
