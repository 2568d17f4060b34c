"""A click log split in two for comparisons: methods learn from earlier pages, and clicks on later ones evaluate them.

The evaluation uses judgments from the last fifth of the pages, debiased like those that methods learn from, on queries
that nothing was trained on. So whether debiasing helps is tested by clicks that no training saw, and by people if they
gave grades. A method is compared with itself on clicks over impressions, itself on pairs by inverse propensity, and
LightGBM and XGBoost with their own position bias options, trained as their users would: a group for each page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from querywise.clicks.folder import PAGES, PEOPLE, names_of
from querywise.clicks.identifiable import Knowledge, what_is_known
from querywise.clicks.impressions import Impressions
from querywise.clicks.judgments import Judgments, judge, preferences, preferred
from querywise.clicks.models import EXAMINED, looked_up
from querywise.clicks.readers import read_clicks
from querywise.contracts.answers import Scorer
from querywise.contracts.protocols import Fittable
from querywise.data.click_judgments import WEIGHTS, ClickGain, Gains, is_click_folder, read_manifest, with_gains
from querywise.data.folds import Fold
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import Grades, grades_from
from querywise.data.query_table import read_queries
from querywise.errors import DataError
from querywise.evaluation.foreign import Foreign, System
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import Tuned
from querywise.learners.trees.growth import lightgbm
from querywise.retrieval.adapting import AdaptedFold, taught_by
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.files import parse_json, read_text
from querywise.runtime.parameters import Package
from querywise.runtime.progress import doing
from querywise.runtime.threads import cores

NAIVE, PAIRS = "{}, naive clicks", "{}, pairs by propensity"
LIGHTGBM, XGBOOST_UNBIASED = "lightgbm position", "xgboost unbiased"
XGBOOST = Package("xgboost", "pip install 'querywise[peers]'")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The two parts of a log, judged.

    Attributes:
        model: The click model that produces the judgments.
        known: What is known about position bias from the whole log.
        before: What is known from its earlier pages, `earlier`.
        names: Ids of queries by their texts.
        gains, naive: Judgments from the earlier pages, for training.
        later: Judgments from the later pages.
        weigh: Whether queries are weighted by certainty in training.
        people: Human grades.

    """

    model: str
    known: Knowledge
    before: Knowledge
    earlier: Impressions
    names: Mapping[str, str]
    gains: Gains
    naive: Gains
    later: Gains
    weigh: bool
    people: Grades

    def fold(self, fold: Fold) -> Fold:
        """Return a fold whose test part is judged by later clicks, and the others by earlier ones."""
        train, valid = (with_gains(part, self.gains, weigh=self.weigh) for part in fold[:2])
        test, taught = with_gains(fold.test, self.later, weigh=False), taught_by(fold)
        if taught is None:
            return Fold(train, valid, test)
        place = {query: number for number, query in enumerate(fold.test.query_ids)}
        nearest = taught.nearest[[place[query] for query in test.query_ids]]
        return AdaptedFold.of((train, valid, test), taught._replace(nearest=nearest))

    def systems(self, name: str, fit: Fit) -> dict[str, Fit]:
        """Return the systems that a method is compared with: itself on raw clicks, pairs, and other libraries."""
        if self.model not in (*EXAMINED, "propensity"):
            return {}
        ways: dict[str, Fit] = {NAIVE.format(name): Relearned(self, fit, "naive")}
        ways |= {PAIRS.format(name): Relearned(self, fit, "pairs"), LIGHTGBM: ByPages(self, LIGHTGBM)}
        return ways if XGBOOST.missing("") else ways | {XGBOOST_UNBIASED: ByPages(self, XGBOOST_UNBIASED)}

    def judged_by_people(self, test: Judged) -> tuple[Judged, Ints]:
        """Return the queries with human grades, judged by them, and the rows of these queries."""
        own = [self.people.get(query, {}) for query in test.query_ids]
        kept = [query for query, grades in enumerate(own) if any(grades.values())]
        documents, starts = test.candidates.document_ids, test.candidates.starts
        assert documents is not None
        rows = np.concatenate([np.arange(starts[query], starts[query + 1]) for query in kept] or [starts[:0]])
        query_of_row = test.candidates.query_of_row
        given = [own[query_of_row[row]].get(documents[row], -1) for row in rows.tolist()]
        labels, bare = np.array(given, np.int64), replace(test.select(kept), gains=None)
        return replace(bare, labels=np.maximum(labels, 0), judged=labels >= 0), rows


@dataclass(frozen=True, eq=False)
class Relearned:
    """A method fitted on raw clicks, or on pairs by inverse propensity, of the same queries."""

    held: HeldOut
    fit: Fit
    how: Literal["naive", "pairs"]

    def __call__(self, train: Judged, valid: Judged) -> Scorer | Tuned[Fittable]:
        """Fit the method on this version of both parts."""
        return self.fit(self._made(train), self._made(valid))

    def _made(self, part: Judged) -> Judged:
        if self.how == "naive":
            return with_gains(part, self.held.naive, weigh=self.held.weigh)
        own = rows_in(part.candidates, self.held.earlier, self.held.names)
        page = self.held.earlier.page_of_row
        pages = np.flatnonzero(np.bincount(page[own >= 0], minlength=len(self.held.earlier)))
        log = self.held.earlier.select(pages)
        return preferred(preferences(log, self.held.before), log, part.candidates, self.held.names)


@dataclass(frozen=True, eq=False)
class ByPages:
    """LightGBM or XGBoost on the pages of the training queries."""

    held: HeldOut
    name: str

    def __call__(self, train: Judged, valid: Judged) -> Scorer:
        """Fit the trees; the validation part is ignored."""
        log = self.held.earlier
        pages = pages_with_a_click(train.candidates.features, log, rows_in(train.candidates, log, self.held.names))
        if not len(pages.sizes):
            raise DataError(f"{self.name}: no page with a click belongs to the training queries and their candidates.")
        grow = lightgbm_by_position if self.name == LIGHTGBM else xgboost_unbiased
        return Foreign(self.name, grow(pages, Trees(threads=cores())))


