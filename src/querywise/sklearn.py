"""Any ranker as a scikit-learn estimator, for pipelines, searches and cross-validation.

    import sklearn; sklearn.set_config(enable_metadata_routing=True)
    search = GridSearchCV(Ranker(KnnOnline(RankSVM())), {"ranker__k": [0.1, 0.3]}, cv=GroupKFold(5))
    search.fit(X, y, qid=qid, groups=qid)

The query of every row is metadata, `qid`; fit, predict and score request it from scikit-learn automatically.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from querywise.contracts.asking import missing_for
from querywise.data.folds import split_queries
from querywise.data.frames import from_arrays
from querywise.data.judged import Judged
from querywise.data.rows import Missing, require_whole
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.measures.formulas import find_measure
from querywise.methods.table import recommended
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.parameters import unfitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike
    from scipy.sparse import csr_array, sparray, spmatrix
    from sklearn.utils import Tags

    from querywise.contracts import protocols
    from querywise.data.frames import Table

    _Rows: TypeAlias = Floats | csr_array
    Matrix: TypeAlias = ArrayLike | sparray | spmatrix | Table

_SPARSE = ("csr", "csc", "coo")


class Ranker(BaseEstimator):  # type: ignore[misc]  # scikit-learn comes without types
    """A ranker with scikit-learn's fit(X, y), predict(X) and score(X, y), which take the query of every row as `qid`.

    Args:
        ranker: the ranker, of which a copy is fitted on the rows grouped by query; None is `recommended()`. Its
            parameters are `ranker__…`, as in `ranker__learner__l2`.
        measure: the measure whose mean over all queries `score` returns; see docs/measures.md, such as `ndcg@10` or
            `map`.
        validation: the share of the training queries, between 0 and 1, chosen at random, that is held out and
            decides when to stop, for rankers with early stopping, such as LambdaMART; None trains on all queries.
        seed: the seed of that choice.
        gains: False if y has grades, True if it has real values, such as click rates; or the gain of each grade;
            see `from_arrays`.
        without_qid: what to do if no qid is given: `refuse` raises an error; `one query` treats all rows as the
            documents of a single query.

    Its methods take:

    X: one row per (query, document) pair: an array, a sparse matrix or a table of pandas or polars, whose columns are
    then the names of features.
    y: relevance, from 0 (not relevant) up.
    qid: one query id per row; rows of a query need not be contiguous, and scores are in the order of the rows.
    sample_weight: one number per row, from 0 up; in `score`, the same for all rows of a query.
    query_groups: in `fit`, the group of each row's query; queries of one group are never on both sides of `validation`.
    scikit-learn's own `groups`, which a search passes to its splitter, is a separate argument: pass the same values to
    both.

    After fit: `ranker_`, the fitted ranker, which the rest of the library accepts
    (`save(search.best_estimator_.ranker_, "model")`); `n_features_in_`, `feature_names_in_`.

    Raises:
        DataError: Rows without `qid` unless `without_qid` allows them, a validation share outside 0 to 1, and what the
            ranker rejects; scikit-learn's own checks raise its own errors.

    >>> from querywise import RankSVM
    >>> from querywise.sklearn import Ranker
    >>> X, y, qid = [[0.0], [1.0], [0.2], [0.9]], [0, 1, 0, 1], ["a", "a", "b", "b"]
    >>> Ranker(RankSVM()).fit(X, y, qid=qid).score(X, y, qid=qid)
    1.0
    """

    # What a search, a pipeline or a cross-validation passes on without being told to.
    __metadata_request__fit = {"qid": True, "sample_weight": True, "query_groups": True}  # noqa: RUF012
    __metadata_request__predict = {"qid": True}  # noqa: RUF012
    __metadata_request__score = {"qid": True}  # noqa: RUF012

    def __init__(
        self,
        ranker: protocols.Ranker | None = None,
        *,
        measure: str = "ndcg",
        validation: float | None = None,
        seed: int = 0,
        gains: bool | Sequence[float] = False,
        without_qid: Literal["refuse", "one query"] = "refuse",
    ) -> None:
        self.ranker = ranker
        self.measure = measure
        self.validation = validation
        self.seed = seed
        self.gains = gains
        self.without_qid = without_qid

    def fit(
        self,
        X: Matrix,
        y: ArrayLike,
        *,
        qid: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        query_groups: ArrayLike | None = None,
    ) -> Self:
        """Fit a copy of the ranker.

        Args:
            sample_weight: one number per row. If it is the same for all rows of a query, it is the weight of the query;
                else the weight of each document, which few rankers support. Rows of weight 0 are left out. A ranker
                that does not support weights raises DataError.
            query_groups: one text or number per row, the same for all rows of a query: `validation` keeps queries of a
                group on one side.
        """
        find_measure(self.measure)
        ranker = unfitted(recommended() if self.ranker is None else self.ranker)
        rows, labels = validate_data(self, X, y, ensure_min_samples=2, **self._checks())
        if labels.dtype.kind not in "biuf":
            type_of_target(labels, input_name="y", raise_unknown=True)
        data = self._judged(rows, labels, qid, "fit", query_groups)
        if sample_weight is not None:
            data = _weighted(data, _by_row(sample_weight, data))
        train, valid = (data, None) if self.validation is None else self._split(data)
        self.ranker_: protocols.Ranker = ranker.fit(train, valid=valid)
        return self

    def predict(self, X: Matrix, *, qid: ArrayLike | None = None) -> Floats:
        """Return one score per row, in the order of the rows; scores are comparable only within a query."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, **self._checks())
        candidates = self._judged(rows, None, qid, "predict").candidates
        return candidates.in_source_order(self.ranker_.predict(candidates))

    def score(
        self, X: Matrix, y: ArrayLike, *, qid: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the mean of the measure over all queries, weighted if `sample_weight` is given; higher is better."""
        check_is_fitted(self)
        rows, labels = validate_data(self, X, y, reset=False, **self._checks())
        data = self._judged(rows, labels, qid, "score")
        weights = None if sample_weight is None else _by_query(_by_row(sample_weight, data), data)
        scores = self.ranker_.predict(data.candidates)
        table = evaluate(scores, data, measures=[self.measure], order="grouped")
        return float(np.average(table.values[:, 0], weights=weights))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._missing() == "allowed"
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    def _missing(self) -> Missing:
        """Whether rows may hold NaN: where the ranker has a policy for it."""
        return "refused" if self.ranker is None else missing_for(self.ranker)

    def _checks(self) -> dict[str, type | tuple[str, ...] | str]:
        """What scikit-learn checks of rows; NaN is refused in `_judged`, with what can be done about it here."""
        return {"accept_sparse": _SPARSE, "dtype": np.float64, "ensure_all_finite": "allow-nan"}

    def _judged(
        self,
        rows: _Rows,
        labels: Ints | None,
        qid: ArrayLike | None,
        method: str,
        query_groups: ArrayLike | None = None,
    ) -> Judged:
        """Checked rows, grouped by query."""
        if qid is None:
            qid = self._one_query(int(rows.shape[0]), method)
        names = getattr(self, "feature_names_in_", None)
        if self._missing() == "refused":
            _refuse_nan(rows, names)
        return from_arrays(
            rows,
            labels,
            qid=qid,
            gains=self.gains,
            query_groups=query_groups,
            missing=self._missing(),
            feature_names=None if names is None else list(names),
        )

    def _one_query(self, count: int, method: str) -> list[str]:
        if self.without_qid not in ("refuse", "one query"):
            raise DataError(f"Ranker(without_qid={self.without_qid!r}) must be 'refuse' or 'one query'.")
        if self.without_qid == "refuse":
            data = "X" if method == "predict" else "X, y"
            raise DataError(
                f"Ranker.{method} needs the query of every row: {method}({data}, qid=…). In GridSearchCV, "
                "cross_val_score or a Pipeline: call sklearn.set_config(enable_metadata_routing=True) first, and give "
                "qid=… to their fit, predict and score (to cross_val_score: params={'qid': …}).",
                arguments=("qid",),
            )
        return ["all rows"] * count

    def _split(self, data: Judged) -> tuple[Judged, Judged]:
        """What is trained on, and what decides when to stop."""
        share = self.validation
        if share is None or isinstance(share, (bool, str)) or not 0 < share < 1:
            raise DataError(
                f"Ranker(validation={share!r}) must be a share of the queries between 0.0 and 1.0, or None."
            )
        return split_queries(data, share=1 - share, seed=self.seed)


def _refuse_nan(rows: _Rows, names: Sequence[str] | None) -> None:
    """Refuse NaN, with the policies that there are for missing values."""
    if not np.isnan(rows if isinstance(rows, np.ndarray) else rows.data).any():
        return
    try:
        require_whole(rows if isinstance(rows, np.ndarray) else rows.toarray(), None if names is None else tuple(names))
    except DataError as error:
        raise DataError(f"X contains NaN. {error}", arguments=("X",)) from None


def _by_row(sample_weight: ArrayLike, data: Judged) -> Floats:
    """The weight of every document, in the order of the judged set."""
    given = column_or_1d(sample_weight, dtype=np.float64, input_name="sample_weight")
    check_consistent_length(data.labels, given)
    wrong = np.flatnonzero(~(np.isfinite(given) & (given >= 0)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"sample_weight of row {row + 1} is {given[row]:g}; weights are finite numbers from 0 up.",
            arguments=("sample_weight",),
        )
    if not np.any(given):
        raise DataError("All weights of sample_weight are zero: no row counts.", arguments=("sample_weight",))
    order = data.candidates.source_rows
    weights: Floats = given if order is None else given[order]
    return weights


def _by_query(weights: Floats, data: Judged) -> Floats:
    """The weight of every query; refused where rows of a query differ."""
    firsts: Floats = weights[data.candidates.starts[:-1]]
    differs = np.flatnonzero(weights != np.repeat(firsts, data.candidates.sizes))
    if len(differs):
        query = int(data.candidates.query_of_row[differs[0]])
        raise DataError(
            f"sample_weight is {firsts[query]:g} and {weights[differs[0]]:g} in rows of query "
            f"{data.query_ids[query]!r}. A query is measured as a whole: give its rows the same weight.",
            arguments=("sample_weight",),
        )
    return firsts


def _weighted(data: Judged, weights: Floats) -> Judged:
    """Return the data with weights of queries if each query's rows agree, otherwise of documents."""
    candidates = data.candidates
    if not weights.all():
        kept = np.flatnonzero(weights)
        qid = np.array(candidates.query_ids)[candidates.query_of_row[kept]]
        rows, names = candidates.features[kept], candidates.feature_names
        fewer = from_arrays(rows, data.labels[kept], qid=qid, feature_names=names, missing=candidates.missing)
        if (table := candidates.queries) is not None:
            fewer = fewer.with_queries(table)
        return _weighted(fewer if data.gains is None else replace(fewer, gains=data.gains), weights[kept])
    if np.all(weights == weights[0]):  # weights are relative
        return data
    firsts: Floats = weights[candidates.starts[:-1]]
    if np.all(weights == np.repeat(firsts, candidates.sizes)):
        return data.with_weights(firsts)
    return data.with_weights(documents=weights)
