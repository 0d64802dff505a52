"""How a score factorizes: one class per interaction, in families, and the resolver that finds it."""

from .base import Factorization, Family, Form, FunctionForm, NotDecomposableError
from .diagonal import (
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
    MatrixForm,
    MultiLinearTuckerFactorization,
    NTNFactorization,
    RESCALFactorization,
    TuckERFactorization,
)
from .moments import Moments, ScoreMoments, Weights
from .resolver import factorization_resolver, factorize
from .sums import CrossEFactorization, DistMAFactorization, ProjEFactorization, TransFFactorization
from .trilinear import Layout, Term, TrilinearFactorization, TrilinearForm
from .wrappers import (
    AffineMatrixFactorization,
    AffineTrilinearFactorization,
    AverageMatrixFactorization,
    AverageTrilinearFactorization,
    ClampedFactorization,
)

__all__ = [
    "AffineMatrixFactorization",
    "AffineTrilinearFactorization",
    "AutoSFFactorization",
    "AverageMatrixFactorization",
    "AverageTrilinearFactorization",
    "CPFactorization",
    "ClampedFactorization",
    "ComplExFactorization",
    "CrossEFactorization",
    "DistMAFactorization",
    "DistMultFactorization",
    "Factorization",
    "Family",
    "Form",
    "FunctionForm",
    "HolEFactorization",
    "Layout",
    "LineaREFactorization",
    "MatrixFactorization",
    "MatrixForm",
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
    "TrilinearForm",
    "TripleREFactorization",
    "TuckERFactorization",
    "UMFactorization",
    "Weights",
    "factorization_resolver",
    "factorize",
]
