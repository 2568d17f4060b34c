"""Compare an engine's scores of the documents in parity.jsonl with the scores there, for every exported model.

Everything it puts into the engine has a name that begins with NAME-parity, or as --name says, and is removed again.
If something already has such a name, it is left unchanged: the check reports it and stops. Only Python's standard
library is needed.

With --log NAME, an index or collection that is searched today, it also has the uploaded features computed for the
documents of parity.jsonl that came with an id and the words of their query, and compares the values with those the
model was trained on. Nothing is written there. Elasticsearch, OpenSearch and Solr can do that.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from querywise.runtime.http_client import RequestError, ask, check_headers, split_url

HERE = Path(__file__).resolve().parent
LARGEST = 64_000_000  # bytes of an answer
PATIENCE = 10  # the whole answer may take this many times --timeout, as long as bytes keep coming
FEATURE_TOLERANCE = 0.01  # relative difference allowed between a feature in the engine and in training


class EngineError(Exception):
    """The reason why the check cannot continue, in one line."""


class Server:
    """A client of the engine's HTTP interface."""

    def __init__(self, url: str, headers: dict[str, str], timeout: float = 60) -> None:
        try:
            split_url(url)
        except RequestError:
            shown = re.sub("//[^/]*@", "//…@", url)
            raise EngineError(
                f"--url {shown}: expected an address like http://localhost:9200; --header passes credentials."
            ) from None
        self.url = url.rstrip("/")
        self.headers = headers
        self.timeout = timeout
        self.last = ""  # the beginning of the last answer, and the request

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request; return the answer, parsed as JSON."""
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers, most = {"Content-Type": kind, **self.headers}, PATIENCE * self.timeout
        try:
            answer = ask(
                method, f"{self.url}/{path}", data, headers, largest=LARGEST, silence=self.timeout, seconds=most
            )
        except RequestError as error:
            raise EngineError(self._explained(error, f"{method} {path}")) from None
        if answer.status >= 300:
            raise EngineError(f"{method} {path}: {answer.status} {answer.shown(500)}")
        content = answer.content.decode(errors="replace")
        try:
            found = json.loads(content) if content.strip() else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise EngineError(
                f"{method} {path}: the answer is not that of a search engine; it begins {answer.shown(80)!r}. "
                "Is --url right?"
            )
        self.last = f"{answer.shown(300)} ({method} {path})"
        return found

    def _explained(self, error: RequestError, request: str) -> str:
        if error.kind == "unreachable":
            return f"{self.url} does not answer ({error})."
        if error.kind == "late":
            return f"{request}: no answer within {self.timeout:g} seconds; see --timeout ({error})."
        if error.kind == "broken":
            return f"{request}: the connection broke off ({error})."
        return f"{request}: {error}. Give the engine's own address as --url."


class Engine(ABC):
    """The requests of the check to an engine, and what it creates there. Each engine has its own subclass.

    Attributes:
        above: The prefix of every path, if the engine has one.
        made: The paths to remove.

    """

    def __init__(self, server: Server, export: dict[str, Any], name: str, above: str = "") -> None:
        self.server, self.name, self.above = server, name, above
        self.features = export["features"]["in_engine"]
        self.made: list[str] = []

    @abstractmethod
    def put(self, documents: list[dict[str, Any]], models: dict[str, Path]) -> None:
        """Put documents with known feature values into the engine, and a copy of every model."""

    @abstractmethod
    def scores(self, model: str) -> dict[str, float]:
        """Return the engine's scores of these documents by one model, by document id."""

    @abstractmethod
    def logged(self, where: str, keywords: str, ids: list[str]) -> dict[str, dict[str, float]]:
        """Return the engine's feature values for documents of an index or collection, by document id."""

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request; return the answer, parsed as JSON."""
        return self.server.ask(method, f"{self.above}{path}", body, kind)

    def make(self, method: str, path: str, body: Any, place: str, what: str) -> None:
        """Create something and record its path, so that it is removed again; raise EngineError if it exists already."""
        try:
            self.ask(method, path, body)
        except EngineError as error:
            if re.search("already_exists|already exists|already been|version_conflict", str(error)):
                how = f'curl -X DELETE "$URL/{self.above}{place}"'
                raise name_is_taken(f"{what} called {place.rpartition('/')[2]}", how) from None
            raise
        self.made.append(place)

    def remove(self) -> list[str]:
        """Remove everything that was created, last things first; return a sentence for what could not be removed."""
        return self.remove_by([("DELETE", place) for place in reversed(self.made)])

    def remove_by(self, requests: list[tuple[Any, ...]]) -> list[str]:
        """Send every request that removes something; return a sentence for each that fails."""
        left = []
        for request in requests:
            try:
                self.ask(*request)
            except EngineError as error:
                left.append(f"Not removed: {error}")
        return left


# Makes the engine to check, from a client, the content of export.json, the prefix of the names of everything created
# there, and the collection of --collection or None.
Connect = Callable[..., Engine]


@contextlib.contextmanager
def reading(server: Server) -> Iterator[None]:
    """Turn an error in looking up parts of an answer, or of a file before any answer, into one line that shows it."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
        if not server.last:
            raise EngineError(f"{HERE}: a file of the export was changed ({error!r}).") from None
        raise EngineError(f"The engine's answer lacks what was requested: {server.last}") from None


