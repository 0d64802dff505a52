"""How a score factorizes: one class an interaction, in families, and the resolver that finds it."""

from .base import Factorization, Moments, NotDecomposableError, ScoreMoments, Weights
from .blocks import (
    AutoSFFactorization,
    ComplExFactorization,
    CPFactorization,
    DistMultFactorization,
    HolEFactorization,
    QuatEFactorization,
)
from .distances import (
    LineaREFactorization,
    MuREFactorization,
    PairREFactorization,
    RotatEFactorization,
    SquaredDistanceFactorization,
    TransEFactorization,
    TripleREFactorization,
    UMFactorization,
)
from .matrices import (
    MatrixFactorization,
    MultiLinearTuckerFactorization,
    NTNFactorization,
    RESCALFactorization,
    TuckERFactorization,
)
from .resolver import factorization_resolver, factorize
from .sums import CrossEFactorization, DistMAFactorization, ProjEFactorization, TransFFactorization
from .trilinear import Layout, Term, TrilinearFactorization
from .wrappers import (
    AffineMatrixFactorization,
    AffineTrilinearFactorization,
    AverageMatrixFactorization,
    AverageTrilinearFactorization,
)

__all__ = [
    "AffineMatrixFactorization",
    "AffineTrilinearFactorization",
    "AutoSFFactorization",
    "AverageMatrixFactorization",
    "AverageTrilinearFactorization",
    "CPFactorization",
    "ComplExFactorization",
    "CrossEFactorization",
    "DistMAFactorization",
    "DistMultFactorization",
    "Factorization",
    "HolEFactorization",
    "Layout",
    "LineaREFactorization",
    "MatrixFactorization",
    "Moments",
    "MuREFactorization",
    "MultiLinearTuckerFactorization",
    "NTNFactorization",
    "NotDecomposableError",
    "PairREFactorization",
    "ProjEFactorization",
    "QuatEFactorization",
    "RESCALFactorization",
    "RotatEFactorization",
    "ScoreMoments",
    "SquaredDistanceFactorization",
    "Term",
    "TransEFactorization",
    "TransFFactorization",
    "TrilinearFactorization",
    "TripleREFactorization",
    "TuckERFactorization",
    "UMFactorization",
    "Weights",
    "factorization_resolver",
    "factorize",
]