def twins_in(names: Sequence[str]) -> tuple[str, str]:
    """Return the method that is compared with itself on raw clicks, and that twin; empty strings without one."""
    return next(((name, NAIVE.format(name)) for name in names if NAIVE.format(name) in names), ("", ""))


def rows_in(candidates: Candidates, log: Impressions, names: Mapping[str, str]) -> Ints:
    """Return every log row's index in candidates, −1 if absent; `names` are query ids by texts in the log."""
    assert candidates.document_ids is not None
    number = {each: place for place, each in enumerate(log.documents)}
    document = np.array([number.get(each, -1) for each in candidates.document_ids], np.int64)
    place = {each: query for query, each in enumerate(candidates.query_ids)}
    query = np.array([place.get(names.get(text, text), -1) for text in log.queries], np.int64)
    width, there = len(log.documents), np.flatnonzero(document >= 0)
    keys = candidates.query_of_row[there] * width + document[there]
    order = np.argsort(keys)
    wanted = query[log.query[log.page_of_row]] * width + log.document
    wanted[query[log.query[log.page_of_row]] < 0] = -1
    return looked_up(keys[order], there[order].astype(np.float64), wanted, -1.0).astype(np.int64)


def held_out(folder: Path) -> HeldOut | None:
    """Split the log of a folder of judgments in two; return None for other data, and for pairs."""
    if not is_click_folder(folder) or (folder / WEIGHTS).is_file():
        return None
    if not (folder / PAGES).is_file():
        raise DataError(
            f"{folder}: the pages of the log are missing, so judgments cannot be tested on later pages. With Arrow "
            "installed (pip "
            "install 'querywise[parquet]'), `querywise clicks` writes them too."
        )
    notes, names = read_manifest(folder), names_of(read_queries(folder / "queries.jsonl"))[0]
    with doing("Judging earlier and later pages"):
        log = read_clicks(folder / PAGES)
        known, model = what_is_known(log), str(notes.get("model"))
        earlier, later = log.split()
        before = what_is_known(earlier)
        gains, naive = (_gains(earlier, judge(earlier, by, before), names) for by in (model, "document-ctr"))
        judges = _gains(later, judge(later, model, known), names)
        people = _people(folder / PEOPLE) if (folder / PEOPLE).is_file() else {}
        return HeldOut(model, known, before, earlier, names, gains, naive, judges, notes.get("weights") is True, people)


def _people(path: Path) -> Grades:
    found: Any = parse_json(read_text(path), path)
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected query → document → grade; found {found!r:.60}.")
    try:
        return grades_from(found)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _gains(log: Impressions, found: Judgments, names: Mapping[str, str]) -> Gains:
    """Return the judgments by the ids of queries and documents."""
    labels, gains = found.values().tolist(), dict[str, dict[str, ClickGain]]()
    for row, (query, document) in enumerate(zip(found.query.tolist(), found.document.tolist(), strict=True)):
        own = gains.setdefault(names.get(log.queries[query], log.queries[query]), {})
        own[log.documents[document]] = ClickGain(float(found.gain[row]), float(found.error[row]), labels[row])
    return gains


class Trees(NamedTuple):
    """The settings of the trees: their number, leaves, fewest rows per leaf, and learning rate."""

    trees: int = 100
    leaves: int = 15
    rows: int = 20
    rate: float = 0.1
    threads: int = 1


class Pages(NamedTuple):
    """Pages with a click, in the form that these libraries accept: a row per document, and the size of each page."""

    features: Floats
    clicked: Ints
    position: Ints
    sizes: Ints


def pages_with_a_click(features: Floats, log: Impressions, rows: Ints) -> Pages:
    """Return the pages of a log; `rows` has the feature row of every document shown, −1 for those to leave out."""
    known = rows >= 0
    page = log.page_of_row
    told = np.bincount(page[known & log.clicked], minlength=len(log)) > 0
    kept = np.flatnonzero(known & told[page])
    sizes = np.bincount(page[kept], minlength=len(log))
    clicked, position = log.clicked[kept].astype(np.int64), log.position[kept].astype(np.int64) - 1
    return Pages(features[rows[kept]], clicked, position, sizes[sizes > 0])


def lightgbm_by_position(pages: Pages, how: Trees) -> System:
    """Train LightGBM's lambdarank with the position of every row."""
    data = lightgbm().Dataset(
        pages.features, pages.clicked, group=pages.sizes, position=pages.position, params={"verbosity": -1}
    )
    settings = {
        "objective": "lambdarank",
        "lambdarank_position_bias_regularization": 1.0,
        "num_leaves": how.leaves,
        "min_data_in_leaf": how.rows,
        "learning_rate": how.rate,
        "num_threads": how.threads,
        "verbosity": -1,
    }
    grown: System = lightgbm().train(settings, data, how.trees)
    return grown


def xgboost_unbiased(pages: Pages, how: Trees) -> System:
    """Train XGBoost's rank:ndcg with lambdarank_unbiased, which takes the order of a group's rows as positions."""
    xgboost = XGBOOST.load("A comparison with XGBoost")
    query = np.repeat(np.arange(len(pages.sizes)), pages.sizes)
    data = xgboost.DMatrix(pages.features, label=pages.clicked, qid=query)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": how.leaves,
        "eta": how.rate,
        "tree_method": "hist",
        "nthread": how.threads,
        "verbosity": 0,
    }
    grown: System = xgboost.train(settings, data, how.trees)
    return grown
