"""Train with an objective of your own: say what the scores of a query cost.

The objective is the squared one without its fixed targets. An answer should score 1
more than the average negative of its query, and negatives should score alike; adding
the same number to all scores of a query changes nothing.
"""

from pykeen.pipeline import pipeline

from pykeen_nonsampling import FactorizedLoss, Objective


class CenteredObjective(Objective):
    """Σ w (f - μ - 1)² over the positives, plus c Σ (f - μ)² over the negatives.

    μ is the mean score of the query's negatives.
    """

    def cost(self, scores):
        """Sum over some whole queries."""
        negatives = scores.negatives
        count = negatives.count.clamp(min=1)
        mean = negatives.first / count
        spread = negatives.second - mean * negatives.first
        positives = (
            scores.positive_weights
            * (scores.positives - scores.per_positive(mean) - 1).square()
        )
        return positives.sum() + (scores.query_weights * spread).sum()


class CenteredLoss(FactorizedLoss):
    """The loss that PyKEEN gets to see."""

    def __init__(self, negative_weight=0.1, **kwargs):
        """Initialize the loss."""
        super().__init__(**kwargs)
        self.negative_weight = negative_weight

    def objective(self, label_smoothing=0.0, num_entities=None):
        """Say what scores cost."""
        return CenteredObjective()


result = pipeline(
    dataset="umls",
    model="ComplEx",
    model_kwargs=dict(embedding_dim=64),
    training_loop="nonsamplinglcwa",
    loss=CenteredLoss,
    epochs=200,
    random_seed=0,
)
print("MRR:", round(result.get_metric("mrr"), 3))
