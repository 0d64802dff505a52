"""Which interactions can be trained without sampling, under what condition, and why others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pykeen.nn import modules
from pykeen.nn.modules import Interaction, interaction_resolver

from .matrices import MatrixFactorization
from .reasons import explain
from .resolver import factorization_resolver

__all__ = [
    "WRAPPERS",
    "Row",
    "format_markdown",
    "list_interactions",
]

#: Interactions made of another one, the base m₀: the condition for a factorization, and the number of features
WRAPPERS: Mapping[str, tuple[str, str]] = {
    "ClampedInteraction": ("clamp_score=None, and the base can", "m₀"),
    "DirectionAverageInteraction": ("the base can, and is no norm (power_norm=True makes it a square)", "2m₀"),
    "MonotonicAffineTransformationInteraction": ("the base can", "m₀ + 1"),
}


@dataclass(frozen=True)
class Row:
    """What there is to know about an interaction."""

    interaction: str
    #: "yes", a condition, or why not
    exact: str
    family: str = ""
    #: the number of features of an entity
    features: str = ""
    #: the number of operations for the sum over all triples
    cost: str = ""


def list_interactions() -> Iterator[Row]:
    """Go through all interactions of the installed version of PyKEEN, and those that a factorization is registered for."""
    registered = {cls.interaction_cls: cls for cls in factorization_resolver}
    wrappers = [cls for name in WRAPPERS if (cls := getattr(modules, name, None)) is not None]
    interactions: set[type[Interaction]] = {*interaction_resolver, *registered, *wrappers}
    for cls in sorted(interactions, key=lambda cls: (cls in wrappers, cls.__name__.lower())):
        name = cls.__name__.removesuffix("Interaction")
        if cls.__name__ in WRAPPERS:
            condition, size = WRAPPERS[cls.__name__]
            yield Row(name, f"if {condition}", "that of the base", size, "that of the base, with this m")
        elif cls.__name__ == "SimplEInteraction":
            yield Row(name, "yes", registered[modules.DistMultInteraction].family, "2d", "(|E| + |R|)·m²")
        elif cls in registered:
            factorization = registered[cls]
            cubic = " + |R|·m³" if issubclass(factorization, MatrixFactorization) else ""
            yield Row(
                name,
                "yes" if factorization.condition is None else f"if {factorization.condition}",
                factorization.family,
                factorization.feature_size,
                f"(|E| + |R|)·m²{cubic}",
            )
        else:
            yield Row(name, f"no: {explain(cls.__name__) or 'nobody has looked at it yet.'}")


def format_markdown(rows: Iterable[Row]) -> str:
    """Write the rows as a table in Markdown."""
    lines = ["| interaction | family | features m | exact | cost |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (row.interaction, row.family, row.features, row.exact, row.cost)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
