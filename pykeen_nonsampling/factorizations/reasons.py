"""Why some interactions have no factorization."""

from __future__ import annotations

from collections.abc import Mapping

#: Why an interaction has no factorization, and the closest ones that have one, by the name of its class
REASONS: Mapping[str, tuple[str, str]] = {
    "BoxEInteraction": ("the distance to a box depends on which side of its faces a point is on", "MuRE, PairRE"),
    "ConvEInteraction": ("a convolution and its non-linearity are applied to head and relation", "TuckER, DistMult"),
    "ConvKBInteraction": ("a convolution and its non-linearity are applied to the whole triple", "TransE with p=2"),
    "ERMLPEInteraction": ("a multi-layer perceptron is applied to head and relation", "TuckER, DistMult"),
    "ERMLPInteraction": ("a multi-layer perceptron is applied to the whole triple", "TuckER, DistMA"),
    "KG2EInteraction": (
        "logarithms of sums of the variances of head and tail are not a sum of products",
        "TransE with p=2",
    ),
    "SEInteraction": (
        "two matrices per relation, one for each end, make the square of the distance a form in all products of two "
        "coordinates of an entity: exact, but with about d²/2 features, so O((|E| + |R|)·d⁴), or with one feature per "
        "relation, to be computed for all pairs of an entity and a relation",
        "RESCAL, LineaRE with p=2",
    ),
    "TorusEInteraction": ("the distance on a torus depends on which way around is shorter", "TransE with p=2, RotatE"),
    "TransDInteraction": ("the projections of head and tail are clamped to the unit ball", "TransE with p=2, PairRE"),
    "TransHInteraction": (
        "a hyperplane per relation makes the square of the distance a form in all products of two coordinates of an entity: "
        "exact, but with about d²/2 features, so O((|E| + |R|)·d⁴), or with one feature per relation, to be computed for "
        "all pairs of an entity and a relation",
        "TransE with p=2, MuRE",
    ),
    "TransRInteraction": ("the projections of head and tail are clamped to a ball", "TransE with p=2, RESCAL"),
    "TransformerInteraction": ("a transformer is applied to head and relation", "TuckER, DistMult"),
}


def explain(name: str) -> str | None:
    """Say why there is no factorization of an interaction, and what to use instead, if that is known.

    :param name: the name of its class
    :return: the reason, to follow a colon
    """
    if name not in REASONS:
        return None
    reason, alternative = REASONS[name]
    return f"{reason}. Closest supported: {alternative}."
