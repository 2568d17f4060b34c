"""Hybrid search: the lists of two engines as one, with one weight for all queries or weights for each."""

from collections import defaultdict

import numpy as np

import querywise as qw
from querywise.contracts.run_weights import weights_of_query
from querywise.data.judgements import Judgement
from querywise.data.run_columns import Run
from querywise.data.runs import judge, tabulate_runs
from querywise.rankers.weights.fusion import EqualWeights, Weights

# A small world: words find part numbers, vectors find what is asked for in a sentence.
CODES = ("part", "serial", "error", "model")
THINGS = ("keyboard", "battery", "screen", "printer", "camera", "router", "speaker", "charger")


def a_world(queries: int = 240, seed: int = 0) -> tuple[list[Run], dict[str, str], list[Judgement]]:
    """The two engines' runs, the text of every query, and which documents answer it."""
    rng = np.random.default_rng(seed)
    words: dict[str, dict[str, float]] = defaultdict(dict)
    vectors: dict[str, dict[str, float]] = defaultdict(dict)
    texts: dict[str, str] = {}
    grades: list[Judgement] = []
    for number in range(queries):
        query, thing = f"q{number}", THINGS[rng.integers(len(THINGS))]
        exact = rng.random() < 0.5
        code = f"{CODES[rng.integers(len(CODES))]} number {rng.integers(1000)}"
        texts[query] = f"{thing} {code}" if exact else f"why does my {thing} stop working?"
        for place in range(20):
            document, good = f"{query}-d{place}", place < 3
            grades += [Judgement(query, document, 1, "made here")] if good else []
            for found, sure in ((words, exact), (vectors, not exact)):
                if rng.random() < 0.8:  # neither finds everything
                    found[query][document] = float(rng.normal() + good * (2.5 if sure else 0.3) + 10)
    return [Run("words", words), Run("vectors", vectors)], texts, grades


runs, texts, grades = a_world()
judged, coverage = judge(tabulate_runs(runs), grades)
judged = judged.with_queries(qw.QueryTable(judged.query_ids, texts=tuple(texts[query] for query in judged.query_ids)))
print(f"relevant documents that words or vectors find: {coverage.found} of {coverage.relevant}")

train, valid, test = qw.make_folds(judged)[0]
by_query = qw.WeightsByQuery().fit(
    train, valid=valid
)  # weights for each query only where cross-validation shows a gain
columns = judged.feature_names or ()
systems = {
    "words": lambda X: X[:, columns.index("run.words.reciprocal_rank")],
    "vectors": lambda X: X[:, columns.index("run.vectors.reciprocal_rank")],
    "reciprocal ranks": EqualWeights("rank"),
    "one weight": Weights(),
    "weights by query": by_query,
}
compared = qw.compare(systems, train, valid, test, measures=["map"], baseline="one weight")
corrected = compared.corrected()
for name in compared.names:
    p = corrected.get(name, {}).get("map")
    said = "" if p is None else "   p < 0.001" if p < 0.001 else f"   p = {p:.3f}"
    print(f"{name:17} {compared.evaluations[name].mean()['map']:.2f}{said}")

for text in ("battery serial number 17", "why does my battery stop working?"):
    weights = weights_of_query(by_query, qw.QueryTable(("new",), texts=(text,)))
    print(f"{text!r}: " + ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items()))
