"""Upload the features and the models of this export to an engine.

Nothing in the engine is changed: parts that exist already and are the same stay, and if something else has a name that
this export needs, nothing is uploaded. So models in service stay in service, and an interrupted upload continues when
it is run again. To replace models, export under another name; see the README. Only Python's standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from querywise.exports.scripts.check_parity import EngineError, Server, options, read_json, reading, server_at

HERE = Path(__file__).resolve().parent
UNFINISHED = "EDIT_ME"  # marks the fields that a template leaves to fill in


class Upload(ABC):
    """The parts of an export in an engine. Each engine has its own subclass.

    Attributes:
        there: A sentence, without its period, for the result of an upload.
        gone: A sentence for the result of a removal.
        total: The number of things uploaded to an engine that has none of them.
        definitions: How each feature is computed.
        fill_in: The file with fields to fill in, and what to do then.
        who: The user that may upload, in words.
        limit: The message, with the size in MB, for a model that the engine finds too large.

    """

    there: str
    gone: str
    total: int
    definitions: dict[str, Any]
    fill_in: str
    who: str
    limit = (
        "the engine does not take {size} MB at once. Fit fewer or smaller trees, or raise http.max_content_length on "
        "the nodes."
    )

    def __init__(self, server: Server) -> None:
        self.server = server
        export = read_json(HERE / "export.json")
        self.name = export["name"]
        self.models = {model["name"]: read_json(HERE / model["file"]) for model in export["models"]}

    @abstractmethod
    def missing(self) -> list[str]:
        """Return what the engine lacks, in upload order; raise EngineError if it has something else of such a name."""

    @abstractmethod
    def put(self, name: str) -> None:
        """Upload one of the missing things."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the models and the features of this export, as far as they exist."""

    def finish(self) -> None:  # noqa: B027
        """Do what the engine needs after an upload; by default nothing."""

    def explained(self, error: EngineError) -> EngineError:
        """Return the error, with advice if rights are missing."""
        if not re.search(r": 40[13] ", str(error)):
            return error
        return EngineError(f"{error} Upload as a user {self.who}; --header passes credentials.")

    def ask(self, method: str, path: str, *, absent: bool = False) -> dict[str, Any] | None:
        """Return the answer to a request; with `absent`, None for something missing, which is otherwise an error."""
        try:
            return self.server.ask(method, path)
        except EngineError as error:
            if absent and f"{path}: 404 " in str(error):
                return None
            raise self.explained(error) from None

    def send(self, method: str, path: str, body: Any, called: str | None = None) -> None:
        """Send something to the engine; `called` names it in errors, by default the path."""
        try:
            self.server.ask(method, path, body)
        except EngineError as error:
            size = len(json.dumps(body)) / 1e6
            # An engine that finds a body too large may close the connection while it is still being sent.
            closed = "broke off|Broken pipe|reset by peer|too large|ConnectionLoss"
            if ": 413 " in str(error) or (size > 1 and re.search(closed, str(error))):
                raise EngineError(f"{method} {called or path}: {self.limit.format(size=f'{size:.1f}')}") from None
            raise self.explained(error) from None


# Makes the upload from a client and the given options.
Connect = Callable[[Server, argparse.Namespace], Upload]


def name_is_in_use(what: str, difference: str, name: str, options: str = "--url URL") -> EngineError:
    """Return the error for a name that is in use in the engine but needed by this export, which is called `name`."""
    return EngineError(
        f"There is {what} already, with {difference}. It may be in service, so nothing was uploaded. Export under "
        f"another name (querywise export … --name {name}-2); or, where nothing uses it, remove it first: "
        f"python upload.py {options} --remove, from the folder that it was uploaded from."
    )


def refuse_unfinished(work: Upload) -> None:
    """Raise EngineError for a template with a field that was not filled in."""
    names = [name for name, each in work.definitions.items() if UNFINISHED in json.dumps(each)]
    if names:
        raise EngineError(
            f"{len(names)} of {len(work.definitions)} features have a field that is still marked {UNFINISHED}: "
            f"{listed(names)}. Nothing was uploaded. {work.fill_in}"
        )


def refuse_numbers(
    searched: Mapping[str, list[str]], numbers_among: Callable[[list[str]], set[str]], instead: str
) -> None:
    """Raise EngineError for features that search words in a numeric field: the engine would reject every search.

    Args:
        searched: The fields that each feature searches.
        numbers_among: Returns those of some fields that are numeric in the engine.
        instead: What to write.

    """
    fields = sorted({field for each in searched.values() for field in each})
    numbers = numbers_among(fields) if fields else set()
    wrong = {name: field for name, fields in searched.items() for field in fields if field in numbers}
    if wrong:
        named = listed([f"{name} (field {field})" for name, field in wrong.items()])
        raise EngineError(f"A text query on a numeric field: {named}. Nothing was uploaded. {instead}")


def listed(names: list[str]) -> str:
    """Join the first few names, and say how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def upload(work: Upload) -> str:
    """Upload what is missing; return a sentence on what is there now."""
    refuse_unfinished(work)
    absent, done = work.missing(), 0
    try:
        for name in absent:
            work.put(name)
            done += 1
        work.finish()
    except EngineError as error:
        raise EngineError(
            f"{error}\n{done} of {len(absent)} items were uploaded. Models in service were not changed, and "
            "the new ones are used only once this folder's router is deployed. Run upload.py again to continue."
        ) from None
    kept = work.total - len(absent)
    return f"{work.there}{f' ({kept} of them were there before)' if kept else ''}."


def main(connect: Connect, *, where: str, features: str, collection: str | None = None) -> int:
    """Read the options, upload or remove, and print what is there now; return the exit code.

    Args:
        connect: Makes the upload.
        where: The help of --url.
        features: The engine's term for the features of an export.
        collection: The help of --collection, for an engine that has this option.

    """
    parser = options(__doc__, where)
    if collection is not None:
        parser.add_argument("--collection", required=True, help=collection)
    parser.add_argument("--remove", action="store_true", help=f"remove the {features} and the models of this export")
    given = parser.parse_args()
    try:
        server = server_at(given)
        with reading(server):
            work = connect(server, given)
            if given.remove:
                work.remove()
                said = f"{work.gone}."
            else:
                said = upload(work)
    except EngineError as stopped:
        sys.stderr.write(f"{stopped}\n")
        return 2
    sys.stdout.write(f"{said}\n")
    return 0
