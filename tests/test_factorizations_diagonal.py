"""Block-diagonal factorizations equal brute force."""

from factorization_case import TrilinearTestCase
from graphs import GRAPHS
from pykeen.nn.modules import (
    AutoSFInteraction,
    ComplExInteraction,
    CPInteraction,
    DistMultInteraction,
    HolEInteraction,
    QuatEInteraction,
)

from pykeen_nonsampling.factorizations import (
    AutoSFFactorization,
    ComplExFactorization,
    CPFactorization,
    DistMultFactorization,
    HolEFactorization,
    QuatEFactorization,
)


class TestDistMult(TrilinearTestCase):
    cls = DistMultFactorization
    interaction_cls = DistMultInteraction
    graphs = GRAPHS


class TestCP(TrilinearTestCase):
    cls = CPFactorization
    interaction_cls = CPInteraction


class TestComplEx(TrilinearTestCase):
    cls = ComplExFactorization
    interaction_cls = ComplExInteraction


class TestHolE(TrilinearTestCase):
    cls = HolEFactorization
    interaction_cls = HolEInteraction


class TestHolEOfEvenDimension(TrilinearTestCase):
    cls = HolEFactorization
    interaction_cls = HolEInteraction
    sizes = dict(d=4)


class TestQuatE(TrilinearTestCase):
    cls = QuatEFactorization
    interaction_cls = QuatEInteraction
    sizes = dict(d=2, k=4)


class TestAutoSF(TrilinearTestCase):
    """Not all blocks meet, and there are fewer of relations than of entities."""

    cls = AutoSFFactorization
    interaction_cls = AutoSFInteraction
    interaction_kwargs = dict(coefficients=[(0, 0, 2, 1), (1, 1, 0, -1), (2, 1, 1, 1), (0, 1, 1, -1)])
