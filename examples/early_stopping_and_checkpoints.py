"""Stop early, and resume from a checkpoint, as with PyKEEN's other training loops."""

from tempfile import TemporaryDirectory

from pykeen.pipeline import PipelineResult, pipeline


def train(epochs: int, directory: str) -> PipelineResult:
    """Train for this number of epochs in total, from the checkpoint if there is one."""
    return pipeline(
        dataset="nations",
        model="DistMult",
        training_loop="nonsamplinglcwa",
        loss="nonsampling",
        stopper="early",
        # evaluate on validation triples every 20 epochs, and stop once the MRR
        # has not risen by 1% three times in a row
        stopper_kwargs=dict(
            frequency=20, patience=3, relative_delta=0.01, metric="mrr"
        ),
        # the time between checkpoints in minutes; 0 means after every epoch
        training_kwargs=dict(
            checkpoint_name="nations.pt",
            checkpoint_directory=directory,
            checkpoint_frequency=0,
        ),
        # ranks by a product of matrices, which makes frequent evaluation cheap
        evaluator="factorized",
        epochs=epochs,
        random_seed=0,
    )


with TemporaryDirectory() as directory:
    begun = train(epochs=50, directory=directory)
    resumed = train(epochs=1_000, directory=directory)

print("MRR after", len(begun.losses), "epochs:", round(begun.get_metric("mrr"), 3))
print("went on from there:", resumed.losses[: len(begun.losses)] == begun.losses)
print("stopped early:", resumed.stopper.stopped)
print(f"epochs: {len(resumed.losses)}, best: {resumed.stopper.best_epoch}")
print("MRR:", round(resumed.get_metric("mrr"), 3))
