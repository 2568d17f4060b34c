"""A feature log to OpenSearch: fit a model per kind of query, see whether it helps, write what the engine runs.

Writes the folder `export` where it is run; no engine is needed for that.
"""

import json
from pathlib import Path

import numpy as np

import querywise as qw
from querywise.rankers.clusters import QueryClasses

# The features as the engine computes them, in its own format; the log has their values in this order.
FEATURES = [
    {"name": "title", "params": ["keywords"], "template": {"match": {"title": "{{keywords}}"}}},
    {"name": "body", "params": ["keywords"], "template": {"match": {"body": "{{keywords}}"}}},
    {"name": "clicks", "params": [], "template": {"rank_feature": {"field": "clicks"}}},
]
SCALES = (12, 9, 100)  # about as large as each gets
NAMES = tuple(str(each["name"]) for each in FEATURES)


def a_log(queries: int = 160, seed: int = 0) -> qw.Judged:
    """In place of your log: a row per judged document; of each query its words, and which kind of query it is."""
    rng = np.random.default_rng(seed)
    things = ("shoes", "jacket", "lamp", "table", "bottle", "tent")
    weights = {"product": (2.0, 0.2, 1.0), "question": (0.3, 2.0, 0.1)}
    ids, texts, classes, rows, labels = [], [], [], [], []
    for number in range(queries):
        kind, thing = list(weights)[number % 2], things[rng.integers(len(things))]
        found = rng.random((10, 3)) * SCALES
        merit = (found / SCALES) @ np.array(weights[kind]) + 0.1 * rng.normal(size=10)
        ids.append(str(number + 1))
        texts.append(f"{thing} size {rng.integers(30, 46)}" if kind == "product" else f"how do I clean a {thing}?")
        classes.append(kind)
        rows.append(found)
        labels += np.searchsorted([merit.mean(), np.sort(merit)[-2]], merit, side="right").tolist()
    documents = [f"{query}-{place}" for query in ids for place in range(10)]
    qid = np.repeat(ids, 10)
    log = qw.from_arrays(np.vstack(rows), labels, qid=qid, document_ids=documents, feature_names=NAMES)
    return log.with_queries(qw.QueryTable(log.query_ids, texts=tuple(texts), classes=tuple(classes)))


train, valid, test = qw.make_folds(a_log())[0]
one, several = qw.Single(qw.RankSVM()), QueryClasses(qw.RankSVM(), view=qw.TextView())  # classified by their words
compared = qw.compare([one, several], train, valid, test, measures=["ndcg@10"])
for name in compared.names:
    print(f"{name:13} NDCG@10 {compared.evaluations[name].mean()['ndcg@10']:.2f}")
p = compared.corrected()["QueryClasses"]["ndcg@10"]
print(f"the difference may be luck: {p >= 0.05}")

ranker = several.fit(train, valid=valid)
featureset = {"featureset": {"features": [{**each, "template_language": "mustache"} for each in FEATURES]}}
qw.export_model(ranker, "opensearch", "export", name="shop-search", data=test, features=featureset)
print("written:")
for path in sorted(Path("export").rglob("*")):
    if path.is_file() and path.parent.name != "model":
        print(f"  {path.as_posix()}")
print("the model for questions, as the engine reads it:")
model = json.loads(Path("export/models/shop-search-1.json").read_text())["model"]
weights = json.loads(model["model"]["definition"])
print(f"  {model['model']['type']}: {', '.join(f'{name} {weight:.2f}' for name, weight in weights.items())}")
router = qw.Router("export")
for text in ("tent size 40", "how do I clean a tent?"):
    print(f"  {text!r} goes to {router.model(text)}")
