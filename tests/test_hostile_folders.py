"""A folder from elsewhere names nothing that acts: whatever stands in it, it is refused in one line, or it is used."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.errors import DataError
from tests.hostile import TEXTS, VALUES, Change, Trying, places_in, trying
from tests.hostile_formats import FORMATS
from tests.worlds import examples

SOURCES = Path(__file__).parent.parent / "src" / "querywise"
NAMES = [kind.name for kind in FORMATS]
NEEDS = {"a static embedder": "tokenizers", "an index with a usearch graph": "usearch"}
DECODERS = {
    *("json.loads", "json.load", "np.load", "np.memmap", "np.fromfile", "np.lib.format.open_memmap", "map_array"),
    *("open_memmap", "pickle.load", "pickle.loads", "unpack", "pq.ParquetFile", "pq.read_table", "parquet.read_table"),
    *("csv.reader", "csv.DictReader", "read_text", "read_stored_text", "read_bytes", "read_regular_file"),
    *("regular_file", "Tokenizer.from_file", "msgspec.json.decode", "pa.ipc.open_file", "pa.ipc.open_stream", "open"),
}
# What decodes something else than stored files of a format of ours, and what it is.
OTHERS = {
    "cli/__init__.py": "nothing: what a closed output is replaced by",
    "report/clicks.py": "pages in this package",
    "cli/serving.py": "the file with the operator's token",
    "exports/scripts/check_parity.py": "in an exported folder, whose scripts are run by whoever trusts it",
    "exports/scripts/check_vespa.py": "as check_parity.py",
    "exports/scripts/route_elasticsearch_native.py": "as check_parity.py",
    "exports/scripts/route_weights.py": "as check_parity.py",
    "exports/scripts/router.py": "as check_parity.py",
    "exports/scripts/upload_elasticsearch.py": "as check_parity.py",
    "exports/scripts/transform.py": "as check_parity.py",
    "jobs/trials.py": "the answers of a process that it started",
    "methods/method.py": "what an option of the command line says",
    "online/interleaving.py": "the digits of a hash",
    "report/html.py": "pages in this package, and what it has just made",
    "report/writing.py": "an older report in the folder that is written to, searched for names of figures",
    "retrieval/stdlib.py": "the sources of Python itself",
    "runtime/ray.py": "the token that it has just made",
    "runtime/workers.py": "what a process that it started has written, and what the system says",
    "service/documents.py": "the body of a request",
    "service/online.py": "what a process that it started has written",
    "service/api.py": "pages in this package",
}


@pytest.fixture(scope="module")
def process() -> Iterator[Trying]:
    with trying() as made:
        yield made


def needed(name: str) -> str:
    """The name of a format, whose library is installed."""
    library = NEEDS.get(name)
    if library is not None and find_spec(library) is None:
        assert os.environ.get("CI") != "true", f"a machine that builds must have {library}"
        pytest.skip(f"needs {library}")
    return name


@pytest.mark.parametrize("name", NAMES)
def test_hostile_values_are_refused_in_one_line_or_used(process: Trying, name: str) -> None:
    wrong, count = process.broken(needed(name), each=1, most=10)
    assert wrong == {}
    assert count >= 10


MANY = 60  # more of them are tried by `python -m benchmarks faults`


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_hostile_values_are_refused_in_one_line_or_used(process: Trying, name: str) -> None:
    wrong, _ = process.broken(needed(name), each=2, most=MANY)
    assert wrong == {}


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(100))
@given(data=st.data())
def test_hostile_values_in_several_places_are_refused_in_one_line_or_used(process: Trying, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([each for each in NAMES if each not in NEEDS]))
    places = process.walked(name)
    chosen = data.draw(st.lists(st.sampled_from(places).flatmap(st.sampled_from), min_size=2, max_size=4))
    assert process.tried(name, chosen) in ("refused", "used")


def test_every_name_and_every_value_of_json_is_a_place() -> None:
    content = {"a": [1, {"b": None}, 3, 4, 5, 6], "c": {"d": {}}}
    found = list(places_in(content))
    assert found[:3] == [(), ("a",), ("a", 0)]
    assert {("a", 1, "b"), ("a", 5), ("c", "d")} <= set(found)
    assert ("a", 4) not in found, "of a long list the first items and the last"


def test_a_reader_that_does_what_a_file_says_is_found(process: Trying) -> None:
    """Connections, processes, files elsewhere, long messages and waits are seen: the harness can fail."""
    for value, words in (
        ("an address", "socket.connect"),
        ("a command", "os.system"),
        ("a file outside", "open"),
        ("a module", "import"),
        ("terminal", "not one line"),
        ("a pipe", "acted"),
        ("deep list", "raised RecursionError"),
        ("nan", "takes longer than"),  # though it waits and does not work
    ):
        assert words in process.tried("what acts", [Change("acts.json", "value", (0, "do"), value)]), value


@pytest.mark.parametrize(
    "change",
    [
        Change("manifest.json", "value", (0, "documents"), "list"),
        Change("both.distinct.npy", "file", (), "a terabyte"),
        Change("title.lengths.npy", "file", (), "a terabyte"),
    ],
)
def test_an_index_that_once_broke_is_refused(process: Trying, change: Change) -> None:
    assert process.tried("an index", [change]) == "refused"


def test_values_are_json_but_for_those_too_large() -> None:
    for name, text in VALUES.items():
        if not name.startswith(("deep", "many digits")):
            json.loads(text)
    assert set(TEXTS) <= set(VALUES)


def decoding(path: Path) -> set[str]:
    """The decoders that a module calls."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {ast.unparse(node.func) for node in calls}
    return {name for name in names if name in DECODERS or name.split(".")[-1] in ("read_text", "read_bytes", "unpack")}


def test_every_module_that_decodes_stored_files_is_tried() -> None:
    named = {reader for kind in FORMATS for reader in kind.readers}
    found = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if decoding(path)}
    assert named & set(OTHERS) == set()
    assert found - named - set(OTHERS) == set(), "add a row to FORMATS in tests/hostile_formats.py"
    assert set(OTHERS) | named <= {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py")}
    assert set(OTHERS) - found == set(), "these decode nothing any more"


def test_an_error_is_one_printable_line_whatever_it_quotes() -> None:
    assert str(DataError("a\nb\x1b[2J\u202e")) == r"a\nb\x1b[2J\u202e"
    long = str(DataError("where: " + "x" * 100_000 + " do this."))
    assert len(long) < 2_100
    assert long.startswith("where: x")
    assert long.endswith("x do this.")
