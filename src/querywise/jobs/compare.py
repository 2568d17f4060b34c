"""The job of `querywise compare`: methods by name and other systems' scores, on folds, to a report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from querywise.clicks.held_out import HeldOut, twins_in
from querywise.data.folds import Folds
from querywise.data.judged import Judged
from querywise.data.judgements import Grades, read_grades
from querywise.data.run_columns import Run
from querywise.data.runs import is_run, read_run, scores_in
from querywise.errors import DataError
from querywise.evaluation.compare import Compared, compare, find_baseline
from querywise.evaluation.findings import Findings, findings, with_curves
from querywise.evaluation.human import by_humans, debiasing
from querywise.evaluation.learning_curves import FEWEST, curves_up_to, sizes_for, training_queries
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import find_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit, without_hints
from querywise.explanations.importance import reasons
from querywise.measures.formulas import find_measures
from querywise.measures.score_files import read_scores
from querywise.methods import TEXT_VIEW, Method, current_name, find_method
from querywise.rankers.single import GivenScores
from querywise.report.contents import Origin, Titles
from querywise.report.writing import check_report_folder, ended, write_report
from querywise.retrieval.adapting import plain_fold
from querywise.runtime.files import make_folder
from querywise.runtime.locks import locked
from querywise.runtime.progress import announce, doing, keeping
from querywise.runtime.values import Grid, JsonObject, Settings


@dataclass(frozen=True)
class CompareOptions:
    """What to compare, and how.

    Attributes:
        scores: Texts like `ours=run.trec`.
        measures: Names separated by commas; the first one chooses parameters and decides the verdict.
        fixed: Settings of all methods.
        curves: Also compare with fewer training queries.
        plain: Also compare with plain query vectors, if these learn.
        human: A file of human judgments of some of the queries: these decide, and the labels of the data are taken to
            be cheap ones.

    """

    methods: tuple[str, ...]
    scores: tuple[str, ...] = ()
    measures: str = "map,ndcg@10,mean_ndcg"
    flavour: str = "standard"
    test: str = "t"
    baseline: str | None = None
    fixed: Settings = field(default_factory=dict)
    curves: bool = False
    plain: bool = False
    human: Path | None = None

    @property
    def measure(self) -> str:
        """The first of the measures."""
        return find_measures(self.measures)[0].name


def run(
    asked: CompareOptions,
    folds: Folds,
    out: Path | None,
    *,
    title: str,
    origin: Origin | None = None,
    titles: Titles | None = None,
    clicks: HeldOut | None = None,
) -> tuple[Findings, Path | None]:
    """Compare; with an output folder, store finished results there, write a report and return its path.

    If learning curves are requested, the report is written before them, and written again with them. `origin` describes
    this run for the report, and `titles` are of documents, by id. `clicks` has the later clicks that judge methods
    trained on clicks; the first method is compared with itself on raw clicks.
    """
    find_test(asked.test)
    people = _people(asked)  # first: the file may be invalid
    chosen = [find_method(name, peers=True) for name in asked.methods]
    files = _files(asked, chosen)
    seeds = {method.name: _seeds(method, chosen, asked) for method in chosen}
    fits: dict[str, Fit] = {method.name: _fitting(method, asked, seeds[method.name]) for method in chosen}
    given, runs = _given(files, folds)
    folds = folds if clicks is None else folds.then(clicks.fold)
    fits = (clicks.systems(chosen[0].name, fits[chosen[0].name]) if clicks and chosen else {}) | fits | given
    if asked.baseline is not None and asked.baseline not in fits:
        asked = replace(asked, baseline=current_name(asked.baseline))
    settings = {method.name: _settings(method, asked, seeds[method.name]) for method in chosen}
    find_baseline(fits, asked.baseline)

    def written(found: Findings) -> Path | None:
        return None if out is None else write_report(found, out, title=title, origin=ended(origin), titles=titles)

    with _writing(out), contextlib.ExitStack() as stack:
        counts = _counts(folds) if asked.curves else []
        kept = None if out is None else Kept(out / "runs", settings)
        if kept is not None:
            runs_of_each = len(folds) * ((len(sizes_for(counts)) if counts else 1) + asked.plain)
            stack.enter_context(keeping(partial(kept.told, runs_of_each)))
        compared = compare(
            fits,
            folds,
            measures=asked.measures,
            flavour=asked.flavour,
            baseline=asked.baseline,
            kept=kept,
            explain=None if out is None else reasons,
        )
        compared = replace(compared, runs=runs)
        learning = {method.name: fits[method.name] for method in chosen}
        plain = _plain(compared, learning, folds, kept) if asked.plain else None
        with doing("Tests and tables"):
            found = _found(compared, asked, people, plain, clicks)
            page = written(found)
        if asked.curves:
            found = with_curves(found, curves_up_to(compared, learning, folds, counts, kept=kept))
            page = written(found)
        return found, page


def _people(asked: CompareOptions) -> Grades | None:
    """Read the human judgments, if any."""
    if asked.human is not None and asked.test != "t":
        said = f"test={asked.test!r}: with judgments by people the test is a t-test, test='t'."
        raise DataError(said, arguments=("test",))
    return None if asked.human is None else read_grades(asked.human)


def _plain(compared: Compared, learning: Mapping[str, Fit], folds: Folds, kept: Kept | None) -> Compared:
    """Compare the same methods with plain query vectors."""
    announce("The same with query vectors as they are")
    with without_hints():
        return compare(
            learning,
            folds.learning(plain_fold),
            measures=compared.measures,
            flavour=compared.flavour,
            kept=None if kept is None else kept.part("plain"),
        )


def _found(
    compared: Compared, asked: CompareOptions, people: Grades | None, plain: Compared | None, clicks: HeldOut | None
) -> Findings:
    """Return the findings, by human judgments if there are any."""
    human = None if people is None else by_humans(compared, people)
    return _debiased(findings(compared, asked.measure, test=asked.test, plain=plain, human=human), clicks)


def _debiased(found: Findings, clicks: HeldOut | None) -> Findings:
    """Add whether debiasing matters, if methods learn from clicks."""
    if clicks is None:
        return found
    judged = clicks.judged_by_people(found.compared.judged)
    told = debiasing(
        found.compared,
        judged,
        found.measure,
        model=clicks.model,
        reason=clicks.known.reason,
        names=twins_in(found.compared.names),
        test=found.test,
    )
    return replace(found, debiasing=told)


def _counts(folds: Folds) -> list[int]:
    """Return the training queries of every fold, announcing before training if they are too few for curves."""
    counts = training_queries(folds)
    if min(counts) < FEWEST:
        announce(
            f"learning curves need {FEWEST} training queries, and the smallest fold has {min(counts)}: none are made"
        )
    return counts


def _files(asked: CompareOptions, chosen: Sequence[Method]) -> dict[str, Path]:
    """Return the files of other systems' scores, by name; names must differ from those of methods."""
    files: dict[str, Path] = {}
    for name, path in map(_name_and_path, asked.scores):
        if name in files or name in {method.name for method in chosen}:
            said = f"scores={name!r}: two systems have the same name; give each its own."
            raise DataError(said, arguments=("scores",))
        files[name] = path
    return files


