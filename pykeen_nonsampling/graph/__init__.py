"""Which triples there are: observed ones, indexed by their queries, seen from either end, and divided into batches."""
