"""Sums of products equal brute force."""

import torch
from factorization_case import TrilinearTestCase
from pykeen.nn.modules import CrossEInteraction, DistMAInteraction, ProjEInteraction, TransFInteraction

from pykeen_nonsampling.factorizations import (
    CrossEFactorization,
    DistMAFactorization,
    ProjEFactorization,
    TransFFactorization,
)


class TestDistMA(TrilinearTestCase):
    cls = DistMAFactorization
    interaction_cls = DistMAInteraction


class TestTransF(TrilinearTestCase):
    cls = TransFFactorization
    interaction_cls = TransFInteraction


class TestProjE(TrilinearTestCase):
    cls = ProjEFactorization
    interaction_cls = ProjEInteraction
    interaction_kwargs = dict(embedding_dim=3, inner_activation=torch.nn.Identity, bias_initializer="normal_")


class TestCrossE(TrilinearTestCase):
    cls = CrossEFactorization
    interaction_cls = CrossEInteraction
    interaction_kwargs = dict(embedding_dim=3, combination_activation=torch.nn.Identity, combination_dropout=None)
