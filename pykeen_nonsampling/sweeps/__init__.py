"""How the sums are computed: one pass over the observed triples of a side gives scores, costs and gradients."""
