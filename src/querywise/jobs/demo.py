"""The job of `querywise demo`: search, rank and compare methods on the documentation of the user's own Python."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sysconfig
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from querywise.data.collections import Collection, write_collection
from querywise.data.folds import Fold, Folds, make_folds
from querywise.data.judged import Judged
from querywise.data.query_table import QueryTable
from querywise.errors import QuerywiseError
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.findings import Findings, findings
from querywise.evaluation.rankings import class_shares, examples
from querywise.evaluation.resume import Kept
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.explanations.importance import reasons
from querywise.jobs.first_use import beside
from querywise.methods import METHODS
from querywise.report.contents import Origin
from querywise.report.terminal import answers_table, classes_table, comparison_table, examples_table
from querywise.report.writing import ended, write_report
from querywise.retrieval.adapting import Adaptation
from querywise.retrieval.embedders.lsa import with_projection
from querywise.retrieval.embedding import query_vector, with_embedded
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import Index, build_index, check_index_folder, save_index
from querywise.retrieval.reading import with_query_vectors
from querywise.retrieval.search import answer
from querywise.retrieval.stdlib import stdlib_collection, stdlib_pages
from querywise.runtime.arrays import Floats
from querywise.runtime.compiled import compiling
from querywise.runtime.files import atomic_text, cache_folder, make_folder, read_stored_text, refuse_link
from querywise.runtime.progress import announce, doing, duration
from querywise.runtime.values import Grid
from querywise.storage import check_model_folder, save

if TYPE_CHECKING:
    from rich.console import RenderableType

BASELINE = "single"
ORACLE = "oracle: true kind"
MEASURES = "map,ndcg@10,mean_ndcg@10"
CHOSEN_BY = "mean_ndcg@10"
KNN = ("knn-online", "knn-offline-1", "knn-offline-2")
SERVED = "blend"  # the method to try first
EMBEDDER = "lsa"  # it needs nothing but the documents
_SMALL = "email"  # a package with queries of every kind
_KERNELS = ("retrieval.kernels.add_high", "learners.ranksvm.local_kernels.factorise")  # for text, and for training
QUERY = "open a zip file"  # the first search
_TIMES = "demo.json"  # in the cache folder
_KINDS = [f"{methods}-{folds}" for methods in ("few", "all") for folds in range(1, 6)]  # of timed runs
_FIRST, _WIDE = 5, 64  # documents shown for that search, and characters of each
GAMMA, PENALTY = 4.0, 0.03  # of the adapter; choosing them, as `--adapt auto` does, would take longer than all the rest
_KNN_GRID = {"l2": (0.1,), "k": (0.2, 0.35), "prior_l2": (0.0, 0.5), "view": ("top-mean", "gradient:text")}
# Small grids, so that the demo takes a minute; settings share curvature and views.
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
ALONE = (*KNN, "query-classes", ORACLE)  # trained only with `--all`


def run(
    out: Path, *, folds: int = 1, everything: bool = False, origin: Origin | None = None
) -> Iterator[list[RenderableType]]:
    """Build the collection, train, search, and compare methods on test queries; write all files to a folder.

    Yields the results of a search as soon as a model is trained, then the comparison and what to try next.

    Args:
        out: The folder.
        folds: How many of the five folds to compare on.
        everything: Also compare the methods of ALONE, and print every table.
        origin: The description of this run for the report.

    """
    began, kind = time.monotonic(), f"{'all' if everything else 'few'}-{folds}"
    if last := _known_times().get(kind):
        announce(f"The last time this took {duration(last)}.")
    make_folder(out)
    check_model_folder(out / "model")
    check_index_folder(out / "index")
    with beside(__name__, *_KERNELS):  # not waited for: it stays ahead, as this process reads and embeds much more
        collection, index, pages = _written(out)
        judged, coverage = judged_candidates(collection, index)
        plain = make_folds(judged).first(folds)
        unmoved, ranker = _served(plain)
    save(ranker, out / "model", notes={"method": SERVED})
    yield _searched(pages, ranker)

    kept = Kept(out / "report" / "runs", {})
    compared, shares = _compared(_learning(plain, collection, index), kept, everything)
    story = _story(judged, len(index), folds)
    with doing("Tests and tables"):
        found = findings(compared, CHOSEN_BY, left_out=[ORACLE] if everything else [], plain=unmoved)
        page = _reported(found, out / "report", story, origin, collection)
    more: list[RenderableType] = []
    if everything:
        more += [classes_table(compared, CHOSEN_BY), *(_neighbours(each, judged) for each in shares)]
        more += [examples_table(each) for each in examples(compared, KNN[0], CHOSEN_BY)]
    yield [
        story,
        *(coverage.lines() if everything else []),
        comparison_table(compared, only=None if everything else CHOSEN_BY),
        *more,
        *([] if found.vectors is None else [" ".join(found.vectors.said)]),
        found.verdict,
        *([found.advice] if everything else []),
        _onward(out, page, folds, everything),
        _timed(kind, time.monotonic() - began),
    ]


def _known_times() -> dict[str, float]:
    """Return how many seconds earlier runs took on this machine, by kind; empty if the file cannot be read."""
    try:
        found = json.loads(read_stored_text(cache_folder() / _TIMES))
        known = {kind: float(found[kind]) for kind in _KINDS if kind in found}
        return {kind: seconds for kind, seconds in known.items() if 0 < seconds < math.inf}
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, QuerywiseError):
        return {}


def _timed(kind: str, seconds: float) -> str:
    """Say how long this run took, and store the time for the next one."""
    with contextlib.suppress(OSError, QuerywiseError):
        make_folder(cache_folder())
        with atomic_text(cache_folder() / _TIMES) as file:
            json.dump(_known_times() | {kind: round(seconds, 1)}, file)
    own = compiling.seconds
    told = f", {duration(own)} of it to compile what is kept for the next run" if own >= 1 else ""
    return f"This took {duration(seconds)}{told}."


def rehearse() -> None:
    """Run the demonstration's computations on one package of the library, to compile the kernels."""
    collection, index, pages = _with_indices(Path(sysconfig.get_paths()["stdlib"], _SMALL))
    plain = make_folds(judged_candidates(collection, index)[0]).first(1)
    _, ranker = _served(plain)
    _searched(pages, ranker)
    _compared(_learning(plain, collection, index), None, everything=False)


