"""The demonstration: the documentation of the reader's own Python, searched, ranked and compared."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from querywise.data.collections import Collection, Document, write_collection
from querywise.data.folds import Fold, Folds, make_folds
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.rankings import class_shares, examples
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.explanations.importance import reasons
from querywise.jobs.origins import ended
from querywise.methods import METHODS
from querywise.report.contents import Origin
from querywise.report.terminal import classes_table, comparison_table, examples_table
from querywise.report.writing import write_report
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.embedding import with_embedded
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import Index, build_index, check_index_folder, save_index
from querywise.retrieval.reading import with_query_vectors
from querywise.retrieval.stdlib import stdlib_collection, stdlib_pages
from querywise.runtime.arrays import Floats
from querywise.runtime.files import make_folder, refuse_link
from querywise.runtime.progress import doing
from querywise.runtime.values import Grid
from querywise.storage import check_model_folder, save

if TYPE_CHECKING:
    from rich.console import RenderableType

BASELINE = "single"
ORACLE = "oracle: true kind"
MEASURES = "map,ndcg@10,mean_ndcg@10"
CHOSEN_BY = "mean_ndcg@10"
KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
SHOWN = KNN[0]
SERVED = "blend"  # the method to try first
EMBEDDER = "lsa"  # needs nothing but the documents
GAMMA, PENALTY = 4.0, 0.03  # of the adapter; to choose them, as `--adapt auto` does, takes longer than all the rest
_KNN_GRID = {"l2": (0.1,), "k": (0.2, 0.35), "prior_l2": (0.0, 0.5), "view": ("top-mean", "gradient:text")}
# Small grids, so that it takes a minute; curvature and views are shared between settings.
GRIDS: dict[str, Grid] = {
    "bm25": {},
    "vectors": {},
    "vectors-adapted": {},
    "rrf": {},
    "weights": {},
    "single": {"l2": (0.01, 0.1, 1.0)},
    "lambdamart": {"leaves": (15,), "learning_rate": (0.1,)},
    "query-classes": {"l2": (0.1,), "view": ("top-mean", "text")},
    **dict.fromkeys(KNN, _KNN_GRID),
    SERVED: {"bag": (1,)},
    ORACLE: {"l2": (0.1,), "known": (True,)},
}


def run(out: Path, *, folds: int = 1, origin: Origin | None = None) -> list[RenderableType]:
    """Build the collection, train, choose on validation data, compare on test queries; leave the files in a folder.

    origin: what the report says of this run.
    """
    make_folder(out)
    check_model_folder(out / "model")
    check_index_folder(out / "index")
    collection, index = _written(out)
    judged, coverage = judged_candidates(collection, index)
    adaptation = Adaptation(collection, index, "by-query", gamma=GAMMA, l2=PENALTY)
    compared, unmoved, shares = _compared(make_folds(judged).first(folds), adaptation, out)
    story = _story(judged, len(index), folds)
    with doing("Tests and tables"):
        found = findings(compared, CHOSEN_BY, left_out=[ORACLE], plain=unmoved)
        page = _reported(found, out / "report", story, origin, collection)
    return [
        story,
        *coverage.lines(),
        comparison_table(compared),
        classes_table(compared, CHOSEN_BY),
        _neighbours(shares, judged),
        *(examples_table(each) for each in examples(compared, SHOWN, CHOSEN_BY)),
        *([] if found.vectors is None else [" ".join(found.vectors.said)]),
        found.verdict,
        found.advice,
        _onward(out, page, folds),
    ]


def _compared(plain: Folds, adaptation: Adaptation, out: Path) -> tuple[Compared, Compared, Floats]:
    """All methods by adapted vectors, the served one by vectors as they are too, and the kinds of its neighbours.

    The index of whole pages has vectors of its own, which no query has learned from: so the latter model is saved.
    """
    chosen = plain.learning(adaptation.fold)
    served: list[Any] = []
    shares: list[Floats] = []

    def observe(fold: Fold, name: str, ranker: Any) -> None:
        if name == SHOWN:
            members = ranker.training_queries(fold.test.candidates)
            shares.append(class_shares(members, fold.train.classes, fold.test.classes))

    kept = Kept(out / "report" / "runs", {})
    compared = compare(
        {name: _fit(name) for name in GRIDS},
        chosen,
        measures=MEASURES,
        baseline=BASELINE,
        observe=observe,
        kept=kept,
        explain=reasons,
    )
    unmoved = compare(
        {SERVED: _fit(SERVED)},
        plain,
        measures=MEASURES,
        observe=lambda fold, name, ranker: served.append(ranker),
        kept=kept.part("plain"),
    )
    save(served[0], out / "model", notes={"method": SERVED})
    return compared, unmoved, np.concatenate(shares)


def _reported(found: Findings, folder: Path, story: str, origin: Origin | None, collection: Collection) -> Path:
    return write_report(
        found,
        folder,
        title="The documentation of this Python, ranked",
        story=story,
        origin=ended(origin),
        titles=lambda ids: {each.id: each.title for each in collection.documents() if each.id in ids},
    )


def _written(out: Path) -> tuple[Collection, Index]:
    """The collection that models are trained on, and its index; the folder gets the index of whole pages to search."""
    for name in ("collection", "index", "model", "report"):
        refuse_link(out / name)
    collection = stdlib_collection()
    write_collection(collection, out / "collection")
    save_index(_indexed(stdlib_pages()), out / "index")
    return _with_index(collection)


def _with_index(collection: Collection) -> tuple[Collection, Index]:
    """The collection with vectors of its queries, and its index."""
    index = _indexed(list(collection.documents()))
    return with_query_vectors(collection, index), index


def _indexed(documents: Sequence[Document]) -> Index:
    """An index by words and by vectors; the vectors are of these documents' own words."""
    with doing("Indexing"):
        index = build_index(documents)
    return with_embedded(index, documents, EMBEDDER)


