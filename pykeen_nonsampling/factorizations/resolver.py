"""From an interaction to its factorization."""

from __future__ import annotations

from class_resolver import ClassResolver, HintOrType, OptionalKwargs
from pykeen.nn.modules import ClampedInteraction, Interaction

from .base import Factorization, NotDecomposableError
from .distance import TransEFactorization
from .trilinear import ComplExFactorization, DistMultFactorization, SimplEFactorization

__all__ = [
    "factorization_resolver",
    "factorize",
]

#: A resolver for factorizations. Add one for an interaction of your own by ``factorization_resolver.register``.
factorization_resolver: ClassResolver[Factorization] = ClassResolver(
    [ComplExFactorization, DistMultFactorization, SimplEFactorization, TransEFactorization],
    base=Factorization,  # type: ignore[type-abstract]
)


def factorize(
    interaction: Interaction,
    factorization: HintOrType[Factorization] = None,
    factorization_kwargs: OptionalKwargs = None,
) -> Factorization:
    """Find the factorization of an interaction.

    :param interaction: the interaction
    :param factorization: the factorization, or a hint for it; by default, the one registered for the interaction's class
    :param factorization_kwargs: additional keyword-based parameters for the factorization
    :return: the factorization
    :raises NotDecomposableError: if there is none
    :raises ValueError: if the keyword arguments are not the factorization's
    """
    interaction = _unwrap(interaction)
    if isinstance(factorization, Factorization):
        cls = type(factorization)
    else:
        cls = _lookup(interaction) if factorization is None else factorization_resolver.lookup(factorization)
    if not isinstance(interaction, cls.interaction_cls):
        raise ValueError(
            f"{cls.__name__} factorizes {cls.interaction_cls.__name__}, but the model has {type(interaction).__name__}: it "
            f"would train on scores that the model does not have. Leave factorization={factorization!r} out."
        )
    if isinstance(factorization, Factorization):
        return factorization
    try:
        return cls(interaction, **(factorization_kwargs or {}))
    except TypeError as error:
        raise ValueError(f"{factorization_kwargs=} do not fit {cls.__name__}: {error}") from error


def _unwrap(interaction: Interaction) -> Interaction:
    """Take the wrapped interaction out of wrappers that leave the score as it is."""
    while isinstance(interaction, ClampedInteraction):
        if interaction.clamp_score is not None:
            raise NotDecomposableError(
                f"Scores clamped to {interaction.clamp_score} cannot be decomposed: a clamp is not linear in the features "
                f"of head and tail. Leave the clamp out, with model_kwargs=dict(clamp_score=None)."
            )
        interaction = interaction.base
    return interaction


def _lookup(interaction: Interaction) -> type[Factorization]:
    """Find the class registered for the interaction, or for the base class whose ``forward`` it inherits unchanged."""
    registered = {cls.interaction_cls: cls for cls in factorization_resolver}
    for candidate in type(interaction).__mro__:
        if candidate in registered:
            return registered[candidate]
        if "forward" in vars(candidate):
            break
    names = ", ".join(sorted(cls.__name__.removesuffix("Interaction") for cls in registered))
    raise NotDecomposableError(
        f"{type(interaction).__name__} cannot be decomposed: no factorization of its score into features of head and tail "
        f"is registered. Use one of {names}, or register one of your own with "
        f"pykeen_nonsampling.factorization_resolver.register(…)."
    )
