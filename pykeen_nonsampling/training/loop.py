"""The training loop: what a training knows is made once, before the first epoch, and a step reads like the formula."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.models import ERModel
from pykeen.sampling import NegativeSampler
from pykeen.training import NonFiniteLossError
from pykeen.training.callbacks import MultiTrainingCallback, TrainingCallback
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, loss_weighter_resolver
from pykeen.typing import Target
from torch import Tensor, nn
from torch.utils.data import DataLoader
from typing_extensions import override

from .. import _compat
from ..distributed.group import Group
from ..distributed.model import shard_model
from ..distributed.placement import Placement, Sharded
from ..distributed.shards import TriplesShard
from ..factorizations import Factorization, Weights
from ..factorizations.features import Features, Vectors, factorize_model, features, represent
from ..free import check_memory_budget
from ..graph.batches import Batch, Batches
from ..graph.frequencies import Frequencies
from ..graph.sides import Side
from ..losses import AutomaticLoss, FactorizedLoss, PykeenLoss, check_loss, resolve_loss
from ..losses.objective import AnyObjective, FunctionObjective, ScoreObjective
from ..losses.penalties import sum_of_norms
from ..memory.task import Counts, Task
from ..sweeps.choice import fastest_sweep
from ..sweeps.numba.threads import warn_if_forked
from .arguments import check_negative_sampler, check_training_arguments
from .fingerprint import describe_graph, describe_loss, describe_model, describe_weights, plain
from .messages import explain_non_finite_loss, log_loss, warn_of_divergence, warn_of_few_steps, warn_of_large_scores
from .resuming import ResumableTrainingLoop
from .run import Run, prepare
from .start import Start, remove_start, start_squared

logger = logging.getLogger(__name__)

#: With a loss that sees every score, unless the user sets the batch size: the number of queries in a step, at least and at
#: most, and the number of steps in an epoch in between
FEWEST_QUERIES, MOST_QUERIES, STEPS_PER_EPOCH = 100, 1000, 20

#: Whether the user has chosen the loss of the model that a training loop is created for, also if it is the model's default
loss_is_given: ContextVar[bool] = ContextVar("loss_is_given", default=False)


class FactorizedTrainingLoop(ResumableTrainingLoop, ABC):
    """What all training loops without negative sampling have in common.

    A subclass says which triples count as negatives: from which ends the training triples are seen, what they and their
    negatives weigh, and what a batch of them costs. If :mod:`torch.distributed` has several processes, they share the work:
    each has the whole model and visits a part of the queries of every batch, or, if its triples are a
    :class:`~pykeen_nonsampling.distributed.shards.TriplesShard`, it has a part of the entities and visits their queries.
    """

    hpo_default: dict[str, Any] = dict(  # noqa: RUF012
        # full-batch training: the number of epochs is the number of optimizer steps
        num_epochs=dict(type=int, low=20, high=500, q=20),
    )

    #: what a study searches of the loss, in addition to the loss's own ``hpo_default``
    loss_hpo_default: ClassVar[Mapping[str, Any]] = {}

    #: whether all triples are summed, and not the candidates of observed queries
    closed_world: ClassVar[bool]

    model: ERModel
    #: the end of a triple to predict, if the user has chosen one
    target: Target | int | None = None
    #: what the current training knows, or the last one
    _run: Run = None  # type: ignore[assignment]
    _sub_batch_size: int | None = None
    _random_states: tuple[Tensor, Tensor | None]
    #: whether the first batch has been looked at
    _checked: bool = False
    #: whether all processes start from the same parameters
    _aligned: bool = False
    #: hides what exists from the garbage collector, after the first epoch
    _hide_from_collector: Callable[[], None] | None = None
    #: the number of bytes that this process has sent in the last epoch
    num_bytes: int = 0

    def __init__(
        self,
        *,
        triples_factory: CoreTriplesFactory,
        factorization: HintOrType[Factorization] = None,
        factorization_kwargs: OptionalKwargs = None,
        memory_budget: int | None = None,
        start_epochs: int = 0,
        start_kwargs: OptionalKwargs = None,
        negative_sampler: HintOrType[NegativeSampler] = None,
        negative_sampler_kwargs: OptionalKwargs = None,
        **kwargs: Any,
    ) -> None:
        """Initialize the training loop.

        :param triples_factory: the training triples
        :param factorization: the factorization of the model's score, or a hint for it. Defaults to the one registered for
            the model's interaction.
        :param factorization_kwargs: additional keyword-based parameters for the factorization
        :param memory_budget: >0, the number of bytes for intermediate results, in addition to parameters, gradients and the
            state of the optimizer. The result is the same for any number. Defaults to a quarter of the free memory.
        :param start_epochs: ≥0, for a loss that sees every score: the number of epochs with the squared loss to start with.
            They are cheap, and bring vectors close to where the others would take long to get.
        :param start_kwargs: the learning rate ``lr`` of these epochs, and parameters of their
            :class:`~pykeen_nonsampling.NonSamplingLoss`. What is left out is derived from graph and model.
        :param negative_sampler: refused: there is nothing to sample
        :param negative_sampler_kwargs: refused for the same reason
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        check_negative_sampler(negative_sampler, negative_sampler_kwargs)
        check_memory_budget(memory_budget)
        super().__init__(triples_factory=triples_factory, **kwargs)
        self.memory_budget = memory_budget
        self.start = Start.of(start_epochs, start_kwargs)
        #: whether this is the start of another training, which tells of itself
        self._is_start = False
        self.factorization = factorization
        self.factorization_kwargs = factorization_kwargs
        #: the indexed triples, by the identity of their factory, which is kept with them
        self._batches: dict[int, tuple[CoreTriplesFactory, Batch]] = {}
        #: where the entities are, if they are divided among processes
        self._sharded: Sharded | None = None
        if isinstance(triples_factory, TriplesShard):
            shard_model(self.model, triples_factory.sharding)
            self._sharded = Sharded(triples_factory.sharding)
            self._sharded.check_arguments(loss_weighter=self.loss_weighter)
        self._give_loss(self.model)

    @property
    def start_kwargs(self) -> dict[str, Any]:
        """How the current training started, or the last one, with all weights."""
        return {} if self._run is None else self._run.start.kwargs

    @property
    def num_entities(self) -> int:
        """The number of entities to train, in all processes."""
        return self._sharded.num_entities if self._sharded else int(self.model._get_entity_len(mode=self.mode))

    @override
    def train(  # type: ignore[override]
        self, triples_factory: CoreTriplesFactory, num_epochs: int = 1, batch_size: int | None = None, **kwargs: Any
    ) -> list[float] | None:
        check_training_arguments(self.num_entities, num_epochs=num_epochs, batch_size=batch_size, **kwargs)
        warn_if_forked()
        placement = self._sharded or Placement(self.num_entities, Group.current())
        placement.check_arguments(batch_size=batch_size, **kwargs)
        group, self._checked, self._aligned = placement.group, False, False
        self._writes = group.is_first
        given: Any = self.model.loss
        if self._run is not None and given is self._run.loss:
            # the same training again
            given = self._run.given_loss
        # before PyKEEN looks at a checkpoint, which is compared with what is derived here
        self._run = prepare(self, placement, triples_factory, given, kwargs.get("label_smoothing", 0.0))
        if not isinstance(self._run.loss, PykeenLoss):
            self.model.loss = self._run.loss
        if not self._is_start:
            log_loss(self._run.loss, given, self.result_tracker)
        self._factory = triples_factory
        self._batches = {id(triples_factory): (triples_factory, self._run.batch)}
        if group.size > 1:
            self._align_random_numbers(group)
            _check_checkpoint(group, **kwargs)
            kwargs["use_tqdm"] = kwargs.get("use_tqdm", True) and group.is_first
        return super().train(triples_factory, num_epochs=num_epochs, batch_size=batch_size, **kwargs)

    @override
    def _describe_model(self) -> dict[str, Any]:
        return self._run.placement.describe_model(self.model, describe_model(self.model))

    @override
    def _describe_data(self) -> dict[str, Any]:
        run = self._run
        batch, sharding = run.batch, run.placement.sharding
        return {
            "factorization_kwargs": plain(self.factorization_kwargs),
            "loss": describe_loss(run.loss),
            "graph": describe_graph(batch.sides[0].index, sharding),
            "target": [side.target for side in batch.sides],
            "weights": describe_weights(run.weights, batch.sides, sharding),
            "batch_size": self._training_kwargs.get("batch_size") or len(batch),
            "start_epochs": run.start.num_epochs,
            "start_kwargs": plain(run.start.kwargs),
        }

    def _align_random_numbers(self, group: Group) -> None:
        """Let all processes draw the same random numbers, as batches and dropout do."""
        torch.set_rng_state(group.same(torch.get_rng_state()))
        if self.model.device.type == "cuda":
            torch.cuda.set_rng_state(group.same(torch.cuda.get_rng_state(self.model.device)), self.model.device)

    @override
    def _save_state(self, path: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # all processes describe it together, before one of them writes
        _ = self._setup
        with self._run.placement.whole_states(self.model, self.optimizer, Path(path).parent):
            super()._save_state(path, **kwargs)

    @override
    def _load_state(
        self, path: str | Path, triples_factory: CoreTriplesFactory | None = None
    ) -> tuple[Path | None, int | None]:
        with self._run.placement.own_checkpoint(Path(path), self.model) as part:
            return super()._load_state(part, None if self._sharded else triples_factory)

    @override
    def _is_interrupted(self) -> bool:
        if self._checkpoint is not None:
            self._interrupted = any(self._run.placement.group.all_of(self._interrupted))
        return self._checkpoint is not None and self._interrupted

    @classmethod
    @abstractmethod
    def targets(cls, inverse: bool, target: Any = None) -> Sequence[Target]:
        """List the ends of triples to predict.

        :param inverse: whether there are inverse triples
        :param target: the end that the user has chosen
        :return: the ends
        """

    @classmethod
    def _give_loss(cls, model: ERModel) -> None:
        """Replace a loss that the user did not ask for, and refuse one that cannot be computed."""
        if type(model.loss) is model.loss_default and not loss_is_given.get():
            model.loss = AutomaticLoss()
        check_loss(type(model.loss), cls.closed_world)

    @classmethod
    def find_loss(
        cls,
        model: ERModel,
        triples_factory: CoreTriplesFactory,
        label_smoothing: float = 0.0,
        factorization: HintOrType[Factorization] = None,
        factorization_kwargs: OptionalKwargs = None,
        **_kwargs: Any,
    ) -> FactorizedLoss:
        """Find out which loss a model would be trained with.

        :param model: the model
        :param triples_factory: the training triples
        :param label_smoothing: the label smoothing
        :param factorization: as for the training loop
        :param factorization_kwargs: as for the training loop
        :return: the loss
        """
        cls._give_loss(model)
        made = factorize_model(model, factorization, factorization_kwargs)
        return resolve_loss(model.loss, Counts.of(triples_factory), made, cls.closed_world, label_smoothing=label_smoothing)

    @classmethod
    def plan_task(
        cls, loss: Any, factorization: Factorization, counts: Counts, inverse: bool = False, target: Any = None
    ) -> Task:
        """Say what would be trained, for an estimate of the memory.

        :param loss: the loss; the one that suits, if there is none
        :param factorization: the factorization of the model's score
        :param counts: the numbers of the graph
        :param inverse: whether there are inverse triples
        :param target: the end of a triple to predict
        :return: the task
        """
        loss = resolve_loss(loss, counts, factorization, cls.closed_world)
        return Task.of(loss, cls.closed_world, len(cls.targets(inverse, target)))

    def _batch(self, triples_factory: CoreTriplesFactory) -> Batch:
        """Return all triples of a factory, indexed once. Callbacks may use other triples than those to train on."""
        if id(triples_factory) not in self._batches:
            run = self._run
            frequencies = run.placement.count(triples_factory, self.model.num_relations, self.model.device)
            targets = self.targets(triples_factory.create_inverse_triples, self.target)
            sides = self._sides(run.loss, run.weights, frequencies, targets)
            self._batches[id(triples_factory)] = triples_factory, run.placement.batch(sides)
        return self._batches[id(triples_factory)][1]

    @override
    def _train(  # type: ignore[override]
        self, triples_factory: CoreTriplesFactory, callbacks: Any = None, callbacks_kwargs: Any = None, **kwargs: Any
    ) -> list[float] | None:
        placement = self._run.placement
        if placement.group.size > 1:
            given = MultiTrainingCallback(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs)
            # before all others, which may look at gradients
            callbacks = [_SumGradients(placement.group, list(placement.common_parameters(self.model))), given]
            callbacks_kwargs = None
        kwargs |= dict(callbacks=callbacks, callbacks_kwargs=callbacks_kwargs)
        whole = self._batch(triples_factory)
        if kwargs.get("batch_size") is None:
            kwargs["batch_size"] = len(whole)
            if self._run.loss.needs_scores:
                queries = max(FEWEST_QUERIES, min(MOST_QUERIES, whole.num_queries // STEPS_PER_EPOCH))
                kwargs["batch_size"] = max(1, len(whole) * queries // max(queries, whole.num_queries))
        num_batches = len(Batches(whole, kwargs["batch_size"], drop_last=False))
        if num_batches == 1:
            # the bar over epochs is enough
            kwargs["use_tqdm_batch"] = False
        self._sub_batch_size = kwargs.get("sub_batch_size")
        warn_of_few_steps(kwargs["num_epochs"], kwargs["batch_size"], num_batches, self.start.num_epochs)
        try:
            with _compat.cheap_garbage_collection() as self._hide_from_collector, _compat.quiet_schedulers():
                losses = super()._train(triples_factory=triples_factory, **_compat.with_gradient_clipping(**kwargs))
        finally:
            # the memory of the last one is no longer needed
            run = self._run
            self._run = replace(run, sweep=placement.divide_sweep(fastest_sweep(run.memory_budget, run.loss.needs_scores)))
            self._hide_from_collector = None
        if self._checkpoint is not None and placement.group.is_first:
            remove_start(self._checkpoint)
        if losses:
            warn_of_divergence(losses, self.optimizer)
        return losses

    @override
    def _train_epoch(self, **kwargs: Any) -> float:  # type: ignore[override]
        placement = self._run.placement
        if self.start.num_epochs and not self.losses_per_epochs:
            start_squared(self, self._factory, self._run.start)
        if not self._aligned:
            placement.group.share(*(x.data for x in (*placement.common_parameters(self.model), *self.model.buffers())))
            self._aligned = True
        before = placement.group.num_bytes
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
        self.num_bytes = placement.group.num_bytes - before
        return loss

    @property
    def _weighter(self) -> LossWeighter | None:
        """The loss weighter, if the user has set one."""
        return loss_weighter_resolver.make_safe(self.loss_weighter, self.loss_weighter_kwargs)  # type: ignore[arg-type]

    @property
    def _dtype(self) -> torch.dtype:
        """The data type of real numbers in the model."""
        return next(x.real.dtype for x in self.model.parameters() if x.is_floating_point() or x.is_complex())

    def _check_objective(self, objective: AnyObjective) -> None:
        """Refuse an objective that this training loop cannot use."""
        return

    @abstractmethod
    def _sides(
        self, loss: FactorizedLoss, weights: Weights, frequencies: Frequencies, targets: Sequence[Target]
    ) -> Sequence[Side]:
        """Return the triples as seen from each end that answers, with all weights."""

    @abstractmethod
    def _sum(self, run: Run, batch: Batch, features: Features, objective: AnyObjective) -> Tensor:
        """Sum the costs of positives, and of their share of the negatives.

        :param run: what this training knows
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
        run, loss = self._run, self._run.loss
        part, share = batch.part(start, stop), (stop - start) / len(batch)
        mine = run.placement.mine(part)
        self._align_random_states(first=start == 0)
        vectors = represent(self.model, mode=self.mode)
        all_features = features(self.model, run.factorization, vectors=vectors)
        if not self._checked:
            self._check(run, all_features)
            self._checked = True
        objective, divisor = loss.batch_objective(batch, self._num_scores(batch), label_smoothing, self.num_entities)
        own_scores = run.factorization.own_scores
        if isinstance(objective, ScoreObjective) and own_scores is not None:
            objective = FunctionObjective(objective, own_scores)
        total = self._sum(run, mine, all_features, objective) + _penalize(loss, vectors, mine)
        group, regularization = run.placement.group, self.model.collect_regularization_term()
        if loss.reduction == "mean":
            # PyKEEN weighs sub-batches by their share
            return group.total(total / (share * divisor) + regularization / group.size)
        return group.total(total + share * regularization / group.size)

    def _check(self, run: Run, all_features: Features) -> None:
        """Check the model before its first step, once."""
        if not self.losses_per_epochs and not run.loss.needs_scores:
            with torch.no_grad():
                scores = run.factorization.score_moments(*all_features, moments=run.placement.moments)
            warn_of_large_scores(scores, self.model)

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


def _penalize(loss: FactorizedLoss, vectors: Vectors, batch: Batch) -> Tensor | float:
    """Sum the norms of the vectors of each triple, cf. :class:`FactorizedLoss`."""
    total: Tensor | float = 0.0
    if loss.regularization_weight:
        for tensors, counts in zip((vectors.entities, vectors.relations), batch.occurrences, strict=True):
            for x in tensors:
                total = total + sum_of_norms(
                    x, loss.regularization_weight * counts.to(x.real.dtype), loss.regularization_power
                )
    return total


class _SumGradients(TrainingCallback):
    """Sums the gradients of all processes before each step."""

    def __init__(self, group: Group, parameters: Sequence[nn.Parameter]):
        super().__init__()
        self.group = group
        self.parameters = [x for x in parameters if x.requires_grad]

    @override
    def pre_step(self, **kwargs: Any) -> None:
        for x in self.parameters:
            if x.grad is None:
                # it does not depend on this process's queries
                x.grad = torch.zeros_like(x)
            self.group.add(x.grad)


def _check_checkpoint(
    group: Group, checkpoint_name: str | None = None, checkpoint_directory: str | Path | None = None, **_kwargs: Any
) -> None:
    """Refuse to continue a checkpoint that not all processes can see."""
    if not checkpoint_name or checkpoint_directory is None:
        return
    path = Path(checkpoint_directory) / checkpoint_name
    seen = group.all_of(path.is_file())
    if any(seen) and not all(seen):
        found = ", ".join(str(rank) for rank, x in enumerate(seen) if x)
        raise ValueError(
            f"Only rank {found} can see the checkpoint {path}. Use a checkpoint_directory that all machines share."
        )
