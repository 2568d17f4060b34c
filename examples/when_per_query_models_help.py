"""When do models of their own help queries? Where queries are of several kinds; a picture of MAP against k.

Writes k-sweep.svg beside where it is run.
"""

import matplotlib.pyplot as plt

import querywise as qw

plt.switch_backend("Agg")  # a file, no window
plt.rcParams.update({"svg.hashsalt": "querywise", "svg.fonttype": "none"})  # the same file for the same numbers

SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0)
_, axes = plt.subplots(figsize=(6, 3.6))
for kinds, colour in ((1, "#0072B2"), (3, "#D55E00")):
    # A planted world: every kind of query has weights of its own beside those that all share.
    data = qw.make_judged(queries=240, documents=15, features=8, kinds=kinds, noise=0.5)
    train, valid, test = qw.make_folds(data)[0]
    single = qw.Single(qw.RankSVM()).fit(train)
    one = qw.evaluate(single, test, measures="map").mean()["map"]
    # k, the share of the training queries that a query learns from, is chosen on validation data.
    on_valid, on_test = {}, {}
    for k in SHARES:
        ranker = qw.KnnOnline(qw.RankSVM(), k=k).fit(train)
        on_valid[k] = qw.evaluate(ranker, valid, measures="map").mean()["map"]
        on_test[k] = qw.evaluate(ranker, test, measures="map").mean()["map"]
    best = max(on_valid, key=lambda k: on_valid[k])
    compared = qw.compare([single, qw.KnnOnline(qw.RankSVM(), k=best)], train, valid, test, measures="map")
    p = compared.corrected()["KnnOnline"]["map"]
    said = f"{kinds} kind{'s' * (kinds > 1)} of query"
    print(f"{said}: one model {one:.2f}, a model for each query {on_test[best]:.2f}")
    print(
        f"  k chosen on validation data: {best:g}; p {'< 0.001' if p < 0.001 else '> 0.05' if p > 0.05 else '< 0.05'}"
    )
    print("  k:   " + "  ".join(f"{k:4g}" for k in SHARES))
    print("  MAP: " + "  ".join(f"{on_test[k]:.2f}" for k in SHARES))
    axes.plot(SHARES, list(on_test.values()), "o-", color=colour, label=f"a model for each query, {said}")
    axes.axhline(one, color=colour, linestyle="--", label=f"one model, {said}")
axes.set_xlabel("k, the share of the training queries that a query learns from")
axes.set_ylabel("MAP on test queries")
axes.legend(fontsize=8, loc=(0.02, 0.08))
plt.tight_layout()
plt.savefig("k-sweep.svg", metadata={"Date": None})
print("the picture: k-sweep.svg")
