"""What a sweep solves, and how its gradients reach PyTorch's automatic differentiation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..factorizations import Form
from ..factorizations.moments import Moments
from ..graph.sides import Side
from ..losses.objective import AnyObjective


@dataclass(frozen=True)
class Problem:
    r"""The cost of all scores $q(e, r)^\top k(a)$ of a side's queries, as data."""

    #: the observed queries with their answers, and all weights
    side: Side
    #: how queries are made, facing that side
    form: Form
    #: what their scores cost
    objective: AnyObjective
    #: shape: (num_entities, k), the features of given entities
    given: Tensor
    #: shape: (num_relations, …), the features of relations
    relations: Tensor
    #: shape: (num_entities, l), the features of answers, the keys; may be those of given entities
    answers: Tensor
    #: the weighted moments of all candidates' features, if each query meets all of them
    candidates: Moments | None = None
    #: the weight of the squared norms of query and answer of each observed triple
    norm_weight: float = 0.0


@dataclass(frozen=True)
class Gradients:
    """The gradients of the sum by everything that it depends on."""

    given: Tensor
    relations: Tensor
    #: the same tensor as that of given entities, if these have the same features
    answers: Tensor
    #: by the first and second moments of the candidates
    first: Tensor | None = None
    second: Tensor | None = None


@dataclass(frozen=True)
class Size:
    """What the memory for a problem depends on."""

    #: the number of triples, of queries, and of distinct pairs of relation and answer
    num_triples: int
    num_queries: int
    num_answers: int
    num_candidates: int
    #: the largest number of features of an entity, and the bytes of one of them
    width: int
    itemsize: int
    #: the bytes of the features of all relations
    relation_bytes: int
    #: whether the form is made of trilinear products
    trilinear: bool
    #: whether each query meets all candidates
    candidates: bool
    device: torch.device


@dataclass(frozen=True)
class SweepMemory:
    """The bytes that a sweep needs, in addition to the problem and its gradients."""

    #: kept from one sweep to the next
    kept: int
    #: to find out what is kept, before the first sweep
    sorting: int
    #: for queries that are processed at the same time
    blocks: int


class Sweep(Protocol):
    """Solves problems."""

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        """Sum the costs of a problem.

        :param problem: the problem
        :param differentiate: whether the gradients are needed
        :return: the sum, and its gradients, if needed
        """

    def memory(self, size: Size) -> SweepMemory:
        """Estimate the memory that a problem needs."""


class _SumOfCosts(torch.autograd.Function):
    """Computes the sum and its gradients in one sweep; the backward pass only hands out the gradients."""

    @staticmethod
    def forward(ctx: Any, problem: Problem, sweep: Sweep, differentiate: bool, *inputs: Tensor | None) -> Tensor:
        total, gradients = sweep(problem, differentiate)
        if gradients is not None:
            shared = problem.answers is problem.given
            answers = None if shared else gradients.answers
            ctx.gradients = [gradients.given, gradients.relations, answers, gradients.first, gradients.second]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        # handed over, not copied: the gradients of all entities are the largest matrices there are
        gradients, ctx.gradients = ctx.gradients, None
        if grad_outputs[0].item() != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(grad_outputs[0])
        return (None, None, None, *gradients)


def sum_of_costs(problem: Problem, sweep: Sweep) -> Tensor:
    """Sum the costs of a problem, differentiable by its features and by the moments of its candidates.

    :param problem: the problem
    :param sweep: how to solve it
    :return: shape: (), the sum
    """
    given, relations, answers, candidates = problem.given, problem.relations, problem.answers, problem.candidates
    first, second = (None, None) if candidates is None else (candidates.first, candidates.second)
    inputs = (given, relations, None if answers is given else answers, first, second)
    differentiate = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if candidates is not None:
        candidates = Moments(candidates.count, candidates.first.detach(), candidates.second.detach())
    detached = given.detach()
    problem = replace(
        problem,
        given=detached,
        relations=relations.detach(),
        answers=detached if answers is given else answers.detach(),
        candidates=candidates,
    )
    return _SumOfCosts.apply(problem, sweep, differentiate, *inputs)