@contextlib.contextmanager
def _writing(out: Path | None) -> Iterator[None]:
    """Create the folder, and lock it against other comparisons."""
    if out is None:
        yield
        return
    make_folder(out)
    check_report_folder(out)
    with locked(out / ".lock", busy=f"{out}: another comparison is being written here"):
        yield


def _seeds(method: Method, chosen: Sequence[Method], asked: CompareOptions) -> JsonObject:
    """Give every method of trees as many seeds as the one with most, unless this is set otherwise."""
    bags = {each.name: each.settings["bag"].default for each in chosen if "bag" in each.settings}
    numbers = [bag for bag in bags.values() if isinstance(bag, int)]
    fair = "bag" not in asked.fixed and method.name in bags and bags[method.name] != max(numbers)
    return {"bag": max(numbers)} if fair else {}


def _fitting(method: Method, asked: CompareOptions, seeds: Settings) -> Fit:
    def grid(data: Judged) -> Grid:
        return method.opened(method.grid_on(data), _fixed(method, asked))[0]

    fixed = method.opened({}, _fixed(method, asked))[1]
    return TunedFit(method.build, grid, fixed=fixed, final=seeds, measure=asked.measure, flavour=asked.flavour)


def _fixed(method: Method, asked: CompareOptions) -> JsonObject:
    return {name: value for name, value in asked.fixed.items() if name in method.settings}


def _settings(method: Method, asked: CompareOptions, seeds: JsonObject) -> JsonObject:
    """Return everything but the data that a method's result depends on."""
    return {
        "method": method.name,
        "grid": {name: list(values) for name, values in method.grid.items()},
        "text_view": TEXT_VIEW,
        "fixed": _fixed(method, asked) | seeds,
        "defaults": {name: each.default for name, each in method.settings.items()},
        "measure": asked.measure,
        "flavour": asked.flavour,
        "lists": "own",  # invalidates results from before runs were evaluated on their own lists
    }


def _given(files: Mapping[str, Path], folds: Folds) -> tuple[dict[str, Fit], dict[str, Run]]:
    """Match other systems with the data once, before training; return also runs evaluated on their own lists.

    A run is evaluated on its own list if all judgments are known: its documents need not be candidates.
    """
    if not files:
        return {}, {}
    whole = folds.whole()
    runs = {name: read_run(path, name) for name, path in files.items() if whole.missed is not None and is_run(path)}

    def looked_up(name: str, path: Path) -> Fit:
        known = whole.candidates
        found = scores_in(runs[name], known) if name in runs else read_scores(path, known, order="rows")
        ranker = GivenScores(whole.candidates, found)
        return lambda train, valid: ranker

    return {name: looked_up(name, path) for name, path in files.items()}, runs


def _name_and_path(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not name.strip() or not path:
        said = f"scores={text!r}: expected NAME=FILE, as in scores='ours=run.trec'."
        raise DataError(said, arguments=("scores",))
    return name.strip(), Path(path)
