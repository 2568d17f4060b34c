"""A LightGBM user's first hour: X, y and group as they are, the model you have, and whether another one is better."""

import lightgbm

import querywise as qw

# In place of your log: features, grades, and how many rows each query has, as LightGBM wants them.
log = qw.make_judged(queries=150, documents=12, features=8, kinds=3, noise=0.5)
X, y, group = log.candidates.features, log.labels, log.candidates.sizes

# Queries are split, never rows: documents of one query in two parts would tell the answer.
train, valid, test = qw.split(qw.from_arrays(X, y, group=group))
print(f"queries to train, choose and test on: {len(train)}, {len(valid)}, {len(test)}")

# The model you have, fitted as you always did. What it learned from must not be in the test part.
yours = lightgbm.LGBMRanker(n_estimators=60, min_child_samples=5, verbosity=-1, n_jobs=1)
yours.fit(train.candidates.features, train.labels, group=train.candidates.sizes)

# The same method here, and the one to try first. A ranker that is not fitted yet is fitted by compare.
ranker = qw.recommended().fit(train, valid=valid)
print(f"NDCG@10 of the recommended one: {qw.evaluate(ranker, test).mean()['ndcg@10']:.2f}")

systems = {
    "yours": yours,
    "lambdamart": qw.LambdaMART(trees=60),
    "recommended": ranker,
    "one feature": lambda X: X[:, 0],
}
compared = qw.compare(systems, train, valid, test, measures=["ndcg@10"])
corrected = compared.corrected()  # paired t-tests against the first, corrected for how many there are
for name in compared.names:
    mean = compared.evaluations[name].mean()["ndcg@10"]
    p = corrected.get(name, {}).get("ndcg@10")
    said = "" if p is None else "   p < 0.01" if p < 0.01 else f"   p = {p:.2f}"
    print(f"{name:12} {mean:.2f}{said}")
print(*compared.counted())