def _learning(plain: Folds, collection: Collection, index: Index) -> Folds:
    """Return the folds with query vectors adapted to each fold's training queries."""
    return plain.learning(Adaptation(collection, index, "by-query", gamma=GAMMA, l2=PENALTY).fold)


def _served(plain: Folds) -> tuple[Compared, Any]:
    """Train the model to search with, on plain vectors; return its comparison and the model."""
    served: list[Any] = []
    compared = compare(
        {SERVED: _fit(SERVED)},
        plain,
        measures=MEASURES,
        observe=lambda fold, name, ranker: served.append(ranker),
    )
    return compared, served[0]


def _searched(pages: Index, ranker: Any) -> list[RenderableType]:
    """Search whole pages, by the ranker and by words alone."""
    best = answer(pages, QUERY, ranker=ranker, vector=query_vector(pages, QUERY))[:_FIRST]
    first = [each.snippet.partition(". ")[0].rstrip(".") for each in best]  # sentences
    cut = [textwrap.shorten(each, _WIDE, placeholder="…") for each in first]
    shown = [each._replace(title="", snippet=sentence) for each, sentence in zip(best, cut, strict=True)]
    by_words = ", ".join(each.document for each in answer(pages, QUERY, top=_FIRST))
    return [
        f'"{QUERY}" in the documentation of this Python, {len(pages):,} pages:',
        answers_table(shown, f"{SERVED}: words, vectors, and what judged queries taught"),
        f"By words alone (BM25): {by_words}",
    ]


def _compared(chosen: Folds, kept: Kept | None, everything: bool) -> tuple[Compared, list[Floats]]:
    """Compare the methods on adapted vectors; also return, per test query, the share of neighbors of its own kind."""
    shares: list[Floats] = []

    def observe(fold: Fold, name: str, ranker: Any) -> None:
        if name == KNN[0]:
            members = ranker.training_queries(fold.test.candidates)
            shares.append(class_shares(members, fold.train.classes, fold.test.classes))

    compared = compare(
        {name: _fit(name) for name in GRIDS if everything or name not in ALONE},
        chosen,
        measures=MEASURES,
        baseline=BASELINE,
        observe=observe,
        kept=kept,
        explain=reasons,
    )
    return compared, [np.concatenate(shares)] if shares else []


def _reported(found: Findings, folder: Path, story: str, origin: Origin | None, collection: Collection) -> Path:
    return write_report(
        found,
        folder,
        title="The documentation of this Python, ranked",
        story=story,
        origin=ended(origin),
        titles=lambda ids: {each.id: each.title for each in collection.documents() if each.id in ids},
    )


def _written(out: Path) -> tuple[Collection, Index, Index]:
    """Build the collection and both indexes, and write the files to a folder.

    Returns the collection that models are trained on, its index, and the index of whole pages to search.
    """
    for name in ("collection", "index", "model", "report"):
        refuse_link(out / name)
    collection, index, pages = _with_indices()
    write_collection(collection, out / "collection")
    save_index(pages, out / "index")
    return collection, index, pages


def _with_indices(root: Path | None = None) -> tuple[Collection, Index, Index]:
    """Return the collection with vectors of its queries, its index, and the index of whole pages.

    Both indexes use the LSA of the collection, since the model was trained on its vectors.

    Args:
        root: The folder of the library's sources; None is the library of this Python.

    """
    collection, whole = stdlib_collection(root=root), stdlib_pages(root=root)
    documents = list(collection.documents())
    with doing("Indexing"):
        index, pages = build_index(documents), build_index(whole)
    index = with_embedded(index, documents, EMBEDDER)
    return with_query_vectors(collection, index), index, with_embedded(with_projection(pages, index), whole, EMBEDDER)


class Served(NamedTuple):
    """The data that `serve --demo` needs besides its model.

    pages: the index of the whole documentation, to search. judged: queries that the model was not trained on. copied:
    the index of the collection's documents, without first sentences. known: all queries.
    """

    pages: Index
    judged: Judged
    copied: Index
    known: QueryTable


def fitted(folder: Path) -> Served:
    """Fit a ranker, save it in a folder, and return the data to search with it."""
    collection, copied, pages = _with_indices()
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
        f"Of the training queries that made a query's own model ({KNN[0]}), {100 * np.nanmean(shares):.0f} % were of "
        f"its kind; drawn blindly it would be {100 * float(counts @ counts):.0f} %."
    )


def _onward(out: Path, page: Path, folds: int, everything: bool) -> str:
    rest = "" if everything and folds == 5 else "\nAll methods, folds:  querywise demo --all --folds 5"
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


if __name__ == "__main__":
    rehearse()
