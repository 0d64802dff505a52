"""Train an interaction of your own without sampling: say how its score factorizes, in four short methods.

The interaction is DistMult with a second vector v a relation, which says what the relation's tails look like:
f(h, r, t) = ⟨h, r, t⟩ + ⟨v, t⟩. Unlike DistMult's, its score changes when head and tail change places.
"""

import torch
from pykeen.models import ERModel
from pykeen.nn.modules import Interaction
from pykeen.pipeline import pipeline

from pykeen_nonsampling import Factorization, Moments, factorization_resolver


class TailAwareInteraction(Interaction):
    """f(h, r, t) = ⟨h, r, t⟩ + ⟨v, t⟩."""

    relation_shape = ("d", "d")

    def forward(self, h, r, t):
        """Score triples."""
        r, v = r
        return ((h * r + v) * t).sum(dim=-1)


class TailAwareFactorization(Factorization):
    """The query is q = h∘r + v, the key is t."""

    interaction_cls = TailAwareInteraction

    def heads(self, x):
        """Take an entity's vector as it is, also for tails, whose features are by default those of heads."""
        return x

    def relations(self, r, v):
        """Put the vectors of a relation into one row."""
        return torch.cat([r, v], dim=-1)

    def queries(self, heads, relations):
        """Compute q row by row."""
        r, v = relations.chunk(2, dim=-1)
        return heads * r + v

    def query_moments(self, heads, relations):
        """Expand Σ q and Σ qqᵀ over all pairs: each term is a sum over heads times a sum over relations."""
        r, v = relations.chunk(2, dim=-1)
        cross = heads.first[:, None] * (r.T @ v)  # Σ (h∘r)vᵀ
        return Moments(
            count=heads.count * len(relations),
            first=heads.first * r.sum(dim=0) + heads.count * v.sum(dim=0),
            second=heads.second * (r.T @ r) + cross + cross.T + heads.count * (v.T @ v),
        )


factorization_resolver.register(TailAwareFactorization)

# the sum of squared scores over all triples, compared with enumeration
e, r, v = (torch.rand(n, 3, dtype=torch.double) for n in (7, 4, 4))
interaction = TailAwareInteraction()
factorization = TailAwareFactorization(interaction)
moments = factorization.score_moments(factorization.heads(e), factorization.relations(r, v), factorization.tails(e))
scores = interaction(e[:, None, None], (r[:, None], v[:, None]), e)
torch.testing.assert_close(moments.second, scores.square().sum())
print(f"sum over {moments.count} triples: {moments.second:.6f}, by enumeration: {scores.square().sum():.6f}")

vectors = dict(shape=64, initializer="xavier_normal")
result = pipeline(
    dataset="nations",
    model=ERModel,
    model_kwargs=dict(
        interaction=TailAwareInteraction,
        entity_representations_kwargs=vectors,
        relation_representations_kwargs=[vectors, vectors],
    ),
    training_loop="nonsampling",
    loss="nonsampling",
    loss_kwargs=dict(negative_weight=0.1),
    optimizer_kwargs=dict(lr=1e-2),
    epochs=200,
    random_seed=0,
)
print("MRR:", round(result.get_metric("mrr"), 3))
