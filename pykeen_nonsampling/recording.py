"""The configuration of a run, recorded in its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pykeen.losses import loss_resolver
from pykeen.pipeline.api import PipelineResult

from .losses import FactorizedLoss, describe, parameters_of


@dataclass
class RecordedResult(PipelineResult):
    """A result of a pipeline whose ``results.json`` contains the configuration, with all weights of its losses."""

    @classmethod
    def of(cls, result: PipelineResult) -> RecordedResult:
        """Convert a result, and record the losses that were trained with in its configuration."""
        values = {field.name: getattr(result, field.name) for field in fields(PipelineResult)}
        loss = result.model.loss
        given = result.configuration.get("loss_kwargs")
        loss_kwargs = loss.kwargs if isinstance(loss, FactorizedLoss) else given or parameters_of(loss)
        configuration = {**result.configuration, "loss": loss_resolver.normalize_inst(loss), "loss_kwargs": loss_kwargs}
        model_kwargs = configuration.get("model_kwargs")
        if isinstance(model_kwargs, Mapping) and "loss" in model_kwargs:
            configuration["model_kwargs"] = {**model_kwargs, "loss": loss}
        start_kwargs = getattr(result.training_loop, "start_kwargs", None)
        if start_kwargs:
            loop_kwargs = configuration.get("training_loop_kwargs") or {}
            configuration["training_loop_kwargs"] = {**loop_kwargs, "start_kwargs": start_kwargs}
        return cls(**{**values, "configuration": configuration})

    def _get_results(self) -> Mapping[str, Any]:
        configuration = json.loads(json.dumps(self.configuration, default=describe))
        return {**super()._get_results(), "configuration": configuration}