def name_is_taken(what: str, how: str) -> EngineError:
    """Return the error for a name that is taken in the engine but needed by the check."""
    return EngineError(
        f"There is {what} already, and this check did not make it; nothing was changed there. Where it is left over "
        f"from an earlier check, remove it ({how}); else choose another name with --name."
    )


def read_text(path: Path) -> str:
    """Read the text of a file of the export."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: cannot be read ({error}). Export again.") from None


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return as_json(read_text(path), path)


def as_json(text: str, path: Path) -> Any:
    """Parse JSON; the path is for the error message."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise EngineError(f"{path}: this is not JSON ({error}).") from None


def read_headers(given: list[str]) -> dict[str, str]:
    """Parse HTTP headers from texts like 'Name: value'."""
    found = {}
    for each in given:
        name, colon, value = (part.strip() for part in each.partition(":"))
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise EngineError("--header: expected 'Name: value', a name of letters, digits and - first.")
        found[name] = value
    try:
        check_headers(found)
    except RequestError as error:
        raise EngineError(f"--header: {error}.") from None
    return found


def score_difference(found: dict[str, float], model: str, documents: list[dict[str, Any]]) -> str | None:
    """Describe the documents that the engine scores differently by a model; None if there are none."""
    absent = [each["id"] for each in documents if each["id"] not in found]
    if absent:
        return f"{model}: the engine did not return {len(absent)} of {len(documents)} documents."
    gaps = [abs(found[each["id"]] - each["scores"][model]) for each in documents]
    off = [i for i, each in enumerate(documents) if not gaps[i] <= each["tolerance"][model]]
    if not off:
        return None
    worst = max(off, key=lambda i: gaps[i])
    here = documents[worst]
    return (
        f"{model}: {len(off)} of {len(documents)} documents are scored otherwise; document {here['id']} is "
        f"{found[here['id']]!r} in the engine and {here['scores'][model]!r} here, {gaps[worst]:.3g} apart, where "
        f"rounding explains {here['tolerance'][model]:.3g}."
    )


class Value(NamedTuple):
    """A document's value of one feature, computed by the engine now and logged for training."""

    in_engine: float
    in_training: float
    document: dict[str, Any]

    @property
    def difference(self) -> float:
        """The absolute difference of the two."""
        return abs(self.in_engine - self.in_training)

    @property
    def differs(self) -> bool:
        """Whether the difference is beyond the tolerance."""
        return self.difference > FEATURE_TOLERANCE * max(abs(self.in_engine), abs(self.in_training))


