"""The command for boosts of fields."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import querywise.cli.options as options
from querywise.cli.inputs import retrieval_from
from querywise.cli.options import command, print_json, say
from querywise.runtime.progress import shown

if TYPE_CHECKING:
    from querywise.jobs.boosts import LearnedBoosts


@command
def boosts(
    data: Annotated[Path, typer.Argument(help="A text collection with queries and judgements.")],
    out: Annotated[Path, typer.Option(help="JSON file to write the boosts, the engines' requests and the tests to.")],
    boosts: Annotated[
        Path | None,
        typer.Option(
            help="Your own boosts, to test against: a file with type, boosts and tie_breaker, as this writes."
        ),
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            help="What to compare, separated by commas: most_fields, best_fields, dismax (Solr's tie), cross_fields, "
            "combined_fields (BM25F); all unless given."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(help="Which of them is written; else most_fields, unless another is better by a standard error."),
    ] = None,
    measure: Annotated[str, typer.Option(help="What boosts are searched for and tested by.")] = "ndcg@10",
    candidates: options.CandidatesFrom = "found",
    top: options.Top = None,
    judgements: options.Judgements = None,
    language: options.Language = "english",
    skip_unknown: options.SkipUnknown = False,
    folds: Annotated[
        int,
        typer.Option(min=3, help="Parts the judged queries are cut into; each is ranked by boosts from the others."),
    ] = 5,
    seed: Annotated[int, typer.Option(help="How the judged queries are cut into parts.")] = 0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn how much each field counts in a search engine's query, and whether that helps.

    Fields are added up as engines do it. Each query is ranked by boosts learned from other queries.
    The file has the boosts learned from all of them, and the requests of OpenSearch, Elasticsearch, Solr and Vespa.
    """
    from querywise.jobs.boosts import Learning, learn, write
    from querywise.retrieval.boosts import FORMS
    from querywise.runtime.files import check_writable

    check_writable(out)
    compared = FORMS if forms is None else tuple(each.strip() for each in forms.split(","))
    asked = Learning(compared, form, measure, folds, seed)
    how = retrieval_from(None, None, top, language=language, skip_unknown=skip_unknown, candidates=candidates)
    with shown(quiet=quiet):
        found = learn(data, how, asked, boosts, judgements)
    write(found, out)
    if as_json:
        print_json(found.as_json())
    elif not quiet:
        _tell(found, asked.measure, out)


def _tell(found: LearnedBoosts, measure: str, out: Path) -> None:
    from querywise.display.words import p_in_words
    from querywise.jobs.boosts import EQUAL, OWN, said
    from querywise.report.terminal import plain_table
    from querywise.retrieval.boosts import told

    against = [EQUAL, OWN] if found.own is not None else [EQUAL]
    rows = []
    for name, each in found.every.items():
        tests = [found.tests[name, other] for other in against]
        p = [f"{test.found.difference:+.4f} ({p_in_words(test.p_holm)})" for test in tests]
        rows.append([name, f"{found.equal[name].mean():.4f}", f"{found.learned[name].mean():.4f}", *p, told(each)])
    yours = ["against yours"] if found.own is not None else []
    say(plain_table(["", "equal boosts", "learned", "against equal", *yours, "boosts, of all queries"], rows))
    if found.own is not None:
        say(f"Yours: {measure} {found.own.mean():.4f}.")
    say(said(found, measure), f"Written: {found.boosts.form}, in {out}")
