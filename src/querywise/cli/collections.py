"""Commands on text: from documents, queries and judgments to features and feature logs, an index, search results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

import querywise.cli.options as options
from querywise.cli.inputs import retrieval_from, working
from querywise.cli.options import command, print_json, say
from querywise.errors import DataError
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.retrieval.index import Index
    from querywise.runtime.arrays import Floats


class Searched(TypedDict, total=False):
    """How candidates are retrieved, as keyword arguments of `answer`."""

    top: int | None
    vector_top: int | None
    vector: Floats


CollectionPath = Annotated[
    Path,
    typer.Argument(help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv, or stdlib, the embedded collection."),
]


@command
def features(
    data: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder for S1.txt to S5.txt and the files that belong to them.")],
    top: options.Top = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_top: options.VectorTop = None,
    vector_search: options.VectorSearch = "exact",
    candidates: options.CandidatesFrom = "found",
    adapt: options.Adapt = "off",
    language: options.Language = "english",
    queries: Annotated[Path | None, typer.Option(help="queries.jsonl, TREC topics, or id <tab> text lines.")] = None,
    judgements: options.Judgements = None,
    add_judged: Annotated[
        bool, typer.Option("--add-judged", help="Add judged documents that were not found, marked added = 1.")
    ] = False,
    skip_unknown: options.SkipUnknown = False,
    seed: Annotated[int, typer.Option(help="How the queries are cut into five parts.")] = 0,
    cluster: options.ClusterAddress = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """From text to LETOR files: BM25's candidates for every judged query, each with the 25 rankers' scores.

    With vectors, adds the documents that these find, and the similarity of each document. The folder
    can be given directly to fit and compare.
    """
    from dataclasses import asdict

    from querywise.data.folds import check_parts_folder, write_parts
    from querywise.data.letor import QUERIES
    from querywise.retrieval.reading import judged_from_text

    if (out / "corpus.jsonl").exists() or (queries is not None and queries.resolve() == (out / QUERIES).resolve()):
        raise DataError(
            f"{out}: this folder holds a collection, whose {QUERIES} would be overwritten. Name another folder."
        )
    check_parts_folder(out)
    how = retrieval_from(vectors, embed, top, vector_top, language, skip_unknown, vector_search, adapt, candidates)
    with shown(quiet=quiet), working(cluster):
        found = judged_from_text(data, queries=queries, judgements=judgements, retrieval=how, add_judged=add_judged)
        judged, coverage = found.adapted(), found.coverage
        write_parts(judged, out, seed=seed)
    if as_json:
        print_json({"out": str(out), **asdict(coverage), "losses": [each.as_json() for each in judged.losses]})
    elif not quiet:
        rows, columns = judged.candidates.features.shape
        written = len(judged) - coverage.without_candidates
        say(f"{rows} documents of {written} queries with {columns} features written to {out}")
        say(*coverage.lines(), *map(str, judged.losses))


@command
def fields(
    data: CollectionPath,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the file, by default fields.toml in the folder; with --engine, a folder."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Write what an engine needs for the fields instead: index.json, and features.json with a query for "
            "every feature that it computes. opensearch, elasticsearch, elasticsearch-native, solr or vespa."
        ),
    ] = None,
    language: options.Language = "english",
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Detect the type of each field of the documents: text, keyword, number, date; write fields.toml, to be edited.

    All commands read fields.toml beside the documents. Without it they use the detected types, and
    say so. With --engine, write the fields as an engine indexes them and computes features from them.
    """
    if engine is not None:
        from querywise.jobs.log import write_fields_for

        if out is None:
            raise DataError("--engine writes index.json and features.json: name a folder for them with --out.")
        with shown(quiet=quiet):
            names = write_fields_for(engine, data, out, None if language == "none" else language)
        if as_json:
            print_json({"out": str(out), "features": names})
        elif not quiet:
            say(f"{len(names)} features that {engine} computes, and its index, written to {out}: {', '.join(names)}")
        return
    from querywise.data.fields import FILE, find_fields, write_fields
    from querywise.data.records import corpus_in, records_of
    from querywise.report.terminal import plain_table

    corpus = corpus_in(data)
    if corpus is None:
        raise DataError(f"{data}: there is no corpus.jsonl, corpus.csv, corpus.tsv or corpus.parquet here.")
    place = corpus.with_name(FILE) if out is None else out
    if place.exists():
        raise DataError(f"{place} already exists. Edit it, move it away, or name another file with --out.")
    with shown(quiet=quiet):
        found = find_fields(records_of(corpus))
        suggested = found.suggested
        write_fields(place, suggested, found.notes)
    if as_json:
        print_json({"out": str(place), "documents": found.documents, **suggested.as_json(), "found": found.notes})
    elif not quiet:
        rows = [(each.name, each.kind, found.notes[each.name]) for each in suggested.specs]
        say(
            plain_table(("field", "kind", "found"), rows),
            f"Written to {place}. The title is {suggested.title or 'none'}.",
        )


