"""From an interaction to its factorization."""

from __future__ import annotations

from typing import Any

from class_resolver import ClassResolver, HintOrType, OptionalKwargs
from pykeen.nn.modules import Interaction

from . import diagonal, distances, matrices, sums
from .base import Factorization, NotDecomposableError
from .reasons import explain
from .wrappers import find_wrapper

#: A resolver for factorizations. Add one for an interaction of your own with ``factorization_resolver.register``.
factorization_resolver: ClassResolver[Factorization] = ClassResolver(
    [
        diagonal.AutoSFFactorization,
        diagonal.CPFactorization,
        diagonal.ComplExFactorization,
        diagonal.DistMultFactorization,
        diagonal.HolEFactorization,
        diagonal.QuatEFactorization,
        distances.LineaREFactorization,
        distances.MuREFactorization,
        distances.PairREFactorization,
        distances.RotatEFactorization,
        distances.TransEFactorization,
        distances.TripleREFactorization,
        distances.UMFactorization,
        matrices.MultiLinearTuckerFactorization,
        matrices.NTNFactorization,
        matrices.RESCALFactorization,
        matrices.TuckERFactorization,
        sums.CrossEFactorization,
        sums.DistMAFactorization,
        sums.ProjEFactorization,
        sums.TransFFactorization,
    ],
    base=Factorization,  # type: ignore[type-abstract]
)


def factorize(
    interaction: Interaction,
    factorization: HintOrType[Factorization] = None,
    factorization_kwargs: OptionalKwargs = None,
) -> Factorization:
    """Find the factorization of an interaction.

    :param interaction: the interaction
    :param factorization: the factorization, or a hint for it; by default, the one registered for the interaction's class.
        For an interaction that wraps another one, that of the latter.
    :param factorization_kwargs: additional keyword-based parameters for the factorization
    :return: the factorization
    :raises NotDecomposableError: if there is none
    :raises ValueError: if the keyword arguments do not fit the factorization
    """
    return _factorize(interaction, factorization, dict(factorization_kwargs or {}), plain=False)


def _factorize(
    interaction: Any, factorization: HintOrType[Factorization], kwargs: dict[str, Any], plain: bool
) -> Factorization:
    """Find the factorization of an interaction; a plain one has no affine transformation of its own."""
    wrapper = find_wrapper(type(interaction))
    if wrapper is not None:
        base = _factorize(interaction.base, factorization, kwargs, plain or wrapper.plain)
        return wrapper.wrap(interaction, base)
    if isinstance(factorization, Factorization):
        cls = type(factorization)
    else:
        cls = _lookup(interaction) if factorization is None else factorization_resolver.lookup(factorization)
    if not isinstance(interaction, cls.interaction_cls):
        raise ValueError(
            f"{cls.__name__} factorizes {cls.interaction_cls.__name__}, but the model has {type(interaction).__name__}: it "
            f"would train on scores that the model does not have. Remove factorization={factorization!r}."
        )
    if isinstance(factorization, Factorization):
        return factorization
    try:
        return cls(interaction, **({**cls.plain_kwargs, **kwargs} if plain else kwargs))
    except TypeError as error:
        raise ValueError(f"factorization_kwargs={kwargs} do not fit {cls.__name__}: {error}") from error


def _lookup(interaction: Interaction) -> type[Factorization]:
    """Find the class registered for the interaction, or for the base class whose ``forward`` it inherits unchanged."""
    registered = {cls.interaction_cls: cls for cls in factorization_resolver}
    for candidate in type(interaction).__mro__:
        if candidate in registered:
            return registered[candidate]
        if "forward" in vars(candidate):
            break
    reason = explain(type(interaction).__name__) or (
        "no factorization of its score into features of head and tail is registered. Register one of your own with "
        "pykeen_nonsampling.factorization_resolver.register(…), or use another model."
    )
    raise NotDecomposableError(
        f"{type(interaction).__name__} cannot be decomposed: {reason} The command pykeen-nonsampling models lists all that "
        f"are supported."
    )
