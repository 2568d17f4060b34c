"""Scores and labels → one row per query, one column per measure."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.judged import Judged
from querywise.data.judgements import Grades, grades_from
from querywise.data.labels import checked_weights
from querywise.data.run_columns import Run
from querywise.display.tables import COLOURS, UP, Frame, as_frame, axes_or_new, finish, plain, table
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.evaluation.foreign import System, is_system, name_of, scorer_of
from querywise.measures.formulas import find_measures
from querywise.measures.order import (
    Flavour,
    RankedList,
    ScoreOrder,
    as_compared,
    check_scores,
    find_flavour,
    ranked_lists,
)
from querywise.runtime.arrays import Floats, frozen
from querywise.runtime.files import PathLike, atomic_text
from querywise.runtime.values import JsonObject, json_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The value of every measure for every query."""

    query_ids: tuple[str, ...]
    measures: tuple[str, ...]
    values: Floats
    flavour: str

    def __len__(self) -> int:
        return len(self.query_ids)

    def __repr__(self) -> str:
        means = ", ".join(f"{measure} {mean:.4f}" for measure, mean in self.mean().items())
        return f"Evaluation({means}; {counted(len(self), 'query', 'queries')}, flavour {self.flavour!r})"

    def _repr_html_(self) -> str:
        quartiles = np.quantile(self.values, (0.25, 0.5, 0.75), axis=0)
        rows = zip(self.measures, *np.vstack([self.values.mean(axis=0), quartiles]).tolist(), strict=True)
        title = f"Evaluation of {counted(len(self), 'query', 'queries')}"
        conventions = f"flavour {self.flavour}: {find_flavour(self.flavour).conventions}"
        headings = ("measure", "mean", "lower quartile", "median", "upper quartile")
        return table(headings, list(rows), title=title, notes=[conventions])

    def __getitem__(self, measure: str) -> Floats:
        """Return one measure's values, one number per query."""
        if measure not in self.measures:
            raise DataError(f"Measure {measure!r} was not evaluated. Evaluated: {', '.join(self.measures)}.")
        return self.values[:, self.measures.index(measure)]

    def mean(self, query_weights: ArrayLike | None = None) -> dict[str, float]:
        """Return the mean of every measure over all queries, unweighted or with one weight per query."""
        if query_weights is None:
            return dict(zip(self.measures, self.values.mean(axis=0).tolist(), strict=True))
        weights = checked_weights(query_weights, self.query_ids, "query")
        means = (weights / weights.sum()) @ self.values
        return dict(zip(self.measures, means.tolist(), strict=True))

    def to_frame(self) -> Frame:
        """Return a row per query: its id and the value of every measure; pandas, else polars, else Arrow."""
        return as_frame({"query": list(self.query_ids), **{each: self[each] for each in self.measures}})

    def plot(self, measure: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot one measure's values by query, sorted, with Matplotlib; by default the first measure."""
        chosen = self.measures[0] if measure is None else measure
        return _draw(self[chosen], chosen, ax)

    def write_csv(self, path: PathLike) -> None:
        """Write one line per query, with values exact to the last bit."""
        with atomic_text(Path(path)) as out:
            table = csv.writer(out, lineterminator="\n")
            table.writerow(["query", *self.measures])
            for query_id, row in zip(self.query_ids, self.values.tolist(), strict=True):
                table.writerow([query_id, *map(repr, row)])

    def as_json(self) -> JsonObject:
        """Return the means and the values by query as JSON."""
        rows = [dict(zip(self.measures, row, strict=True)) for row in self.values.tolist()]
        return {"mean": self.mean(), "queries": dict(zip(self.query_ids, rows, strict=True))}

    def write_json(self, path: PathLike) -> None:
        """Write the flavour, the means and the values by query."""
        with atomic_text(Path(path)) as out:
            out.write(json_text({"flavour": self.flavour, **self.as_json()}))


def evaluate(
    scores: ArrayLike | System,
    data: Judged,
    *,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    max_grade: int | None = None,
    order: ScoreOrder | None = None,
) -> Evaluation:
    """Rank every query's documents by `scores` and evaluate the ranking by the conventions of the flavour.

    Args:
        scores: a number per document, the higher the better; or a system that scores: a fitted ranker, a model of
            LightGBM, XGBoost, CatBoost or scikit-learn, or a function of features. Beside the features, a function's
            parameter `group` gets the number of documents of each query, and `qid` the query of each row.
        data: the judged set.
        measures: names such as `map`, `ndcg@10` or `p@5`, in a list or separated by commas; docs/measures.md has the
            formulas.
        flavour: the evaluation conventions: `standard`, `letor4`, `mslr`, `trec` or `lightgbm`.
        max_grade: the grade that ERR calls perfect; None is the highest there is.
        order: the order of numeric scores, if the rows of a query were apart and have been grouped: "rows", that of the
            input, as `predict(table)` returns them; "grouped", that of `data.candidates`, as `predict(data)` returns
            them. Without it, such scores raise an error.

    Returns:
        An Evaluation, a table of queries × measures; `.mean()` is the unweighted mean over all queries.

    Raises:
        DataError: Scores that are not one finite number per document, and unknown measures and flavours.

    >>> from querywise import evaluate, from_arrays
    >>> data = from_arrays([[1.0], [2.0]], [1, 0], qid=["a", "a"])
    >>> evaluate([0.1, 0.2], data, measures=["map", "p@1"]).mean()
    {'map': 0.5, 'p@1': 0.0}
    >>> evaluate(lambda X: -X[:, 0], data, measures=["map"]).mean()
    {'map': 1.0}
    """
    given: Any = data
    if not isinstance(given, Judged):
        raise DataError(f"Expected a Judged set, which has labels, to evaluate on; found a {type(given).__name__}.")
    if not len(data):
        raise DataError("There is no query to evaluate.")
    given = scores
    values = _asked(scores, data, order) if is_system(scores) else check_scores(given, data.candidates, order)
    found = ranked_lists(values, data, find_flavour(flavour))
    return measure_lists(data.query_ids, found, measures=measures, flavour=flavour, max_grade=max_grade)


def _asked(system: System, data: Judged, given: ScoreOrder | None) -> Floats:
    """Return a system's scores for the documents, grouped by query."""
    if given not in (None, "grouped"):
        raise DataError(
            f"order={given!r} is for scores that are given as numbers. {name_of(system)} is given the documents in the "
            "order of data.candidates, and its scores are taken in this order: leave out order.",
            arguments=("order",),
        )
    return check_scores(scorer_of(system).predict(data.candidates), data.candidates)


def evaluate_run(
    run: Run,
    grades: Grades,
    *,
    measures: str | Sequence[str] = ("map", "ndcg@10"),
    flavour: str = "standard",
    max_grade: int | None = None,
) -> Evaluation:
    """Evaluate a run against all judgments, as trec_eval does; a judged query that is not in the run counts 0.

    >>> run = Run("ours", {"q": {"D1": 2.0, "D2": 1.0}})
    >>> evaluate_run(run, {"q": {"D2": 1, "D3": 1}}, measures=["map", "recall@10"]).mean()
    {'map': 0.25, 'recall@10': 0.5}
    """
    if not grades:
        raise DataError("There is no judged query to evaluate.")
    known, conventions = grades_from(grades), find_flavour(flavour)
    _check_run(run)
    if max_grade is None:  # the same for all runs
        max_grade = max((grade for own in known.values() for grade in own.values()), default=0)
    found = [_ranked(run.scores.get(query, {}), own, conventions) for query, own in known.items()]
    table = measure_lists(tuple(known), found, measures=measures, flavour=flavour, max_grade=max(max_grade, 0))
    there = np.array([bool(run.scores.get(query)) for query in known])
    return replace(table, values=frozen(np.where(there[:, None], table.values, 0.0)))


def measure_lists(
    query_ids: tuple[str, ...],
    lists: Sequence[RankedList],
    *,
    measures: str | Sequence[str],
    flavour: str,
    max_grade: int | None = None,
) -> Evaluation:
    """Evaluate every query's ranked list; `max_grade` is the grade that ERR calls perfect, by default the highest."""
    chosen, conventions = find_measures(measures), find_flavour(flavour)
    if max_grade is None:
        whole = conventions.counts == "judged"
        max_grade = max(int((each.all_grades if whole else each.labels).max(initial=0)) for each in lists)
    conventions = replace(conventions, max_grade=max_grade)
    table = np.array([[measure.of(each, conventions) for measure in chosen] for each in lists])
    return Evaluation(query_ids, tuple(measure.name for measure in chosen), frozen(table), flavour)


def _check_run(run: Run) -> None:
    for query, own in run.scores.items():
        for document, score in own.items():
            if not math.isfinite(score):
                raise DataError(f"Run {run.name}: the score of document {document!r} of query {query!r} is {score}.")


def own_order(scores: Mapping[str, float], flavour: Flavour) -> list[str]:
    """Return the documents of a run's list by score, best first; the flavour decides ties."""
    values = as_compared(np.array(list(scores.values())), flavour)
    documents = list(scores)
    if flavour.ties == "document id":
        turn = sorted(range(len(documents)), key=lambda each: (values[each], documents[each]), reverse=True)
    else:
        turn = np.argsort(-values, kind="stable").tolist()
    return [documents[each] for each in turn]


def _ranked(scores: Mapping[str, float], own: Mapping[str, int], flavour: Flavour) -> RankedList:
    """Return the ranked list of one query of a run."""
    names = own_order(scores, flavour)
    return RankedList(
        np.array([own.get(name, 0) for name in names], np.int64),
        np.array([name in own for name in names], np.bool_),
        np.array([grade for name, grade in own.items() if name not in scores], np.int64),
    )


def _draw(values: Floats, measure: str, ax: Axes | None) -> Axes:
    """Plot one measure's values by query, the highest first, and their mean."""
    axes = axes_or_new(ax)
    ordered = np.sort(values)[::-1]
    places = np.arange(len(ordered) + 1) - 0.5
    axes.stairs(ordered, places, fill=True, color=UP, alpha=0.8)
    mean = float(values.mean())
    axes.axhline(mean, color=COLOURS[0], linestyle="--", linewidth=1.2)
    axes.annotate(
        f"mean {mean:.4f}",
        (1, mean),
        (-4, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
    )
    axes.margins(x=0.01)
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel(f"{len(ordered):,} queries, sorted")
    axes.set_ylabel(plain(measure))
    return finish(axes)
