"""Which interactions can be trained without sampling, under what condition, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pykeen.nn.modules import Interaction, interaction_resolver

from .base import Factorization
from .matrices import MatrixFactorization
from .reasons import explain
from .resolver import factorization_resolver, factorize
from .wrappers import WRAPPERS, find_wrapper


@dataclass(frozen=True)
class Row:
    """What the table says about an interaction."""

    cls: type[Interaction]
    #: "yes", a condition, or why not
    exact: str
    family: str = ""
    #: the number of features of an entity
    features: str = ""
    #: the number of operations for the sum over all triples
    cost: str = ""

    @property
    def interaction(self) -> str:
        """The name of the interaction."""
        return self.cls.__name__.removesuffix("Interaction")

    @property
    def reference(self) -> str:
        """Its name as a link to its documentation."""
        return f"{{class}}`{self.interaction} <{self.cls.__module__}.{self.cls.__qualname__}>`"


def list_interactions() -> Iterator[Row]:
    """List all interactions of the installed version of PyKEEN, and those that a factorization is registered for."""
    registered = {cls.interaction_cls: cls for cls in factorization_resolver}
    interactions: set[type[Interaction]] = {*interaction_resolver, *registered, *WRAPPERS}
    for cls in sorted(interactions, key=lambda cls: (cls in WRAPPERS, cls.__name__.lower())):
        if cls in WRAPPERS:
            wrapper = WRAPPERS[cls]
            yield Row(
                cls, f"if {wrapper.condition}", "that of the base", wrapper.feature_size, "that of the base, with this m"
            )
        elif cls in registered:
            yield _describe(cls, registered[cls])
        elif find_wrapper(cls) is not None:
            # a wrapper that comes with its base, like SimplE
            yield _describe(cls, factorize(cls()))
        else:
            yield Row(cls, f"no: {explain(cls.__name__) or 'not examined yet.'}")


def _describe(cls: type[Interaction], factorization: Factorization | type[Factorization]) -> Row:
    """Describe an interaction that has a factorization."""
    kind = factorization if isinstance(factorization, type) else type(factorization)
    cubic = " + |R|·m³" if issubclass(kind, MatrixFactorization) else ""
    exact = "yes" if factorization.condition is None else f"if {factorization.condition}"
    return Row(cls, exact, factorization.family.value, factorization.feature_size, f"(|E| + |R|)·m²{cubic}")


def format_markdown(rows: Iterable[Row]) -> str:
    """Write the rows as two tables in MyST's Markdown: one of interactions that can be trained, and one of the others."""
    trained = [("interaction", "exact", "features m", "family", "cost")]
    others = [("interaction", "cannot be trained without sampling, because")]
    for row in rows:
        if row.family:
            trained.append((row.reference, row.exact, row.features, row.family, row.cost))
        else:
            others.append((row.reference, row.exact.removeprefix("no: ")))
    return f"{_format_table(trained)}\n\n{_format_table(others)}"


def _format_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Write a heading and other rows as a table in Markdown."""
    heading, *lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return "\n".join((heading, "|---" * len(rows[0]) + "|", *lines))
