"""Scores of all candidates by a matrix product: ranks, evaluation and predictions."""
