"""A model per class of query, and a classifier that predicts a query's class: the baseline QC [geng2008]_."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.answers import Answer, Facts, Place, Stored, picked
from querywise.contracts.asking import AnyRanker, ready
from querywise.contracts.protocols import Learner, Models, QueryView, Ranker
from querywise.data.judged import Candidates, Judged
from querywise.data.query_groups import are_alone
from querywise.errors import DataError
from querywise.learners.local_models import prepared
from querywise.locality.views.looking import looked_at, without_vector
from querywise.rankers.neighbors import fitted_view
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import unfitted
from querywise.runtime.stored import ANY_NUMBER, FITTED, Known, Several, Text, bools, contents, floats, part


@dataclass(eq=False, repr=False)
class QueryClasses(AnyRanker):
    """One model per class of the training queries; a query is classified by a linear SVM on its view.

    The classes come with the queries (`queries.jsonl`: `class`); training queries without one count only for the view
    and the global model. `f1_` is the classifier's macro F1 over five folds of the training queries.

    learner: what each model is, not fitted: RankSVM() or any other learner; all ranking SVMs are trained together.
    view: what a query is classified by, such as TextView(); None is TopMean, the mean features of the single model's 50
    best documents.
    known: use the class given with a query, and classify only queries without one; with the true classes of test
    queries that is an oracle.
    seed: the same seed gives the same classifier, and the same folds to measure it over.

    Refused: with DataError, training queries none of which has a class.

    >>> from querywise import QueryClasses, RankSVM, make_judged, split
    >>> train, valid, test = split(make_judged(50, 10, 4, kinds=2))
    >>> ranker = QueryClasses(RankSVM()).fit(train)
    >>> ranker.classes_, ranker.predict(test).shape
    (('kind 1', 'kind 2'), (100,))
    """

    learner: Learner
    _: KW_ONLY
    view: QueryView | None = None
    known: bool = False
    seed: int = 0

    stored = contents(
        FITTED,
        everyone_=part(Ranker),
        view_=part(QueryView, coordinates="coordinates"),
        classes_=Several(Text(), "classes>0"),
        slopes_=floats("margins", "coordinates"),
        intercepts_=floats("margins"),
        f1_=ANY_NUMBER,
        usable_=bools("classes"),
        models_=part(Models, models="classes"),
    )

    def fit(self, data: Judged, /, *, valid: Judged | None = None) -> Self:
        """Train the classifier and a model per class; a learner that stops early does so on `valid`."""
        names = _classes(data)
        ready = prepared(unfitted(self.learner), data, valid)
        self.everyone_ = ready.everyone
        self.view_ = fitted_view(self.view, data, self.everyone_)
        self.classes_ = tuple(sorted({name for name in names if name is not None}))
        known = np.array([name is not None for name in names])
        number = np.array([self.classes_.index(name) if name is not None else -1 for name in names])
        self._learn_classifier(self.view_.points(data.candidates)[known], number[known], data.groups[known])
        members = csr_array((number[None, :] == np.arange(len(self.classes_))[:, None]).astype(np.float64))
        self.usable_ = np.asarray(members @ (data.pairs > 0).astype(np.float64)).ravel() > 0
        self.models_ = ready.models(members)
        return self

    def _check_stored(self, known: Known) -> None:
        """Up to two classes are told apart by one margin, more by one each."""
        classes = known.sizes["classes"]
        known.tie("margins", classes if classes > 2 else 1, "QueryClasses.slopes_")

    def _learn_classifier(self, points: Floats, number: Ints, groups: Ints) -> None:
        from sklearn.metrics import f1_score
        from sklearn.model_selection import cross_val_predict
        from sklearn.svm import LinearSVC

        self.slopes_ = np.zeros((1, points.shape[1]))
        self.intercepts_ = np.zeros(1)
        self.f1_ = 1.0
        if len(self.classes_) < 2:
            return
        machine = LinearSVC(dual=False, random_state=self.seed).fit(points, number)
        self.slopes_, self.intercepts_ = machine.coef_.copy(), machine.intercept_.copy()
        split = _parts(number, groups, self.seed)
        self.f1_ = float("nan")
        if split:
            guessed = cross_val_predict(LinearSVC(dual=False, random_state=self.seed), points, number, cv=split)
            self.f1_ = float(f1_score(number, guessed, average="macro"))

    def chosen(self, candidates: Candidates, /) -> Ints:
        """The number of the class of each query, given or predicted."""
        given = self._given(ready(self, candidates))
        return given if (given >= 0).all() else np.where(given >= 0, given, self._predicted(candidates))

    def _predicted(self, candidates: Candidates) -> Ints:
        margins = self.view_.points(candidates) @ self.slopes_.T + self.intercepts_
        two = margins.shape[1] == 1
        found = (margins[:, 0] > 0).astype(np.int64) if two and len(self.classes_) > 1 else np.argmax(margins, axis=1)
        return np.asarray(found, dtype=np.int64)

    def _given(self, candidates: Candidates) -> Ints:
        """The number of the class given with each query, where `known` is set; −1 otherwise."""
        table = candidates.queries
        if not self.known or table is None or table.classes is None:
            return np.full(len(candidates), -1, dtype=np.int64)
        numbers = {name: number for number, name in enumerate(self.classes_)}
        return np.array([numbers.get(name, -1) if name is not None else -1 for name in table.classes], dtype=np.int64)

    def several_models(self) -> Models:
        """The models of the classes."""
        return self.models_

    def _answer(self, seen: Candidates, /) -> Answer:
        """The model of each query's class; the global one where the class has no model."""

        def chosen() -> Ints:
            found = self.chosen(seen)
            return np.where(self.usable_[found], found, -1)

        return picked(
            seen,
            self.everyone_,
            self.models_,
            Stored(lambda number: f"queries of class {self.classes_[number]}", self.usable_),
            chosen,
            place=Place(
                lambda: looked_at(self.view_),
                classes=self.classes_ if self.known else (),
                vectorless=lambda: without_vector(seen, self.view_) & (self._given(seen) < 0),
            ),
            facts=lambda: Facts(f1=self.f1_),
        )


def _classes(data: Judged) -> tuple[str | None, ...]:
    table = data.candidates.queries
    if table is None or table.classes is None or not any(table.classes):
        raise DataError(
            "QueryClasses needs the class of the training queries, and these have none. Give a queries.jsonl whose "
            'lines have a "class": data.with_queries(read_queries(path)).',
            arguments=("queries",),
        )
    return table.classes


def _parts(number: Ints, groups: Ints, seed: int) -> list[tuple[Ints, Ints]]:
    """Parts for cross-validation, each as what is learned from and what is held out; none where classes are too small.

    No group of queries is on both sides.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    folds = min(5, *(len(np.unique(groups[number == each])) for each in np.unique(number)))
    if folds < 2:
        return []
    alone, rows = are_alone(groups), np.arange(len(number))
    split = (StratifiedKFold if alone else StratifiedGroupKFold)(folds, shuffle=True, random_state=seed)
    parts = list(split.split(rows, number, None if alone else groups))
    learnable = all(len(held) and len(np.unique(number[seen])) > 1 for seen, held in parts)
    return parts if learnable else []
