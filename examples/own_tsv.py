"""Train on triples from your own file, and predict missing ones."""

from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory

from pykeen.pipeline import pipeline
from pykeen.predict import predict_target
from pykeen.triples import TriplesFactory

facts = []
for i in range(25):
    parents, children = [f"mother {i}", f"father {i}"], [f"child {i}{x}" for x in "abc"]
    facts += [(x, "married to", y) for x, y in permutations(parents, 2)]
    facts += [(x, "sibling of", y) for x, y in permutations(children, 2)]
    facts += [(x, "parent of", y) for x, y in product(parents, children)]
    facts += [(y, "child of", x) for x, y in product(parents, children)]

with TemporaryDirectory() as directory:
    # one triple per line: head, relation and tail, separated by tabs
    path = Path(directory, "families.tsv")
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    training, testing = TriplesFactory.from_path(path).split(0.9, random_state=0)

result = pipeline(
    training=training,
    testing=testing,
    model="ComplEx",
    model_kwargs=dict(embedding_dim=32),
    training_loop="nonsamplinglcwa",
    epochs=200,
    random_seed=0,
)
print("MRR:", round(result.get_metric("mrr"), 3))

head, relation, tail = testing.triples[0]
predictions = predict_target(
    model=result.model, head=head, relation=relation, triples_factory=training
)
print(f"{head}, {relation} … ({tail}, which was held out)")
print(predictions.filter_triples(training).df.head(3).to_string(index=False))
