"""Commands that compare methods."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import columns_from, feature_from, local_settings, one_embedder, retrieval_from, working
from querywise.cli.options import command, measures_from, print_json, say, say_renamed
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.data.folds import Folds
    from querywise.evaluation.findings import Findings
    from querywise.retrieval.adapting import Adaptation
    from querywise.retrieval.reading import Retrieval

FoldsData = Annotated[
    Path,
    typer.Argument(
        help="A folder with Fold1..5, S1..S5.txt or train, vali and test.txt, one LETOR file or set of shards to cut "
        "up, a text collection, or stdlib."
    ),
]


@command
def compare(
    data: FoldsData,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas; the first is the baseline. xgboost and catboost too, where they "
            "are installed. none: only --scores."
        ),
    ] = "single,lambdamart,knn-online,knn-offline-1,knn-offline-2",
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="Another system's scores, as NAME=FILE: a TREC run, or one score per line in the order of the data."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a report; a run that was interrupted goes on from it.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The report's title; by default the name of the data.")] = None,
    note: Annotated[
        str, typer.Option(help="A sentence below the report's title, as in --note 'after the new index'.")
    ] = "",
    measures: options.VerdictMeasures = "map,ndcg@10,mean_ndcg",
    flavour: options.FlavourName = "standard",
    measure: options.FormerMeasure = None,
    test: Annotated[str, typer.Option(help="The paired test: t, wilcoxon or randomisation.")] = "t",
    baseline: Annotated[str | None, typer.Option(help="What the others are compared with; else the first.")] = None,
    k: options.Neighbours = None,
    clusters: options.Clusters = None,
    view: options.ViewName = None,
    reference: options.Reference = None,
    bag: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Forests, each with its own seed, that a method made of trees averages; by default as many for all as "
            "for the one that has most: 5 beside blend.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Fix a parameter of every method that has it, as in --set back_off=none, instead of choosing it.",
        ),
    ] = None,
    curves: Annotated[
        bool,
        typer.Option(
            "--curves",
            help="Also train every method on 30, 60, 120, … of the training queries: would more judged queries help? "
            "Takes one to two times as long again.",
        ),
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Where query vectors learn: also train every method with vectors as they are, to say by how much "
            "learning moves each. Takes as long again.",
        ),
    ] = False,
    queries: options.Queries = None,
    judgements: options.Judgements = None,
    human: Annotated[
        Path | None,
        typer.Option(
            metavar="<path>",
            help="Judgements by people, of a random sample of the queries: they decide which method is better, and all "
            "other labels are taken for cheap ones that make this surer.",
        ),
    ] = None,
    top: options.Top = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_top: options.VectorTop = None,
    vector_search: options.VectorSearch = "exact",
    candidates: options.CandidatesFrom = "found",
    adapt: options.Adapt = "auto",
    language: options.Language = "english",
    skip_unknown: options.SkipUnknown = False,
    seed: Annotated[int, typer.Option(help="How one file or collection is cut into five folds.")] = 0,
    group_by: Annotated[
        str,
        typer.Option(
            help="What folds keep together: group, the groups of queries.jsonl where there are some; near, also near "
            "twins (the same words, one edit apart, vectors or relevant documents alike); query, nothing."
        ),
    ] = "group",
    cluster: options.ClusterAddress = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Train several methods on the same folds and say which is better, on which queries, and whether that is luck."""
    from querywise.clicks.held_out import held_out
    from querywise.data.rows import reading_for
    from querywise.evaluation.tuning import without_hints
    from querywise.jobs.compare import CompareOptions, run
    from querywise.jobs.origins import begun, titles_of
    from querywise.measures.order import find_flavour
    from querywise.methods import find_method, settings_of_several
    from querywise.retrieval.reading import folds_of

    origin = begun("compare", data.absolute().name, note)
    measures = measures_from(measures, measure, quiet=quiet)
    find_flavour(flavour)
    names = () if methods == "none" else tuple(name.strip() for name in methods.split(","))
    say_renamed([*names, baseline], quiet=quiet)
    fixed = local_settings(k, clusters, view, reference) | ({} if bag is None else {"bag": bag})
    fixed |= settings_of_several([find_method(name, peers=True) for name in names], settings or [], flag="--set ")
    asked = CompareOptions(
        methods=names,
        scores=tuple(scores or ()),
        measures=measures,
        flavour=flavour,
        test=test,
        baseline=baseline,
        fixed=fixed,
        curves=curves,
        plain=plain,
        human=human,
    )
    how = retrieval_from(vectors, embed, top, vector_top, language, skip_unknown, vector_search, adapt, candidates)
    _check_plain(how, plain=plain)
    with shown(quiet=quiet), without_hints(quiet=quiet), working(cluster):
        missing = reading_for(fixed.get("missing"))
        folds = folds_of(
            data, queries, seed=seed, judgements=judgements, retrieval=how, missing=missing, group_by=group_by
        )
        clicks = held_out(data) if judgements is None else None
        title = title or f"Methods compared on {data.absolute().name}"
        found, page = run(asked, folds, out, title=title, origin=origin, titles=titles_of(data), clicks=clicks)
    _say_found(found, test, None if quiet else page, as_json=as_json)


