"""Search the weight of negatives and the number of epochs with PyKEEN."""

from pykeen.hpo import hpo_pipeline

result = hpo_pipeline(
    n_trials=3,
    sampler="random",
    sampler_kwargs=dict(seed=0),
    dataset="nations",
    model="DistMult",
    model_kwargs=dict(embedding_dim=32),
    training_loop="nonsamplinglcwa",
    loss="nonsampling",
    # not searched, since it is set
    loss_kwargs=dict(regularization_weight=0.03),
    # without ranges of your own, those of the loss and the training loop apply
    loss_kwargs_ranges=dict(
        negative_weight=dict(type=float, low=1e-2, high=1.0, log=True)
    ),
    training_kwargs_ranges=dict(num_epochs=dict(type=int, low=50, high=150, q=50)),
    optimizer="Adam",
    optimizer_kwargs=dict(lr=0.02),
    metric="mrr",
)
print("best MRR:", round(result.study.best_value, 3), "with", result.study.best_params)
