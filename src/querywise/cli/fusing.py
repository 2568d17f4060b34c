"""The command that fuses the runs of several search engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import one_embedder, retrieval_from
from querywise.cli.options import command, measures_from, print_json, say, say_renamed
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.data.judged import Candidates
    from querywise.data.judgements import Judgement
    from querywise.data.query_table import QueryTable
    from querywise.data.run_columns import Run
    from querywise.jobs.fuse import FusionResult
    from querywise.retrieval.reading import Retrieval
    from querywise.runtime.values import JsonObject

_TOP = 100  # documents in each run of a collection


@command
def fuse(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="TREC runs, two or more: query Q0 document rank score tag.")
    ] = None,
    judged: Annotated[
        Path | None, typer.Option(help="Judgments: TREC qrels, or query <tab> document <tab> grade lines.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="What is written: combsum, combmnz, rrf, borda; with judgments also best-run and all of `querywise "
            "methods`. By default rrf or, with judgments, what is best on queries held out from training."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write: a name with an ending, as in fused.trec, is a run of all queries; one without, as in "
            "fusion/, is a model folder with the weights of all queries and a report, and needs judgments."
        ),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="The queries' texts, as queries.jsonl; weights by query use them.")
    ] = None,
    names: Annotated[
        str | None, typer.Option(help="Names of the runs, separated by commas; by default those of their files.")
    ] = None,
    normalise: Annotated[
        str,
        typer.Option(
            help="How a run's scores for a query are made comparable: minmax, zscore, rank or none. Weights apply to "
            "scores as an engine normalizes them, by default opensearch-min-max: also l2, z-score and rank."
        ),
    ] = "minmax",
    collection: Annotated[
        Path | None,
        typer.Option(
            help="A text collection: its own BM25 and language models make four runs, vectors a fifth; its judgments "
            "are used."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Documents per query in each run made of a collection.")] = _TOP,
    keep_runs: Annotated[Path | None, typer.Option(help="Folder to write the runs of a collection to.")] = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_search: options.VectorSearch = "exact",
    language: options.Language = "english",
    folds: Annotated[
        int,
        typer.Option(min=3, help="Parts the judged queries are cut into; each is ranked by weights from the others."),
    ] = 5,
    measures: options.VerdictMeasures = "map,ndcg@10",
    measure: options.FormerMeasure = None,
    flavour: options.FlavourName = "standard",
    baseline: Annotated[
        str | None, typer.Option(help="What the others are compared with; by default the best without weights.")
    ] = None,
    seed: Annotated[int, typer.Option(help="How the judged queries are cut into parts.")] = 0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fuse the runs of several search engines and, with judgments, test whether learned weights help.

    Without judgments, the runs vote. With them, every query is ranked by weights learned from other
    queries, and these are compared with the votes and with each run alone; the best method is
    written.
    """
    from querywise.data.runs import check_positive, read_runs, tabulate_runs
    from querywise.evaluation.tuning import without_hints
    from querywise.jobs.fuse import Fusing, check_fusing, check_normalisation, run
    from querywise.measures.order import find_flavour
    from querywise.methods import current_name
    from querywise.report.writing import begun

    measures = measures_from(measures, measure, quiet=quiet)
    find_flavour(flavour)
    called = None if names is None else _names(names)
    check_normalisation(normalise)
    _check_places(out, keep_runs, collection, judged=judged is not None or collection is not None)
    how = one_embedder(retrieval_from(vectors, embed, top, language=language, vector_search=vector_search))
    if collection is None and how.by_vectors:
        what = "--embed" if how.embed else "--vectors"
        raise DataError(f"{what} makes a run from a text collection; name the collection with --collection.")
    say_renamed([method, baseline], quiet=quiet)
    method, baseline = (None if each is None else current_name(each) for each in (method, baseline))
    if method is not None:
        check_fusing(method, judged=judged is not None or collection is not None)
    with shown(quiet=quiet), without_hints():
        table, judgements, made = _known(collection, judged, how, keep_runs)
        check_fusing(method or "rrf", judged=judgements is not None)
        _check_use(out, judgements)
        every = [*made, *read_runs(runs or [], called)]
        candidates = tabulate_runs(every)
        if normalise == "none":
            check_positive(every)
        candidates = _with_texts(candidates, table, queries)
        origin = begun("fuse", ", ".join(each.name for each in every))
        asked = Fusing(method, measures, flavour, baseline, folds, seed, normalise)
        done = run(candidates, judgements, asked, out, every, origin)
    if as_json:
        print_json(_as_json(candidates, [each.name for each in every], done, out))
    else:
        _say_fused(done)
        if out is not None and not quiet:
            _say_written(done, candidates, out)


