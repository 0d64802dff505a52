"""Search the weight of negative triples and the number of epochs by PyKEEN's hyper-parameter optimization."""

from pykeen.hpo import hpo_pipeline

result = hpo_pipeline(
    n_trials=3,
    sampler="random",
    sampler_kwargs=dict(seed=0),
    dataset="nations",
    model="DistMult",
    model_kwargs=dict(embedding_dim=32),
    training_loop="nonsampling",
    loss="nonsampling",
    # without ranges, the loss and the training loop bring their own; see NonSamplingLoss.hpo_default and the loop's
    loss_kwargs_ranges=dict(negative_weight=dict(type=float, low=1e-3, high=1.0, log=True)),
    training_kwargs_ranges=dict(num_epochs=dict(type=int, low=50, high=150, q=50)),
    optimizer="Adam",
    optimizer_kwargs=dict(lr=1e-2),
    metric="mrr",
)
print("best MRR:", round(result.study.best_value, 3), "with", result.study.best_params)
