"""Every format that querywise reads back from a folder or a file: how an example is made, used and signed again.

A format that is added later is one more row of FORMATS; tests/test_hostile_folders.py finds a module of src/ that
decodes stored files and that no row names.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from querywise.clicks.held_out import held_out
from querywise.contracts.protocols import Ranker
from querywise.data.click_files import logged_events
from querywise.data.click_judgments import read_gains
from querywise.data.click_judgments import read_manifest as read_click_manifest
from querywise.data.collections import Collection, collection_of, write_collection
from querywise.data.fields import Fields, FieldSpec
from querywise.data.folds import Fold, make_folds
from querywise.data.judge_log import Line
from querywise.data.judged import Candidates, Judged
from querywise.data.judgements import read_judgements
from querywise.data.letor import (
    read_letor,
    side_runs,
    with_side_files,
    with_side_judgements,
    write_letor,
    write_side_files,
)
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.tables import write_scored_part
from querywise.data.parquet.writing import write_shards
from querywise.data.query_table import QueryTable, read_queries, write_queries
from querywise.data.runs import read_run, write_list
from querywise.data.synthetic import make_judged
from querywise.data.vectors import CollectionVectors, as_vectors, read_vectors
from querywise.errors import QuerywiseError
from querywise.evaluation.compare import compare
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.next_judgments import Pair
from querywise.evaluation.pace import Times
from querywise.evaluation.resume import Kept
from querywise.evaluation.tuning import TunedFit
from querywise.explanations.explain import explain
from querywise.exports.routing import HybridRouter, Router
from querywise.exports.writing import check_export_folder, export_hybrid, export_model
from querywise.jobs import demo
from querywise.jobs.boosts import requests
from querywise.jobs.clicks import ClickOptions, learn
from querywise.jobs.clicks import write as write_clicks
from querywise.jobs.judge import Budget, Judge, Plan
from querywise.jobs.judge import _read_answers as read_answers
from querywise.jobs.judge import _requests as planned_requests
from querywise.jobs.judge import _votes as votes_of
from querywise.jobs.judging import read_draw, write_draw
from querywise.jobs.online import as_json, estimated, examine, sentences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.measures.order import check_scores
from querywise.measures.score_files import read_scores, write_run
from querywise.methods import METHODS
from querywise.online import log as log_module
from querywise.online.log import EventLog, click_record, read_id
from querywise.rankers.weights.fusion import Weights
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.boosts import FieldMatches, matches_of, postings_of_fields, read_boosts
from querywise.retrieval.embedders.named import embedded
from querywise.retrieval.embedders.remote import KeptVectors
from querywise.retrieval.embedders.sentences import check_model_folder
from querywise.retrieval.embedders.static import StaticEmbedder
from querywise.retrieval.embedding import (
    EmbedderRecord,
    query_embedders,
    query_vector,
    require_trained,
    with_embedded,
)
from querywise.retrieval.features import candidates_for, feature_names, judged_candidates, trained_depths
from querywise.retrieval.field_texts import with_fields
from querywise.retrieval.index import build_index, check_index_folder, load_index, save_index
from querywise.retrieval.indexed_vectors import known_embedders, side_by_side, vectors_of, with_usearch, with_vectors
from querywise.retrieval.reading import read_judged
from querywise.retrieval.search import answer
from querywise.runtime.files import SEAL, crc32_of, digest_of, sealed
from querywise.runtime.resume import finish_jobs, resuming
from querywise.runtime.values import JsonObject
from querywise.runtime.workers import workers
from querywise.service.judging import JudgementFile, JudgesFile
from querywise.service.loaded_model import LoadedModel
from querywise.service.online import Online
from querywise.service.schema import InterleaveRequest, KnownQuery, Query
from querywise.storage import load, read_manifest, save, version_of
from tests.fruit import collection
from tests.golden.make import HERE
from tests.golden.worlds import asked
from tests.hostile import Format
from tests.worlds import as_runs

DATA = make_judged(8, 5, 3, kinds=2)
NOTES: JsonObject = {
    "method": "ranksvm",
    "parameters": {"l2": 0.1},
    "tried": [{"parameters": {"l2": 0.1}, "value": 0.5}],
}
VECTORS: JsonObject = {
    "top": 50,
    "vector_top": 50,
    "dimension": 2,
    "embedder": {"name": "lsa", "dimension": 2, "probe": [1.0, 0.5]},
}
_NAMES = ("a", "b")
_TEXTS = ("one text", "another text")


def finite(values: Any) -> None:
    """Fails where a number is not finite."""
    assert np.isfinite(np.asarray(values, dtype=np.float64)).all(), "a number that is not finite"


def _json(path: Path) -> Any:
    require_small(path)
    return json.loads(path.read_text())


def _sha256(path: Path) -> str:
    require_small(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def require_small(path: Path) -> None:
    """What cannot be read in a moment is not signed: a pipe, a device, a terabyte."""
    if not path.is_file() or path.stat().st_size > 10**8:
        raise OSError(path)


def unsigned(folder: Path, member: str) -> None:
    """Of a format that has no checksums."""


# Models


@cache
def _asked(runs: bool) -> Candidates:
    every = (as_runs(asked()) if runs else asked()).candidates
    return every.select(np.array([0, 4, len(every) - 3]))


def _use_ranker(ranker: Ranker, candidates: Candidates) -> None:
    check_scores(ranker.predict(candidates), candidates)
    finite(ranker.answer(candidates).scores())


def _make_model(name: str) -> Callable[[Path], None]:
    return lambda folder: save(load(HERE / name), folder, notes={**NOTES, "vectors": VECTORS, "language": "english"})


def _use_model(folder: Path) -> None:
    version_of(folder)
    manifest, ranker = read_manifest(folder), load(folder)
    candidates = _asked(any(name.startswith("run.") for name in manifest.feature_names or ()))
    _use_ranker(ranker, candidates)
    with suppress(QuerywiseError):  # it may have one model for all
        explain(ranker, candidates, "q4")
    trained = manifest.notes.get("vectors")
    if isinstance(trained, dict):
        require_trained(trained, [EmbedderRecord("lsa", 2, (1.0, 0.5))], "the model")
    depths = trained_depths(manifest.notes)
    assert all(each is None or each > 0 for each in depths)
    if ranker.feature_count_ < 100:
        LoadedModel.settings(_Noted(manifest))  # type: ignore[arg-type]  # of which it reads the manifest alone
        LoadedModel._probe(_Noted(manifest))  # type: ignore[arg-type]


def _make_adapter(folder: Path) -> None:
    chance = np.random.default_rng(0)
    queries, documents = chance.normal(size=(12, 4)), chance.normal(size=(9, 4))
    judgments = {str(each): {str(each % 9): 1.0, str((each + 2) % 9): 2.0} for each in range(12)}
    adapter = AdaptedVectors("by-query", gamma=4.0, l2=0.01, gate=False, landmarks=8)
    save(adapter.fit(queries, documents, judgments), folder)


def _use_adapter(folder: Path) -> None:
    version_of(folder)
    adapter: Any = load(folder)
    moved = adapter.transform(np.eye(4))
    assert np.isfinite(moved).all()
    assert np.isfinite(adapter.explain(moved[0]).cosine)
    adapter.said()


class _Noted:
    def __init__(self, manifest: Any) -> None:
        self.manifest = manifest


def sign_model(folder: Path, member: str) -> None:
    """The checksum of the arrays, if they have changed, and that of the manifest."""
    path = folder / "manifest.json"
    body = _json(path)
    if member.startswith("arrays-"):
        body["arrays"]["sha256"] = _sha256(folder / member)
    body.pop("sha256", None)
    path.write_text(json.dumps({**body, "sha256": digest_of(body)}))


def _sign_inner(folder: Path, member: str) -> None:
    """Of a model inside another folder."""
    inner, _, name = member.rpartition("/")
    if inner:
        sign_model(folder / inner, name)


# Indexes


def _make_index(folder: Path) -> None:
    save_index(build_index(list(collection().documents())[:12]), folder)


def _make_index_with_lsa(folder: Path) -> None:
    documents = list(collection().documents())[:12]
    save_index(with_embedded(build_index(documents), documents, "lsa"), folder)


def _make_index_with_usearch(folder: Path) -> None:
    documents = list(collection().documents())[:12]
    ids = [each.id for each in documents]
    values = np.random.default_rng(0).normal(size=(12, 4))
    vectors = CollectionVectors(as_vectors(ids[::-1], values), titles=as_vectors(ids, values.astype(np.float32)))
    save_index(with_usearch(with_vectors(build_index(documents), vectors)), folder)


def _make_index_of_several(folder: Path) -> None:
    documents = list(collection().documents())[:12]
    index, ids = build_index(documents), [each.id for each in documents]
    values = np.random.default_rng(0).normal(size=(12, 4))
    files = with_vectors(index, CollectionVectors(as_vectors(ids, values)))
    save_index(side_by_side(index, [with_embedded(index, documents, "lsa:3"), files]), folder)


def _make_index_with_fields(folder: Path) -> None:
    known = shop()
    assert known.fields is not None
    save_index(with_fields(build_index(known.documents()), known.documents(), known.fields), folder)


def _use_index(folder: Path) -> None:
    check_index_folder(folder)
    index = load_index(folder)
    texts = ("apple juice", "pear trees in a field")
    for text in texts:
        for found in answer(index, text):
            finite([found.score, found.bm25])
            found.title.encode("utf-8", "surrogatepass")
    vectors, known = vectors_of(index), known_embedders(index.notes)
    table = QueryTable(texts, texts=texts)
    if vectors is not None:
        by_embedder = None not in known
        rows = [query_vector(index, text) if by_embedder else np.ones(vectors.dimension) for text in texts]
        table = replace(table, vectors=np.array(rows))
        with suppress(QuerywiseError):  # the operator names what the index does not know
            query_embedders(index, ["lsa:2"])
        records = [None if each is None else EmbedderRecord.from_json(each, "it") for each in known]
        with suppress(QuerywiseError):  # another one
            require_trained({"dimension": 2, "embedder": VECTORS["embedder"]}, records, "the model")
    finite(candidates_for(index, table).features)
    feature_names(index)
    postings_of_fields(index)


def sign_index(folder: Path, member: str) -> None:
    """Sizes and checksums of the arrays, and the seal of the manifest."""
    path = folder / "manifest.json"
    manifest = _json(path)
    if member.endswith(".npy"):
        name = member.removesuffix(".npy")
        path_of = folder / member
        manifest["bytes"][name] = path_of.stat().st_size if path_of.exists() else 0
        small = path_of.is_file() and path_of.stat().st_size < 10**8
        manifest["crc32"][name] = crc32_of(path_of) if small else 0
    manifest.pop(SEAL, None)
    path.write_text(json.dumps(sealed(manifest)))


# Vectors


def _make_cache(folder: Path) -> None:
    KeptVectors(folder, "model").add(_TEXTS, np.array([[1.0, 2.0], [0.5, -1.0]], np.float32))
    KeptVectors(folder, "model").add(["third text"], np.array([[3.0, 4.0]], np.float32))


def _use_cache(folder: Path) -> None:
    kept = KeptVectors(folder, "model")
    found = kept.found((*_TEXTS, "third text"))
    if found:
        rows = np.array(list(found.values()))
        finite(embedded(lambda _: rows, list(found), name="cache", dimension=kept.dimension))


def sign_cache(folder: Path, member: str) -> None:
    """The name of a file is its checksum."""
    path = folder / member
    path.rename(path.with_name(f"{_sha256(path)[:32]}.npy"))


def _make_vectors(folder: Path) -> None:
    values = np.array([[1.0, 2.0], [0.5, -1.0]], np.float32)
    np.save(folder / "documents.npy", values)
    (folder / "documents.json").write_text(json.dumps(["D1", "D2"]))
    from safetensors.numpy import save_file

    save_file({"queries": values}, folder / "queries.safetensors", {"ids": json.dumps(["q1", "q2"])})
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"_id": ["D1", "D2"], "vector": values.tolist()}), folder / "titles.parquet")


def _use_vectors(folder: Path) -> None:
    found = read_vectors(folder)
    for each in (found.documents, found.queries, found.titles):
        if each is not None:
            finite(each.of(each.ids, "the corpus"))
            finite(each.lengths)


def _make_static(folder: Path) -> None:
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"apple": 0, "juice": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(folder / "tokenizer.json"))
    save_file({"table": np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 0.0]], np.float32)}, folder / "table.safetensors")


def _use_static(folder: Path) -> None:
    finite(embedded(StaticEmbedder.from_folder(str(folder)), ["apple juice", "pear"], name="static"))


# Judged data


def _judged() -> Judged:
    made = collection()
    documents = list(made.documents())[:8]
    known = {each.id for each in documents}
    assert made.queries is not None
    chosen = replace(
        made,
        documents=lambda: documents,
        queries=made.queries.select(made.queries.ids[:4]),
        judgements=tuple(
            each for each in made.judgements if each.document in known and each.query in made.queries.ids[:4]
        ),
    )
    return judged_candidates(chosen, build_index(documents))[0]


def _make_shards(folder: Path) -> None:
    folder.rmdir()
    write_shards([_judged()], folder, rows=12)


def _use_shards(folder: Path) -> None:
    shards = open_shards(folder)
    whole = shards.load()
    finite(whole.candidates.features)
    finite(RankSVM().fit(shards).weights_)
    shards.fingerprint()


def sign_shards(folder: Path, member: str) -> None:
    """The checksums of the files, and the seal of the manifest."""
    path = folder / "shards.json"
    said = _json(path)
    if member.startswith("part-"):
        next(each for each in said["shards"] if each["file"] == member)["sha256"] = _sha256(folder / member)
    names = {"queries.jsonl": "queries_sha256", "judgements.parquet": "judgements_sha256"}
    if member in names:
        said[names[member]] = _sha256(folder / member)
    said.pop(SEAL, None)
    path.write_text(json.dumps(sealed(said)))


def _make_features(folder: Path) -> None:
    judged = _judged()
    write_letor(folder / "train.txt", judged)
    write_side_files(judged, folder)
    grades = {query: {"D": 1} for query in judged.query_ids}
    (folder / "train.qrels").write_text("".join(f"{query} 0 other {own['D']}\n" for query, own in grades.items()))
    with_labels = zip(judged.candidates.query_of_row.tolist(), judged.labels.tolist(), strict=True)
    lines = [
        f"{judged.query_ids[query]} 0 {judged.candidates.document_label(row)} {label}\n"
        for row, (query, label) in enumerate(with_labels)
        if judged.judged is None or judged.judged[row]
    ]
    with (folder / "train.qrels").open("a") as out:
        out.writelines(lines)
    names = judged.candidates.feature_names or ()
    if not side_runs(folder, names):
        run = read_run(_written_run(folder / "bm25.trec", judged))
        write_list(folder / "vectors.trec", replace(run, name="vectors"))


def _written_run(path: Path, judged: Judged) -> Path:
    write_run(path, judged.candidates, judged.candidates.features[:, 0], tag="bm25")
    return path


def _use_features(folder: Path) -> None:
    judged = with_side_judgements(with_side_files(read_letor(folder / "train.txt"), folder), [folder / "train.txt"])
    finite(judged.candidates.features)
    for name in ("bm25.trec", "vectors.trec"):
        if (folder / name).is_file():
            run = read_run(folder / name)
            finite([score for own in run.scores.values() for score in own.values()])
            finite(read_scores(folder / name, _judged_once().candidates))
    finite(RankSVM().fit(judged).weights_)


@cache
def _judged_once() -> Judged:
    return _judged()


def _make_collection(folder: Path) -> None:
    made = collection()
    documents = list(made.documents())[:6]
    known = {each.id for each in documents}
    judgements = tuple(each for each in made.judgements if each.document in known)
    write_collection(replace(made, documents=lambda: documents, judgements=judgements), folder)


def _use_text(folder: Path) -> None:
    finite(read_judged(folder).candidates.features)


_SHOP: list[dict[str, Any]] = [
    {"_id": "D1", "name": "Red sofa", "makers": ["acme", "best"], "price": 300, "made": "2021-05-01", "new": True},
    {"_id": "D2", "name": "Blue sofa", "makers": ["acme"], "price": 20.5, "made": "1999", "new": False},
    {"_id": "D3", "name": "Red chair", "makers": [], "price": None, "made": None},
]
_KINDS = {"name": "text", "makers": "keyword", "price": "number", "made": "date", "new": "boolean"}


def shop() -> Collection:
    """A collection whose documents have fields of every kind."""
    fields = Fields(tuple(FieldSpec(name, kind) for name, kind in _KINDS.items()), "name", ("name",))
    return collection_of(
        _SHOP, {"q1": "red sofa", "q2": "acme"}, [("q1", "D1", 1), ("q1", "D3", 0), ("q2", "D2", 2)], fields=fields
    )


def _make_shop(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write_collection(shop(), folder)
        if kind != "jsonl":
            (folder / "corpus.jsonl").unlink()
            rows = [{**each, "makers": " ".join(each["makers"])} for each in _SHOP]
            names = [*rows[0]]
            lines = [names, *([str(each.get(name) or "") for name in names] for each in rows)]
            if kind == "parquet":
                import pyarrow as pa
                from pyarrow import parquet

                parquet.write_table(pa.Table.from_pylist(rows), folder / "corpus.parquet")
            else:
                text = "\n".join(("\t" if kind == "tsv" else ",").join(line) for line in lines)
                (folder / f"corpus.{kind}").write_text(text + "\n")

    return make


def _use_shop(folder: Path) -> None:
    for candidates in ("found", "judged"):
        finite(read_judged(folder, candidates=candidates).candidates.features)


def _make_draw(folder: Path) -> None:
    write_draw(folder / "next.tsv", [Pair("a", "d1", 0.5, 0.25), Pair("a", "d2", 0.75, 0.5), Pair("b", "d1", 1.0, 1.0)])


def _use_draw(folder: Path) -> None:
    finite([number for each in read_draw(folder / "next.tsv") for number in (each.share, each.priority)])


def _make_boosts(folder: Path) -> None:
    (folder / "boosts.json").write_text('{"type": "dismax", "boosts": {"title": 3, "body": 1}, "tie_breaker": 0.3}')


def _use_boosts(folder: Path) -> None:
    found = read_boosts(folder / "boosts.json", ["title", "body"])
    finite(list(found.boosts.values()))
    finite(_matches().scores(found))
    finite(list(found.rounded.boosts.values()))
    json.dumps(requests(found), allow_nan=False)


@cache
def _matches() -> FieldMatches:
    made = collection()
    return matches_of(made, build_index(made.documents()))[1]


def _make_scored(folder: Path) -> None:
    write_scored_part(folder / "part-00000.parquet", _named().candidates, _named().candidates.features[:, 0])


def _named() -> Judged:
    ids = tuple(f"D{row}" for row in range(len(DATA.labels)))
    return replace(DATA, candidates=replace(DATA.candidates, document_ids=ids))


def _use_scored(folder: Path) -> None:
    finite(read_scores(folder, _named().candidates))


def _make_log(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = {"qid": ["1", "1", "2"], "docid": ["a", "b", "c"], "label": [1, 0, 2], "bm25": [0.5, 1.5, 2.5]}
    parquet.write_table(pa.table(table), folder / "log.parquet")


def _use_log(folder: Path) -> None:
    finite(read_judged(folder / "log.parquet").candidates.features)


# Work that is kept


@cache
def _fold() -> tuple[Fold, dict[str, Any]]:
    method = METHODS["knn-offline-2"]
    fit = TunedFit(method.build, {"l2": (0.1, 1.0)}, fixed={"k": 0.4})
    return make_folds(make_judged(12, 5, 3, kinds=2), folds=3)[0], {"ours": fit}


def _make_kept(folder: Path) -> None:
    fold, fits = _fold()
    compare(fits, make_folds(make_judged(12, 5, 3, kinds=2), folds=3), kept=Kept(folder, {"ours": {"l2": 1}}))
    for path in folder.glob("fold[23]*"):
        path.unlink()
    assert Kept(folder, {"ours": {"l2": 1}}).get(0, "ours", fold) is not None


def _use_kept(folder: Path) -> None:
    found = Kept(folder, {"ours": {"l2": 1}}).get(0, "ours", _fold()[0])
    if found is not None:
        finite(found.scores)
        repr(found)
        finite([each.value for each in found.tried])


def sign_kept(folder: Path, member: str) -> None:
    """The checksum of the scores, which their record has."""
    if member.endswith(".csv"):
        record = (folder / member).with_suffix(".json")
        record.write_text(json.dumps({**_json(record), "scores": _sha256(folder / member)}))


def _make_training(folder: Path) -> None:
    folder = folder / "kept"

    def job(number: int) -> Any:
        if number == 2:
            raise KeyError  # the work is cut here
        return RankSVM().fit(DATA) if number else np.arange(4.0)

    try:
        with resuming(folder, {"l2": 1}, save=save, load=load):
            finish_jobs(workers(), job, range(3), "Jobs", "these")
    except KeyError:
        return


def _use_training(folder: Path) -> None:
    def job(number: int) -> Any:
        return RankSVM().fit(DATA) if number else np.arange(4.0)

    with resuming(folder / "kept", {"l2": 1}, save=save, load=load):
        found = finish_jobs(workers(), job, range(3), "Jobs", "these")
        for each in found:
            finite(each if isinstance(each, np.ndarray) else each.predict(DATA))


@contextmanager
def _caching(folder: Path) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def _make_sentences(folder: Path) -> None:
    kinds = ("Transformer", "Pooling")
    modules = [{"idx": i, "path": "", "type": f"sentence_transformers.models.{each}"} for i, each in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))


def _make_times(folder: Path) -> None:
    fold, fits = _fold()
    with _caching(folder):
        Times().keep([("ours", fits["ours"], fold.train, 2.5), ("theirs", fits["ours"], fold.train, 0.5)])


def _use_times(folder: Path) -> None:
    fold, fits = _fold()
    with _caching(folder):
        known = Times()
        for name in ("ours", "theirs"):
            took = known.seconds(name, fits["ours"], fold.train)
            assert took is None or 0 <= took < float("inf"), took
        known.keep([("ours", fits["ours"], fold.train, 2.5)])


def _make_demo_times(folder: Path) -> None:
    with _caching(folder):
        for kind in ("few-1", "few-5", "all-1", "all-5"):
            demo._timed(kind, 41.2)


def _use_demo_times(folder: Path) -> None:
    with _caching(folder):
        assert all(0 < took < float("inf") for took in demo._known_times().values())
        assert demo._timed("few-1", 41.2).startswith("This took 41 s")


def _make_judging(folder: Path) -> None:
    (folder / "judged.qrels").write_text("q1 0 D1 1\nq1 0 D2 0\n")
    (folder / "judged.qrels.judged-log").write_text("q1 0 D1 2\nq2 0 D3 1\nq1 0 D2 -\n")
    made = JudgementFile(folder / "judged.qrels", most_bytes=10**6, whole_bytes=0)
    made.judge(KnownQuery("q3", text="the words"), "D1", 1)


def _use_judging(folder: Path) -> None:
    made = JudgementFile(folder / "judged.qrels", most_bytes=10**6, whole_bytes=0)
    grades = [*made.of("q1").values(), *made.of("q2").values()]
    assert all(isinstance(each, int) for each in grades)
    made.judge(KnownQuery("q4", text="other words"), "D1", 1)
    assert made.of("q4") == {"D1": 1}


def _asked_judge(kept: Mapping[str, JsonObject]) -> Plan:
    judge, pool = Judge("http://localhost:1/v1/chat/completions#m"), {"q1": ["D1", "D2"], "q2": ["D1"]}
    requests = tuple(planned_requests(judge, pool, {"q1": "one", "q2": "two"}, {"D1": "a text", "D2": "another"}))
    return Plan(judge, "http://localhost:1/", 3, requests, kept, Budget())


def _make_answers(folder: Path) -> None:
    with (folder / "cheap.qrels.answers.jsonl").open("w") as out:
        for each in _asked_judge({}).requests:
            answer = {"query": each.query, "documents": [*each.documents], "grades": [2], "source": "m"}
            out.write(json.dumps({"key": each.key, **answer}) + "\n")


def _use_answers(folder: Path) -> None:
    kept, _ = read_answers(folder / "cheap.qrels.answers.jsonl")
    planned = _asked_judge(kept)
    votes = [grade for own in votes_of(planned, kept).values() for each in own.values() for grade in each]
    assert all(0 <= grade <= 3 for grade in votes), votes


def _make_judges(folder: Path) -> None:
    (folder / "judged.qrels").write_text("q1 0 D1 1\n")
    lines = 'q1 0 D1 2\nq1 ann D1 3\nq1 bob D1 1\nq1 bob D1 undo\nq1 ann D2 note "a word"\nq1 bob D2 -\n'
    (folder / "judged.qrels.judged-log").write_text(lines)


def _use_judges(folder: Path) -> None:
    made = JudgesFile(folder / "judged.qrels", most_bytes=10**6)
    finite([each.grade for each in read_judgements(folder / "judged.qrels")])
    made.keep(lambda _: Line("eve", "q4", "D1", 1, ""))
    assert made.look(lambda found: found.grades_of("eve")) == {"q4": {"D1": 1}}


# Exports


def _make_export(folder: Path) -> None:
    folder.rmdir()
    export_model(METHODS["naive"].build(clusters=2).fit(DATA), "opensearch", folder)


def _use_export(folder: Path) -> None:
    check_export_folder(folder, "opensearch", force=True)
    router = Router(folder)
    documents = [DATA.candidates.features[0].tolist()]
    assert isinstance(router.model("buy apple juice", documents=documents), str)
    finite(list(router.weights("buy apple juice", documents=documents).values()))
    assert router.requests in (1, 2)
    router.about_class("buy")


def _weights() -> Ranker:
    return Weights().fit(as_runs(DATA, _NAMES))


def _make_hybrid(engine: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        folder.rmdir()
        export_hybrid(_weights(), engine, folder)

    return make


def _use_hybrid(folder: Path) -> None:
    router = HybridRouter(folder)
    finite(list(router.weights("words").values()))
    request = router.request("words", vector=[0.5, 1.0])
    assert "secret" not in json.dumps(request).replace("outside/secret", ""), "what a file outside holds"


_CLICKS = "query,document,position,clicked,session,time\n" + "".join(
    f"{query},{document},{place},{int((row + place) % 3 == 0)},{row},{1_700_000_000 + row}\n"
    for row, query in enumerate(["sofa", "chair", "sofa", "table"])
    for place, document in enumerate("abc", 1)
)


def _make_clicks(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "clicks.csv").write_text(_CLICKS)
    names, *rows = [line.split(",") for line in _CLICKS.splitlines()]
    table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pa.table({**table, "clicked": list(map(int, table["clicked"]))}), folder / "clicks.parquet")
    more = {"object": {"object_id": "b"}, "position": {"ordinal": 2}}
    records = [
        {
            "query_id": "1",
            "user_query": "sofa",
            "timestamp": "2024-12-10T00:00:05Z",
            "query_response_hit_ids": ["a", "b"],
        },
        {"query_id": "1", "action_name": "click", "timestamp": "2024-12-10T00:00:06Z", "event_attributes": more},
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))


def _use_clicks(folder: Path) -> None:
    asked = ClickOptions(model="document-ctr", borrow="off")
    for name in ("clicks.csv", "clicks.parquet", "events.jsonl"):
        if (folder / name).is_file():
            found = learn(str(folder / name), asked)
            write_clicks(folder / "out", found, asked, report=True)
            finite([list(each) for own in read_gains(folder / "out").values() for each in own.values()])
            assert set(read_gains(folder / "out")) == set(read_queries(folder / "out" / "queries.jsonl").ids)


def _make_event_log(folder: Path) -> None:
    """A file that was packed, and one that is added to."""
    _add_events(folder, range(4))
    for each in folder.glob("*.ndjson"):
        log_module._packed(each)
    _add_events(folder, range(2, 6))
    (folder / ".orders.jsonl").write_text('{"query": "sofa 0", "documents": ["D2", "D1"]}\n')


def _add_events(folder: Path, numbers: Iterable[int]) -> None:
    online = Online(EventLog(folder))
    for number in numbers:
        rankings = {"a": ["D1", "D2"], "b": ["D2", "D3"]}
        shown = online.interleaved(InterleaveRequest(Query(text=f"sofa {number % 2}"), rankings, session=f"{number}"))
        line = click_record(shown.impression, shown.documents[0], "click", 1, 1_700_000_000.0)
        online.log.add(partial(bytes, line), len(line), awaited=True)
    online.log.close()


def _use_event_log(folder: Path) -> None:
    log = EventLog(folder)
    log.close()
    assert len(log.key) == 32
    found = learn(str(folder), ClickOptions(model="document-ctr", borrow="off"))
    finite(found.judgments.gain)
    for _, record in logged_events(folder):
        read_id(str(record.get("query_id")), log.key)
    verdict, noted, names = examine(folder)
    json.dumps(as_json(verdict, noted, names), allow_nan=False)
    sentences(verdict, noted)
    with suppress(QuerywiseError):  # these draws are open for half an hour
        finite([each.clicks for each in estimated(folder, folder / ".orders.jsonl")])


def _make_click_folder(folder: Path) -> None:
    (folder / "clicks.json").write_text('{"model": "pbm", "judgments": 2}')
    (folder / "gains.tsv").write_text(
        "query-id\tcorpus-id\tgain\terror\tlabel\nq1\tD1\t0.5\t0.1\t2\nq2\tD2\t0.25\t0\t1\n"
    )


def _use_click_folder(folder: Path) -> None:
    read_click_manifest(folder)
    finite([list(each) for own in read_gains(folder).values() for each in own.values()])


def _make_clicked_features(pairs: bool) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        (folder / "clicks.json").write_text('{"model": "pbm", "judgments": 4, "weights": true}')
        lines = ["q1\tD1\t0.5\t0.1\t2", "q1\tD2\t0.25\t0\t1", "q2\tD1\t0.5\t0.2\t0", "q2\tD2\t0.75\t0.1\t1.5"]
        (folder / "gains.tsv").write_text("query-id\tcorpus-id\tgain\terror\tlabel\n" + "\n".join(lines) + "\n")
        columns = {"qid": ["q1", "q1", "q2", "q2"], "docid": ["D1", "D2"] * 2, "bm25": [0.5, 1.5, 2.5, 0.0]}
        if pairs:
            (folder / "weights.tsv").write_text("q1\t1.5\nq2\t0.75\n")
            columns["label"] = [1, 0, 1, 0]
        parquet.write_table(pa.table(columns), folder / "features.parquet")

    return make


def _use_clicked_features(folder: Path) -> None:
    judged = read_judged(folder)
    finite(judged.candidates.features)
    finite([] if judged.gains is None else judged.gains)
    finite(RankSVM().fit(judged).weights_)
    finite(evaluate(np.arange(len(judged.labels), dtype=float), judged)["ndcg@10"])


def _use_clicked_text(folder: Path) -> None:
    _use_clicked_features(folder)
    later = held_out(folder)
    if later is not None:
        finite([list(each) for own in later.gains.values() for each in own.values()])


def _make_clicked_text(folder: Path) -> None:
    (folder / "log").mkdir()
    _make_clicks(folder / "log")
    made = collection_of([{"id": each, "title": f"{each} sofa", "text": "chair"} for each in "abc"])
    write_collection(made, folder / "shop")
    asked = ClickOptions(model="document-ctr", borrow="off")
    found = learn(str(folder / "log" / "clicks.csv"), asked)
    write_clicks(folder / "out", found, asked, collection=folder / "shop")
    for path in (folder / "out").iterdir():
        path.rename(folder / path.name)
    for name in ("log", "shop", "out"):
        shutil.rmtree(folder / name)


def _letor_queries(folder: Path) -> None:
    table = QueryTable(_NAMES, texts=_TEXTS, classes=("c", None), columns=np.ones((2, 1)), column_names=("clicks",))
    write_queries(folder / "queries.jsonl", replace(table, vectors=np.ones((2, 2)), groups=("g", "h")))
    (folder / "train.txt").write_text("1 qid:a 1:0.5\n0 qid:a 1:0.25\n0 qid:b 1:0.5\n1 qid:b 1:0.75\n")


def _use_queries(folder: Path) -> None:
    judged = read_judged(folder / "train.txt")
    finite(judged.candidates.features)
    table = judged.candidates.queries
    if table is not None:
        finite([] if table.columns is None else table.columns)
        finite([] if table.vectors is None else table.vectors)


_STORAGE = ("storage/models.py",)
_EXPORT = ("exports/manifest.py", "exports/routing.py", "exports/writing.py")
_INDEX = ("retrieval/index.py", "runtime/files.py")
FORMATS = (
    Format("a model folder", _make_model("ranksvm"), _use_model, sign_model, _STORAGE),
    Format("a model of forests", _make_model("lambdamart"), _use_model, sign_model, _STORAGE),
    Format("a routed model", _make_model("naive-text-soft"), _use_model, sign_model, _STORAGE),
    Format("an adapter", _make_adapter, _use_adapter, sign_model, _STORAGE),
    Format("an index", _make_index, _use_index, sign_index, _INDEX),
    Format("an index with embedded documents", _make_index_with_lsa, _use_index, sign_index, _INDEX),
    Format("an index of several embedders", _make_index_of_several, _use_index, sign_index, _INDEX),
    Format("an index with fields", _make_index_with_fields, _use_index, sign_index, _INDEX),
    Format("an index with a usearch graph", _make_index_with_usearch, _use_index, sign_index, _INDEX),
    Format("a cache of vectors", _make_cache, _use_cache, sign_cache, ("retrieval/embedders/remote.py",)),
    Format(
        "a folder of vectors",
        _make_vectors,
        _use_vectors,
        unsigned,
        ("data/vectors.py", "data/parquet/arrow.py"),
        linked=True,
    ),
    Format("a static embedder", _make_static, _use_static, unsigned, ("retrieval/embedders/static.py",), linked=True),
    Format(
        "a folder of sentence-transformers",
        _make_sentences,
        check_model_folder,
        unsigned,
        ("retrieval/embedders/sentences.py",),
        linked=True,
    ),
    Format(
        "a folder of shards",
        _make_shards,
        _use_shards,
        sign_shards,
        ("data/parquet/shards.py", "data/parquet/arrow.py", "data/query_table.py"),
        linked=True,
    ),
    Format("a Parquet log", _make_log, _use_log, unsigned, ("data/parquet/arrow.py",), linked=True),
    Format("parts of scores", _make_scored, _use_scored, unsigned, ("data/parquet/arrow.py",), linked=True),
    Format(
        "features and side files",
        _make_features,
        _use_features,
        unsigned,
        ("data/letor.py", "data/letor.py", "data/compressed.py", "measures/score_files.py", "data/query_table.py"),
        linked=True,
    ),
    Format("data of queries", _letor_queries, _use_queries, unsigned, ("data/query_table.py",), linked=True),
    Format("a text collection", _make_collection, _use_text, unsigned, ("data/collections.py",), linked=True),
    *(
        Format(
            f"documents with fields in {kind}",
            _make_shop(kind),
            _use_shop,
            unsigned,
            ("data/records.py", "data/fields.py", "data/collections.py"),
            linked=True,
        )
        for kind in ("jsonl", "csv", "tsv", "parquet")
    ),
    Format("boosts of fields", _make_boosts, _use_boosts, unsigned, ("retrieval/boosts.py",), linked=True),
    Format(
        "click logs", _make_clicks, _use_clicks, unsigned, ("clicks/readers.py", "data/click_files.py"), linked=True
    ),
    Format(
        "the log of an experiment",
        _make_event_log,
        _use_event_log,
        unsigned,
        ("online/log.py", "clicks/readers.py", "jobs/online.py", "data/parquet/events.py"),
    ),
    Format(
        "judgments from clicks",
        _make_click_folder,
        _use_click_folder,
        unsigned,
        ("data/click_judgments.py",),
        linked=True,
    ),
    *(
        Format(
            f"{what} from clicks with features",
            _make_clicked_features(what == "pairs"),
            _use_clicked_features,
            unsigned,
            ("data/click_judgments.py", "data/parquet/arrow.py"),
            linked=True,
        )
        for what in ("judgments", "pairs")
    ),
    Format(
        "judgments from clicks with texts",
        _make_clicked_text,
        _use_clicked_text,
        unsigned,
        ("data/click_judgments.py", "data/collections.py", "clicks/held_out.py"),
        linked=True,
    ),
    Format("a draw of what to judge", _make_draw, _use_draw, unsigned, ("jobs/judging.py",), linked=True),
    Format("kept results", _make_kept, _use_kept, sign_kept, ("evaluation/resume.py", "runtime/resume.py")),
    Format("an unfinished training", _make_training, _use_training, _sign_inner, ("runtime/resume.py",)),
    Format("times of methods", _make_times, _use_times, unsigned, ("evaluation/pace.py",)),
    Format("times of the demonstration", _make_demo_times, _use_demo_times, unsigned, ("jobs/demo.py",)),
    Format(
        "a log of judgements",
        _make_judging,
        _use_judging,
        unsigned,
        ("service/judging.py", "data/judgements.py"),
        named=("judged.qrels",),
    ),
    Format(
        "a log of judges with names",
        _make_judges,
        _use_judges,
        unsigned,
        ("service/judging.py", "data/judge_log.py", "data/judgements.py"),
        named=("judged.qrels",),
    ),
    Format("kept answers of a judge", _make_answers, _use_answers, unsigned, ("jobs/judge.py",), linked=True),
    Format("an export of models", _make_export, _use_export, _sign_inner, _EXPORT),
    *(
        Format(f"an export for {engine}", _make_hybrid(engine), _use_hybrid, _sign_inner, _EXPORT)
        for engine in ("opensearch-hybrid", "postgres")
    ),
)


# A reader that does what a file says, of which the harness must tell.


def _make_acting(folder: Path) -> None:
    (folder / "acts.json").write_text(json.dumps({"do": "nothing"}))


def _act(folder: Path) -> None:
    do = _json(folder / "acts.json")["do"]
    if do.startswith("http"):
        with socket.create_connection(urlsplit(do).netloc.split(":")):
            return
    if do == "nan":
        time.sleep(12)
    elif do.startswith(";"):
        os.system(do.removeprefix(";"))
    elif do.startswith("/"):
        os.open(do, os.O_RDONLY | os.O_NONBLOCK)
    elif do == "antigravity":
        import_module("this")
    elif not do.isprintable():
        error = QuerywiseError()
        error.args = (do,)
        raise error


ACTING = Format("what acts", _make_acting, _act, unsigned, ())
