"""Factorizations with a matrix per relation equal brute force."""

from functools import partial
from typing import Any

import torch
from factorization_case import FactorizationTestCase
from graphs import GRAPHS
from pykeen.nn.modules import Interaction, MultiLinearTuckerInteraction, NTNInteraction, RESCALInteraction, TuckERInteraction

from pykeen_nonsampling.factorizations import (
    MultiLinearTuckerFactorization,
    NTNFactorization,
    RESCALFactorization,
    TuckERFactorization,
)


class TestRESCAL(FactorizationTestCase):
    cls = RESCALFactorization
    interaction_cls = RESCALInteraction
    graphs = GRAPHS


class TestMultiLinearTucker(FactorizationTestCase):
    """With another number of features for heads than for tails."""

    cls = MultiLinearTuckerFactorization
    interaction_cls = MultiLinearTuckerInteraction
    interaction_kwargs = dict(head_dim=3, relation_dim=2, tail_dim=4)

    @classmethod
    def make_interaction(cls) -> Interaction:
        """Make one whose scores are not all zero, as they are in PyKEEN 1.11.1: it takes the reciprocal of an integer."""
        interaction: Any = super().make_interaction()
        interaction.reset_parameters = partial(torch.nn.init.normal_, interaction.core_tensor)
        return interaction


class TestTuckER(FactorizationTestCase):
    cls = TuckERFactorization
    interaction_cls = TuckERInteraction
    interaction_kwargs = dict(
        embedding_dim=3,
        head_dropout=0.0,
        relation_dropout=0.0,
        head_relation_dropout=0.0,
        apply_batch_normalization=False,
    )


class TestNTN(FactorizationTestCase):
    cls = NTNFactorization
    interaction_cls = NTNInteraction
    interaction_kwargs = dict(activation=torch.nn.Identity)
