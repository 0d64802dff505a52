"""Train DistMult on every negative triple with PyKEEN's pipeline: the plugin is installed, so its names are strings."""

from pykeen.pipeline import pipeline

result = pipeline(
    dataset="umls",
    model="DistMult",
    model_kwargs=dict(embedding_dim=64),
    training_loop="nonsampling",
    loss="nonsampling",
    loss_kwargs=dict(negative_weight=0.1),
    optimizer="Adam",
    optimizer_kwargs=dict(lr=1e-2),
    # one epoch is one optimizer step on the whole graph
    epochs=200,
    random_seed=0,
)
print("MRR:", round(result.get_metric("mrr"), 3))
