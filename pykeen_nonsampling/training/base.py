"""What the training loops have in common."""

from __future__ import annotations

import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from hashlib import md5
from typing import Any, ClassVar, TypeVar

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import ERModel
from pykeen.sampling import NegativeSampler
from pykeen.training import TrainingLoop
from pykeen.training.callbacks import (
    GradientAbsClippingTrainingCallback,
    GradientNormClippingTrainingCallback,
    MultiTrainingCallback,
    TrainingCallbackHint,
    TrainingCallbackKwargsHint,
)
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import LABEL_HEAD, LABEL_RELATION, LABEL_TAIL
from torch import Tensor
from torch.utils.data import DataLoader

from ..factorizations import Factorization, ScoreMoments, Weights
from ..graph import Batches, Graph, Sides, check_weights
from ..kernels import sum_of_norms
from ..losses import NonSamplingLoss, check_loss
from ..models import factorize_model, features, represent

__all__ = [
    "FactorizedTrainingLoop",
]

logger = logging.getLogger(__name__)

BatchType = TypeVar("BatchType", Graph, Sides)

#: Fewer optimizer steps than this are taken for a forgotten number of epochs
FEW_STEPS = 20


class FactorizedTrainingLoop(TrainingLoop[BatchType], ABC):
    """What all training loops without negative sampling have in common.

    A subclass says which triples count as negatives: how the training triples are indexed, and what the scores of a part of
    them, and its share of the negatives, cost.
    """

    hpo_default: dict[str, Any] = dict(  # noqa: RUF012
        # full-batch training: the number of epochs is the number of optimizer steps
        num_epochs=dict(type=int, low=20, high=500, q=20),
    )

    #: what a study searches of the loss, beside the loss's own ``hpo_default``
    loss_hpo_default: ClassVar[Mapping[str, Any]] = {
        "regularization_weight": {"type": float, "low": 1.0e-3, "high": 1.0, "log": True},
    }

    model: ERModel
    #: what is used of the loss's weights
    _weights: dict[str, Any]
    #: the weights of all triples as negatives, beside c⁻
    _triple_weights: Weights
    _sub_batch_size: int | None
    _random_states: tuple[Tensor, Tensor | None]

    def __init__(
        self,
        *,
        factorization: HintOrType[Factorization] = None,
        factorization_kwargs: OptionalKwargs = None,
        memory_budget: int | None = None,
        negative_sampler: HintOrType[NegativeSampler] = None,
        negative_sampler_kwargs: OptionalKwargs = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the training loop.

        :param factorization: the factorization of the model's score, or a hint for it. Defaults to the one registered for
            the model's interaction.
        :param factorization_kwargs: additional keyword-based parameters for the factorization
        :param memory_budget: >0, the number of bytes for intermediate results, beside parameters, gradients and the state of
            the optimizer. The result is the same for any number. Defaults to a quarter of what is free.
        :param negative_sampler: refused: there is nothing to sample
        :param negative_sampler_kwargs: refused, likewise
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        check_negative_sampler(negative_sampler, negative_sampler_kwargs)
        if memory_budget is not None and memory_budget < 1:
            raise ValueError(f"{memory_budget=} bytes hold nothing: choose a number ≥ 1, or leave it out.")
        super().__init__(**kwargs)
        self.memory_budget = memory_budget
        self.factorization = factorization
        self.factorization_kwargs = factorization_kwargs
        #: the triples that were indexed, by the identity of their factory, which is kept with them; those to train on first
        self._indexed: dict[int, tuple[CoreTriplesFactory, BatchType]] = {}
        self._setup = f"{type(self.optimizer).__name__} {self.optimizer.defaults} {factorization_kwargs}"
        if type(self.model.loss) is self.model.loss_default:
            self.model.loss = NonSamplingLoss()
            logger.warning(
                "%s's default %s cannot be used without negative sampling: training with %s instead.",
                type(self.model).__name__,
                self.model.loss_default.__name__,
                type(self.model.loss).__name__,
            )
        check_loss(type(self.model.loss))

    @property
    def checksum(self) -> str:
        """The checksum of what the training loop was configured with, which a checkpoint has to match.

        PyKEEN's own includes the current learning rate, so that no run with a learning rate scheduler could be resumed.
        """
        return md5(f"{self.model} {self._setup}".encode(), usedforsecurity=False).hexdigest()

    # docstr-coverage: inherited
    def _train(self, triples_factory: CoreTriplesFactory, **kwargs: Any) -> list[float] | None:  # type: ignore[override]
        _check_training_arguments(num_entities=triples_factory.num_entities, **kwargs)
        self._factorization = factorize_model(self.model, self.factorization, self.factorization_kwargs)
        if next(iter(self._indexed), None) != id(triples_factory):
            self._indexed.clear()
        graph = self._graph(triples_factory)
        if kwargs.get("batch_size") is None:
            kwargs["batch_size"] = len(graph)
        if kwargs["batch_size"] >= len(graph):
            # one batch an epoch: the bar over epochs says it all
            kwargs["use_tqdm_batch"] = False
        self._sub_batch_size = kwargs.get("sub_batch_size")
        steps = kwargs["num_epochs"] * -(-len(graph) // kwargs["batch_size"])
        if steps < FEW_STEPS:
            logger.warning(
                "Training for %d epochs of %d triples a batch makes only %d optimizer steps, which train next to nothing: "
                "one epoch is one step on the whole graph. Note that pipeline() has a default of 5 epochs; set e.g. "
                "epochs=200.",
                kwargs["num_epochs"],
                kwargs["batch_size"],
                steps,
            )
        kwargs = _with_gradient_clipping(**kwargs)
        # PyKEEN collects garbage after every epoch, which takes as long as a whole epoch here. Of frozen objects, nothing is
        # collected, so what exists already costs nothing.
        gc.freeze()
        try:
            return super()._train(triples_factory=triples_factory, **kwargs)
        finally:
            gc.unfreeze()

    @cached_property
    def _factorization(self) -> Factorization:
        """The factorization of the model's score."""
        return factorize_model(self.model, self.factorization, self.factorization_kwargs)

    @property
    def num_entities(self) -> int:
        """The number of entities to train."""
        return self.model._get_entity_len(mode=self.mode)

    def _graph(self, triples_factory: CoreTriplesFactory) -> BatchType:
        """Index the triples of a factory, once."""
        if id(triples_factory) not in self._indexed:
            graph = Graph.from_factory(triples_factory, self.num_entities, self.model.num_relations).to(self.model.device)
            if not self._indexed:
                # callbacks may look at other triples later on, which are not trained on
                self._choose(graph)
            self._indexed[id(triples_factory)] = triples_factory, self._weigh(graph, triples_factory)
        return self._indexed[id(triples_factory)][1]

    def _choose(self, graph: Graph) -> None:
        """Choose by the graph to train on what the user left open."""
        self._weights = {}
        chosen = {}
        for name, default in self._default_weights(graph).items():
            value = getattr(self.loss, name)
            self._weights[name] = default if value is None else value
            if value is None:
                chosen[name] = f"{name}={default:.3g}"
        if chosen:
            logger.warning("By this graph and model, loss_kwargs=dict(%s) were chosen.", ", ".join(chosen.values()))
        sizes = (self.num_entities, self.model.num_relations, self.num_entities)
        self._triple_weights = Weights(
            *(
                self._weigh_by_count(f"{name}_weight", getattr(self.loss, f"{name}_weight"), ids, size)
                for name, ids, size in zip((LABEL_HEAD, LABEL_RELATION, LABEL_TAIL), graph.triples.T, sizes, strict=True)
            )
        )

    def _weigh_by_count(self, name: str, weight: Any, ids: Tensor, size: int) -> Tensor | None:
        """Weigh entities or relations by how often they occur, such that the mean of the weights is 1.

        :param name: the name of the loss's parameter
        :param weight: an exponent, or a function of the numbers; nothing, if all weigh the same
        :param ids: where they occur
        :param size: the number of entities or relations
        :return: shape: (size,), the weights
        """
        if not weight:
            return None
        counts = ids.bincount(minlength=size).to(self._dtype)
        weights = weigh(weight, name, 1 + counts, counts)
        mean = weights.mean()
        if not mean > 0:
            raise ValueError(f"{name}={weight} gives nothing but zeros, so there would be no negatives.")
        return weights / mean

    @property
    def _dtype(self) -> torch.dtype:
        """The data type of real numbers in the model."""
        return next(x.real.dtype for x in self.model.parameters() if x.is_floating_point() or x.is_complex())

    @abstractmethod
    def _default_weights(self, graph: Graph) -> dict[str, float]:
        """Compute the weights that go with a graph, by the name of the loss's parameter."""

    @abstractmethod
    def _weigh(self, graph: Graph, triples_factory: CoreTriplesFactory) -> BatchType:
        """Prepare the triples for training, with weights for them and their negatives."""

    @abstractmethod
    def _sum(
        self, batch: BatchType, heads: Tensor, relations: Tensor, tails: Tensor, targets: tuple[float, float]
    ) -> Tensor:
        """Sum the costs of positives, and of their share of the negatives.

        :param batch: the positives
        :param heads: the features of heads
        :param relations: the features of relations
        :param tails: the features of tails
        :param targets: the targets of positives and negatives
        :return: the sum
        """

    @abstractmethod
    def _num_scores(self, batch: BatchType) -> float:
        """Return the number of scores in the sum over a batch and its share of the negatives."""

    # docstr-coverage: inherited
    def sub_batch_and_slice(self, *, batch_size: int, **kwargs: Any) -> tuple[int, int | None]:  # noqa: D102
        # PyKEEN would train on trial batches in search of a size that fits, and forget the size that the user set
        return self._sub_batch_size or batch_size, None

    # docstr-coverage: inherited
    def _slice_size_search(self, **kwargs: Any) -> int:
        raise NotImplementedError("Slicing is not possible, since the loop scores no candidates that could be sliced.")

    # docstr-coverage: inherited
    def _create_training_data_loader(
        self, triples_factory: CoreTriplesFactory, *, batch_size: int, drop_last: bool, num_workers: int = 0, **kwargs: Any
    ) -> DataLoader[BatchType]:
        if num_workers:
            logger.warning("num_workers=%d are not used: all triples are in memory already.", num_workers)
        graph = self._graph(triples_factory)
        # without automatic batching, each batch comes as a whole
        return DataLoader(
            dataset=graph,
            sampler=Batches(size=len(graph), batch_size=batch_size, drop_last=drop_last),
            batch_size=None,
        )

    @staticmethod
    # docstr-coverage: inherited
    def _get_batch_size(batch: BatchType) -> int:
        return len(batch)

    # docstr-coverage: inherited
    def _process_batch(
        self,
        batch: BatchType,
        start: int,
        stop: int,
        label_smoothing: float = 0.0,
        slice_size: int | None = None,
    ) -> Tensor:
        part = batch[start:stop]
        self._align_random_states(first=start == 0)
        vectors = represent(self.model, mode=self.mode)
        heads, relations, tails = features(self.model, self._factorization, vectors=vectors)
        if not self.losses_per_epochs and start == 0:
            with torch.no_grad():
                self._check_scale(self._factorization.score_moments(heads, relations, tails))
        targets = self.loss.targets(label_smoothing, num_entities=self.num_entities)
        loss = self._sum(part, heads, relations, tails, targets)
        if self._weights["regularization_weight"]:
            entity_counts, relation_counts = part.counts(self.num_entities, self.model.num_relations)
            power = self.loss.regularization_power
            norms = [sum_of_norms(x, entity_counts, power) for x in vectors.entities]
            norms += [sum_of_norms(x, relation_counts, power) for x in vectors.relations]
            loss = loss + self._weights["regularization_weight"] * sum(norms)
        regularization = self.model.collect_regularization_term()
        if self.loss.reduction == "mean":
            loss = loss / self._num_scores(part)
        else:
            # each sub-batch brings its share, so that the batch has the term once; for a mean, PyKEEN sees to that
            regularization = regularization * (len(part) / len(batch))
        return loss + regularization

    @staticmethod
    def _check_scale(moments: ScoreMoments) -> None:
        """Point out scores so large that most of the training would be spent on shrinking them."""
        mean_square = moments.second.item() / moments.count
        if mean_square > 1:
            logger.warning(
                "Before the first step, the mean square of all scores is %.3g, but false triples should have 0 and true "
                "ones 1, so training may take very long to find anything but small scores. Start with smaller vectors, e.g. "
                "model_kwargs=dict(entity_initializer='xavier_normal', relation_initializer='xavier_normal').",
                mean_square,
            )

    def _align_random_states(self, first: bool) -> None:
        """Let all sub-batches of a batch draw the same random numbers (dropout), as the whole batch would."""
        device = self.model.device
        if first:
            cuda_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
            self._random_states = torch.get_rng_state(), cuda_state
            return
        cpu_state, cuda_state = self._random_states
        torch.set_rng_state(cpu_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state(cuda_state, device)


def weigh(weight: Any, name: str, base: Tensor, *arguments: Tensor) -> Tensor:
    """Compute weights by an exponent of a number, or by a function.

    :param weight: the exponent, or the function
    :param name: the name of the loss's parameter
    :param base: what the exponent is of
    :param arguments: the arguments of the function
    :return: the weights, as many as there are numbers
    """
    if not callable(weight):
        return base.pow(weight)
    weights: Tensor = weight(*arguments)
    if weights.shape != base.shape:
        raise ValueError(
            f"{name}={weight} gives weights of shape {tuple(weights.shape)}, but {tuple(base.shape)} are needed."
        )
    return check_weights(weights.to(base), f"{name}={weight} gives", "a weight")


def check_negative_sampler(negative_sampler: HintOrType[NegativeSampler], negative_sampler_kwargs: OptionalKwargs) -> None:
    """Refuse a negative sampler."""
    if negative_sampler is None and not negative_sampler_kwargs:
        return
    raise ValueError(
        f"{negative_sampler=} with {negative_sampler_kwargs=} has no use here: this loop trains on every negative triple, "
        f"so there is nothing to sample. Leave it out, or use training_loop='slcwa'."
    )


def _with_gradient_clipping(
    *,
    callbacks: TrainingCallbackHint = None,
    callbacks_kwargs: TrainingCallbackKwargsHint = None,
    gradient_clipping_max_norm: float | None = None,
    gradient_clipping_norm_type: float | None = None,
    gradient_clipping_max_abs_value: float | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Clip gradients by callbacks that know the training loop: PyKEEN 1.11.1 forgets to tell its own, and fails."""
    callback = MultiTrainingCallback(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs)
    if gradient_clipping_max_norm is not None:
        callback.register_callback(
            GradientNormClippingTrainingCallback(gradient_clipping_max_norm, norm_type=gradient_clipping_norm_type)
        )
    if gradient_clipping_max_abs_value is not None:
        callback.register_callback(GradientAbsClippingTrainingCallback(gradient_clipping_max_abs_value))
    return dict(callbacks=callback, **kwargs)


def _check_training_arguments(
    *,
    num_entities: int,
    num_epochs: int = 1,
    batch_size: int | None = None,
    sub_batch_size: int | None = None,
    slice_size: int | None = None,
    label_smoothing: float = 0.0,
    sampler: str | None = None,
    **_kwargs: Any,
) -> None:
    """Refuse arguments of :meth:`TrainingLoop.train` that have no meaning here."""
    if slice_size is not None:
        raise ValueError(
            f"{slice_size=} has no use here: this loop scores no candidates that could be sliced. Leave it out; to bound "
            f"the memory, set sub_batch_size instead."
        )
    if sampler is not None:
        raise ValueError(
            f"{sampler=} has no use here: this loop trains on the whole graph, so there is no subgraph to sample. Leave it "
            f"out."
        )
    for name, size in (("batch_size", batch_size), ("sub_batch_size", sub_batch_size)):
        if size is not None and size < 1:
            raise ValueError(f"{name}={size} holds no triple: choose a number ≥ 1, or leave it out for the whole graph.")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"{label_smoothing=} is out of range: choose 0 ≤ label_smoothing < 1.")
    if label_smoothing and num_entities < 2:
        raise ValueError(f"{label_smoothing=} spreads over all other entities, but there is one only. Leave it out.")
