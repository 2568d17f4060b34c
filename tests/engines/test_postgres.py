"""The SQL of an export of weights, in PostgreSQL with pgvector: the ranking that the model gives to the same lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.judgements import Judgement
from querywise.data.normalisation import ENGINE_NORMALISATIONS
from querywise.data.query_table import QueryTable
from querywise.data.run_columns import Run
from querywise.data.runs import judge, tabulate_runs
from querywise.exports.routing import HybridRouter
from querywise.exports.writing import export_hybrid
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.rankers.weights.fusion import Weights
from querywise.storage import save
from tests.engines import postgres
from tests.engines.artifacts import UnavailableError
from tests.engines.conftest import without
from tests.serving import serving

_TEXT = "disk space free file copy paper print colour network cable slow fast restart screen black battery"
WORDS = _TEXT.split()
WIDTH, DOCUMENTS, QUERIES = 6, 250, 24
Connection = psycopg.Connection[tuple[Any, ...]]


def bodies() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size=int(rng.integers(4, 25)))) for _ in range(DOCUMENTS)]


def meaning(text: str) -> list[float]:
    """A vector of a text: sums of vectors of its words."""
    rng = np.random.default_rng(1)
    table = dict(zip(WORDS, rng.standard_normal((len(WORDS), WIDTH)), strict=True))
    total = sum((table[word] for word in text.split() if word in table), np.full(WIDTH, 0.1))
    return [float(np.float32(each)) for each in total]


def texts() -> list[str]:
    """Queries of two kinds: words tell for one, vectors for the other."""
    rng = np.random.default_rng(2)
    halves = (WORDS[:8], WORDS[8:])
    return [
        " or ".join(rng.choice(halves[number % 2], size=2 + number % 3, replace=False)) for number in range(QUERIES)
    ]


def relevant(body: str, query: int) -> bool:
    text = texts()[query]
    if query % 2 == 0:
        return sum(body.split().count(word) for word in text.split()) > 3
    one, other = np.array(meaning(body)), np.array(meaning(text))
    return bool(one @ other > 0.75 * np.linalg.norm(one) * np.linalg.norm(other))


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    try:
        postgres.fetch()
    except UnavailableError as error:
        without(error)
    with postgres.serving() as words, psycopg.connect(words) as made:
        made.execute("CREATE EXTENSION vector")
        made.execute(
            "CREATE TABLE pages (id text PRIMARY KEY, body text, vector vector(6), "
            "words tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED)"
        )
        for number, body in enumerate(bodies()):
            given = (f"d{number:03}", body, json.dumps(meaning(body)))
            made.execute("INSERT INTO pages (id, body, vector) VALUES (%s, %s, %s::vector)", given)
        yield made


def asked(connection: Connection, sql: str, parameters: dict[str, Any]) -> list[tuple[str, float]]:
    found = connection.execute(sql, parameters).fetchall()
    return [(str(name), float(score)) for name, score in found]


def filled_in(folder: Path) -> None:
    """The places marked EDIT_ME, as the README of the export says."""
    path = folder / "query.sql"
    text = path.read_text()
    for place, name in (("tsvector", "words"), ("vector", "vector"), ("table", "pages")):
        text = text.replace(f"EDIT_ME_{place}", name)
    assert "EDIT_ME" not in text
    path.write_text(text.replace("LIMIT 10;", "LIMIT 1000;"))


@pytest.fixture(scope="module")
def lists(connection: Connection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, float]]]:
    """The lists that PostgreSQL makes, by run and query: the inner queries of the export's own SQL."""
    folder = tmp_path_factory.mktemp("lists") / "export"
    data = judged({"words": {"q0": {"d000": 1.0}}, "vectors": {"q0": {"d000": 0.5, "d001": 0.25}}})
    export_hybrid(Weights().fit(data), "postgres", folder)
    filled_in(folder)
    sql = (folder / "query.sql").read_text()
    found: dict[str, dict[str, dict[str, float]]] = {"words": {}, "vectors": {}}
    for number, text in enumerate(texts()):
        for run, own in found.items():
            inner = sql.split(f'"{run} list" AS (\n')[1].split("\n)")[0]
            given = {"text": text} if run == "words" else {"vector": json.dumps(meaning(text))}
            own[f"q{number}"] = dict(asked(connection, inner, given))
    assert all(own for run in found.values() for own in run.values())
    return found


