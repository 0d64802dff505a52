"""What one training knows, made once before its first epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from pykeen.losses import Loss
from pykeen.triples import CoreTriplesFactory

from ..distributed.placement import Placement
from ..factorizations import Factorization, Weights
from ..factorizations.features import check_relations, factorize_model, features
from ..graph.batches import Batch
from ..losses import FactorizedLoss, resolve_loss
from ..losses.weights import weigh_triples
from ..memory.room import check_room, known_room
from ..memory.task import Counts, Task
from ..sweeps.choice import fastest_sweep
from ..sweeps.problem import Sweep
from .arguments import check_numbers
from .messages import warn_of_low_precision
from .start import Start

if TYPE_CHECKING:
    from .loop import FactorizedTrainingLoop


@dataclass(frozen=True)
class Run:
    """What one training knows."""

    #: where the entities are, and which queries this process visits
    placement: Placement
    #: how the model's score factorizes
    factorization: Factorization
    #: the loss as it was given, and with all weights
    given_loss: Loss
    loss: FactorizedLoss
    #: what the training starts with, with all weights
    start: Start
    #: the weights of all triples as negatives, in addition to c⁻; of entities, those of this process
    weights: Weights
    #: all triples, seen from each end that is predicted, with their weights
    batch: Batch
    #: how the sums are computed
    sweep: Sweep
    #: the number of bytes that this may take; none, if there is no need for a limit
    memory_budget: int | None


def prepare(
    loop: FactorizedTrainingLoop,
    placement: Placement,
    triples_factory: CoreTriplesFactory,
    given_loss: Loss,
    label_smoothing: float,
) -> Run:
    """Index the triples to train on, check everything, and derive the weights that the user left out.

    :param loop: the training loop, which stays as it is
    :param placement: where the entities are
    :param triples_factory: the triples to train on
    :param given_loss: the loss as it was given
    :param label_smoothing: the label smoothing that the user trains with
    :return: what the training knows
    :raises ValueError: if the training is not possible
    """
    model, dtype, world = loop.model, loop._dtype, loop.closed_world
    # what fails in one process fails in all of them; in between, they count together
    with placement.group.together():
        check_numbers(model, dtype)
        factorization = factorize_model(model, loop.factorization, loop.factorization_kwargs)
        frequencies = placement.count(triples_factory, model.num_relations, model.device)
    placement.count_together(frequencies)
    with placement.group.together():
        resolve = partial(resolve_loss, given_loss, frequencies, factorization, world)
        targets = loop.targets(triples_factory.create_inverse_triples, loop.target)
        room = known_room.get()
        if room is None:
            counts = Counts.of_frequencies(frequencies, placement.sharding)
            room = check_room(loop, counts, Task.of(resolve(), world, len(targets)))
        # it was for this training only
        known_room.set(None)
        num_features = _try_features(loop, factorization)
        loss = resolve(num_features=num_features, label_smoothing=label_smoothing)
        loop._check_objective(loss.objective(label_smoothing, num_entities=loop.num_entities))
        placement.check_loss(loss)
        start = loop.start
        if start.num_epochs:
            if not loss.needs_scores:
                raise ValueError(
                    f"start_epochs={start.num_epochs} is for losses that see every score, e.g. loss='softmax': "
                    f"{type(loss).__name__} needs no other start. Remove it."
                )
            if factorization.no_moments is not None:
                raise ValueError(
                    f"start_epochs={start.num_epochs} starts with the squared loss, which cannot be used with "
                    f"{type(model).__name__}, since its scores are clamped. Remove it."
                )
            start = replace(start, loss=resolve_loss(start.loss, frequencies, factorization, world, num_features))
        if loss.duality_weight and factorization.family.is_distance:
            raise ValueError(
                f"duality_weight={loss.duality_weight} applies to scores that are products of a query and an answer, but "
                f"the score of {type(model).__name__} is a distance. Remove it from loss_kwargs."
            )
        if loss.needs_scores and factorization.family.is_distance:
            warn_of_low_precision()
        loss.check_precision(dtype)
        weights = weigh_triples(loss, frequencies, dtype)
        sides = loop._sides(loss, weights, frequencies, targets)
    return Run(
        placement=placement,
        factorization=factorization,
        given_loss=given_loss,
        loss=loss,
        start=start,
        weights=placement.own(weights),
        batch=placement.batch(sides),
        sweep=placement.divide_sweep(fastest_sweep(room.memory_budget, loss.needs_scores)),
        memory_budget=room.memory_budget,
    )


def _try_features(loop: FactorizedTrainingLoop, factorization: Factorization) -> int:
    """Let a model whose features cannot be computed fail now, before PyKEEN resets its parameters.

    :return: the number of features of an entity
    """
    model, training = loop.model, loop.model.training
    model.eval()
    try:
        with torch.no_grad():
            width = features(model, factorization, mode=loop.mode).tails.shape[1]
        check_relations(model, factorization)
        return width
    finally:
        model.train(training)