class Served(NamedTuple):
    """What `serve --demo` looks up beside its model.

    pages: the whole documentation, to search. judged: queries the model has not seen; copied: the index of their
    documents, without first sentences. known: all queries.
    """

    pages: Index
    judged: Judged
    copied: Index
    known: QueryTable


def fitted(folder: Path) -> Served:
    """A fitted ranker, saved in a folder, and what is searched with it."""
    pages = _indexed(stdlib_pages())
    collection, copied = _with_index(stdlib_collection())
    judged, _ = judged_candidates(collection, copied)
    fold = make_folds(judged)[0]
    with doing("Fitting"):
        ranker = METHODS[SERVED].build(bag=1).fit(fold.train, valid=fold.valid)
    save(ranker, folder, notes={"method": SERVED})
    assert collection.queries is not None
    return Served(pages, fold.test, copied, collection.queries)


def _fit(name: str) -> Fit:
    method, grid = METHODS["query-classes" if name == ORACLE else name], GRIDS[name]
    return TunedFit(method.build, grid, measure=CHOSEN_BY)


def _story(judged: Judged, documents: int, folds: int) -> str:
    kinds = Counter(judged.classes)
    return (
        f"The standard library of this Python: {documents} documented modules, classes and functions. "
        f"{len(judged)} queries, each the first sentence of one of them, taken out of its text: "
        + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=str))
        + ". Candidates: the best 50 by BM25 and the best 50 by vectors (latent semantic analysis of the documents), "
        "which the training queries move to where answers lie (vectors-adapted). "
        f"{folds} of five folds: 60 % of the queries to learn from, 20 % to choose parameters on, 20 % to test on."
    )


def _neighbours(shares: Floats, judged: Judged) -> str:
    counts = np.array(list(Counter(judged.classes).values())) / len(judged)
    return (
        f"Of the training queries that made a query's own model ({SHOWN}), {100 * np.nanmean(shares):.0f} % were of "
        f"its kind; drawn blindly it would be {100 * float(counts @ counts):.0f} %."
    )


def _onward(out: Path, page: Path, folds: int) -> str:
    rest = "" if folds == 5 else "\nAll five folds:      querywise demo --folds 5"
    index, model = shlex.quote(str(out / "index")), shlex.quote(str(out / "model"))
    return (
        f"The report:          {page}\n"
        f"Files are in {out}: the collection, an index of the whole pages, and the fitted {SERVED}.\n"
        f'Search them:         querywise search {index} "parse a date" --model {model}{rest}\n'
        f"On your own text:    querywise compare FOLDER --embed lsa --baseline weights --methods rrf,weights,"
        "single,lambdamart,blend --out report/\n"
        f"                     where FOLDER holds corpus.jsonl, queries.jsonl and qrels.tsv like those in "
        f"{out / 'collection'}"
    )