def judged(lists: dict[str, dict[str, dict[str, float]]]) -> Judged:
    """The lists as training data."""
    table = tabulate_runs([Run(run, own) for run, own in lists.items()])
    known = bodies()
    grades = [
        Judgement(f"q{query}", name, int(relevant(known[int(name[1:])], query)), "here")
        for query in range(QUERIES)
        for name in sorted({each for own in lists.values() for each in own.get(f"q{query}", {})})
    ]
    data = judge(table, grades)[0]
    ids = data.candidates.query_ids
    vectors = np.array([meaning(texts()[int(query[1:])]) for query in ids])
    queries = QueryTable(ids, texts=tuple(texts()[int(query[1:])] for query in ids), vectors=vectors)
    return replace(data, candidates=replace(data.candidates, queries=queries))


def check(connection: Connection, ranker: Ranker, data: Judged, folder: Path) -> float:
    """Rank every query in PostgreSQL as the export says; the largest difference of a score to the model's."""
    export_hybrid(ranker, "postgres", folder)
    filled_in(folder)
    router, predicted, largest = HybridRouter(folder), ranker.predict(data.candidates), 0.0
    assert data.candidates.document_ids is not None
    for query, name in enumerate(data.candidates.query_ids):
        text, rows = texts()[int(name[1:])], data.candidates.rows(query)
        request: Any = router.request(text, vector=meaning(text))
        found = asked(connection, request["sql"], request["parameters"])
        ours = dict(zip(data.candidates.document_ids[rows], predicted[rows].tolist(), strict=True))
        assert set(ours) == {each for each, _ in found}
        largest = max(largest, *(abs(ours[each] - score) for each, score in found))
        in_order = sorted(found, key=lambda pair: (-round(pair[1], 12), pair[0]))
        assert [each for each, _ in in_order] == sorted(ours, key=lambda each: (-round(ours[each], 12), each))
    return largest


@pytest.mark.parametrize("normalise", ENGINE_NORMALISATIONS)
def test_postgres_ranks_as_the_model_does(
    normalise: Any, connection: Connection, lists: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    largest = check(connection, Weights(normalise).fit(judged(lists)), judged(lists), tmp_path / "export")
    assert largest < 1e-12


def test_queries_have_weights_of_their_own_and_the_service_gives_them(
    connection: Connection, lists: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    data = judged(lists)
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5).fit(data)
    assert len(np.unique(ranker.run_weights(data.candidates)[:, 0])) > 3
    assert check(connection, ranker, data, tmp_path / "export") < 1e-12
    save(ranker, tmp_path / "model")
    sql = (tmp_path / "export" / "query.sql").read_text()
    router = HybridRouter(tmp_path / "export")
    with serving(tmp_path / "model") as server:
        for text in texts()[:4]:
            weights = server.post("/v1/weights", {"query": {"text": text}}).json()
            given = {"text": text, "vector": json.dumps(meaning(text))}
            by_service = asked(connection, sql, {**given, **{f"weight_{run}": each for run, each in weights.items()}})
            request: Any = router.request(text, vector=meaning(text))
            assert by_service == asked(connection, request["sql"], request["parameters"])


def test_a_users_words_are_words_and_nothing_found_is_no_error(
    connection: Connection, lists: dict[str, dict[str, dict[str, float]]], tmp_path: Path
) -> None:
    export_hybrid(Weights().fit(judged(lists)), "postgres", tmp_path / "export")
    filled_in(tmp_path / "export")
    router = HybridRouter(tmp_path / "export")
    for text in ("disk'; DROP TABLE pages; --", '"unbalanced', "zzz & | ! :*", "", "%s %(text)s", "straße 日本"):
        request: Any = router.request(text, vector=meaning("disk"))
        found = asked(connection, request["sql"], request["parameters"])
        assert len(found) >= 100, "what vectors find"
    request = router.request("disk", vector=[1.0, 2.0])
    with pytest.raises(psycopg.errors.DataException, match="different vector dimensions 6 and 2"):
        asked(connection, request["sql"], request["parameters"])
    connection.rollback()
    export_hybrid(Weights().fit(judged(lists)), "postgres", tmp_path / "unfilled")
    request = HybridRouter(tmp_path / "unfilled").request("disk", vector=meaning("disk"))
    with pytest.raises(psycopg.errors.UndefinedTable, match="edit_me_table"):
        asked(connection, request["sql"], request["parameters"])
    connection.rollback()
