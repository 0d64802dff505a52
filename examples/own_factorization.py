"""Train an interaction of your own by stating which products its score consists of.

The interaction is DistMult with a second vector v per relation, which describes the
relation's tails: f(h, r, t) = ⟨h, r, t⟩ + ⟨v, t⟩. Unlike DistMult's, its score changes
when head and tail are swapped.
"""

import torch
from pykeen.models import ERModel
from pykeen.nn.modules import Interaction
from pykeen.pipeline import pipeline

from pykeen_nonsampling import factorization_resolver
from pykeen_nonsampling.factorizations import Layout, Term, TrilinearFactorization


class TailAwareInteraction(Interaction):
    """f(h, r, t) = ⟨h, r, t⟩ + ⟨v, t⟩."""

    relation_shape = ("d", "d")

    def forward(self, h, r, t):
        """Score triples."""
        r, v = r
        return ((h * r + v) * t).sum(dim=-1)


class TailAwareFactorization(TrilinearFactorization):
    """The features are [h; 1], [r; v] and [t], the score is ⟨h, r, t⟩ + ⟨1, v, t⟩."""

    interaction_cls = TailAwareInteraction
    head_layout = Layout(vectors=1, scalars=1)
    relation_layout = Layout(vectors=2)
    tail_layout = Layout(vectors=1)
    # ⟨h, r, t⟩: block 0 of heads, relations and tails
    # ⟨1, v, t⟩: block 1 of heads and relations with block 0 of tails
    terms = (Term(0, 0, 0), Term(1, 1, 0))

    def heads(self, x):
        """Append a constant 1 to each entity's vector."""
        return torch.cat([x, torch.ones_like(x[:, :1])], dim=-1)

    def tails(self, x):
        """Use each entity's vector as it is."""
        return x

    def relations(self, r, v):
        """Concatenate the two vectors of each relation."""
        return torch.cat([r, v], dim=-1)


factorization_resolver.register(TailAwareFactorization)

# the sum of squared scores over all triples, compared with enumeration
e, r, v = (torch.rand(n, 3, dtype=torch.double) for n in (7, 4, 4))
interaction = TailAwareInteraction()
factorization = TailAwareFactorization(interaction)
moments = factorization.score_moments(
    factorization.heads(e), factorization.relations(r, v), factorization.tails(e)
)
scores = interaction(e[:, None, None], (r[:, None], v[:, None]), e)
torch.testing.assert_close(moments.second, scores.square().sum())
print(f"sum over {moments.count} triples: {moments.second:.6f}")
print(f"by enumeration: {scores.square().sum():.6f}")

vectors = dict(shape=64, initializer="xavier_normal")
result = pipeline(
    dataset="nations",
    model=ERModel,
    model_kwargs=dict(
        interaction=TailAwareInteraction,
        entity_representations_kwargs=vectors,
        relation_representations_kwargs=[vectors, vectors],
    ),
    training_loop="nonsamplinglcwa",
    epochs=200,
    random_seed=0,
)
print("MRR:", round(result.get_metric("mrr"), 3))
