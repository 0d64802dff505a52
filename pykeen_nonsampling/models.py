"""From a PyKEEN model to the features of its factorized score."""

from __future__ import annotations

from typing import Any

from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import ERModel, Model
from pykeen.nn import Representation
from pykeen.typing import InductiveMode
from torch import Tensor

from .factorizations import Factorization, NotDecomposableError, factorize

__all__ = [
    "factorize_model",
    "features",
]


def factorize_model(
    model: Model, factorization: HintOrType[Factorization] = None, factorization_kwargs: OptionalKwargs = None
) -> Factorization:
    """Find the factorization of a model's score.

    :param model: the model
    :param factorization: the factorization, or a hint for it
    :param factorization_kwargs: additional keyword-based parameters for the factorization
    :return: the factorization
    :raises NotDecomposableError: if there is none
    """
    if not isinstance(model, ERModel):
        raise NotDecomposableError(
            f"{type(model).__name__} cannot be decomposed: its scores are not made by an interaction from representations "
            f"of entities and relations. Use a model that derives from pykeen.models.ERModel."
        )
    return factorize(model.interaction, factorization, factorization_kwargs)


def features(model: Any, factorization: Factorization, mode: InductiveMode | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the features of all heads, relations and tails of a model.

    Each representation is called once, and as a whole: that way its normalizer, dropout and regularizer take part.

    :param model: the model
    :param factorization: the factorization of its score
    :param mode: the inductive mode
    :return: the features of heads, relations and tails
    :raises ValueError: if their dtypes differ
    """
    num_entities = model._get_entity_len(mode=mode)
    entities = [
        _rows(representation, num_entities)
        for representation in model._get_entity_representations_from_inductive_mode(mode=mode)
    ]
    heads = factorization.heads(*(entities[i] for i in model.interaction.head_indices))
    if type(factorization).tails is Factorization.tails and list(model.interaction.head_indices) == list(
        model.interaction.tail_indices
    ):
        tails = heads
    else:
        tails = factorization.tails(*(entities[i] for i in model.interaction.tail_indices))
    relations = factorization.relations(
        *(_rows(representation, model.num_relations) for representation in model.relation_representations)
    )
    if not heads.dtype == relations.dtype == tails.dtype:
        raise ValueError(
            f"Heads have dtype {heads.dtype}, relations {relations.dtype} and tails {tails.dtype}, but a score needs one "
            f"dtype. Convert the model, e.g. by model.to(dtype=torch.float32), or set dtype=… in "
            f"entity_representations_kwargs and relation_representations_kwargs alike."
        )
    return heads, relations, tails


def _rows(representation: Representation, n: int) -> Tensor:
    """Call a representation for its first n rows, of which it usually has just as many."""
    x = representation(indices=None)
    # a slice would copy the gradient
    return x if x.shape[0] == n else x[:n]