def compare_features(engine: Engine, where: str, documents: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Describe how the engine's feature values compare with those of training, and return whether they agree."""
    known = [each for each in documents if "document" in each]
    if not known:
        raise EngineError(
            "parity.jsonl has no documents of the engine's own. Export with --data FILE whose lines end in "
            "'#docid = …', and with queries.jsonl beside it."
        )
    values: dict[str, list[Value]] = {}
    absent = 0
    for keywords in dict.fromkeys(each["keywords"] for each in known):
        here = [each for each in known if each["keywords"] == keywords]
        found = engine.logged(where, keywords, [each["document"] for each in here])
        absent += sum(each["document"] not in found for each in here)
        for each in (each for each in here if each["document"] in found):
            for name, value in each["features"].items():
                values.setdefault(name, []).append(Value(found[each["document"]].get(name, 0.0), value, each))
    said = [f"{where} does not have {absent} of {len(known)} documents."] if absent else []
    said += [sentence for name, each in values.items() if (sentence := feature_difference(name, each)) is not None]
    if said:
        return said, False
    return [f"The features of {len(known)} documents are computed as in training."], True


def feature_difference(name: str, values: list[Value]) -> str | None:
    """Describe the values of a feature that differ by more than the tolerance; None if there are none."""
    off = [each for each in values if each.differs]
    if not off:
        return None
    worst = max(off, key=lambda each: each.difference)
    return (
        f"{name}: {len(off)} of {len(values)} values differ by more than {FEATURE_TOLERANCE:.0%}; document "
        f"{worst.document['document']} for {worst.document['keywords']!r} has {worst.in_engine!r} in the engine, "
        f"{worst.in_training!r} in training."
    )


def options(about: str | None, where: str) -> argparse.ArgumentParser:
    """Return the options of a script that queries an engine; `about` begins --help, `where` is the help of --url."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help=where)
    parser.add_argument("--header", action="append", default=[], help="sent along, as in --header 'Authorization: …'")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60,
        help="seconds of silence to wait; ten times as long for a whole answer (60)",
    )
    return parser


def server_at(given: argparse.Namespace) -> Server:
    """Return the client described by the options."""
    if not given.timeout > 0:
        raise EngineError(f"--timeout {given.timeout:g}: expected a number of seconds above 0.")
    return Server(given.url, read_headers(given.header), given.timeout)


def main(connect: Connect) -> int:
    """Read the options, check, and print the results; return the exit code."""
    parser = options(__doc__, "where the engine is, for example http://localhost:9200")
    parser.add_argument("--collection", help="Solr: the collection to put the documents into")
    parser.add_argument("--log", metavar="NAME", help="also compare the features computed there with those of training")
    parser.add_argument("--name", help="what everything put into the engine is called; else NAME-parity")
    given = parser.parse_args()
    try:
        return check(given, connect)
    except EngineError as stopped:
        sys.stderr.write(f"{stopped}\n")
        return 2


def check(given: argparse.Namespace, connect: Connect) -> int:
    """Put documents and models into the engine, compare, and always remove them again."""
    export = read_json(HERE / "export.json")
    path = HERE / "parity.jsonl"
    documents = [as_json(line, path) for line in read_text(path).split("\n") if line]
    models = {model["name"]: HERE / model["file"] for model in export["models"]}
    name = given.name or f"{export['name']}-parity"
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise EngineError(f"--name {name}: expected lowercase letters, digits, - and _, a letter first.")
    server = server_at(given)
    engine = connect(server, export, name, given.collection)
    left: list[str] = []
    try:
        with reading(server):
            engine.put(documents, models)
            compared = [score_difference(engine.scores(model), model, documents) for model in models]
    finally:
        left = engine.remove()
        sys.stderr.write("".join(f"{each}\n" for each in left))
    with reading(server):
        logs, agree = ([], True) if given.log is None else compare_features(engine, given.log, documents)
    count = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    differences = [each for each in compared if each is not None]
    scored = differences or [f"{len(documents)} documents are scored alike by {count}."]
    sys.stdout.write("\n".join([*scored, *logs]) + "\n")
    if differences or not agree:
        return 1
    return 2 if left else 0
