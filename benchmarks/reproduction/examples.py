"""The queries whose best answers are shown, and readable names of entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pykeen.datasets import Dataset

from . import paper
from .plan import Query
from .storage import Record
from .training import label_triples

#: What stands for the entity to be predicted
UNKNOWN = "?"


def read_labels(paths: Iterable[Path]) -> dict[str, str]:
    """Read names of entities, one per line: what it is called in the triples, a tab, and its name.

    :raises ValueError: with the line that is something else
    """
    labels = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            name, tab, label = line.partition("\t")
            if not (name and tab and label):
                raise ValueError(f"{path}, line {number}: write the entity as in the triples, a tab, and its name.")
            labels[name] = label
    return labels


def choose_queries(
    graphs: Mapping[str, Dataset],
    asked: Sequence[tuple[str, str, str]],
    labels: Mapping[str, str],
    done: Iterable[Record],
) -> dict[str, list[Query]]:
    """Find the queries for each graph: those asked for, or asked for before, or the paper's, or the most frequent one.

    :param graphs: the graphs, by name
    :param asked: head, relation and tail, one of them unknown
    :param labels: readable names of entities, by which they may be asked for, too
    :param done: the runs so far
    :raises ValueError: if no graph has the entity, or the relation
    """
    chosen: dict[str, list[Query]] = {name: [] for name in graphs}
    for given in asked:
        found = {name: query for name, graph in graphs.items() if (query := _find(graph, given, labels)) is not None}
        if not found:
            raise ValueError(
                f"{' '.join(given)} is not a query to {' or '.join(graphs)}: write HEAD RELATION {UNKNOWN}, or "
                f"{UNKNOWN} RELATION TAIL, as they are called in the triples, e.g. {' '.join(_example(graphs))}."
            )
        for name, query in found.items():
            chosen[name].append(query)
    before = find_queries(done)
    for name, graph in graphs.items():
        if not asked:
            chosen[name] = before.get(name) or list(paper.QUERIES.get(name, [_most_frequent(graph)]))
    return chosen


def find_queries(done: Iterable[Record]) -> dict[str, list[Query]]:
    """Find the queries that were asked before, by dataset."""
    found: dict[str, list[Query]] = {}
    for record in done:
        query = record.run.get("query")
        if query is not None:
            queries = found.setdefault(record.run["dataset"], [])
            queries += [(*query,)] if (*query,) not in queries else []
    return found


def _find(graph: Dataset, given: tuple[str, str, str], labels: Mapping[str, str]) -> Query | None:
    """Translate a query to the names in the triples, if they occur there."""
    head, relation, tail = given
    if (head == UNKNOWN) == (tail == UNKNOWN) or relation not in graph.relation_to_id:
        return None
    entity = tail if head == UNKNOWN else head
    if entity not in graph.entity_to_id:
        names = [name for name, label in labels.items() if label == entity and name in graph.entity_to_id]
        if not names:
            return None
        entity = names[0]
    return (None, relation, entity) if head == UNKNOWN else (entity, relation, None)


def _most_frequent(graph: Dataset) -> Query:
    """Return the head and relation with the most tails in the test triples."""
    counts = Counter((h, r) for h, r, _ in label_triples(graph.testing))
    (head, relation), _ = max(counts.items(), key=lambda x: (x[1], x[0]))
    return head, relation, None


def _example(graphs: Mapping[str, Dataset]) -> tuple[str, str, str]:
    head, relation, _ = _most_frequent(next(iter(graphs.values())))
    return str(head), relation, UNKNOWN