@command
def index(
    data: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder to write the index to.")],
    language: options.Language = "english",
    stop_words: Annotated[bool, typer.Option(help="Leave out the common words of English.")] = True,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_search: options.VectorSearch = "exact",
    quiet: options.Quiet = False,
) -> None:
    """Index documents, so that they can be searched.

    With --vectors or --embed, their vectors are stored too, for models that were trained with
    vectors.
    """
    from querywise.retrieval.index import check_index_folder, save_index
    from querywise.retrieval.indexed_vectors import vectors_of
    from querywise.retrieval.reading import collection_from, index_of
    from querywise.retrieval.words import Tokeniser

    tokeniser = Tokeniser(None if language == "none" else language, stop_words=stop_words)
    how = retrieval_from(vectors, embed, skip_unknown=True, vector_search=vector_search)
    check_index_folder(out)
    with shown(quiet=quiet):
        made = index_of(collection_from(data), how, tokeniser)
        save_index(made, out)
    if not quiet:
        known = vectors_of(made)
        more = "" if known is None else f", vectors of {known.dimension} numbers"
        say(f"{len(made)} documents, {len(made.terms)} terms{more} indexed in {out}")


@command
def search(
    index: Annotated[Path, typer.Argument(help="An index folder.")],
    query: Annotated[str, typer.Argument(help="The search query.")],
    show_best: Annotated[int, typer.Option("--show", min=1, help="How many documents to show.")] = 10,
    top: options.Top = None,
    model: Annotated[Path | None, typer.Option(help="A model folder; this model reranks the candidates.")] = None,
    embed: options.QueryEmbedder = None,
    judged: Annotated[
        Path | None,
        typer.Option(help="A text collection with this query, by text or id: shows the grades, and what was missed."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Search an index by BM25, or by a fitted ranker."""
    from querywise.data.judgements import is_qrels
    from querywise.retrieval.index import load_index
    from querywise.retrieval.reading import collection_from
    from querywise.retrieval.search import answer, judged_query
    from querywise.storage import load_ranker

    if judged is not None and is_qrels(judged):
        raise DataError(
            f"--judged {judged}: this is a file of judgments; name the collection's folder, with its queries."
        )
    found_in, grades = load_index(index), None
    ranker = None if model is None else load_ranker(model)
    if judged is not None:
        query, grades = judged_query(collection_from(judged), query)
    how = {} if model is None else _as_trained(found_in, model, query, embed)
    answers = answer(found_in, query, ranker=ranker, **(how | ({} if top is None else {"top": top})))
    shown = answers[:show_best]
    relevant = {document for document, grade in (grades or {}).items() if grade > 0}
    found = sum(each.document in relevant for each in answers)
    if as_json:
        rows = [each._asdict() | ({} if grades is None else {"grade": grades.get(each.document)}) for each in shown]
        print_json(rows if grades is None else {"answers": rows, "relevant": len(relevant), "found": found})
        return
    from querywise.report.terminal import answers_table

    if shown:
        say(answers_table(shown, "BM25" if ranker is None else type(ranker).__name__, grades))
    else:
        say("Nothing found: none of the query's words is in any document.")
    if grades is not None:
        say(f"{found} of {len(relevant)} relevant documents are among the {len(answers)} found.")


def _as_trained(index: Index, model: Path, query: str, embed: list[str] | None) -> Searched:
    """Return how a model's candidates are retrieved: to its depths in training, and by the query's vector if used."""
    from querywise.data.run_columns import run_columns
    from querywise.retrieval.embedding import query_vector
    from querywise.retrieval.features import trained_depths
    from querywise.retrieval.index import require_language
    from querywise.retrieval.indexed_vectors import has_vectors
    from querywise.storage import read_manifest

    manifest = read_manifest(model)
    require_language(index, manifest.notes, str(model))
    by_vectors = any(run.name == "vectors" for run in run_columns(manifest.feature_names))
    if by_vectors != has_vectors(index):
        told = ("with", "without") if by_vectors else ("without", "with")
        raise DataError(
            f"{model} was trained {told[0]} vectors, and this index is one {told[1]} them. `querywise index` makes "
            "another" + (", with --vectors or --embed." if by_vectors else ".")
        )
    depths = trained_depths(manifest.notes)
    found: Searched = {"top": depths.top, "vector_top": depths.vector_top}
    if by_vectors:
        trained = manifest.notes.get("vectors")
        found["vector"] = query_vector(index, query, embed=embed or (), trained=trained, model=str(model))
    return found


@command
def convert(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="LETOR files (plain, .gz, .xz), feature logs (.parquet, or folders of such files), or shards."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write to; existing shards are replaced as a whole.")],
    rows: Annotated[int, typer.Option(min=1, help="Approximate rows per shard; no query is split.")] = 100_000,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of shards instead, of about the same number of rows; everything is then read before it "
            "is written.",
        ),
    ] = None,
    qid: Annotated[str, typer.Option(help="A log's column of query ids.")] = "qid",
    label: Annotated[str, typer.Option(help="A log's column of labels; none for a log without judgments.")] = "label",
    docid: Annotated[str, typer.Option(help="A log's column of document ids, if it has one.")] = "docid",
    query_group: Annotated[
        str, typer.Option(help="A log's column of groups of queries, which folds keep together, if it has one.")
    ] = "query_group",
    features: options.Features = None,
    queries: options.Queries = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write feature files as shards: Parquet files of whole queries, with feature names and checksums.

    Files are read one at a time, so the data may be larger than memory. The folder can be given
    directly to the other commands.
    """
    from querywise.data.parquet.tables import LogColumns
    from querywise.data.parquet.writing import convert as converted

    columns = LogColumns(qid, None if label == "none" else label, docid, query_group)
    with shown(quiet=quiet):
        made = converted(data, out, rows=rows, shards=shards, columns=columns, features=features, queries=queries)
    if as_json:
        print_json(
            {
                "out": str(out),
                "shards": len(made.files),
                "rows": made.rows,
                "queries": len(made),
                "features": made.feature_count,
            }
        )
    elif not quiet:
        files = f"{len(made.files)} shard{'' if len(made.files) == 1 else 's'}"
        say(
            f"{made.rows} documents of {len(made)} queries with {made.feature_count} features written to {out}: {files}"
        )


@command
def log(
    engine: Annotated[str, typer.Argument(help="opensearch, elasticsearch or solr.")],
    queries: Annotated[
        Path,
        typer.Option(help="Judged queries: a folder with queries.jsonl and qrels.tsv, or the file of queries."),
    ],
    url: Annotated[str, typer.Option(help="The engine's address, as in http://localhost:9200.")],
    index: Annotated[str, typer.Option(help="The index or collection whose documents are judged.")],
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    features: options.EngineFeatures = None,
    store: options.EngineStore = None,
    judgements: options.Judgements = None,
    header: options.EngineHeaders = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait while the engine is silent.")] = 60.0,
    compare: Annotated[
        Path | None,
        typer.Option(
            help="A text collection of the same documents, to report which features differ from ours, and by how much."
        ),
    ] = None,
    language: options.Language = "english",
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Log the features that an engine computes for judged queries, in a Parquet file to train on.

    The engine is only queried; nothing is written there. A model that is trained on the file is
    exported with the same features, so it sees the same numbers when it is used.
    """
    from querywise.errors import DataError
    from querywise.exports.scripts.check_parity import EngineError, read_headers
    from querywise.exports.writing import read_features
    from querywise.jobs.log import EngineIndex, differences, judged_queries, log_features, told, write
    from querywise.report.terminal import plain_table
    from querywise.runtime.files import check_writable

    try:
        sent = read_headers(header or [])
    except EngineError as error:
        raise DataError(str(error)) from None
    asked = EngineIndex(engine, url, index, store, None if features is None else read_features(features), sent, timeout)
    check_writable(out)
    with shown(quiet=quiet):
        logged = log_features(asked, *judged_queries(queries, judgements))
        write(logged, out)
        how = retrieval_from(None, None, language=language)
        found = [] if compare is None else differences(logged.judged, compare, how)
    rows, columns = logged.judged.candidates.features.shape
    if as_json:
        differ = [each._asdict() for each in found]
        print_json(
            {"out": str(out), "documents": rows, "features": columns, "absent": logged.absent, "compared": differ}
        )
    elif not quiet:
        say(f"{rows} documents of {len(logged.judged)} queries with {columns} features written to {out}")
        if logged.absent:
            say(f"{logged.absent} judged documents are not in {index}, and were left out.")
        if found:
            say(plain_table(("feature", "values that differ", "theirs / ours", "farthest: theirs, ours"), told(found)))
