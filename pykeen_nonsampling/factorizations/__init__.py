"""How a score factorizes: one class an interaction, and the resolver that finds it."""

from .base import Factorization, Moments, NotDecomposableError, ScoreMoments
from .distance import TransEFactorization
from .resolver import factorization_resolver, factorize
from .trilinear import ComplExFactorization, DistMultFactorization, SimplEFactorization

__all__ = [
    "ComplExFactorization",
    "DistMultFactorization",
    "Factorization",
    "Moments",
    "NotDecomposableError",
    "ScoreMoments",
    "SimplEFactorization",
    "TransEFactorization",
    "factorization_resolver",
    "factorize",
]
