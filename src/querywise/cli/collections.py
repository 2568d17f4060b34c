"""Commands on text: from documents, queries and judgements to features, an index, and search results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from querywise.cli.app import app
from querywise.cli.options import (
    AsJson,
    Judgements,
    Quiet,
    SkipUnknown,
    Top,
    VectorFolder,
    VectorTop,
    guarded_command,
    print_json,
    say,
)
from querywise.cli.workers import ClusterAddress, working

CollectionPath = Annotated[
    Path,
    typer.Argument(
        help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv, or stdlib, the embedded collection.",
        show_default=False,
    ),
]


@app.command()
@guarded_command
def features(
    data: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder to write S1.txt to S5.txt and what belongs to them to.")],
    top: Top = None,
    vectors: VectorFolder = None,
    vector_top: VectorTop = None,
    queries: Annotated[
        Path | None, typer.Option(help="queries.jsonl, TREC topics, or id <tab> text lines.", show_default=False)
    ] = None,
    judgements: Judgements = None,
    add_judged: Annotated[
        bool, typer.Option("--add-judged", help="Also judged documents that were not found, marked added = 1.")
    ] = False,
    skip_unknown: SkipUnknown = False,
    seed: Annotated[int, typer.Option(help="How the queries are cut into five parts.")] = 0,
    cluster: ClusterAddress = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """From text to LETOR files: BM25's candidates for every judged query, each with the 25 rankers' scores.

    With vectors also what these find, and how similar each document is. The folder can be given to fit, compare and
    reproduce as it is.
    """
    from dataclasses import asdict

    from querywise.data.folds import check_parts_folder, write_parts
    from querywise.data.sidefiles import QUERIES
    from querywise.errors import DataError
    from querywise.retrieval.reading import Retrieval, judged_from_text
    from querywise.runtime.progress import shown

    if (out / "corpus.jsonl").exists() or (queries is not None and queries.resolve() == (out / QUERIES).resolve()):
        raise DataError(f"{out}: a collection is here, whose {QUERIES} would be written over. Name another folder.")
    check_parts_folder(out)
    how = Retrieval(top=top, vectors=vectors, vector_top=vector_top, skip_unknown=skip_unknown)
    with shown(quiet=quiet), working(cluster):
        judged, coverage = judged_from_text(
            data, queries=queries, judgements=judgements, retrieval=how, add_judged=add_judged
        )
        write_parts(judged, out, seed=seed)
    if as_json:
        print_json({"out": str(out), **asdict(coverage)})
    elif not quiet:
        rows, columns = judged.candidates.features.shape
        written = len(judged) - coverage.without_candidates
        say(f"{rows} documents of {written} queries with {columns} features written to {out}")
        say(*coverage.lines())


@app.command()
@guarded_command
def index(
    data: CollectionPath,
    out: Annotated[Path, typer.Option(help="Folder to write the index to.", show_default=False)],
    language: Annotated[str, typer.Option(help="Whose stemmer: english, german, …; none does not stem.")] = "english",
    stop_words: Annotated[bool, typer.Option(help="Leave out the common words of English.")] = True,
    quiet: Quiet = False,
) -> None:
    """Index documents, so that they can be searched."""
    from querywise.retrieval.index import build_index, check_index_folder, save_index
    from querywise.retrieval.reading import collection_from
    from querywise.retrieval.words import Tokeniser
    from querywise.runtime.progress import doing, shown

    tokeniser = Tokeniser(None if language == "none" else language, stop_words=stop_words)
    check_index_folder(out)
    with shown(quiet=quiet), doing("Indexing"):
        made = build_index(collection_from(data).documents(), tokeniser)
        save_index(made, out)
    if not quiet:
        say(f"{len(made)} documents, {len(made.terms)} terms indexed in {out}")


@app.command()
@guarded_command
def search(
    index: Annotated[Path, typer.Argument(help="An index folder.", show_default=False)],
    query: Annotated[str, typer.Argument(help="What is looked for.", show_default=False)],
    show_best: Annotated[int, typer.Option("--show", min=1, help="How many documents to show.")] = 10,
    top: Top = None,
    model: Annotated[
        Path | None, typer.Option(help="A model folder: BM25's best are ranked anew by it.", show_default=False)
    ] = None,
    judged: Annotated[
        Path | None,
        typer.Option(
            help="A text collection with this query, by text or id: shows the grades, and what was missed.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search an index by BM25, or by a fitted ranker."""
    from querywise.data.judgements import is_qrels
    from querywise.errors import DataError
    from querywise.retrieval.index import load_index
    from querywise.retrieval.reading import collection_from
    from querywise.retrieval.search import answer, judged_query
    from querywise.storage import load

    ranker, grades = None if model is None else load(model), None
    if judged is not None and is_qrels(judged):
        raise DataError(
            f"--judged {judged}: this is a file of judgements; name the collection's folder, with its queries."
        )
    if judged is not None:
        query, grades = judged_query(collection_from(judged), query)
    answers = answer(load_index(index), query, top=top, ranker=ranker)
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
