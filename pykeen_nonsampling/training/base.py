"""What the training loops have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.losses import loss_resolver
from pykeen.models import ERModel
from pykeen.sampling import NegativeSampler
from pykeen.training import NonFiniteLossError
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, loss_weighter_resolver
from torch import Tensor
from torch.utils.data import DataLoader
from typing_extensions import override

from .. import _compat
from ..factorizations import Factorization, ScoreMoments, Weights
from ..factorizations.features import Features, check_relations, factorize_model, features, represent
from ..free import check_memory_budget
from ..graph.batches import Batch, Batches
from ..graph.frequencies import Frequencies
from ..graph.sides import Side
from ..losses import AutomaticLoss, MomentLoss, NonSamplingLoss, check_loss
from ..losses.objective import Objective
from ..losses.penalties import sum_of_norms
from ..losses.weights import check_precision, weigh_triples
from ..memory.room import check_room
from ..memory.task import Counts, Task
from ..sweeps.choice import fastest_sweep
from ..sweeps.numba.threads import warn_if_forked
from ..sweeps.problem import Sweep
from .arguments import check_negative_sampler, check_numbers, check_training_arguments
from .fingerprint import describe_graph, describe_weights, plain
from .messages import advise_smaller_scores, advise_smaller_steps, explain_non_finite_loss
from .sharded import ShardedTrainingLoop

logger = logging.getLogger(__name__)

#: Fewer optimizer steps than this suggest that the user forgot to set the number of epochs
FEW_STEPS = 20

#: A loss that has become so many times as large as the first one has not been minimized
DIVERGED = 10.0

#: What was derived before the training loop was created, to be logged together with what it derives itself
derived: ContextVar[Mapping[str, Any]] = ContextVar("derived", default={})  # noqa: B039


class FactorizedTrainingLoop(ShardedTrainingLoop, ABC):
    """What all training loops without negative sampling have in common.

    A subclass says which triples count as negatives: from which ends the training triples are seen, what they and their
    negatives weigh, and what a batch of them costs.
    """

    hpo_default: dict[str, Any] = dict(  # noqa: RUF012
        # full-batch training: the number of epochs is the number of optimizer steps
        num_epochs=dict(type=int, low=20, high=500, q=20),
    )

    #: what a study searches of the loss, in addition to the loss's own ``hpo_default``
    loss_hpo_default: ClassVar[Mapping[str, Any]] = {
        "regularization_weight": {"type": float, "low": 1.0e-3, "high": 1.0, "log": True},
    }

    model: ERModel
    #: the weights of all triples as negatives, in addition to c⁻
    _weights: Weights
    #: the number of bytes for intermediate results, if there is not enough memory for as many as are useful
    _budget: int | None = None
    _sub_batch_size: int | None = None
    _random_states: tuple[Tensor, Tensor | None]
    #: whether the first batch has been looked at
    _checked: bool = False
    #: a batch, and the part of it that is this process's, kept for when the next batch is the same
    _mine: tuple[Batch, Batch] | None = None
    #: hides what exists from the garbage collector, after the first epoch
    _hide_from_collector: Callable[[], None] | None = None

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
        :param memory_budget: >0, the number of bytes for intermediate results, in addition to parameters, gradients and the
            state of the optimizer. The result is the same for any number. Defaults to a quarter of the free memory.
        :param negative_sampler: refused: there is nothing to sample
        :param negative_sampler_kwargs: refused, likewise
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        check_negative_sampler(negative_sampler, negative_sampler_kwargs)
        check_memory_budget(memory_budget)
        super().__init__(**kwargs)
        self.memory_budget = memory_budget
        self.factorization = factorization
        self.factorization_kwargs = factorization_kwargs
        #: the indexed triples, by the identity of their factory, which is kept with them; those to train on come first
        self._indexed: dict[int, tuple[CoreTriplesFactory, Batch]] = {}
        #: the loss as it was given, and with all its weights
        self._given_loss: Any = None
        self._resolved_loss: Any = None
        if type(self.model.loss) is self.model.loss_default:
            # which the user did not ask for
            self.model.loss = AutomaticLoss()
        check_loss(type(self.model.loss))

    @override
    def _describe_data(self) -> dict[str, Any]:
        description: dict[str, Any] = {
            "factorization_kwargs": plain(self.factorization_kwargs),
            "loss": {"class": type(self.loss).__name__, **plain(self.loss.kwargs)},
        }
        if self._indexed:
            batch, numbering = next(iter(self._indexed.values()))[1], self._numbering()
            description |= {
                "graph": describe_graph(batch.sides[0].index, numbering),
                "target": [side.target for side in batch.sides],
                "weights": describe_weights(self._weights, batch.sides, numbering),
                "batch_size": self._training_kwargs.get("batch_size") or len(batch),
            }
        return description

    @override
    def train(  # type: ignore[override]
        self, triples_factory: CoreTriplesFactory, num_epochs: int = 1, batch_size: int | None = None, **kwargs: Any
    ) -> list[float] | None:
        check_training_arguments(self.num_entities, num_epochs=num_epochs, batch_size=batch_size, **kwargs)
        warn_if_forked()
        # before PyKEEN looks at a checkpoint, which is compared with what is derived here
        self.__dict__.pop("_factorization", None)
        self._indexed.clear()
        self._checked = False
        self._prepare(triples_factory, kwargs.get("label_smoothing", 0.0))
        return super().train(triples_factory, num_epochs=num_epochs, batch_size=batch_size, **kwargs)

    def _prepare(self, triples_factory: CoreTriplesFactory, label_smoothing: float) -> None:
        """Index the triples to train on, check the loss, derive the weights that the user left out, and record them."""
        check_numbers(self.model, self._dtype)
        frequencies = self._count(triples_factory)
        counts = Counts.of_frequencies(frequencies, self._sharding)
        self._budget = check_room(self, counts, self._task(counts, triples_factory))
        self._num_features = self._try_features()
        if self.model.loss is not self._resolved_loss:
            self._given_loss = self.model.loss
        loss: MomentLoss = self._given_loss
        if isinstance(loss, AutomaticLoss):
            # only the squared loss has targets to smooth
            loss = loss.become(NonSamplingLoss if label_smoothing else self._suitable_loss(frequencies))
        self._check_objective(loss.objective(label_smoothing, num_entities=self.num_entities))
        defaults = self._default_weights(loss, frequencies)
        weights = {name: defaults[name] for name, value in loss.kwargs.items() if name in defaults and value is None}
        self._resolved_loss = self.model.loss = loss.resolve(**weights)
        self._check_divisible(self.loss)
        if self.loss.duality_weight and self._factorization.family.startswith("squared distance"):
            raise ValueError(
                f"duality_weight={self.loss.duality_weight} applies to scores that are products of a query and an answer, "
                f"but the score of {type(self.model).__name__} is a distance. Remove it from loss_kwargs."
            )
        check_precision(self.loss, self._dtype)
        self._weights = weigh_triples(self.loss, frequencies, self._dtype)
        with self._ranks.together():
            sides = self._sides(frequencies, triples_factory)
        self._indexed[id(triples_factory)] = triples_factory, self._make_batch(sides)
        self._weights = self._own(self._weights)
        name = loss_resolver.normalize_inst(self.loss)
        self.result_tracker.log_params(params=dict(loss=name, loss_kwargs=self.loss.plain_kwargs))
        choices = {**derived.get(), **({"loss": name} if isinstance(self._given_loss, AutomaticLoss) else {})}
        if weights:
            choices["loss_kwargs"] = weights
        if choices:
            logger.info("Derived from graph and model: %s", ", ".join(f"{key}={value!r}" for key, value in choices.items()))

    def _task(self, counts: Counts, triples_factory: CoreTriplesFactory) -> Task:
        """Say what is trained, for an estimate of the memory."""
        target, inverse = getattr(self, "target", None), triples_factory.create_inverse_triples
        return self.plan_task(self.model.loss, self._factorization.family, counts, inverse, target)

    @classmethod
    def plan_task(cls, loss: Any, family: str, counts: Counts, inverse: bool = False, target: Any = None) -> Task:
        """Say what would be trained, for an estimate of the memory.

        :param loss: the loss; the one that suits, if there is none
        :param family: the family of the model's factorization
        :param counts: the numbers of the graph
        :param inverse: whether there are inverse triples
        :param target: the end of a triple to predict
        :return: the task
        """
        return Task.of(loss, family, counts)

    def _try_features(self) -> int:
        """Let a model whose features cannot be computed fail now, before PyKEEN resets its parameters.

        :return: the number of features of an entity
        """
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                width = features(self.model, self._factorization, mode=self.mode).tails.shape[1]
            check_relations(self.model, self._factorization)
            return width
        finally:
            self.model.train(training)

    def _batch(self, triples_factory: CoreTriplesFactory) -> Batch:
        """Return all triples of a factory, indexed once. Callbacks may use other triples than those to train on."""
        if id(triples_factory) not in self._indexed:
            sides = self._sides(self._count(triples_factory), triples_factory)
            self._indexed[id(triples_factory)] = triples_factory, self._make_batch(sides)
        return self._indexed[id(triples_factory)][1]

    @override
    def _train(self, triples_factory: CoreTriplesFactory, **kwargs: Any) -> list[float] | None:  # type: ignore[override]
        whole = self._batch(triples_factory)
        if kwargs.get("batch_size") is None:
            kwargs["batch_size"] = len(whole)
        num_batches = len(Batches(whole, kwargs["batch_size"], drop_last=False))
        if num_batches == 1:
            # the bar over epochs is enough
            kwargs["use_tqdm_batch"] = False
        self._sub_batch_size = kwargs.get("sub_batch_size")
        steps = kwargs["num_epochs"] * num_batches
        if steps < FEW_STEPS:
            logger.warning(
                "Training for num_epochs=%d with batch_size=%d takes only %d optimizer steps, which is too few to learn "
                "much: by default, one epoch is one step on the whole graph. pipeline() trains for 5 epochs unless told "
                "otherwise; set e.g. epochs=200.",
                kwargs["num_epochs"],
                kwargs["batch_size"],
                steps,
            )
        try:
            with _compat.cheap_garbage_collection() as self._hide_from_collector, _compat.quiet_schedulers():
                losses = super()._train(triples_factory=triples_factory, **_compat.with_gradient_clipping(**kwargs))
        finally:
            # their memory is no longer needed
            self.__dict__.pop("_sweep", None)
            self._mine = None
            self._hide_from_collector = None
        if losses and losses[-1] > DIVERGED * losses[0] > 0:
            logger.warning(
                "The loss has grown from %.3g in the first epoch to %.3g in the last one, so the model has not learned what "
                "it should. %s",
                losses[0],
                losses[-1],
                advise_smaller_steps(self.optimizer),
            )
        return losses

    @override
    def _train_epoch(self, **kwargs: Any) -> float:  # type: ignore[override]
        try:
            # a batch of whole queries may have more triples than the batch size, by which PyKEEN would split it
            loss = super()._train_epoch(**{**kwargs, "sub_batch_size": self._sub_batch_size})
        except NonFiniteLossError as error:
            stepped = bool(self.losses_per_epochs) or len(kwargs["batches"]) > 1
            raise NonFiniteLossError(explain_non_finite_loss(self, kwargs["epoch"], stepped)) from error
        if self._hide_from_collector is not None:
            # what the first epoch has loaded stays, above all Numba's many types
            self._hide_from_collector()
            self._hide_from_collector = None
        return loss

    @cached_property
    def _factorization(self) -> Factorization:
        """The factorization of the model's score."""
        return factorize_model(self.model, self.factorization, self.factorization_kwargs)

    @cached_property
    def _sweep(self) -> Sweep:
        """The way to visit the observed triples."""
        return self._divide_sweep(fastest_sweep(self._budget))

    @property
    def _weighter(self) -> LossWeighter | None:
        """The loss weighter, if the user has set one."""
        return loss_weighter_resolver.make_safe(self.loss_weighter, self.loss_weighter_kwargs)  # type: ignore[arg-type]

    @property
    def _dtype(self) -> torch.dtype:
        """The data type of real numbers in the model."""
        return next(x.real.dtype for x in self.model.parameters() if x.is_floating_point() or x.is_complex())

    def _check_objective(self, objective: Objective) -> None:
        """Refuse an objective that this training loop cannot use."""
        return

    @abstractmethod
    def _suitable_loss(self, frequencies: Frequencies) -> type[MomentLoss]:
        """Choose a loss for graph and model."""

    @abstractmethod
    def _default_weights(self, loss: MomentLoss, frequencies: Frequencies) -> dict[str, float]:
        """Derive weights from graph and model, by the names of the loss's parameters."""

    @abstractmethod
    def _sides(self, frequencies: Frequencies, triples_factory: CoreTriplesFactory) -> Sequence[Side]:
        """Return the triples as seen from each end that answers, with all weights."""

    @abstractmethod
    def _sum(self, batch: Batch, features: Features, objective: Objective) -> Tensor:
        """Sum the costs of positives, and of their share of the negatives.

        :param batch: the positives
        :param features: the features of all heads, relations and tails
        :param objective: what scores cost
        :return: the sum
        """

    @abstractmethod
    def _num_scores(self, batch: Batch) -> float:
        """Return the number of scores in the sum over a batch and its share of the negatives."""

    @override
    def sub_batch_and_slice(self, *, batch_size: int, **kwargs: Any) -> tuple[int, int | None]:
        # PyKEEN would train on trial batches in search of a size that fits, and forget the size that the user set
        return self._sub_batch_size or batch_size, None

    @override
    def _slice_size_search(self, **kwargs: Any) -> int:
        raise NotImplementedError("Slicing is not possible, since the loop scores no candidates that could be sliced.")

    @override
    def _create_training_data_loader(
        self, triples_factory: CoreTriplesFactory, *, batch_size: int, drop_last: bool, num_workers: int = 0, **kwargs: Any
    ) -> DataLoader[Batch]:
        if num_workers:
            logger.warning("num_workers=%d has no effect: all triples are in memory already. Remove it.", num_workers)
        whole = self._batch(triples_factory)
        # without automatic batching, each batch comes as a whole: collating single triples would take seconds per epoch
        return DataLoader(dataset=whole, sampler=Batches(whole, batch_size, drop_last), batch_size=None)

    @staticmethod
    @override
    def _get_batch_size(batch: Batch) -> int:
        return len(batch)

    @override
    def _process_batch(
        self,
        batch: Batch,
        start: int,
        stop: int,
        label_smoothing: float = 0.0,
        slice_size: int | None = None,
    ) -> Tensor:
        part, share = batch.part(start, stop), (stop - start) / len(batch)
        mine = self._my_part(part)
        self._align_random_states(first=start == 0)
        vectors = represent(self.model, mode=self.mode)
        all_features = features(self.model, self._factorization, vectors=vectors)
        if not self._checked:
            self._check(all_features)
            self._checked = True
        loss = self._sum(mine, all_features, self.loss.objective(label_smoothing, num_entities=self.num_entities))
        if self.loss.regularization_weight:
            power = self.loss.regularization_power
            weight, dtype = self.loss.regularization_weight, self._dtype
            entity_weights, relation_weights = (weight * counts.to(dtype) for counts in mine.occurrences)
            for x in vectors.entities:
                loss = loss + sum_of_norms(x, entity_weights, power)
            for x in vectors.relations:
                loss = loss + sum_of_norms(x, relation_weights, power)
        regularization = self.model.collect_regularization_term() / self._ranks.size
        if self.loss.reduction == "mean":
            # PyKEEN weighs sub-batches by their share
            return self._ranks.total(loss / (share * self._num_scores(batch)) + regularization)
        return self._ranks.total(loss + share * regularization)

    def _my_part(self, batch: Batch) -> Batch:
        """Return the queries of a batch that this process visits."""
        if self._mine is None or self._mine[0] is not batch:
            self._mine = batch, batch.divide(self._ranks.rank, self._ranks.size)
        return self._mine[1]

    def _check(self, all_features: Features) -> None:
        """Check the model before its first step, once."""
        if not self.losses_per_epochs:
            with torch.no_grad():
                self._check_scale(self._factorization.score_moments(*all_features, moments=self._moments))

    def _check_scale(self, moments: ScoreMoments) -> None:
        """Point out scores so large that most of the training would be spent on shrinking them."""
        mean_square = moments.second.item() / float(moments.count)
        if mean_square > 1:
            logger.warning(
                "Before the first step, the mean square of all scores is %.3g, but false triples should score 0 and true "
                "ones 1, so most of the training will be spent on shrinking scores. %s",
                mean_square,
                advise_smaller_scores(self.model),
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
