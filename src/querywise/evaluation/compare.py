"""Several rankers on the same folds: fitted, scored on the test queries, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from querywise.data.folds import Fold
from querywise.data.judged import Judged, concatenate
from querywise.data.labels import require_same_labels
from querywise.data.run_columns import run_columns
from querywise.errors import DataError
from querywise.evaluation.compared import Compared
from querywise.evaluation.edges import hint_at
from querywise.evaluation.foreign import System
from querywise.evaluation.leaks import Learned, known_of
from querywise.evaluation.pace import FOLDS, Pace
from querywise.evaluation.reasons import Explain
from querywise.evaluation.resume import Kept
from querywise.evaluation.systems import FoldsGiven, folds_of, systems_of
from querywise.evaluation.trained import Fit, Observe, Trained, train
from querywise.measures.formulas import find_measures
from querywise.retrieval.twins import Facts
from querywise.runtime.cache import caching
from querywise.runtime.progress import doing
from querywise.runtime.workers import ThisProcess, workers


def compare(
    systems: Mapping[str, Fit | System] | Sequence[Fit | System],
    folds: FoldsGiven | Judged | None = None,
    valid: Judged | None = None,
    test: Judged | None = None,
    *,
    train: Judged | None = None,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    baseline: str | System | None = None,
    observe: Observe | None = None,
    kept: Kept | None = None,
    explain: Explain | None = None,
) -> Compared:
    """Fit every system on every fold and score the fold's test queries; the first is the baseline, or the one named.

    systems: in a list, or by name. Each is a ranker (one that is not fitted yet is fitted on `train`, with `valid` to
    decide when it stops; a fitted one is used as it is, and the table says so), a model of LightGBM, XGBoost, CatBoost
    or scikit-learn (the same), a function of features (its parameters `group` and `qid` get the sizes of the groups and
    the query of each row), or a function of a training and a validation part that gives a fitted ranker.
    folds: folds, as `make_folds` makes them or a list of `(train, valid, test)`; one fold; or in its place train, valid
    and test. Where all systems are fitted, `test` is enough.
    train: the training part, instead of folds; also as the second argument.
    valid, test: the validation and the test part beside it.
    measures: names such as `map` or `ndcg@10`, in a list or with commas between; docs/measures.md has the formulas.
    flavour: whose conventions count: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.
    baseline: what the others are compared with, by name or as the system itself; None is the first.
    observe: called with the fold, the name and every fitted ranker, in this process.
    kept: where finished parts are stored, and read from if they are there already.
    explain: why answers to test queries are as they are, for a report; `explanations.reasons.reasons` finds it out.

    Returns: Compared, which prints means, differences from the baseline and p of paired tests, corrected by Holm;
    `.to_frame()` has them as a table, `.evaluations` the values by query.

    Refused: with DataError, no system or no fold, what gives no scores, and a baseline that is not among them.

    >>> from querywise import RankSVM, compare, make_judged, split
    >>> train, valid, test = split(make_judged(30, 10, 4))
    >>> found = compare({"svm": RankSVM(), "first feature": lambda X: X[:, 0]}, train, valid, test, measures="map")
    >>> found.names, found.baseline, len(found.judged)
    (('svm', 'first feature'), 'svm', 6)
    """
    known = systems_of(systems)
    fits = known.fits
    folds = folds_of(train if folds is None else folds, valid, test, fitted_before=len(known.given) == len(fits))
    base = find_baseline(fits, known.name_of(baseline))
    if not len(folds):
        raise DataError("There is nothing to compare: no fold was given.")
    # A fitted ranker is shown to an observer where it was fitted.
    pool = workers() if observe is None else ThisProcess()
    pace = Pace(len(folds), fits, alone=pool.parts == 1)

    def one(number: int) -> tuple[Judged, dict[str, Trained], tuple[Facts, Facts]]:
        fold = folds[number]
        require_same_labels(fold)
        found = {} if kept is None else {name: kept.get(number, name, fold) for name in fits}
        missing = [name for name in fits if found.get(name) is None]
        pace.begin_fold(fold, missing)
        with caching():
            asked = [fits[name] for name in missing]
            results = pool.stream(_trained, missing, asked, shared=(fold, observe, flavour, explain))
            for name, done in zip(missing, results, strict=True):
                found[name] = done
                if kept is not None:
                    kept.put(number, name, fold, done)
                pace.end_method(name)
        pace.end_fold(number, fold)
        every = {name: each for name, each in found.items() if each is not None}
        return _without_features(fold.test), every, known_of(fold)

    parts = pool.together(one, range(len(folds)), FOLDS)
    tests, facts = [test for test, _, _ in parts], [each for _, _, each in parts]
    compared = Compared(
        judged=concatenate(tests),
        fold_of=np.repeat(np.arange(len(tests)), [len(each) for each in tests]),
        trained={name: tuple(_costs(found[name], name in known.given) for _, found, _ in parts) for name in fits},
        baseline=base,
        measures=tuple(measure.name for measure in find_measures(measures)),
        flavour=flavour,
        given=known.given,
        learned=Learned.of(facts) if len(known.given) < len(fits) else None,
    )
    hint_at(compared.edges)
    return compared


def _costs(trained: Trained, given: bool) -> Trained:
    """The same, without a time of training where it was not trained here."""
    return replace(trained, fit_seconds=np.nan) if given else trained


def _trained(
    name: str, fit: Fit, fold: Fold, observe: Observe | None, flavour: str, explain: Explain | None
) -> Trained:
    with doing(name):
        return train(name, fit, fold, observe, flavour=flavour, explain=explain)


def find_baseline(fits: Mapping[str, Fit], name: str | None) -> str:
    """What the others are compared with: the one named, or the first."""
    if not fits:
        raise DataError("There is nothing to compare: no ranker was given.")
    if name is not None and name not in fits:
        raise DataError(f"The baseline {name!r} is not among the methods: {', '.join(fits)}.")
    return next(iter(fits)) if name is None else name


def _without_features(data: Judged) -> Judged:
    names = data.feature_names or ()
    kept = [column for run in run_columns(names) for column in run[1:]]  # who found what, which coverage counts
    return replace(
        data,
        candidates=replace(
            data.candidates,
            features=data.candidates.features[:, kept],
            feature_names=tuple(names[column] for column in kept) or None,
            source_rows=None,
        ),
    )
