"""Single precision is enough, also late in training, where sums of large numbers could cancel."""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
import torch
from pykeen.datasets import UMLS
from pykeen.models import Model
from pykeen.pipeline import pipeline
from steps import Recorder
from torch import Tensor

from pykeen_nonsampling import NonSamplingLCWATrainingLoop

TRAINING = UMLS().training


def gradient(model: Model) -> Tensor:
    """Compute the gradient of the loss of the whole graph, in the precision of the model."""
    recorder = Recorder()
    loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=TRAINING, optimizer="SGD", optimizer_kwargs=dict(lr=0.0))
    # the model stays as it was trained
    with patch.object(model, "reset_parameters_"):
        loop.train(TRAINING, num_epochs=1, batch_size=2 * TRAINING.num_triples, callbacks=recorder, use_tqdm=False)
    parts = (x for x in recorder.gradients[0].values() if x is not None)
    return torch.cat([(torch.view_as_real(x) if x.is_complex() else x).flatten() for x in parts])


@pytest.mark.parametrize("loss", ["softmax", "nonsampling"])
@pytest.mark.parametrize("model", ["ComplEx", "TransE", "RotatE", "RESCAL"])
def test_gradients_of_a_trained_model(model: str, loss: str) -> None:
    kwargs: dict[str, Any] = dict(dataset="umls", model=model, training_loop="nonsamplinglcwa", loss=loss)
    result = pipeline(
        **kwargs, model_kwargs=dict(embedding_dim=32), epochs=100, random_seed=0, evaluator="factorized", use_tqdm=False
    )
    single, double = gradient(result.model), gradient(deepcopy(result.model).double())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    # where an entity is related to itself, TransE's distance is the length of a relation, which may be close to 0
    tolerance = 2e-2 if (model, loss) == ("TransE", "softmax") else 1e-4
    assert (single - double).norm() < tolerance * double.norm()
