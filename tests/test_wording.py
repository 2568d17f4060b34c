"""Errors speak to whoever reads them: in Python of arguments, on the command line of options."""

from __future__ import annotations

import ast
import pickle
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from querywise.cli.options import guarded_command
from querywise.data.folds import Folds
from querywise.data.letor import read_letor, with_side_queries
from querywise.data.parquet.writing import convert
from querywise.data.run_columns import Run
from querywise.data.runs import join_runs
from querywise.errors import ClusterError, DataError, ModelFileError, QuerywiseError
from querywise.jobs.compare import CompareOptions
from querywise.jobs.compare import run as compare
from querywise.jobs.fuse import check_fusing
from querywise.retrieval.index import load_index

ROOT = Path(__file__).parent.parent / "src" / "querywise"
FLAG = re.compile(r"(?<![\w-])--[a-z]")
OTHERS = "ray start --head"  # a command that is not ours
# These write what a user reads beside an export: commands, and the options of the scripts in it.
BESIDE_AN_EXPORT = (
    "exports/elasticsearch.py",
    "exports/elasticsearch_native.py",
    "exports/manifest.py",
    "exports/routing.py",
    "exports/scripts/",
    "exports/solr.py",
    "exports/target.py",
    "exports/vespa.py",
)


def said(path: Path) -> list[str]:
    """Every text in a file but its docstrings."""
    every = list(ast.walk(ast.parse(path.read_text())))
    docstrings = {node.value for node in every if isinstance(node, ast.Expr)}
    texts = [node.value for node in every if isinstance(node, ast.Constant) and node not in docstrings]
    return [text for text in texts if isinstance(text, str)]


def library() -> list[Path]:
    every = {path: path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))}
    commands = ("cli/", "jobs/demo.py")  # the demonstration ends with what to type next
    return [path for path, name in every.items() if not name.startswith((*commands, *BESIDE_AN_EXPORT))]


def test_no_error_of_the_library_speaks_of_an_option() -> None:
    texts = [(path, text) for path in library() for text in said(path)]
    assert texts
    wrong = [f"{path.relative_to(ROOT)}: {text}" for path, text in texts if FLAG.search(text.replace(OTHERS, ""))]
    assert not wrong, "\n".join(wrong)


def comparing(*scores: str) -> None:
    nothing: Any = None
    folds: Folds = nothing  # refused before anything is read
    compare(CompareOptions(methods=("single",), scores=scores), folds, None, title="")


def test_the_names_of_other_systems_are_spoken_of_as_an_argument() -> None:
    with pytest.raises(DataError, match=r"^scores='nowhere': expected NAME=FILE, as in scores='ours=run\.trec'\.$"):
        comparing("nowhere")
    with pytest.raises(DataError, match=r"^scores='a': two systems have the same name; give each its own\.$"):
        comparing("a=one", "a=other")


def test_judgements_that_are_missing_are_spoken_of_as_an_argument() -> None:
    with pytest.raises(DataError, match=r"^method='sser' learns from judgments; give them as judged=QRELS, or take"):
        check_fusing("sser", judged=False)


def test_runs_of_the_same_name_are_told_how_to_get_others() -> None:
    one = Run("one", {"q": {"D": 1.0}})
    with pytest.raises(DataError, match=r"Two runs are called 'one'; give each a name of its own with names=NAMES\.$"):
        join_runs([one, one])


def test_queries_that_do_not_belong_to_the_data_are_replaced_by_an_argument(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("1 qid:1 1:1\n0 qid:1 1:0\n")
    (tmp_path / "queries.jsonl").write_text('{"_id": "7", "text": "jaguar"}\n')
    with pytest.raises(DataError, match=r"not in the query table.* Or name another file with queries=PATH\.$") as first:
        with_side_queries(read_letor(tmp_path / "train.txt"), tmp_path)
    with pytest.raises(
        DataError, match=r"not in the query table.*; or name another file with queries=PATH\.$"
    ) as second:
        convert([tmp_path / "train.txt"], tmp_path / "shards")
    assert first.value.arguments == second.value.arguments == ("queries",)


def test_a_place_to_listen_at_that_is_taken_is_spoken_of_as_two_arguments() -> None:
    from querywise.service.server import run

    nothing: Any = None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            DataError, match=rf"^host='127\.0\.0\.1', port={port}: cannot listen there \(.*Name another"
        ):
            run(nothing, "127.0.0.1", port)


def test_what_is_not_an_index_is_told_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match=r"not an index\. save_index\(index, folder\) and `querywise index` make one"
    ):
        load_index(tmp_path)


# The command line


def shown(error: QuerywiseError) -> str:
    """What a command with some options says of an error."""
    app = typer.Typer()

    @app.command()
    @guarded_command
    def ask(scores: str = "", skip_unknown: bool = False, cluster: str = "", port: int = 0, host: str = "") -> None:
        raise error

    done = CliRunner().invoke(app, [])
    assert done.exit_code == 2
    return done.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("message", "arguments", "expected"),
    [
        ("scores='a b=c': expected.", ("scores",), "--scores a b=c: expected."),
        ('scores="it\'s": expected.', ("scores",), "--scores it's: expected."),
        ("leave them out with skip_unknown=True.", ("skip_unknown",), "leave them out with --skip-unknown."),
        ("address='here:1': no.", ("address",), "--cluster here:1: no."),
        ("host='::1', port=80: taken.", ("host", "port"), "--host ::1, --port 80: taken."),
        ("scores='a', as in scores='b'.", ("scores",), "--scores a, as in --scores b."),
        ("There are no scores.", ("scores",), "There are no scores. On the command line: --scores."),
        ("Nothing known.", ("host", "port"), "Nothing known. On the command line: --host, --port."),
        ("names=NAMES is for others.", ("names",), "names=NAMES is for others."),
        ("port=80 and scores='a'.", ("port",), "--port 80 and scores='a'."),
        ("port=80.", (), "port=80."),
    ],
)
def test_a_command_says_its_options_instead_of_arguments(
    message: str, arguments: tuple[str, ...], expected: str
) -> None:
    assert shown(DataError(message, arguments=arguments)) == expected


def test_what_an_error_is_about_travels_with_it() -> None:
    for kind in (DataError, ModelFileError, ClusterError):
        again = pickle.loads(pickle.dumps(kind("port=1: no.", arguments=("port",))))
        assert (type(again), str(again), again.arguments) == (kind, "port=1: no.", ("port",))
