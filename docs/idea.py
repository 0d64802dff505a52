"""Draw the pictures of docs/idea.md.

    python docs/idea.py

measures how far the gradient of sampled negatives is from that of all, on UMLS, which
takes about a minute, and writes the pictures to docs/idea/.
"""

from pathlib import Path

import torch
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pykeen.datasets import UMLS
from pykeen.pipeline import pipeline

PICTURES = Path(__file__).parent / "idea"

QUERIES, KEYS, SCORES, SAMPLED = "#8fb8de", "#f2c58f", "#eceff1", "#c0392b"
#: inches: 480 pixels wide, so that text can be read on a phone
WIDTH = 5.0


def draw_matrix(axes, left, top, rows, columns, color, cell=0.1):
    """Draw a matrix, and return the middle of its lower edge."""
    right, bottom = left + columns * cell, top - rows * cell
    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, fc=color))
    lines = dict(color="white", lw=0.7)
    axes.hlines([bottom + i * cell for i in range(rows + 1)], left, right, **lines)
    axes.vlines([left + j * cell for j in range(columns + 1)], bottom, top, **lines)
    return (left + right) / 2, bottom


def draw_matrices():
    """Draw how the scores of all candidates become a product of two Gram matrices."""
    figure = Figure(figsize=(WIDTH, 4.2))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 5), ylim=(0.4, 4.6))
    axes.set_axis_off()
    num_queries, num_entities, dim, top = 16, 18, 4, 4.1
    text = dict(ha="center", va="center", fontsize=11)

    x, y = draw_matrix(axes, 0.2, top, num_queries, num_entities, SCORES)
    generator = torch.Generator().manual_seed(0)
    for i in range(num_queries):
        j = torch.randint(num_entities, (), generator=generator).item()
        axes.plot(0.25 + 0.1 * j, top - 0.05 - 0.1 * i, "x", c=SAMPLED, ms=5, mew=1.5)
    axes.text(x, top + 0.25, "all scores", **text)
    axes.text(x, y - 0.2, "queries × entities", **text)
    axes.text(x, y - 0.43, "× what a sample sees", **text, color=SAMPLED)

    axes.text(2.27, top - 0.8, "=", **{**text, "fontsize": 16})
    x, y = draw_matrix(axes, 2.5, top, num_queries, dim, QUERIES)
    axes.text(x, top + 0.25, "Q", **text)
    axes.text(x, y - 0.2, "queries × d", **text)
    x, y = draw_matrix(axes, 3.1, top - 0.6, dim, num_entities, KEYS)
    axes.text(x, top - 0.35, "Kᵀ", **text)
    axes.text(x, y - 0.2, "d × entities", **text)

    axes.plot([0.2, 4.8], [1.72, 1.72], c="#b0bec5", lw=1)
    axes.text(0.2, 1.0, "Σ scores²  =", **{**text, "ha": "left", "fontsize": 13})
    axes.text(1.75, 0.98, "⟨", **{**text, "fontsize": 34})
    x, y = draw_matrix(axes, 2.0, 1.2, dim, dim, QUERIES)
    axes.text(x, y - 0.2, "QᵀQ", **text)
    axes.text(2.72, 0.85, ",", **{**text, "fontsize": 16})
    x, y = draw_matrix(axes, 3.0, 1.2, dim, dim, KEYS)
    axes.text(x, y - 0.2, "KᵀK", **text)
    axes.text(3.65, 0.98, "⟩", **{**text, "fontsize": 34})
    axes.text(4.3, 1.0, "d × d each", **text)
    return figure


def measure(numbers, batch_size=256, draws=5):
    """Measure errors of sampled gradients, for a batch and for all training triples."""
    torch.manual_seed(0)
    graph = UMLS()
    model = pipeline(
        dataset=graph,
        model="DistMult",
        model_kwargs=dict(embedding_dim=64),
        training_loop="nonsamplinglcwa",
        epochs=30,
        random_seed=0,
    ).model
    entities = model.entity_representations[0]().detach()
    relations = model.relation_representations[0]().detach()
    all_triples = graph.training.mapped_triples

    def gradient(triples, number=None):
        """Differentiate the sum of squared scores of all tails, or of a sample."""
        e = entities.clone().requires_grad_()
        queries = e[triples[:, 0]] * relations[triples[:, 1]]
        if number is None:
            total = ((queries @ (e.T @ e)) * queries).sum()
        else:
            keys = e[torch.randint(len(e), (len(triples), number))]
            scores = torch.einsum("id,ijd->ij", queries, keys)
            total = len(e) / number * scores.square().sum()
        total.backward()
        return e.grad

    def error(size, number):
        triples = all_triples[torch.randperm(len(all_triples))[:size]]
        exact = gradient(triples)
        return ((gradient(triples, number) - exact).norm() / exact.norm()).item()

    for size in (batch_size, len(all_triples)):
        yield size, [sum(error(size, n) for _ in range(draws)) / draws for n in numbers]


def draw_noise():
    """Draw the error of the gradient by the number of sampled negatives."""
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.add_subplot()
    numbers = [1, 2, 5, 10, 25, 50, 100]
    for size, errors in measure(numbers):
        axes.plot(numbers, errors, "o-", label=f"{size:,} triples per step")
        print(size, dict(zip(numbers, errors, strict=True)))  # noqa: T201
    axes.axhline(0, c="black", lw=1.5, label="all candidates, by Gram matrices")
    axes.set(xscale="log", ylim=(-0.05, None), xlabel="sampled negatives per triple")
    axes.set_xticks(numbers, map(str, numbers), minor=False)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.0f} %")
    axes.set_ylabel("error of the gradient")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    rcParams.update({"svg.hashsalt": "idea", "font.size": 11})
    PICTURES.mkdir(exist_ok=True)
    for draw in (draw_matrices, draw_noise):
        path = PICTURES / f"{draw.__name__.removeprefix('draw_')}.svg"
        figure = draw()
        figure.patch.set_facecolor("white")
        figure.savefig(path, metadata={"Date": None})
