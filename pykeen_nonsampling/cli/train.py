"""Training from a configuration file, in one process or in many."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import torch
from pykeen.datasets import get_dataset
from pykeen.evaluation import evaluator_resolver
from pykeen.pipeline.api import PipelineResult, pipeline_from_config
from pykeen.training.training_loop import CheckpointMismatchError
from pykeen.triples import CoreTriplesFactory
from pykeen.utils import load_configuration

from .._compat import mapped_loading
from ..defaults import is_ours
from ..distributed.group import Group, GroupError, join
from ..distributed.shards import ShardingError, divide
from ..distributed.state import save_whole_model
from ..memory.outline import format_bytes
from ..ranking.evaluator import FactorizedRankBasedEvaluator
from ..ranking.metrics import get_metrics
from .console import POSITIVE, silence
from .files import check_free, check_writable, force_option

#: The metrics to print
REPORTED = ("MRR", "Hits@1", "Hits@10")

#: The file for checkpoints, and how many minutes there are between them
CHECKPOINT, MINUTES = "checkpoint.pt", 5

#: The first file that a finished training leaves
RESULTS = "results.json"


@click.command(name="train")
@click.argument("configuration", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("training"),
    show_default=True,
    help="The directory for model, results and checkpoint; one that all machines share.",
)
@click.option(
    "--timeout",
    type=POSITIVE,
    default=10.0,
    show_default=True,
    help="The minutes that a process waits for another one before it gives up.",
)
@click.option(
    "--sharded",
    is_flag=True,
    help="Divide the entities among the processes, with their vectors, gradients and the state of the optimizer.",
)
@force_option
def command(configuration: Path, output: Path, timeout: float, sharded: bool, force: bool) -> None:
    """Train from a configuration file, in one process or in many.

    CONFIGURATION is an experiment as for pykeen experiments run. A training that was stopped goes on from its checkpoint.
    Under torchrun, all processes train one model together, on one machine or on several:

        torchrun --nproc-per-node 4 -m pykeen_nonsampling train configuration.json --output results

    Each has the whole model, unless it is --sharded.
    """
    config = _load(configuration)
    with join(timeout=timedelta(minutes=timeout)) as group:
        if group.is_first:
            check_free([output / RESULTS], force)
            check_writable(output, "--output")
        else:
            silence()
        if (group.size > 1 or sharded) and not is_ours(config["pipeline"].get("training_loop")):
            raise click.ClickException(
                f"training_loop={config['pipeline'].get('training_loop')!r} cannot be divided among processes. Use "
                f"'nonsamplinglcwa' or 'nonsampling', or start it without torchrun."
            )
        try:
            result = _train(config, output, group, sharded, force)
        except (CheckpointMismatchError, NotImplementedError, GroupError, TypeError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        if sharded:
            save_whole_model(result.model, output / result.MODEL_FILE_NAME)
        if group.is_first:
            _conclude(result, output, group, sharded)


def _load(path: Path) -> dict[str, Any]:
    """Read a configuration."""
    try:
        config = load_configuration(path)
    except Exception as error:
        raise click.ClickException(f"{path} cannot be read: {error}. Write JSON or YAML, with such a suffix.") from error
    pipeline = config.get("pipeline") if isinstance(config, Mapping) else None
    if not isinstance(pipeline, Mapping):
        raise click.ClickException(
            f"{path} is not an experiment: it needs an entry 'pipeline' with the arguments of pipeline(), e.g. "
            f'{{"metadata": {{}}, "pipeline": {{"dataset": "nations", "model": "ComplEx", '
            f'"training_loop": "nonsamplinglcwa"}}}}.'
        )
    return {"metadata": {}, **config, "pipeline": dict(pipeline)}


def _train(config: dict[str, Any], output: Path, group: Group, sharded: bool, force: bool) -> PipelineResult:
    """Run the pipeline, with a checkpoint in the output directory."""
    pipeline = config["pipeline"]
    checkpoint = {"checkpoint_name": CHECKPOINT, "checkpoint_directory": str(output), "checkpoint_frequency": MINUTES}
    pipeline["training_kwargs"] = training_kwargs = {**checkpoint, **(pipeline.get("training_kwargs") or {})}
    if torch.cuda.is_available() and group.size > 1:
        pipeline["device"] = f"cuda:{torch.cuda.current_device()}"
    # PyKEEN's own would rank all triples in each process
    pipeline.setdefault("evaluator", "factorized")
    if force and group.is_first and (output / RESULTS).exists():
        # the training that it belongs to is finished
        (output / CHECKPOINT).unlink(missing_ok=True)
        (output / RESULTS).unlink()
    group.same(None)
    if not sharded:
        return pipeline_from_config(config)
    _divide(pipeline, output, group)
    with mapped_loading(Path(training_kwargs["checkpoint_directory"]) / training_kwargs["checkpoint_name"]):
        return pipeline_from_config(config)


def _divide(pipeline: dict[str, Any], output: Path, group: Group) -> None:
    """Let the first process read the dataset, and divide the training triples; all have those to evaluate on."""
    for name in ("evaluation_entity_whitelist", "evaluation_relation_whitelist"):
        if pipeline.get(name) is not None:
            raise ShardingError(f"{name} does not go together with --sharded. Leave one of them out.")
    if not issubclass(evaluator_resolver.lookup(pipeline["evaluator"]), FactorizedRankBasedEvaluator):
        raise ShardingError(
            f"evaluator={pipeline['evaluator']!r} needs all entities in one place. Use 'factorized', or leave out --sharded."
        )
    names = ("dataset", "dataset_kwargs", "training", "testing", "validation")
    arguments = {name: pipeline.pop(name, None) for name in names}
    training, others = None, dict[str, Any]()
    with group.together():
        if group.is_first:
            dataset = get_dataset(**arguments)
            training = dataset.training
            training.to_path_binary(output / PipelineResult.TRAINING_TRIPLES_FILE_NAME)
            others = {
                name: factory.mapped_triples
                for name, factory in (("testing", dataset.testing), ("validation", dataset.validation))
                if factory is not None
            }
            del dataset
    shard = divide(training, group)
    for name, triples in group.same(others).items():
        numbered = shard.sharding.number_triples(triples)
        pipeline[name] = CoreTriplesFactory(numbered, shard.sharding.num_entities, shard.real_num_relations)
    pipeline["training"] = shard


def _conclude(result: PipelineResult, output: Path, group: Group, sharded: bool) -> None:
    """Write the results, and say what was reached."""
    result.save_to_directory(output, save_replicates=not sharded, save_training=not sharded)
    metrics = ", ".join(f"{name} {value:.3f}" for name, value in get_metrics(result, REPORTED).items())
    click.echo(f"{len(result.losses)} epochs. On the test triples: {metrics}.")
    if group.size > 1:
        sent = format_bytes(result.training_loop.num_bytes)  # type: ignore[attr-defined]
        click.echo(f"Each of the {group.size} processes has sent {sent} per epoch, and received as much.")
    click.echo(f"Model and results: {output}/")
