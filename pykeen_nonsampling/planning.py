"""What a run needs: the memory of training and evaluation, estimated before any of it is used.

Most of it is found by a dry run: one step of training on PyTorch's ``meta`` device, where tensors have shapes but no values,
while the bytes that are alive are counted. What the sweep needs beyond that, blocks of queries and the index of the triples,
follows from the numbers of triples and queries.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from pykeen.models import Model
from pykeen.nn import quaternion
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import InductiveMode
from pykeen.utils import NoRandomSeedNecessary
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from .factorizations import Factorization, TrilinearForm
from .features import factorize_model, features, represent
from .losses import AutomaticLoss, MomentLoss, NonSamplingLoss, StandardizedLoss, as_exponent
from .moments import Moments, gram
from .scoring import CACHED_COLUMNS, CACHED_ROWS
from .sweep import block_size, free_memory
from .sweep.plan import limit_parts, query_block_size
from .triples import TripleIndex
from .weighting import choose_loss, constant

__all__ = [
    "Counts",
    "Memory",
    "Outline",
    "Task",
    "check_model",
    "check_room",
    "default_dimension",
    "format_bytes",
    "largest_dimension",
    "outline",
]

logger = logging.getLogger(__name__)

#: The bytes of a triple and of a query in an index
TRIPLE_BYTES, QUERY_BYTES = 8, 24

#: The bytes per triple that it takes to make an index of them, and that of their other end, beyond the index itself
INDEXING_BYTES = 100

#: For compiled loops, the bytes of a triple and of a query in a plan, of a query of the other end, and per triple to make it
PLAN_BYTES, PLAN_QUERY_BYTES, PLAN_OTHER_BYTES, PLANNING_BYTES = 12, 20, 16, 100

#: The bytes of a triple and of a query in the blocks of the plain sweep
BLOCK_BYTES, BLOCK_QUERY_BYTES = 36, 36

#: The number of matrices of all queries of a block: in compiled loops, and in the plain sweep
QUERY_MATRICES, BLOCK_MATRICES = 3, 7

#: The bytes per triple of an evaluation: all known triples, and an index of them
EVALUATION_BYTES = 150

#: Tensors of fewer bytes than this share a heap with holes between them, on a CPU; larger ones have memory of their own, cf.
#: M_MMAP_THRESHOLD_MAX of the C library. And by how much the holes enlarge the heap; measured.
LARGE_TENSOR, HEAP_FACTOR = 2**25, 1.7

#: What the parts of the memory are called
PARTS: Mapping[str, str] = {
    "parameters": "parameters",
    "optimizer": "gradients and optimizer",
    "features": "features",
    "grams": "Gram matrices",
    "blocks": "blocks",
    "index": "index of triples",
}

UNITS: Mapping[str, int] = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Counts:
    """The numbers of a graph that memory and time depend on."""

    num_entities: int
    #: as the model knows them, including inverse ones
    num_relations: int
    #: to train on, including inverse ones
    num_triples: int
    #: the numbers of distinct pairs of head and relation, and of relation and tail
    num_queries: tuple[int, int]

    @classmethod
    def of(cls, factory: CoreTriplesFactory) -> Counts:
        """Count what is in a factory. Kept, since that takes a while."""
        # factories have no hash, but each has triples of its own
        known = _COUNTED.setdefault(factory.mapped_triples, {})
        sizes = factory.num_entities, factory.num_relations
        if sizes not in known:
            known[sizes] = cls.of_index(TripleIndex.from_factory(factory, *sizes))
        return known[sizes]

    @classmethod
    def of_index(cls, index: TripleIndex) -> Counts:
        """Count what is in an index."""
        relations = index.pairs[:, 1].index_select(0, index.query_index)
        others = len((relations * index.num_entities + index.answers).unique())
        return cls(index.num_entities, index.num_relations, len(index), (index.num_queries, others))

    def factory(self) -> CoreTriplesFactory:
        """Make a factory of a single triple for models of the same sizes."""
        return CoreTriplesFactory(torch.zeros(1, 3, dtype=torch.long), self.num_entities, self.num_relations)


_COUNTED: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Task:
    """What is trained, as far as memory depends on it."""

    #: whether every triple that is not observed is a negative, or only the candidates of observed queries
    closed_world: bool = False
    #: the number of ends of triples whose queries are visited
    sides: int = 2
    #: whether candidates have weights
    weighted: bool = True
    #: whether candidates in the range of a relation weigh more
    ranges: bool = False
    #: whether the norms of vectors are part of the loss
    regularized: bool = True
    #: the number of tensors, as large as all parameters, that the optimizer keeps: those of Adam
    optimizer_copies: int = 2

    @classmethod
    def of(cls, loss: Any, family: str, counts: Counts, closed_world: bool = False, sides: int = 2) -> Task:
        """Find out what a loss needs; what it leaves open has the default for graph and model.

        :param loss: the loss; the one that suits, if there is none
        :param family: the family of the model's factorization
        :param counts: the numbers of the graph
        :param closed_world: whether every triple that is not observed is a negative
        :param sides: the number of ends of triples that are predicted
        :return: the task
        """
        if not isinstance(loss, MomentLoss):
            loss = AutomaticLoss()
        if isinstance(loss, AutomaticLoss):
            suitable = choose_loss(counts.num_entities, counts.num_triples, family)
            loss = loss.become(NonSamplingLoss if closed_world else suitable)
        standardized = isinstance(loss, StandardizedLoss)
        regularization = "regularization" + (" in the closed world" if closed_world else "")
        by_entity = [as_exponent(getattr(loss, name)) for name in ("head_weight", "tail_weight")]
        defaults = {
            "candidate_weight": 0.0 if standardized else constant("exponent of candidates", family),
            "range_weight": constant("exponent of ranges", family),
            "regularization_weight": constant(
                "regularization of the standardized loss" if standardized else regularization, family
            ),
        }
        candidates, ranges, regularized = (
            bool(as_exponent(default if getattr(loss, name) is None else getattr(loss, name)))
            for name, default in defaults.items()
        )
        return cls(
            closed_world=closed_world,
            sides=1 if closed_world else sides,
            weighted=any(by_entity) or (candidates and not closed_world),
            ranges=ranges and not closed_world,
            regularized=regularized,
        )

    def with_optimizer(self, optimizer: torch.optim.Optimizer) -> Task:
        """Return the same task with the state of an optimizer."""
        defaults = optimizer.defaults
        if isinstance(optimizer, torch.optim.SGD):
            return replace(self, optimizer_copies=int(bool(defaults.get("momentum"))))
        if isinstance(optimizer, torch.optim.Adagrad):
            return replace(self, optimizer_copies=1)
        return replace(self, optimizer_copies=2 + bool(defaults.get("amsgrad")))


#: From the family of a model's factorization, and the numbers of the graph, to what is trained
TaskOf = Callable[[str, Counts], Task]


@dataclass(frozen=True)
class Memory:
    """The bytes of a run, by what they are for. All but the last are needed at the same time."""

    parameters: int
    #: gradients of the parameters, and the state of the optimizer
    optimizer: int
    #: the features of entities and relations, their gradients and intermediate results
    features: int
    #: Gram matrices, likewise
    grams: int
    #: queries that are processed at the same time
    blocks: int
    #: the triples, sorted by query
    index: int
    #: the most that there is during an evaluation with ``evaluator="factorized"``
    evaluation: int

    @property
    def training(self) -> int:
        """The bytes that training needs."""
        return self.parameters + self.optimizer + self.features + self.grams + self.blocks + self.index

    @property
    def total(self) -> int:
        """The bytes that training and evaluation need, one after the other."""
        return max(self.training, self.evaluation)


@dataclass(frozen=True)
class Outline:
    """What is known of a model without the memory for it."""

    #: the family of its factorization
    family: str
    #: whether its form is made of trilinear products
    trilinear: bool
    #: the bytes of all parameters, of those to train, and of the largest one of these
    parameters: int
    trainable: int
    largest: int
    #: the bytes of the features of all heads, relations and tails
    features: int
    #: of these, the bytes of those of relations
    relation_features: int
    #: the largest number of features of an entity
    width: int
    #: the bytes of one of them
    itemsize: int
    counts: Counts
    task: Task
    #: the bytes of a step beyond parameters and blocks: at most, of these in Gram matrices, and before its backward pass
    step: int
    grams: int
    forward: int

    def memory(self, device: torch.device | None = None, memory_budget: int | None = None) -> Memory:
        """Estimate the bytes that training and evaluation need.

        :param device: the device to train on
        :param memory_budget: the number of bytes for blocks. By default, a quarter of what is free.
        :return: the bytes, in addition to what the process has before
        """
        device = device or torch.device("cpu")
        counts, task, n = self.counts, self.task, self.counts.num_triples
        queries = counts.num_queries[: task.sides]
        # compiled loops, cf. FusedSweep, have plans, and the plain sweep has blocks that it keeps
        compiled = self.trilinear and not task.ranges and device.type == "cpu" and _has_numba()
        indexed = TRIPLE_BYTES * task.sides * n + QUERY_BYTES * sum(queries)
        weights = self.itemsize * (2 * task.sides * n + 2 * sum(queries))
        if compiled:
            order = (
                PLAN_BYTES * task.sides * n + PLAN_QUERY_BYTES * sum(queries) + PLAN_OTHER_BYTES * sum(counts.num_queries)
            )
        else:
            order = BLOCK_BYTES * task.sides * n + BLOCK_QUERY_BYTES * sum(queries)
        optimizer = (1 + task.optimizer_copies) * self.trainable
        # an optimizer's step computes two tensors per parameter, one parameter after the other
        beyond = max(self.step - self.trainable, 2 * self.largest)
        blocks = self._blocks(compiled, device, memory_budget)
        # sorting takes more for a while; if it is for a plan, after the first forward pass, but before the optimizer's state
        sorting = self.forward + PLANNING_BYTES * n if compiled else INDEXING_BYTES * n
        scores = 3 * self.itemsize * CACHED_ROWS * (min(CACHED_COLUMNS, counts.num_entities) + self.width)

        def spread(size: int, tensor: int) -> int:
            return int(HEAP_FACTOR * size) if device.type == "cpu" and tensor < LARGE_TENSOR else size

        matrix = max(self.itemsize * self.width * counts.num_entities, self.relation_features)
        optimizer_memory, of_triples = spread(optimizer, self.largest), 8 * n
        evaluation = spread(self.features, matrix) + spread(indexed + EVALUATION_BYTES * n, of_triples) + scores
        return Memory(
            parameters=self.parameters,
            optimizer=optimizer_memory,
            # at the peak, there may be no gradients of parameters yet
            features=spread(max(self.features, beyond - self.grams), matrix),
            grams=spread(min(self.grams, beyond), self.itemsize * self.width**2),
            blocks=blocks,
            index=spread(indexed + weights + order + max(0, sorting - optimizer - beyond - blocks), of_triples),
            evaluation=self.parameters + optimizer_memory + evaluation,
        )

    def _blocks(self, compiled: bool, device: torch.device, memory_budget: int | None) -> int:
        """Estimate the bytes of what is computed for some queries at a time."""
        counts, task, row = self.counts, self.task, self.itemsize * self.width
        queries, n = max(counts.num_queries[: task.sides]), max(1, counts.num_triples)
        if compiled:
            parts = limit_parts(torch.get_num_threads(), self.relation_features, memory_budget)
            blocks = parts * self.relation_features if parts > 1 else 0
            if not task.closed_world:
                blocks += QUERY_MATRICES * row * min(queries, query_block_size(self.width, self.itemsize, memory_budget))
            return blocks
        size = min(n, block_size(self.width, self.itemsize, device, memory_budget))
        blocks = BLOCK_MATRICES * row * -(-size * queries // n)
        if task.ranges:
            # a Gram matrix for each relation of a block
            blocks += min(counts.num_relations, 1 + counts.num_relations * size // n) * row * self.width
        return blocks

    def fits(self, free: int, device: torch.device | None = None, memory_budget: int | None = None) -> bool:
        """Whether training fits, with blocks as small as necessary, unless their size is given."""
        return self.memory(device, memory_budget or 1).training <= free

    def shrink(self, factor: float) -> Outline:
        """Estimate the outline of the same model with fewer dimensions.

        :param factor: the number of dimensions, relative to the current one
        :return: the outline
        """
        # the share of what grows with the square of the dimension
        share = self.relation_features / max(1, self.features) if self.family == "full matrix" else 0.0

        def scale(size: int) -> int:
            return int(size * ((1 - share) * factor + share * factor**2))

        grams = int(self.grams * factor**2)
        return replace(
            self,
            parameters=scale(self.parameters),
            trainable=scale(self.trainable),
            largest=scale(self.largest),
            features=scale(self.features),
            forward=grams + scale(max(0, self.forward - self.grams)),
            relation_features=int(self.relation_features * (factor**2 if share else factor)),
            width=max(1, int(self.width * factor)),
            grams=grams,
            step=grams + scale(self.step - self.grams),
        )


#: What is trained by default
_DEFAULT: TaskOf = partial(Task.of, None)


def outline(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    factory: CoreTriplesFactory,
    task: TaskOf = _DEFAULT,
    counts: Counts | None = None,
) -> Outline:
    """Outline a model, without the memory for its parameters.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param factory: the training triples
    :param task: what is trained; by default, the local closed world with all defaults
    :param counts: the numbers of the graph, if the factory does not have all of its triples
    :return: the outline
    :raises NotDecomposableError: if the model has no factorization
    """
    # PyKEEN keeps the first table that it makes, which must have values
    quaternion.multiplication_table()
    # which does not change the state of the user's random numbers
    seed: Any = NoRandomSeedNecessary
    with torch.device("meta"):
        made = model(triples_factory=factory, random_seed=seed, **model_kwargs)
    factorization = factorize_model(made)
    counts = Counts.of(factory) if counts is None else counts
    return _outline(made, factorization, counts, task(factorization.family, counts))


def check_model(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    factory: CoreTriplesFactory,
    task: TaskOf,
    device: torch.device,
    memory_budget: int | None = None,
) -> None:
    """Refuse to train a model that does not fit, before it is made.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param factory: the training triples
    :param task: what is trained
    :param device: the device to train on
    :param memory_budget: the number of bytes for blocks, if the user has set it
    :raises ValueError: if it does not fit
    """
    try:
        made = outline(model, model_kwargs, factory, task)
    except Exception as error:
        # the training loop sees the model, and refuses it if there is a reason
        logger.debug("The size of %s is not known before it is made: %r", model.__name__, error)
        return
    free = free_memory(device)
    if made.fits(free, device, memory_budget):
        return

    def fits(d: int) -> bool:
        return outline(model, {**model_kwargs, "embedding_dim": d}, factory, task).fits(free, device, memory_budget)

    dimension = model_kwargs.get("embedding_dim") or default_dimension(model)
    largest = largest_dimension(fits, dimension)
    raise ValueError(_refuse(made, model.__name__, dimension, free, largest, device, memory_budget))


def check_room(loop: Any, index: TripleIndex, task: Task) -> int | None:
    """Refuse to train a model that does not fit, and limit the memory for blocks to what the rest leaves.

    :param loop: the training loop
    :param index: the training triples
    :param task: what is trained
    :return: the number of bytes for blocks; none, if no limit is needed
    :raises ValueError: if the model does not fit
    """
    model, device, memory_budget = loop.model, loop.model.device, loop.memory_budget
    try:
        made = _outline_instance(loop, Counts.of_index(index), task.with_optimizer(loop.optimizer))
    except Exception as error:
        # e.g. one that computes vectors from the graph
        logger.debug("The memory that %s needs is not known: %r", type(model).__name__, error)
        return memory_budget
    # the parameters exist already
    free = free_memory(device) + made.parameters
    if made.memory(device, memory_budget).training <= free:
        return memory_budget
    if memory_budget is None and made.fits(free, device):
        return 1 + free - made.memory(device, 1).training
    dimension = model.entity_representations[0].shape[0]
    largest = largest_dimension(lambda d: made.shrink(d / dimension).fits(free, device, memory_budget), dimension)
    raise ValueError(_refuse(made, type(model).__name__, dimension, free, largest, device, memory_budget))


def default_dimension(model: type[Model]) -> int:
    """Return the dimension that a model has by default; 0, if it has no such parameter."""
    parameter = inspect.signature(model).parameters.get("embedding_dim")
    return 0 if parameter is None else int(parameter.default)


def largest_dimension(fits: Callable[[int], bool], dimension: int) -> int | None:
    """Find the largest dimension that fits.

    :param fits: whether a dimension fits; if it does, all smaller ones do
    :param dimension: one that does not
    :return: the largest one below that does; none, if there is none
    """
    low, high = 0, dimension
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def format_bytes(size: float) -> str:
    """Write a number of bytes with three digits."""
    unit = next(unit for unit in ("TB", "GB", "MB", "kB") if size >= UNITS[unit] or unit == "kB")
    return f"{size / UNITS[unit]:,.3g} {unit}"


def _refuse(
    made: Outline,
    name: str,
    dimension: int,
    free: int,
    largest: int | None,
    device: torch.device,
    memory_budget: int | None,
) -> str:
    """Say why a model cannot be trained, and what to change."""
    memory, counts = made.memory(device, memory_budget or 1), made.counts
    size = "" if not dimension else f" with {dimension} dimensions"
    parts = ", ".join(f"{label} {format_bytes(getattr(memory, part))}" for part, label in PARTS.items())
    if memory_budget is not None and made.fits(free, device):
        room = 1 + free - made.memory(device, 1).training
        advice = f"Set a smaller budget for blocks, e.g. training_loop_kwargs=dict(memory_budget={room}), or none"
    elif largest is None:
        advice = "No number of dimensions is small enough, so use a smaller graph, or another model"
    else:
        advice = f"Use at most {largest} dimensions, e.g. model_kwargs=dict(embedding_dim={largest})"
    return (
        f"{name}{size} needs about {format_bytes(memory.training)} of memory to be trained on {counts.num_entities:,} "
        f"entities, {counts.num_relations:,} relations and {counts.num_triples:,} triples ({parts}), but only "
        f"{format_bytes(free)} are free. {advice}; cf. pykeen-nonsampling plan."
    )


class _Tracker(TorchDispatchMode):
    """Counts the bytes of tensors that are alive, other than those from before."""

    def __init__(self, before: Iterable[Tensor]):
        super().__init__()
        self.before = {x.untyped_storage()._cdata for x in before}
        self.alive: dict[int, tuple[StorageWeakRef, int, torch.Size]] = {}
        #: the bytes of these, and of some that no longer are
        self.bound = 0
        self.peak = 0
        #: the shapes of what was alive then, and their bytes
        self.at_peak: list[tuple[torch.Size, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor):
                self._add(x)
        if self.bound > self.peak:
            self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
            self.bound = sum(size for _, size, _ in self.alive.values())
        if self.bound > self.peak:
            self.peak, self.at_peak = self.bound, [(shape, size) for _, size, shape in self.alive.values()]
        return result

    def _add(self, x: Tensor) -> None:
        storage = x.untyped_storage()
        key = storage._cdata
        known = self.alive.get(key)
        if key not in self.before and (known is None or known[0].expired()):
            # what was in its place is counted until the next time that all are looked at
            self.alive[key] = StorageWeakRef(storage), storage.nbytes(), x.shape
            self.bound += storage.nbytes()


class _Hold(torch.autograd.Function):
    """Stands for a sum whose gradients are computed in the forward pass, and kept until the backward pass."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        ctx.gradients = [torch.empty_like(x) for x in inputs]
        return inputs[0].new_empty((), dtype=inputs[0].real.dtype if inputs[0].is_complex() else inputs[0].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return tuple(gradients)


def _outline_instance(loop: Any, counts: Counts, task: Task) -> Outline:
    """Outline the model of a training loop, without more memory for it."""
    model = loop.model
    # a copy whose tensors have no values, except for those that define the interaction
    replaced: dict[int, Any] = {id(x): x for x in model.interaction.buffers()}
    for x in model.parameters():
        replaced[id(x)] = nn.Parameter(torch.empty_like(x, device="meta"), requires_grad=x.requires_grad)
    for x in model.buffers():
        replaced.setdefault(id(x), torch.empty_like(x, device="meta"))
    made = copy.deepcopy(model, replaced)
    return _outline(made, factorize_model(made, loop.factorization, loop.factorization_kwargs), counts, task, loop.mode)


def _outline(
    model: Any, factorization: Factorization, counts: Counts, task: Task, mode: InductiveMode | None = None
) -> Outline:
    """Outline a model without values, by one step of training."""
    parameters = list(model.parameters())
    trainable = [x.numel() * x.element_size() for x in parameters if x.requires_grad]
    with _Tracker(parameters) as tracker:
        loss, shapes, itemsize = _forward(model, factorization, task, mode)
        forward = tracker.peak
        loss.backward()
    sizes = [itemsize * shape.numel() for shape in shapes]
    rows = counts.num_entities, counts.num_relations
    return Outline(
        family=factorization.family,
        trilinear=type(factorization.form) is TrilinearForm,
        parameters=sum(x.numel() * x.element_size() for x in parameters),
        trainable=sum(trainable),
        largest=max(trainable, default=0),
        features=sum(sizes),
        relation_features=sizes[0],
        width=max(shape[1] for shape in shapes[1:]),
        itemsize=itemsize,
        counts=counts,
        task=task,
        step=tracker.peak,
        grams=sum(size for shape, size in tracker.at_peak if not shape or shape[0] not in rows),
        forward=forward,
    )


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _forward(
    model: Any, factorization: Factorization, task: Task, mode: InductiveMode | None
) -> tuple[Tensor, Sequence[torch.Size], int]:
    """Do as a training loop does, except for the visits to observed triples.

    :param model: the model
    :param factorization: the factorization of its score
    :param task: what is trained
    :param mode: the inductive mode
    :return: the loss, the shapes of the features of relations and of entities, and the bytes of a number
    """
    vectors = represent(model, mode=mode)
    heads, relations, tails = features(model, factorization, vectors=vectors)
    entities = [heads] if heads is tails else [heads, tails]
    with torch.no_grad():
        # before the first step, for a look at the scale of scores
        factorization.score_moments(heads, relations, tails)
    if task.closed_world:
        keys = [_moments(x, task.weighted) for x in entities]
        loss = factorization.query_moments(keys[0], relations).of_scores(keys[-1]).second
        loss = loss + _Hold.apply(*entities, relations)
    else:
        loss, candidates = heads.new_zeros(()), None
        for answers in (tails, heads)[: task.sides]:
            if candidates is None or task.weighted or heads is not tails:
                candidates = _moments(answers, task.weighted)
            loss = loss + _Hold.apply(*entities, relations, candidates.first, candidates.second)
            # what the sweep multiplies in the end
            candidates.second.detach().square()
    if task.regularized:
        for x in (*vectors.entities, *vectors.relations):
            absolute = x.detach().abs()
            loss = loss + _Hold.apply(x)
            del absolute
    return loss, [x.shape for x in (relations, *entities)], heads.element_size()


def _moments(x: Tensor, weighted: bool) -> Moments:
    """Collect the moments of the rows of a matrix, cf. :meth:`Moments.of`, whose weights have no values here."""
    if not weighted:
        return Moments.of(x)
    weights = x.new_ones(len(x))
    return Moments(len(x), weights @ x, gram(x * weights.sqrt()[:, None]))
