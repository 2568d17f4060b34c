"""upload.py, which an export joins from an engine's own part and the part that all engines share.

Servers here answer as engines do that cannot be had for tests: with security, or of another version.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from querywise import Judged, KnnOffline2, LambdaMART, TextView, export_model
from tests.commands import Done, run_script
from tests.support.exports import Asked, Said, assert_clean, definitions, one_line, replying, world

ENGINES = ("opensearch", "elasticsearch", "solr")
ALL = (*ENGINES, "elasticsearch-native")  # mistakes with the last are in test_exports_native.py


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exports for every engine with an upload, in folders of their names."""
    root = tmp_path_factory.mktemp("exports")
    ranker = KnnOffline2(LambdaMART(3, leaves=4), k=0.4, models=3, view=TextView(5)).fit(world())
    for engine in ALL:
        export_model(ranker, engine, root / engine, name="shop", features=definitions(engine))
    return root


def upload(exports: Path, engine: str, url: str, *words: str) -> Done:
    more = ("--collection", "shop") if engine == "solr" else ()
    return run_script(exports / engine / "upload.py", "--url", url, *more, *words)


@pytest.mark.parametrize("engine", ALL)
def test_an_upload_is_one_clean_file_beside_its_check_that_needs_python_alone(engine: str, exports: Path) -> None:
    place = exports / engine / "upload.py"
    assert_clean(place)
    text = place.read_text()
    assert "querywise.exports" not in text, "the file needs its folder, not our parts"
    assert text.count("if __name__") == 1
    imported = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    assert {str(module).partition(".")[0] for module in imported} <= sys.stdlib_module_names | {"check_parity"}
    done = subprocess.run([sys.executable, place, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Nothing in the engine is changed" in done.stdout
    assert ("  --collection " in done.stdout) == (engine == "solr")
    for option in ("--url", "--header", "--remove", "--timeout"):
        assert f"  {option} " in done.stdout


# A user who lacks rights.

FORBIDDEN = {"error": {"type": "security_exception", "reason": "action is unauthorized for user [reader]"}}
NO_STORE = Said(404, {"_index": ".ltrstore", "found": False})


def read_only(asked: Asked) -> Said:
    """An engine in which the user may read, and nothing is of this name."""
    if asked.method != "GET":
        return Said(403, FORBIDDEN)
    if asked.path.startswith("/_ltr"):
        return NO_STORE
    return Said(200, {"featureStores": [], "models": []})


def store_is_there(asked: Asked) -> Said:
    """The same, with the plugin's store made by another user."""
    if asked == ("PUT", "/_ltr"):
        return Said(400, {"error": "resource_already_exists_exception"})
    return read_only(asked)


RIGHTS = {"solr": "who may edit the schema"}


@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_user_without_any_rights_is_told_so(engine: str, code: int, exports: Path) -> None:
    with replying(lambda _: Said(code, FORBIDDEN)) as (url, seen):
        said = one_line(upload(exports, engine, url))
        assert len(seen) == 1, "nothing is tried after that"
        assert "action is unauthorized for user [reader]" in said
        assert f": {code} " in said
        who = RIGHTS.get(engine, "who may write with the plugin")
        assert f"Upload as a user {who}; --header passes credentials." in said
        assert f"Upload as a user {who}" in one_line(upload(exports, engine, url, "--remove"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_user_who_may_only_read_is_told_so_and_nothing_is_there(engine: str, exports: Path) -> None:
    with replying(store_is_there) as (url, seen):
        done = upload(exports, engine, url)
    assert (done.returncode, done.stdout) == (2, "")
    who = RIGHTS.get(engine, "who may write with the plugin")
    assert f"Upload as a user {who}; --header passes credentials." in done.stderr
    assert "0 of 5 items were uploaded. Models in service were not changed" in done.stderr
    assert [asked.method for asked in seen if asked.path != "/_ltr"].count("PUT") == 1, "it stops at the first refusal"


# An engine of another version.


def without_plugin(asked: Asked) -> Said:
    """OpenSearch 3.1, in which the plugin for another version was not installed."""
    if asked == ("GET", "/"):
        return Said(200, {"version": {"distribution": "opensearch", "number": "3.1.0"}})
    return Said(400, {"error": f"no handler found for uri [{asked.path}] and method [{asked.method}]"})


@pytest.mark.parametrize("engine", ["opensearch", "elasticsearch"])
def test_an_engine_without_the_plugin_is_told_which_version_of_it_to_install(engine: str, exports: Path) -> None:
    with replying(without_plugin) as (url, seen):
        said = one_line(upload(exports, engine, url))
    assert "has no Learning to Rank plugin, or not on this node" in said
    assert "install the release made for version 3.1.0 on every node" in said
    assert [asked.method for asked in seen] == ["PUT", "GET"]


@pytest.mark.parametrize("engine", ["opensearch", "elasticsearch"])
def test_a_version_that_cannot_be_asked_for_leaves_the_message(engine: str, exports: Path) -> None:
    refused = Said(400, {"error": "invalid_index_name_exception"})
    with replying(lambda asked: refused if asked.method == "PUT" else Said(403, FORBIDDEN)) as (url, _):
        assert "install the release made for version ? on every node" in one_line(upload(exports, engine, url))


# A template that was not filled in, and words that are looked for in a number.

FILES = {"solr": "features.json", "elasticsearch-native": "feature_extractors.json"}


@pytest.mark.parametrize("engine", ALL)
def test_a_template_that_was_not_filled_in_is_refused_before_the_engine_is_asked(engine: str, tmp_path: Path) -> None:
    export_model(LambdaMART(3, leaves=4).fit(world()), engine, tmp_path / engine)
    with replying(lambda _: Said(200, {})) as (url, seen):
        options = ["--url", url, *(("--collection", "shop") if engine == "solr" else ())]
        command = [sys.executable, tmp_path / engine / "upload.py", *options]
        said = one_line(subprocess.run(command, capture_output=True, text=True, check=False))
    assert seen == []
    names = "title.bm25, body bm25, clicks, length, age"
    assert f"5 of 5 features have a field that is still marked EDIT_ME: {names}. Nothing was uploaded." in said
    assert str(tmp_path / engine / FILES.get(engine, "featureset.json")) in said
    assert ("FieldValueFeature" if engine == "solr" else "field_value_factor") in said


def fields_of_an_index(asked: Asked) -> Said:
    """Elasticsearch and OpenSearch, or Solr: a title of words, a number of clicks, and nothing of the plugin."""
    if asked.path == "/_mapping/field/clicks%2Ctitle":
        kinds = {"clicks": {"clicks": {"type": "long"}}, "title": {"title": {"type": "text"}}}
        fields = {name: {"full_name": name, "mapping": kind} for name, kind in kinds.items()}
        return Said(200, {"shop": {"mappings": fields}, ".ltrstore": {"mappings": {}}})
    if asked.path == "/shop/schema/fields?includeDynamic=true&fl=clicks%2Ctitle":
        kinds_of_solr = (("clicks", "plong"), ("title", "text_general"))
        return Said(200, {"fields": [{"name": name, "type": kind} for name, kind in kinds_of_solr]})
    if asked.path == "/shop/schema/fieldtypes":
        classes = (("plong", "solr.LongPointField"), ("text_general", "solr.TextField"))
        return Said(200, {"fieldTypes": [{"name": name, "class": kind} for name, kind in classes]})
    return (
        Said(404, {})
        if asked.method == "GET" and asked.path.startswith("/_ltr/")
        else Said(200, {"featureStores": [], "models": []})
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_words_are_not_looked_for_in_a_number(engine: str, exports: Path, tmp_path: Path) -> None:
    ranker = LambdaMART(3, leaves=4).fit(world())
    export_model(ranker, engine, tmp_path / engine, features=definitions(engine, ("title", "clicks")))
    with replying(fields_of_an_index) as (url, seen):
        said = one_line(upload(tmp_path, engine, url))
        assert [asked for asked in seen if asked.method != "GET" and asked.path != "/_ltr"] == []
        wrong = "body bm25 (field clicks), length (field clicks)"
        assert f"A text query on a numeric field: {wrong}. Nothing was uploaded." in said
        assert ("FieldValueFeature" if engine == "solr" else "field_value_factor") in said
        assert upload(exports, engine, url).returncode == 0, "words in a text"


@pytest.mark.parametrize("engine", [*ALL, "vespa"])
def test_what_the_data_shows_to_be_a_number_of_the_document_is_one_in_the_template(engine: str, tmp_path: Path) -> None:
    data = positive()
    features = data.candidates.features.copy()
    ids = tuple(f"D{row % 97}" for row in range(len(features)))  # every document is found by several queries
    features[:, 2] = [7 * int(name[1:]) for name in ids]
    candidates = replace(data.candidates, features=features, document_ids=ids)
    ranker = LambdaMART(3, leaves=4).fit(replace(data, candidates=candidates))
    export_model(ranker, engine, tmp_path / "out", data=candidates, as_is=True)
    written = "".join(path.read_text() for path in (tmp_path / "out").rglob("*feature*.json"))
    if engine == "vespa":
        profile = (tmp_path / "out" / "schemas" / "SCHEMA" / "querywise.profile").read_text()
        assert "expression: attribute(EDIT_ME_clicks)" in profile
    elif engine == "solr":
        found = {each["name"]: each["class"].rpartition(".")[2] for each in json.loads(written)}
        assert found["clicks"] == "FieldValueFeature"
        assert found["title.bm25"] == found["length"] == "SolrFeature"
    else:
        assert '"field": "EDIT_ME_clicks"' in written
        assert '"EDIT_ME_clicks": "{{keywords}}"' not in written
        assert '"EDIT_ME_length": "{{keywords}}"' in written


def positive() -> Judged:
    """`world` with values that Elasticsearch's own rescorer takes, too."""
    data = world()
    return replace(data, candidates=replace(data.candidates, features=np.abs(data.candidates.features)))


# An engine, or whoever answers in its place, that means harm.

SECRET = "Basic c2VzYW1lOjc3"
WRONG: list[Any] = [
    *(0, "a", None, [], [{}], {}, {"_source": 1}, {"_source": {"featureset": 3, "model": []}}),
    {"_source": {"featureset": {"features": [1]}, "model": {"model": 5, "feature_set": {}}}},
    {"_source": {"featureset": {"features": {}}, "model": {"model": {"definition": "{"}, "feature_set": 0}}},
    {"featureStores": 5, "features": 1, "models": {"a": 1}, "version": "8"},
    {"featureStores": ["shop"], "features": [{"name": 1}], "models": [{}], "version": {"number": []}},
    {"featureStores": {"shop": 1}, "features": [1], "models": [None], "version": {"number": "8.15.0"}},
    {"trained_model_configs": {"a": 1}, "version": {"number": "9.1.0"}},
    {"trained_model_configs": [{"metadata": {"querywise": []}}], "version": {"number": "9.1.0"}},
    {"trained_model_configs": [3], "version": {"number": "9.1.0"}, "fields": 3, "fieldTypes": "a", "hits": {"hits": 1}},
]


def scripts(exports: Path, engine: str, url: str) -> list[Done]:
    """Both scripts of an export that send a header."""
    words = (
        "--url",
        url,
        *(("--collection", "shop") if engine == "solr" else ()),
        "--header",
        f"Authorization: {SECRET}",
    )
    return [run_script(exports / engine / name, *words) for name in ("upload.py", "check_parity.py")]


@contextmanager
def raw(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str]]]:
    """A server whose answers are written by hand; gives its address, and the requests with their credentials."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            with suppress(OSError):
                answer(self)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("engine", ALL)
def test_credentials_do_not_follow_a_redirect(engine: str, exports: Path) -> None:
    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"{elsewhere}/taken?for={handler.headers.get('Authorization')}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with raw(lambda _: None) as (elsewhere, others), raw(redirect) as (url, seen):
        for done in scripts(exports, engine, url):
            assert done.returncode == 2
            said = done.stderr
            assert f"status 302, a redirect to {elsewhere.removeprefix('http://')}, which is not followed" in said
            assert "Give the engine's own address as --url." in said
            assert "c2VzYW1l" not in said
        assert seen
        assert others == []


@pytest.mark.parametrize("engine", ALL)
@pytest.mark.parametrize("announced", [True, False])
def test_an_answer_of_gigabytes_takes_one_line(engine: str, announced: bool, exports: Path) -> None:
    def large(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", "3000000000")
        handler.end_headers()
        handler.wfile.write(b'{"a": "')
        for _ in range(3_000):
            handler.wfile.write(b"x" * 1_000_000)

    with raw(large) as (url, _):
        said = one_line(upload(exports, engine, url))
    assert "the answer has more than 64000000 bytes. Give the engine's own address as --url." in said


@pytest.mark.parametrize("engine", ALL)
def test_wrong_json_takes_one_line_and_no_secret_is_repeated(engine: str, exports: Path) -> None:
    for content in [*WRONG, {"echo": SECRET}, *({**each, "echo": SECRET} for each in WRONG if isinstance(each, dict))]:
        for code in (200, 404):
            with replying(lambda asked: Said(code, content)) as (url, _):  # noqa: B023
                for done in scripts(exports, engine, url):
                    assert "Traceback" not in done.stderr, (content, code, done.stderr)
                    assert done.returncode in (0, 1, 2), (content, code)
                    assert "c2VzYW1l" not in done.stderr + done.stdout, (content, code)