def _with_texts(candidates: Candidates, table: QueryTable | None, queries: Path | None) -> Candidates:
    """Return the candidates with their queries' texts, if known."""
    from querywise.data.query_table import read_queries

    if queries is not None:
        return candidates.with_queries(read_queries(queries))
    if table is not None and set(candidates.query_ids) <= set(table.ids):
        return candidates.with_queries(table)
    return candidates


def _say_written(done: FusionResult, candidates: Candidates, out: Path) -> None:
    if done.scores is not None:
        say(f"{len(done.scores)} documents of {len(candidates)} queries fused by {done.method}, written to {out}")
        return
    for each in done.gains:
        taken = ", taken" if each.taken else ""
        say(f"  {each.tried}: gain {each.gain:+.4f}, standard error {each.error:.4f}{taken}")
    page = out / "report" / "report.html"
    say(f"{done.method}, fitted on all judged queries, written to {out}; the report is {page}")
    if done.ranker is not None and not done.ranker.answer(candidates.select([])).runs:
        say(f"{done.method} has no weights of runs; --method weights, or weights-by-query, writes a model that has.")


def _as_json(candidates: Candidates, runs: list[str], done: FusionResult, out: Path | None) -> JsonObject:
    from dataclasses import asdict

    content: JsonObject = {"method": done.method, "runs": list(runs)}
    if done.found is not None and done.coverage is not None:
        compared = done.found.compared.as_json()
        content |= {"coverage": asdict(done.coverage), **compared, **done.found.decided()}
    if done.scores is not None:
        content |= {"out": str(out), "queries_written": len(candidates), "documents": len(done.scores)}
    if done.ranker is not None:
        content |= {"out": str(out), "gains": [each._asdict() for each in done.gains]}
    return content


def _say_fused(done: FusionResult) -> None:
    from querywise.report.terminal import comparison_table

    if done.found is not None:
        say(comparison_table(done.found.compared), *filter(None, (done.found.verdict, done.found.advice)))


def _known(
    collection: Path | None, judged: Path | None, how: Retrieval, keep_runs: Path | None
) -> tuple[QueryTable | None, list[Judgement] | None, list[Run]]:
    """Return queries and judgments, if any, and the runs made from a collection."""
    from querywise.data.judgements import read_judgements

    found = None if judged is None else list(read_judgements(judged))
    if found == []:
        raise DataError(f"{judged}: the file holds no judgment. Expected lines of 'query 0 document grade'.")
    if collection is None:
        return None, found, []
    from querywise.measures.score_files import write_runs
    from querywise.retrieval.reading import indexed_text
    from querywise.retrieval.search import runs_of

    text, index = indexed_text(collection, how)
    made = runs_of(text, index, top=how.top or _TOP)
    if keep_runs is not None:
        write_runs(made, keep_runs)
    return text.queries, found or list(text.judgements) or None, made


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise DataError(f"--names {text}: expected a name for every run, separated by commas, as in --names bm25,lm.")
    return names


def _check_places(out: Path | None, keep_runs: Path | None, collection: Path | None, *, judged: bool) -> None:
    from querywise.jobs.fuse import check_fusion_folder, is_folder
    from querywise.runtime.files import check_folder, check_writable

    if out is not None and judged and is_folder(out):
        check_fusion_folder(out)
    elif out is not None:
        check_writable(out)
    if keep_runs is not None:
        if collection is None:
            raise DataError("--keep-runs writes the runs made of a text collection; name one with --collection.")
        check_folder(keep_runs)


def _check_use(out: Path | None, judgements: list[Judgement] | None) -> None:
    if out is None and judgements is None:
        raise DataError(
            "Without judgments there is nothing to compare, only a run to write: name a file for it with --out, or "
            "give judgments with --judged."
        )
