"""Commands that learn from judgments: a ranker, boosts of fields, or adapted query vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import querywise.cli.options as options
from querywise.cli.inputs import local_settings, read_training, require_parts, retrieval_from, working
from querywise.cli.options import command, print_json, say, say_renamed
from querywise.errors import DataError
from querywise.runtime.progress import shown
from querywise.runtime.values import JsonObject

if TYPE_CHECKING:
    from querywise.data.training import Training
    from querywise.jobs.boosts import LearnedBoosts
    from querywise.jobs.fit import FitOptions, Fitted
    from querywise.methods import Method
    from querywise.retrieval.adapted_vectors import AdaptedVectors, Kind


@command
def fit(
    data: Annotated[
        list[Path],
        typer.Argument(help="Training files or shards, one folder of folds (with --fold), or a text collection."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")],
    method: Annotated[
        str, typer.Option(help="What to fit; `querywise methods` lists them, auto chooses among three.")
    ] = "ranksvm",
    valid: Annotated[list[Path] | None, typer.Option(help="Validation file; parameters are chosen on it.")] = None,
    fold: Annotated[int | None, typer.Option(min=1, help="Which fold of the folder.")] = None,
    k: options.Neighbours = None,
    clusters: options.Clusters = None,
    view: options.ViewName = None,
    reference: options.Reference = None,
    base: Annotated[
        str | None,
        typer.Option(help="The learner of local models, ranksvm or lambdamart, or of aTVT, trees or kernel."),
    ] = None,
    penalty: Annotated[
        str | None, typer.Option(help="The penalty by which aTVT ties its queries together: l2 or l1.")
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option(
            help="How much a query's own documents count in sser: a number, or auto, chosen on validation data."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Without validation data: choose parameters by cross-validation over this many parts of the training "
            "queries, then train on all of them.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Fix a parameter, as in --set l2=0.3, instead of choosing it.")
    ] = None,
    measure: Annotated[str, typer.Option(help="The measure by which parameters are chosen.")] = "map",
    flavour: options.FlavourName = "standard",
    features: options.Features = None,
    queries: options.Queries = None,
    also_judged: Annotated[
        list[Path] | None,
        typer.Option(
            help="Judgments to add to those of a text collection, as `serve --judge FILE` writes them, with the texts "
            "of new queries in FILE.queries.jsonl; may be repeated. If a pair has several grades, the last one counts."
        ),
    ] = None,
    top: options.Top = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    vector_top: options.VectorTop = None,
    vector_search: options.VectorSearch = "exact",
    candidates: options.CandidatesFrom = "found",
    adapt: options.Adapt = "auto",
    skip_unknown: options.SkipUnknown = False,
    language: options.Language = "english",
    cluster: options.ClusterAddress = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Train a ranker and save it.

    With validation data every parameter in the method's grid is tried and the best kept; without it,
    the defaults are used. A text collection is trained on all its judged queries, with parameters
    chosen by cross-validation over them. --method auto takes the simplest of ranksvm, lambdamart and
    blend that cross-validation does not find worse.
    """
    from querywise.jobs.first_use import compiled_beside

    with compiled_beside(method) as compiled:  # the imports below are slow
        from querywise.data.rows import reading_for
        from querywise.evaluation.tuning import without_hints
        from querywise.jobs.fit import AMONG, AUTO, FitOptions, run
        from querywise.measures.formulas import find_measures
        from querywise.measures.order import find_flavour
        from querywise.methods import find_method, parse_settings
        from querywise.storage import check_model_folder

        find_measures(measure)
        find_flavour(flavour)
        chosen = find_method(AMONG[0] if method == AUTO else method)
        say_renamed([method], quiet=quiet)
        fixed: dict[str, Any] = {**local_settings(k, clusters, view, reference)}
        fixed |= parse_settings(chosen, settings or [], flag="--set ")
        fixed |= _read_options(chosen, {"base": base, "penalty": penalty, "gamma": None if gamma == "auto" else gamma})
        _refuse_settings(method, fixed)
        _refuse_folds(folds, validated=bool(valid) or fold is not None)
        _refuse_unknown(chosen, fixed)
        check_model_folder(out)
        how = retrieval_from(vectors, embed, top, vector_top, language, skip_unknown, vector_search, adapt, candidates)
        with shown(quiet=quiet), without_hints(quiet=quiet), working(cluster, memory):
            missing = reading_for(fixed.get("missing"))
            read = read_training(
                data, valid or [], how, also_judged, fold=fold, features=features, queries=queries, missing=missing
            )
            require_parts(read.train, memory)
            compiled()
            asked = FitOptions(chosen, fixed, measure, flavour, folds or (5 if read.whole else None), read.notes)
            if method == AUTO:
                asked = _chosen(asked, read.train, quiet=quiet or as_json)
            fitted = run(asked, read.train, read.valid, out, cluster=cluster is not None, adapter=read.adapter)
        if as_json:
            print_json({"model": str(out), **fitted.notes})
        elif not quiet:
            _say_fitted(fitted, len(read.train), out)