def _check_plain(how: Retrieval, *, plain: bool) -> None:
    """Raise DataError for a comparison with plain vectors if none learn."""
    if plain and (how.adapt == "off" or not how.by_vectors):
        raise DataError(
            f"--plain: query vectors do not learn here ({'--adapt off' if how.by_vectors else 'there are none'})."
        )


def _say_found(found: Findings, test: str, page: Path | None, *, as_json: bool) -> None:
    from querywise.report.sections import gap_lines
    from querywise.report.terminal import (
        comparison_table,
        curves_table,
        debiasing_table,
        human_table,
        twins_table,
        vectors_table,
    )

    if as_json:
        learned = {} if found.curves is None else {"learning_curves": found.curves.as_json(test)}
        print_json(found.compared.as_json(test) | found.decided() | learned)
        return
    decided = filter(None, (found.verdict, found.advice))
    more = (*twins_table(found), *vectors_table(found), *debiasing_table(found))
    say(comparison_table(found.compared, test), *gap_lines(found), *human_table(found), *decided, *more)
    if found.curves is not None:
        say(curves_table(found.curves, found.measure, test))
    if page is not None:
        say(f"The report is {page}")


_DRAWN = ("geng2008", "lin2011", "zha2006", "hoi2008", "vectors", "curves", "msrd")  # with figures
_OF_VECTORS = ["hybrid", "vectors", "peers", "curves", "msrd"]  # reproduced from words and vectors


@command
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="geng2008: k nearest neighbours; lin2011: local models from clusters; zha2006: aTVT; hoi2008: "
            "ensembles; from-text: a text collection, several views; blend: the method blend, part by part; peers: the "
            "blend beside LightGBM, XGBoost and CatBoost; curves: five methods by training queries; hybrid: a text "
            "collection by words and vectors; vectors: query vectors that learn, beside those that do not; msrd: "
            "documents with fields, of which those that were judged are ranked."
        ),
    ],
    data: FoldsData,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and numbers.")],
    reference: options.Reference = None,
    rankers: Annotated[
        str | None,
        typer.Option(
            help="hoi2008: the columns that are the paper's rankers, counted from 1, as in 1-10,16. By default those "
            "of OHSUMED where there are 45 columns, else all."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<path>",
            help="peers, curves: a further set for one table of all, and after a colon the folder of its vectors, as "
            "in cranfield:vectors/cranfield. May be given several times. Each set is kept in a folder of its own in "
            "--out, and one that is there already is not made again.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of a paper: the first fold and thin grids, to see every table in minutes.")
    ] = False,
    queries: options.Queries = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    candidates: options.CandidatesFrom = "found",
    quiet: options.Quiet = False,
) -> None:
    """Reproduce a paper's tables and figures on your data."""
    from querywise.display.words import printable
    from querywise.evaluation.tuning import without_hints
    from querywise.reproduction import blend, curves, fromtext, geng2008, hoi2008, hybrid, lin2011, msrd, peers, zha2006
    from querywise.reproduction import vectors as adapted

    feature = None if reference is None else feature_from(reference)
    papers: dict[str, Callable[..., Path]] = {
        "geng2008": partial(geng2008.reproduce, reference=feature),
        "lin2011": partial(lin2011.reproduce, reference=feature),
        "zha2006": zha2006.reproduce,
        "hoi2008": partial(hoi2008.reproduce, rankers=None if rankers is None else columns_from(rankers)),
    }
    others = {"blend": blend, "peers": peers, "curves": curves, "hybrid": hybrid, "vectors": adapted, "msrd": msrd}
    known = papers | {"from-text": fromtext.reproduce} | {name: each.reproduce for name, each in others.items()}
    several = {"peers": peers.every, "curves": curves.every}
    _require_known(what, known)
    quickly = [name for name, each in papers.items() if "quick" in inspect.signature(each).parameters]
    for option, given, lacking, allowed in (
        ("--quick", quick, f"there is no quick run of {what}", quickly),
        ("--rankers", rankers is not None, f"{what} takes no rankers", ["hoi2008"]),
        ("--also", also, f"there is no table of several sets of {what}", [*several]),
        ("--vectors" if vectors else "--embed", vectors or embed, f"{what} takes no vectors", _OF_VECTORS),
        ("--candidates", candidates != "found", f"{what} ranks what is found", ["vectors"]),
    ):
        if given and what not in allowed:
            raise DataError(f"{option}: {lacking}. Leave {option} out, or name {' or '.join(allowed)}.")

    read = partial(_folds, data, queries)
    inputs: dict[str, Callable[[], tuple[object, ...]]] = {
        "vectors": partial(_adapting, data, queries, vectors, embed, candidates),
        "msrd": lambda: (read(candidates="judged"), read(vectors, embed, candidates="judged") if by_vectors else None),
    }
    first, by_vectors = partial(read, vectors, embed), bool(vectors or embed)
    with shown(quiet=quiet), without_hints():
        if also:
            written = several[what]({_name_of(data, vectors or embed): first, **_further(also)}, out)
        else:
            parts = inputs[what]() if what in inputs else (first(),)
            written = known[what](*parts, out, **({"quick": True} if quick else {}))
    if not quiet:
        sys.stdout.write(printable(written.read_text()))


