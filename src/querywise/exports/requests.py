"""Forms of requests that fuse runs, and what a query puts into them.

A form is JSON in which `$text`, `$vector` and `$weight:RUN` stand for what a query brings, or SQL with parameters. What
only the user knows, as the names of fields, is marked EDIT_ME.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from querywise.errors import DataError
from querywise.runtime.files import parse_json, read_stored_text
from querywise.runtime.values import Json

DEPTH = 100  # documents of each run
TEXT, VECTOR = "$text", "$vector"
_BY_VECTORS = ("vector", "knn", "dense", "embedding")  # what the name of a run by vectors has in it


def weight_of(run: str) -> str:
    """What stands for a run's weight."""
    return f"$weight:{run}"


def by_vectors(run: str) -> bool:
    """Whether a run is of vectors, by its name: its part of the request then has a vector, and else the text."""
    return any(each in run.lower() for each in _BY_VECTORS)


def identifier(run: str) -> str:
    """A run's name as a word of letters, digits and underscores."""
    word = re.sub(r"\W", "_", run)
    return f"r_{word}" if word[:1].isdigit() else word


def request_for(path: Path, text: str | None, vector: Sequence[float] | None, weights: Mapping[str, float]) -> Json:
    """The form in a file with what a query brings; of SQL {"sql": …, "parameters": …}."""
    form, numbers = read_stored_text(path), None if vector is None else [float(each) for each in vector]
    if path.suffix == ".sql":
        given: dict[str, Json] = {"text": text, "vector": None if numbers is None else json.dumps(numbers)}
        lacking = next((name for name, each in given.items() if f"%({name})s" in form and each is None), None)
        if lacking is not None:
            raise DataError(f"The query has the parameter {lacking!r}, and was given without it.")
        known = {name: each for name, each in given.items() if each is not None}
        return {"sql": form, "parameters": known | {f"weight_{identifier(run)}": weights[run] for run in weights}}
    return filled(
        parse_json(form, path), {TEXT: text, VECTOR: numbers, **{weight_of(run): weights[run] for run in weights}}
    )


def filled(form: Json, values: Mapping[str, Json]) -> Json:
    """A form with its placeholders replaced: each is a whole text."""
    if isinstance(form, dict):
        return {name: filled(each, values) for name, each in form.items()}
    if isinstance(form, list):
        return [filled(each, values) for each in form]
    if isinstance(form, str) and form.startswith("$"):
        if form not in values:
            raise DataError(f"The request has {form!r}, which nothing stands for. Known: {', '.join(values)}.")
        found = values[form]
        if found is None:
            raise DataError(f"The request has {form!r}, and the query was given without it.")
        return found
    return form
