"""Train ComplEx without sampling: once the plugin is installed, its name is enough."""

from pykeen.pipeline import pipeline

result = pipeline(
    dataset="umls",
    model="ComplEx",
    model_kwargs=dict(embedding_dim=64),
    training_loop="nonsamplinglcwa",
    # one epoch is one optimizer step on the whole graph
    epochs=200,
    random_seed=0,
)
# the weights are derived from graph and model
print(result.model.loss)
print("MRR:", round(result.get_metric("mrr"), 3))
