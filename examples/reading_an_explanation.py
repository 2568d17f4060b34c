"""Reading an explanation: what is particular to a query, and why one document stands above another."""

import numpy as np

import querywise as qw

# A shop: for some queries price decides, for others how new a thing is; text matches count for all.
NAMES = ("title match", "body match", "low price", "newness", "clicks")
KINDS = {"cheap": (1.0, 0.5, 2.0, 0.0, 0.3), "latest": (1.0, 0.5, 0.0, 2.0, 0.3)}
THINGS = ("phone", "laptop", "camera", "watch", "tablet", "printer")
rng = np.random.default_rng(0)
features, labels, qid, documents, texts = [], [], [], [], {}
for number in range(120):
    kind, thing = list(KINDS)[number % 2], THINGS[rng.integers(len(THINGS))]
    query = f"{kind} {thing} {number}"
    texts[query] = f"{kind} {thing}"
    found = rng.random((12, len(NAMES)))
    merit = found @ np.array(KINDS[kind]) + 0.1 * rng.normal(size=12)
    features.append(found)
    labels += (merit > np.sort(merit)[-4]).astype(int).tolist()  # the best three are relevant
    qid += [query] * 12
    documents += [f"{thing}-{number}-{place}" for place in range(12)]
judged = qw.from_arrays(np.vstack(features), labels, qid=qid, document_ids=documents, feature_names=NAMES)
table = qw.QueryTable(judged.query_ids, texts=tuple(texts[query] for query in judged.query_ids))
train, valid, test = qw.make_folds(judged.with_queries(table))[0]

ranker = qw.KnnOnline(qw.RankSVM(), k=0.3, view=qw.TextView()).fit(train)
query = next(each for each in test.query_ids if each.startswith("cheap"))

# 1. What is particular to this query: the training queries behind its model, and the weights that differ from all's.
explained = qw.explain(ranker, test.candidates, query)
near = explained.neighbours[:30]
alike = sum(each.query_id.startswith("cheap") for each in near)
print(f"{query!r}: {alike} of its {len(near)} nearest training queries are 'cheap', too")
print("weights:       for all    here  effect on the order")
for each in explained.departures:
    print(f"  {each.feature:12} {each.everyone:7.2f} {each.here:7.2f} {each.effect:+8.2f}")

# 2. Why one document is above another: the parts add up to the difference of the scores, exactly.
only = test.candidates.select([test.query_ids.index(query)])
order = np.argsort(-ranker.predict(only))
above, below = (only.document_ids[row] for row in order[:2])
reason = qw.why(ranker, test.candidates, query, above, below)
print(f"{above} is above {below} by {reason.difference:.2f}:")
for term in reason.terms:
    print(f"  {term.feature:12} {term.above:.2f} against {term.below:.2f} adds {term.here:+.2f}")
print(f"the sum of the parts is the difference: {np.isclose(sum(t.here for t in reason.terms), reason.difference)}")
print(f"one model for all queries would say {reason.everyone:+.2f}, this query's own part is {reason.local:+.2f}")
