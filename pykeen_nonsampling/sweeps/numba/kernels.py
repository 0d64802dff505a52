"""Loops over queries and answers, compiled by Numba: a vector is read once, and stays in cache until all is done with it.

This module is imported only where Numba is installed. All arrays are contiguous. Each function does one *part* of the work,
and no two parts write to the same memory, so that they may run at the same time, as a :class:`Kernel` lets them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import njit, prange, uint64

logger = logging.getLogger(__name__)

# What to do with the answers of a query: write their scores, let the squared objective turn them into slopes, or use slopes
SCORE, SQUARE, USE_SLOPES = 0, 1, 2

# Which two features of a triple make something like the third
TO_ANSWER, TO_GIVEN, TO_RELATION = 0, 1, 2

# Flags of a term: which of its blocks are numbers, whether the second one is a constant 1, and whether there is no such term
FIRST, SECOND, TARGET, CONSTANT, LEFT_OUT = 1, 2, 4, 8, 16


def compiled(parallel: bool = False, ignore_nan: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called. Sums may be taken in any order, but what is not finite stays visible.

    :param parallel: whether the function divides its work among threads
    :param ignore_nan: whether a number that is not one may be overlooked, for functions whose callers would still see it
    :return: the decorator
    """
    fastmath = {"reassoc", "contract", "nsz", *(["nnan"] if ignore_nan else [])}
    options: dict[str, Any] = dict(nogil=True, error_model="numpy", fastmath=fastmath, parallel=parallel)

    def compile_lazily(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:
            # there is no place for a cache that can be written to
            return njit(**options)(function)

    return compile_lazily


# Positions are unsigned: Numba lets signed ones count from the end, and the check for it keeps loops from being vectorized


@compiled()
def _dot(x, y):
    total = x.dtype.type(0)
    for i in range(uint64(len(x))):
        total += x[i] * y[i]
    return total


@compiled()
def _add(target, factor, x):
    for i in range(uint64(len(x))):
        target[i] += factor * x[i]


@compiled()
def _fill(target, value):
    for i in range(uint64(len(target))):
        target[i] = value


@compiled()
def _copy(target, x):
    for i in range(uint64(len(target))):
        target[i] = x[i]


@compiled()
def _scale(target, factor, x):
    for i in range(uint64(len(target))):
        target[i] = factor * x[i]


@compiled()
def _contract(terms, coefficients, width, x, y, target):
    """Add the products of blocks of x and y to blocks of the target, cf. ``factorizations.trilinear``."""
    n = uint64(width)
    for term in range(len(coefficients)):
        c = coefficients[term]
        i, k, j, kind = uint64(terms[term, 0]), uint64(terms[term, 1]), uint64(terms[term, 2]), terms[term, 3]
        if kind == 0:
            for a in range(n):
                target[j + a] += c * x[i + a] * y[k + a]
            continue
        if kind & LEFT_OUT:
            continue
        # a block that is a number goes into the coefficient
        if kind & FIRST:
            c *= x[i]
        if kind & SECOND and not kind & CONSTANT:
            c *= y[k]
        if kind & FIRST and kind & SECOND:
            if kind & TARGET:
                target[j] += c
            else:
                for a in range(n):
                    target[j + a] += c
        elif kind & TARGET:
            total = x.dtype.type(0)
            if kind & FIRST:
                for a in range(n):
                    total += y[k + a]
            elif kind & SECOND:
                for a in range(n):
                    total += x[i + a]
            else:
                for a in range(n):
                    total += x[i + a] * y[k + a]
            target[j] += c * total
        elif kind & FIRST:
            for a in range(n):
                target[j + a] += c * y[k + a]
        else:
            for a in range(n):
                target[j + a] += c * x[i + a]


@compiled()
def _visit(
    part,
    cuts,
    pairs,
    offsets,
    answers,
    terms,
    coefficients,
    width,
    given,
    relations,
    keys,
    mode,
    slopes,
    targets,
    positive_weights,
    query_weights,
    answer_weights,
    steps,
    norm_weight,
    more,
    by_given,
    by_relation,
):
    """Visit queries with their answers, and return the sum of what they cost.

    :param part: which of the parts to visit
    :param cuts: shape: (parts + 1,), where parts begin among the queries; no given entity is in two parts
    :param pairs: shape: (q, 2), the given entity and the relation of each query, grouped by entity
    :param offsets: shape: (q + 1,), where the answers of each query begin
    :param answers: shape: (n,), the answers
    :param terms: shape: (3, terms, 4), the positions of three blocks, and flags; for each of the three directions
    :param coefficients: shape: (3, terms)
    :param width: the length of blocks that are vectors
    :param given: shape: (num_entities, k), the features of given entities
    :param relations: shape: (num_relations, l), the features of relations
    :param keys: shape: (num_entities, m), the features of answers
    :param mode: what to do
    :param slopes: shape: (n,), the scores of answers, or the derivatives of the cost by them
    :param targets: shape: (2,), those of positives and negatives in the squared objective
    :param positive_weights: shape: (n,) or (1,), cf. ``Scores``; the other weights have the same shape
    :param query_weights: shape: (q,) or (1,)
    :param answer_weights: shape: (n,) or (1,)
    :param steps: shape: (3,), 1 where there are many weights, and 0 where there is one for all
    :param norm_weight: the weight of each query's squared norm, once per answer
    :param more: shape: (b, m) or (0, 0), what is known already of the gradients by queries, from the first cut to the last
    :param by_given: shape: (num_entities, k), the gradient to add to
    :param by_relation: shape: (parts, num_relations, l), the same by relations, one per part
    """
    number = keys.dtype.type
    query, by_query = np.empty(keys.shape[1], keys.dtype), np.empty(keys.shape[1], keys.dtype)
    positive_target, negative_target = targets[0], targets[1]
    weigh_positives, weigh_queries, weigh_answers = steps[0], steps[1], steps[2]
    total = 0.0
    for q in range(cuts[part], cuts[part + 1]):
        start, stop = offsets[q], offsets[q + 1]
        x, y = given[pairs[q, 0]], relations[pairs[q, 1]]
        _fill(query, number(0))
        _contract(terms[TO_ANSWER], coefficients[TO_ANSWER], width, x, y, query)
        if len(more):
            _copy(by_query, more[q - cuts[0]])
        else:
            _fill(by_query, number(0))
        if norm_weight != 0:
            factor = number(norm_weight * (stop - start))
            total += factor * _dot(query, query)
            _add(by_query, factor + factor, query)
        if mode == SCORE:
            for n in range(start, stop):
                slopes[n] = _dot(query, keys[answers[n]])
            continue
        for n in range(start, stop):
            key = keys[answers[n]]
            if mode == SQUARE:
                # w (f - y⁺)² - c (f - y⁻)² = (w - c) f² - 2 b f + constant
                f, w = _dot(query, key), positive_weights[n * weigh_positives]
                c = query_weights[q * weigh_queries] * answer_weights[n * weigh_answers]
                b = w * positive_target - c * negative_target
                half_slope = (w - c) * f - b
                constant = w * positive_target * positive_target - c * negative_target * negative_target
                total += f * (half_slope - b) + constant
                slopes[n] = half_slope + half_slope
            _add(by_query, slopes[n], key)
        # queries of either end and operators are derivatives of one trilinear form
        _contract(terms[TO_GIVEN], coefficients[TO_GIVEN], width, by_query, y, by_given[pairs[q, 0]])
        _contract(terms[TO_RELATION], coefficients[TO_RELATION], width, x, by_query, by_relation[part, pairs[q, 1]])
    return total


@compiled()
def _collect(
    part,
    cuts,
    run_answers,
    run_relations,
    run_offsets,
    run_given,
    triples,
    terms,
    coefficients,
    width,
    given,
    relations,
    slopes,
    by_answer,
):
    r"""Add $\sum_n s_n q_n$ over the triples of each answer to its gradient, with slopes $s_n$.

    Triples are grouped by answer, then by relation. A query is linear in the features of its given entity, so one query, of
    their weighted sum, is enough for each group.

    :param part: which of the parts to visit
    :param cuts: shape: (parts + 1,), where parts begin among the groups; no answer is in two parts
    :param run_answers: shape: (g,), the answer of each group; the same for its relation
    :param run_relations: shape: (g,)
    :param run_offsets: shape: (g + 1,), where the triples of each group begin
    :param run_given: shape: (n,), the given entities, in the order of groups
    :param triples: shape: (n,), the positions of their slopes
    :param by_answer: shape: (num_entities, m), the gradient to add to
    """
    mix = np.empty(given.shape[1], given.dtype)
    for group in range(cuts[part], cuts[part + 1]):
        _fill(mix, given.dtype.type(0))
        for n in range(run_offsets[group], run_offsets[group + 1]):
            _add(mix, slopes[triples[n]], given[run_given[n]])
        y, target = relations[run_relations[group]], by_answer[run_answers[group]]
        _contract(terms[TO_ANSWER], coefficients[TO_ANSWER], width, mix, y, target)
    return 0.0


@compiled()
def _make_queries(part, cuts, pairs, terms, coefficients, width, given, relations, factors, queries, scaled):
    """Write queries, shape: (b, m), and the same times factors, shape: (b,), if there are any."""
    for q in range(cuts[part], cuts[part + 1]):
        query = queries[q - cuts[0]]
        _fill(query, queries.dtype.type(0))
        _contract(terms[TO_ANSWER], coefficients[TO_ANSWER], width, given[pairs[q, 0]], relations[pairs[q, 1]], query)
        if len(factors):
            _scale(scaled[q - cuts[0]], factors[q - cuts[0]], query)
    return 0.0


@compiled()
def _multiply_rows(part, cuts, x, y, products):
    """Write the scalar product of each row of x and that of y, shape: (b,)."""
    for q in range(cuts[part] - cuts[0], cuts[part + 1] - cuts[0]):
        products[q] = _dot(x[q], y[q])
    return 0.0


# Compiled loops cannot be arguments of cached functions, so each has its own function for all parts


@compiled(parallel=True)
def _visit_all(cuts, *arguments):
    totals = np.zeros(len(cuts) - 1)
    for part in prange(len(cuts) - 1):
        totals[part] = _visit(part, cuts, *arguments)
    return totals


@compiled(parallel=True)
def _collect_all(cuts, *arguments):
    totals = np.zeros(len(cuts) - 1)
    for part in prange(len(cuts) - 1):
        totals[part] = _collect(part, cuts, *arguments)
    return totals


@compiled(parallel=True)
def _make_all_queries(cuts, *arguments):
    totals = np.zeros(len(cuts) - 1)
    for part in prange(len(cuts) - 1):
        totals[part] = _make_queries(part, cuts, *arguments)
    return totals


@compiled(parallel=True)
def _multiply_all_rows(cuts, *arguments):
    totals = np.zeros(len(cuts) - 1)
    for part in prange(len(cuts) - 1):
        totals[part] = _multiply_rows(part, cuts, *arguments)
    return totals


@cache
def _announce() -> None:
    """Say once why a first step takes long."""
    logger.info("Loading compiled loops. The first time on a machine, Numba compiles them, which takes up to half a minute.")


class Kernel:
    """A function that does one part of the work, and one that does all parts at once."""

    def __init__(self, one: Callable[..., float], all_at_once: Callable[..., Any]):
        self.one = one
        self.all_at_once = all_at_once

    def __call__(self, cuts: Any, *arguments: Any) -> float:
        """Do all parts, in as many threads, and return the sum of their results; a single part takes no thread at all.

        :param cuts: shape: (parts + 1,), where the parts begin
        :param arguments: all other arguments
        :return: the sum, always in the same order
        """
        _announce()
        if len(cuts) == 2:
            return self.one(0, cuts, *arguments)
        before = numba.get_num_threads()
        numba.set_num_threads(min(len(cuts) - 1, numba.config.NUMBA_NUM_THREADS))
        try:
            return float(self.all_at_once(cuts, *arguments).sum())
        finally:
            numba.set_num_threads(before)


VISIT = Kernel(_visit, _visit_all)
COLLECT = Kernel(_collect, _collect_all)
MAKE_QUERIES = Kernel(_make_queries, _make_all_queries)
MULTIPLY_ROWS = Kernel(_multiply_rows, _multiply_all_rows)
