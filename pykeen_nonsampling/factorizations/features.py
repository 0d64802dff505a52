"""From a PyKEEN model to the features of its factorized score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import ERModel, Model
from pykeen.nn import Representation
from pykeen.typing import InductiveMode
from torch import Tensor, nn

from . import Factorization, NotDecomposableError, factorize


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
            f"{type(model).__name__} cannot be decomposed: its scores are not computed by an interaction from "
            f"representations of entities and relations. Use a model that is derived from pykeen.models.ERModel."
        )
    return factorize(model.interaction, factorization, factorization_kwargs)


@dataclass(frozen=True)
class Vectors:
    """What the representations of a model return, each called as a whole."""

    #: for each representation of entities, shape: (num_entities, …)
    entities: Sequence[Tensor]
    #: for each representation of relations, shape: (num_relations, …)
    relations: Sequence[Tensor]


class Features(NamedTuple):
    """The features of all heads, relations and tails of a model."""

    #: shape: (num_entities, k)
    heads: Tensor
    #: shape: (num_relations, …)
    relations: Tensor
    #: shape: (num_entities, l); the same tensor as that of heads, if they have the same features
    tails: Tensor


def represent(model: Any, mode: InductiveMode | None = None) -> Vectors:
    """Call each representation of a model once, and as a whole, so that normalizer, dropout and regularizer take effect.

    :param model: the model
    :param mode: the inductive mode
    :return: the vectors of all entities and relations
    """
    num_entities = model._get_entity_len(mode=mode)
    entities = model._get_entity_representations_from_inductive_mode(mode=mode)
    return Vectors(
        entities=[_rows(representation, num_entities) for representation in entities],
        relations=[_rows(representation, model.num_relations) for representation in model.relation_representations],
    )


def features(
    model: Any, factorization: Factorization, mode: InductiveMode | None = None, vectors: Vectors | None = None
) -> Features:
    """Compute the features of all heads, relations and tails of a model.

    :param model: the model
    :param factorization: the factorization of its score
    :param mode: the inductive mode
    :param vectors: the vectors, if they have already been computed
    :return: the features
    :raises ValueError: if their dtypes differ
    """
    if vectors is None:
        vectors = represent(model, mode=mode)
    interaction = model.interaction
    heads = factorization.heads(*(vectors.entities[i] for i in interaction.head_indices))
    if factorization.same_features and list(interaction.head_indices) == list(interaction.tail_indices):
        tails = heads
    else:
        tails = factorization.tails(*(vectors.entities[i] for i in interaction.tail_indices))
    relations = factorization.relations(*vectors.relations)
    if len(relations) < model.num_relations:
        # all relations have the same features, perhaps none
        relations = relations.expand(model.num_relations, *relations.shape[1:])
    if not relations.numel():
        relations = relations.to(heads)
    if not heads.dtype == relations.dtype == tails.dtype:
        raise ValueError(
            f"Heads have dtype {heads.dtype}, relations {relations.dtype} and tails {tails.dtype}, but a score needs one "
            f"dtype. Convert the model, e.g. with model.to(dtype=torch.float32), or set the same dtype=… in "
            f"entity_representations_kwargs and relation_representations_kwargs."
        )
    return Features(heads, relations, tails)


def check_relations(model: Any, factorization: Factorization) -> None:
    """Check that relations still have the features of a factorization after their parameters have changed.

    A constrainer may be all that keeps them in place, and acts after each step. So they are moved as a step might do, and
    then moved back.

    :param model: the model
    :param factorization: the factorization of its score
    :raises NotDecomposableError: if they have not
    """
    representations = model.relation_representations
    parameters = [p for p in representations.parameters() if p.requires_grad]
    with torch.no_grad():
        before = [p.clone() for p in parameters]
        try:
            for p in parameters:
                # by another factor each, so that no norm of several of them stays the same
                p.mul_(1 + torch.arange(p.numel(), device=p.device).cos().view_as(p) / 2)
            _finish_step(representations)
            factorization.relations(*(representation(indices=None) for representation in representations))
        except NotDecomposableError as error:
            raise NotDecomposableError(f"The first step of training would change relations too much: {error}") from error
        finally:
            # also forgets what was computed from them
            _finish_step(representations)
            for p, x in zip(parameters, before, strict=True):
                p.copy_(x)


def _finish_step(representations: nn.Module) -> None:
    """Tell all parts of representations that parameters have changed, as a model does after each step."""
    for module in representations.modules():
        update = getattr(module, "post_parameter_update", None)
        if callable(update):
            update()


def _rows(representation: Representation, n: int) -> Tensor:
    """Call a representation for its first n rows, which are usually all of them."""
    x = representation(indices=None)
    # a slice would copy the gradient
    return x if x.shape[0] == n else x[:n]
