"""More training queries than the first fit had: judged ones that are added later, and a log without judgments.

`python -m benchmarks.more_queries ../shared/data/MQ2008 ../shared/data/OHSUMED` prints two tables, measured on the
validation queries of every fold by NDCG@10 and tested by paired t-tests over them.

The first adds the last 10, 25 and 50 % of the training queries, in an order drawn at random, to KNN Online
(`KnnOnline.add`), against a ranker without them and one fitted on all. The differences of scores between the latter
two, root mean square and largest, are in units of the standard deviation of scores, all of them less the mean score of
the query. The second fits what needs no judgments, the scale of a view and the centers of clusters, on a log beside the
training queries: what 25 % or 100 % of the training queries leave over, and the test queries, all without labels. The
view of a text collection is of the queries' texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from querywise import Judged, KnnOffline2, KnnOnline, RankSVM, evaluate
from querywise.data.folds import Fold, Folds
from querywise.data.judged import concatenate
from querywise.evaluation.significance import paired_t_test
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean
from querywise.rankers.knn import OfflineModels
from querywise.rankers.neighbors import Locality, neighborhood_or_nearest
from querywise.retrieval.reading import folds_of, is_collection
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import unfitted

ADDED = (0.1, 0.25, 0.5)
LABELLED = (0.25, 1.0)
MODELS = 20
MEASURE = "ndcg@10"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("data", type=Path, nargs="+")
    asked = options.parse_args()
    print(f"{MEASURE} | added | added later | without | p | fitted on all | p | difference of scores | largest")
    for data in asked.data:
        for line in added_later(data.name, folds_of(data, None)):
            print(line, flush=True)
    print(f"\n{MEASURE} | labelled | what | without the log | with it | p")
    for data in asked.data:
        view = TextView() if is_collection(data) else TopMean()
        for line in with_log(data.name, folds_of(data, None), view):
            print(line, flush=True)


def shuffled(data: Judged, share: float) -> tuple[Judged, Judged]:
    """A share of the queries at random, and the others."""
    order = np.random.default_rng(0).permutation(len(data))
    cut = round(share * len(data))
    return data.select(order[:cut]), data.select(order[cut:])


def values(ranker: Any, fold: Fold) -> Floats:
    return evaluate(ranker, fold.valid, measures=[MEASURE])[MEASURE]


def centered(scores: Floats, data: Judged) -> Floats:
    """Scores less the mean of their query, since they are comparable only within it."""
    owner, sizes = data.candidates.query_of_row, np.maximum(data.candidates.sizes, 1)
    return scores - (np.bincount(owner, scores, minlength=len(data)) / sizes)[owner]


def added_later(name: str, folds: Folds) -> Iterator[str]:
    """A line for every share of training queries that come later."""
    for share in ADDED:
        found: list[list[Floats]] = []
        scores: list[Floats] = []
        for fold in folds:
            first, later = shuffled(fold.train, 1 - share)
            ranker = KnnOnline(RankSVM()).fit(first)
            rankers = ranker, ranker.add(later), KnnOnline(RankSVM()).fit(concatenate([first, later]))
            later_scores, anew_scores = (centered(each.predict(fold.valid), fold.valid) for each in rankers[1:])
            scores.append((later_scores - anew_scores) / anew_scores.std())
            found.append([values(each, fold) for each in rankers])
        without, added, anew = (np.concatenate(each) for each in zip(*found, strict=True))
        tested = " | ".join(f"{each.mean():.4f} | {paired_t_test(added, each).p:.2g}" for each in (without, anew))
        away = np.concatenate(scores)
        size = f"{np.sqrt((away**2).mean()):.2f} | {np.abs(away).max():.1f}"
        yield f"{name}, {len(added)} queries | {share:.0%} | {added.mean():.4f} | {tested} | {size}"


@dataclass(eq=False)
class WithLog:
    """A view that is fitted on the training queries and those of a log, whose labels no view looks at."""

    view: Any
    log: Judged

    def by(self, ranker: Any, /) -> WithLog:
        """Return the same for the view with this reference, if it has none."""
        return WithLog(self.view.by(ranker), self.log) if hasattr(self.view, "by") else self

    def fit(self, data: Judged, /) -> Any:
        """Return the view itself, fitted on both."""
        return unfitted(self.view).fit(concatenate([data, self.log]))

    def points(self, candidates: Any, /) -> Floats:
        """Never needed."""
        raise NotImplementedError("fit returns the view itself")


class LoggedModels(OfflineModels):
    """Models around the centers of clusters of the training queries and those of a log."""

    log: Judged

    def _centres(self, points: Floats) -> Floats:
        return super()._centres(
            np.concatenate([points, self.locality.somewhere(self.locality.points(self.log.candidates))])
        )


def with_log(name: str, folds: Folds, view: Any) -> Iterator[str]:
    """Two lines for each share of labelled training queries: KNN Online's view by the log, and Offline-2's clusters."""
    for share in LABELLED:
        found: dict[str, list[tuple[Floats, Floats]]] = {}
        for fold in folds:
            train, left = shuffled(fold.train, share)
            log = concatenate([left, fold.test])
            logged = WithLog(view, log)
            by_view = [KnnOnline(RankSVM(), view=each).fit(train) for each in (view, logged)]
            found.setdefault("view", []).append((values(by_view[0], fold), values(by_view[1], fold)))
            by_cluster = [clustered(train, view, each) for each in (None, log)]
            found.setdefault("clusters", []).append((values(by_cluster[0], fold), values(by_cluster[1], fold)))
        for what, each in found.items():
            without, with_it = (np.concatenate(part) for part in zip(*each, strict=True))
            p = paired_t_test(with_it, without).p
            means = f"{without.mean():.4f} | {with_it.mean():.4f} | {p:.2f}"
            yield f"{name}, {len(without)} queries | {share:.0%} | {what} | {means}"


def clustered(train: Judged, view: Any, log: Judged | None) -> KnnOffline2:
    """KNN Offline-2 with a model for each cluster of the training queries, or of these and a log."""
    models = min(MODELS, len(train))
    ranker = KnnOffline2(RankSVM(), view=view, models=models)
    if log is None:
        return ranker.fit(train)
    locality = Locality(view, neighborhood_or_nearest(None, ranker.k), ranker.back_off)
    ranker.offline_ = LoggedModels(locality, models, ranker.seed)
    ranker.offline_.log = log
    ranker.offline_.fit(train, RankSVM(), None)
    ranker._remember_features(train)
    return ranker


if __name__ == "__main__":
    main()
