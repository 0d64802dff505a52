"""One step of training without values: on PyTorch's ``meta`` device, while the bytes that are alive are counted."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
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

from ..factorizations import Factorization, TrilinearForm
from ..factorizations.features import factorize_model, features, represent
from ..factorizations.moments import Moments, gram
from ..losses import resolve_loss
from .outline import Outline
from .task import Counts, Task, TaskOf


def _default_task(factorization: Factorization, counts: Counts) -> Task:
    """Say what is trained by default."""
    return Task.of(resolve_loss(None, counts, factorization, closed_world=False))


def outline(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    factory: CoreTriplesFactory,
    task: TaskOf = _default_task,
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
    made = make_without_values(model, model_kwargs, factory)
    factorization = factorize_model(made)
    counts = Counts.of(factory) if counts is None else counts
    return _outline(made, factorization, counts, task(factorization, counts))


def make_without_values(model: type[Model], model_kwargs: Mapping[str, Any], factory: CoreTriplesFactory) -> Model:
    """Make a model on PyTorch's ``meta`` device."""
    # PyKEEN keeps the first table that it makes, which must have values
    quaternion.multiplication_table()
    # which does not change the state of the user's random numbers
    seed: Any = NoRandomSeedNecessary
    with torch.device("meta"):
        return model(triples_factory=factory, random_seed=seed, **model_kwargs)


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


def outline_instance(loop: Any, counts: Counts, task: Task) -> Outline:
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
    of_entities = [x.numel() * x.element_size() for x in model.entity_representations.parameters() if x.requires_grad]
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
        common=sum(trainable) - sum(of_entities),
        features=sum(sizes),
        relation_features=sizes[0],
        widths=(shapes[1][1], shapes[-1][1]),
        separate=len(shapes) > 2,
        itemsize=itemsize,
        counts=counts,
        task=task,
        step=tracker.peak,
        grams=sum(size for shape, size in tracker.at_peak if not shape or shape[0] not in rows),
        forward=forward,
    )


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