def _require_known(what: str, known: Collection[str]) -> None:
    """Raise DataError for an unknown paper, or for figures without Matplotlib: now, and not after hours."""
    from querywise.display.tables import MATPLOTLIB

    if what not in known:
        raise DataError(f"Unknown paper {what!r}. Known: {', '.join(known)}.")
    if what in _DRAWN:
        MATPLOTLIB.load(f"reproduce {what}")


def _folds(
    data: Path,
    queries: Path | None,
    vectors: list[Path] | None = None,
    embed: list[str] | None = None,
    *,
    candidates: str = "found",
) -> Folds:
    """Return the folds of a set, by words or with vectors."""
    from querywise.retrieval.reading import folds_of

    return folds_of(data, queries, retrieval=one_embedder(retrieval_from(vectors, embed, candidates=candidates)))


def _adapting(
    data: Path, queries: Path | None, vectors: list[Path] | None, embed: list[str] | None, candidates: str
) -> tuple[Folds, Adaptation | None]:
    """Return the folds of a collection with plain vectors, and how these learn."""
    from querywise.retrieval.reading import folds_from_text

    how = one_embedder(retrieval_from(vectors, embed, adapt="auto", candidates=candidates))
    return folds_from_text(data, how, queries)


def _further(given: list[str]) -> dict[str, Callable[[], Folds]]:
    """Return sets by name, each with its vectors after a colon or without."""
    from querywise.retrieval.reading import folds_of
    from querywise.retrieval.stdlib import NAME

    sets: dict[str, Callable[[], Folds]] = {}
    for each in given:
        path, _, folder = each.partition(":")
        for place in filter(None, (path, folder)):  # now, and not after hours with the sets before it
            if place != NAME and not Path(place).exists():
                raise DataError(f"--also {each}: {place}: there is no such file or folder.")
        how = retrieval_from([Path(folder)] if folder else None, None)
        sets[_name_of(Path(path), folder)] = partial(folds_of, Path(path), None, retrieval=how)
    return sets


def _name_of(data: Path, vectors: object) -> str:
    return data.name + (" with vectors" if vectors else "")


@command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the collection, its index and the fitted model.")] = Path(
        "querywise-demo"
    ),
    folds: Annotated[int, typer.Option(min=1, max=5, help="How many of the five folds to run.")] = 1,
    everything: Annotated[
        bool, typer.Option("--all", help="Compare all methods, such as a model for each query, and print every table.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Search the documentation of your own Python: build a collection of it, train on it, compare, show."""
    from querywise.evaluation.tuning import without_hints
    from querywise.jobs.demo import run
    from querywise.jobs.origins import begun

    parts = run(out, folds=folds, everything=everything, origin=begun("demo", "stdlib"))
    while True:  # print each part once no progress is drawn
        with shown(quiet=quiet), without_hints():
            things = next(parts, None)
        if things is None:
            return
        say(*things)