def _say_fitted(fitted: Fitted, queries: int, out: Path) -> None:
    from querywise.report.terminal import trials_table

    if fitted.tuned.tried:
        say(trials_table(fitted.tuned))
    if "classifier_f1" in fitted.notes:
        say(f"The classifier's macro F1, over five folds of the training queries: {fitted.notes['classifier_f1']}")
    sizes = fitted.sizes
    if sizes is not None:
        say(
            f"{sizes.groups} clusters; {sizes.of_one_query} have one training query and {sizes.empty} have none: "
            "those use the global model."
        )
    say(f"{fitted.notes['method']} trained on {queries} queries, saved in {out}")


def _read_options(method: Method, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Return options that are settings; errors name the option."""
    given = {name: text for name, text in texts.items() if text is not None}
    _refuse_unknown(method, given)
    return {name: method.settings[name].read(text, f"--{name} {text}") for name, text in given.items()}


def _chosen(asked: FitOptions, train: Training, *, quiet: bool) -> FitOptions:
    """Return the options with the method that cross-validation chooses, and print why."""
    from querywise.jobs.fit import AMONG, choose
    from querywise.methods import find_method
    from querywise.report.terminal import plain_table

    choice = choose(train.load(), measure=asked.measure, flavour=asked.flavour, folds=asked.folds or 5)
    if not quiet:
        rows = [("→" if name == choice.name else "", name, f"{choice.mean(name):.4f}") for name in AMONG]
        say(plain_table(("", "method", f"{asked.measure} by cross-validation"), rows), choice.reason)
    notes = {**asked.notes, "choice": choice.as_json()}
    return replace(asked, method=find_method(choice.name), notes=notes)


def _refuse_settings(method: str, given: Mapping[str, object]) -> None:
    from querywise.jobs.fit import AUTO

    if method == AUTO and given:
        raise DataError(
            f"--method auto compares methods with their own settings; found {', '.join(given)}. Leave these out, or "
            "name a method."
        )


def _refuse_folds(folds: int | None, *, validated: bool) -> None:
    if folds is not None and validated:
        raise DataError("--folds is for training data without a validation part; leave out --valid and --fold.")


def _refuse_unknown(method: Method, given: Mapping[str, object]) -> None:
    stray = next((name for name in given if name not in method.settings), None)
    if stray is not None:
        raise DataError(f"--{stray} is not a setting of {method.name}. Its settings: {', '.join(method.settings)}.")


@command
def boosts(
    data: Annotated[Path, typer.Argument(help="A text collection with queries and judgments.")],
    out: Annotated[Path, typer.Option(help="JSON file to write the boosts, the engines' requests and the tests to.")],
    boosts: Annotated[
        Path | None,
        typer.Option(
            help="Your own boosts, to test against: a file with type, boosts and tie_breaker, as this command writes "
            "it."
        ),
    ] = None,
    forms: Annotated[
        str | None,
        typer.Option(
            help="Query types to compare, separated by commas: most_fields, best_fields, dismax (Solr's tie), "
            "cross_fields, combined_fields (BM25F); by default all."
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="Which of them is written; by default most_fields, unless another is better by a standard error."
        ),
    ] = None,
    measure: Annotated[str, typer.Option(help="The measure by which boosts are chosen and tested.")] = "ndcg@10",
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
    The file has the boosts learned from all of them, and the requests of OpenSearch, Elasticsearch,
    Solr and Vespa.
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
        _tell_boosts(found, asked.measure, out)


def _tell_boosts(found: LearnedBoosts, measure: str, out: Path) -> None:
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
        say(f"With your boosts: {measure} {found.own.mean():.4f}.")
    say(said(found, measure), f"Written: {found.boosts.form}, in {out}")


@command
def adapt(
    data: Annotated[
        Path, typer.Argument(help="A text collection with queries and judgments, or the folder of an adapter.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the adapter to; with --apply, the .npy file of vectors.")
    ] = None,
    vectors: options.VectorFolder = None,
    embed: options.EmbedderName = None,
    kind: Annotated[
        str,
        typer.Option(
            help="auto chooses one, and moves queries only if that helps; linear and by-query always move them."
        ),
    ] = "auto",
    apply: Annotated[
        Path | None, typer.Option(help="Query vectors in a .npy file, a row each, for the adapter to move.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Folder to write transform.py to, which moves vectors with numpy alone.")
    ] = None,
    skip_unknown: options.SkipUnknown = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Move query vectors toward the relevant documents of similar judged queries.

    Documents keep their vectors: nothing is indexed again, and any vector engine takes the result.
    With a text collection, trains an adapter. With the folder of an adapter, --apply moves vectors.
    """
    from querywise.jobs.adapt import check_export_folder, is_adapter, learn, read_adapter
    from querywise.jobs.adapt import export as write_export
    from querywise.storage import check_model_folder, save

    if export is not None:
        check_export_folder(export)
    if is_adapter(data):
        if vectors or embed:
            raise DataError(f"{data}: this adapter has been trained; leave out --vectors and --embed.")
        adapter = read_adapter(data)
    else:
        if apply is not None:
            raise DataError(f"--apply {apply}: {data} is no adapter. Train one first, with --out.")
        if out is None and export is None:
            raise DataError("Nothing would be written: name a folder for the adapter with --out.")
        if out is not None:
            check_model_folder(out)
        how = retrieval_from(vectors, embed, skip_unknown=skip_unknown)
        with shown(quiet=quiet):
            adapter, notes = learn(data, how, _kind(kind))
        if out is not None:
            save(adapter, out, notes=notes)
    done: JsonObject = {} if out is None else {"out": str(out)}
    if apply is not None or is_adapter(data):
        done |= _applied(adapter, apply, out, exported=export is not None)
    if export is not None:
        write_export(adapter, export)
        done["export"] = str(export)
    _tell_adapted(adapter, done, as_json=as_json, quiet=quiet)


def _kind(text: str) -> Kind:
    if text == "linear":
        return "linear"
    if text == "by-query":
        return "by-query"
    if text != "auto":
        raise DataError(f"--kind {text}: expected auto, linear or by-query.")
    return "auto"


def _applied(adapter: AdaptedVectors, queries: Path | None, out: Path | None, *, exported: bool) -> JsonObject:
    """Write adapted vectors, if requested."""
    from querywise.jobs.adapt import apply

    if queries is None:
        if out is not None:
            raise DataError(f"--out {out}: this adapter has been trained. Name vectors to move with --apply.")
        return {}
    if out is None:
        raise DataError(f"--apply {queries}: name the .npy file for the adapted vectors with --out.")
    return {"vectors": apply(adapter, queries, out)}


def _tell_adapted(adapter: AdaptedVectors, done: JsonObject, *, as_json: bool, quiet: bool) -> None:
    from querywise.jobs.adapt import as_json as in_json
    from querywise.jobs.adapt import p_value

    if as_json:
        print_json({**done, **in_json(adapter)})
    elif not quiet:
        p = p_value(adapter)
        tested = "" if p is None else f" Paired t test: p {p:.2g}."
        say(f"{adapter.said()}{tested} Judged queries used for training: {adapter.teachers_:,}.")
        for name, what in (("vectors", "adapted vectors, saved"), ("out", "Saved in"), ("export", "Exported to")):
            if name in done:
                say(f"{done[name]:,} {what}" if name == "vectors" else f"{what} {done[name]}")
