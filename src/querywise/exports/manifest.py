"""The manifest of an export, export.json: one layout for all targets. Format 1, which had two, is read too."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from querywise.errors import DataError
from querywise.runtime.files import parse_json, read_stored_text, recover_folder
from querywise.runtime.values import Json, JsonObject, has_type

MANIFEST = "export.json"
FORMAT_VERSION = 2


class ModelEntry(TypedDict):
    """A model in the manifest: its number among the ranker's models, −1 for the global one, and its file."""

    name: str
    number: int
    what: str
    file: str


class FeatureEntry(TypedDict):
    """The features in the manifest: their names in training and in the engine, and what else the engine computes."""

    names: list[str]
    in_engine: list[str]
    others: list[str]
    unfinished: bool


class RoutingEntry(TypedDict):
    """Routing in the manifest: what it depends on, and how many requests it takes."""

    by: list[str]
    requests: int


class RequestEntry(TypedDict):
    """The request in the manifest: its file, how scores are normalised, and the weights of runs for all queries."""

    file: str
    normalise: str
    weights: dict[str, float]


class Manifest(TypedDict):
    """The content of export.json: features and models, the global one first, or a request with weights of runs."""

    engine: str
    name: str
    features: FeatureEntry | None
    models: list[ModelEntry]
    routing: RoutingEntry | None
    request: RequestEntry | None


def read_raw_manifest(folder: Path) -> JsonObject:
    """The manifest of an export of any format that this version reads, as it stands there."""
    recover_folder(folder)
    path = folder / MANIFEST
    found = parse_json(read_stored_text(path), path)
    if not isinstance(found, dict) or found.get("format") != "querywise export":
        raise DataError(f"{path}: not the manifest of a querywise export.")
    if found.get("format_version") not in range(1, FORMAT_VERSION + 1):
        raise DataError(
            f"{path}: format version {found.get('format_version')!r:.80}; this querywise reads versions up to "
            f"{FORMAT_VERSION}. Update querywise, or export the model again."
        )
    return found


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an export in today's layout; refused where an entry is missing or of another type."""
    found = {**dict.fromkeys(Manifest.__annotations__), **read_raw_manifest(folder)}
    if found["format_version"] == 1:
        found = _from_format_1(found)
    request = found.get("request")
    outside = isinstance(request, dict) and Path(str(request.get("file"))).name != request.get("file")
    empty = request is None and not (found.get("models") and found.get("features"))
    if outside or empty or not has_type(found, Manifest):
        raise DataError(f"{folder / MANIFEST}: damaged. Export the model again.")
    manifest: Manifest = found  # type: ignore[assignment]  # as it was checked
    return manifest


def _from_format_1(found: JsonObject) -> JsonObject:
    """A manifest of format 1, of models or of weights of runs, in today's layout."""
    features = found.get("features")
    if isinstance(features, dict):
        return {**found, "features": {"others": [], **features}, "request": None}
    by, request = found.get("by"), {name: found.get(name) for name in ("normalise", "weights")}
    routing: Json = {"by": by, "requests": 1} if by else None
    return {**found, "models": [], "routing": routing, "request": {"file": found.get("request"), **request}}
