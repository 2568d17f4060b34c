"""A command's arguments as settings and training data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from querywise.errors import DataError
from querywise.runtime.values import JsonObject, is_whole, number

if TYPE_CHECKING:
    from querywise.data.folds import Fold, Folds
    from querywise.data.judged import Judged
    from querywise.data.rows import Missing
    from querywise.data.training import Training
    from querywise.retrieval.adapted_vectors import AdaptedVectors
    from querywise.retrieval.reading import Retrieval


def local_settings(k: str | None, clusters: str | None, view: str | None, reference: str | None) -> JsonObject:
    """Return the options of query-dependent methods as settings, with columns counted from 0."""
    fixed: JsonObject = {}
    for name, text, what in (("k", k, "queries"), ("clusters", clusters, "clusters")):
        if text is not None and text != "auto":
            value = number(text)
            if value is None:
                raise DataError(f"--{name} {text}: expected a number of {what}, a share like 0.2, or auto.")
            fixed[name] = int(text) if is_whole(text) else value
    if view is not None:
        fixed["view"] = view
    if reference is not None:
        fixed["reference"] = feature_from(reference)
    return fixed


def feature_from(text: str) -> int | str:
    """Return a feature by name, or by its number in the file, counted from 1."""
    if is_whole(text.removeprefix("-").removeprefix("+")) and text[:2] != "-+":
        if int(text) < 1:
            raise DataError(f"--reference {text}: columns are numbered from 1.")
        return int(text) - 1
    return text


def retrieval_from(
    vectors: list[Path] | None,
    embed: list[str] | None,
    top: int | None = None,
    vector_top: int | None = None,
    language: str = "english",
    skip_unknown: bool = False,
    vector_search: str = "exact",
    adapt: str = "off",
    candidates: str = "found",
) -> Retrieval:
    """Return how candidates are retrieved, from the options."""
    from querywise.retrieval.reading import Retrieval

    spoken = None if language == "none" else language
    given, named = tuple(vectors or ()), tuple(embed or ())
    return Retrieval(top, given, named, vector_top, skip_unknown, spoken, vector_search, adapt, candidates)


def one_embedder(how: Retrieval) -> Retrieval:
    """Raise DataError for several embedders if no shares of them are chosen."""
    if how.embedders > 1:
        given = [f"--vectors {each}" for each in how.vectors] + [f"--embed {each}" for each in how.embed]
        raise DataError(f"{' '.join(given)}: this command takes the vectors of one embedder. Name one.")
    return how


class TrainingData(NamedTuple):
    """The training part, the validation part if any, and what the model must record about the data.

    Attributes:
        whole: Whether these are all queries of a text collection, without a validation part.
        adapter: Adapts the vectors of queries; None if they are not adapted.

    """

    train: Training
    valid: Judged | None
    notes: JsonObject = {}  # noqa: RUF012  never changed
    whole: bool = False
    adapter: AdaptedVectors | None = None


def read_training(
    data: list[Path],
    valid: list[Path],
    retrieval: Retrieval,
    also_judged: list[Path] | None,
    *,
    fold: int | None,
    features: int | None,
    queries: Path | None,
    missing: Missing,
) -> TrainingData:
    """Read the data that a ranker is fitted on."""
    from querywise.data.folds import make_folds
    from querywise.data.readers import FOLDER, TEXT, check_may_lack, open_features, read_features, reader_of
    from querywise.retrieval.reading import folds_of, is_collection, judged_from_text

    check_may_lack([*data, *valid], missing)
    if len(data) == 1 and is_collection(data[0]) and not valid:
        found = judged_from_text(data[0], queries=queries, retrieval=retrieval, also_judged=also_judged or ())
        parts = None if fold is None else _fold(make_folds(found.judged), fold, data[0])
        judged, held_out = (found.judged, None) if parts is None else (parts.train, parts.valid)
        if found.adaptation is None:
            return TrainingData(judged, held_out, found.notes, whole=parts is None)
        judged, adapter = found.adaptation.learned(judged)
        if not adapter.adapts and not adapter.blocks:
            return TrainingData(judged, held_out, found.notes, whole=parts is None)
        held_out = None if held_out is None else found.adaptation.found_by(held_out, adapter)
        return TrainingData(judged, held_out, found.notes, parts is None, adapter)
    retrieval.refuse_vectors(data)
    if also_judged:
        said = f"--also-judged {also_judged[0]}: these judgments are added to those of a text collection"
        raise DataError(f"{said}, and {data[0]} is not one; feature files contain their own labels.")
    if fold is None:
        folder = next((path for path in data if path.is_dir() and reader_of(path) in (FOLDER, TEXT)), None)
        if folder is not None:
            raise DataError(f"{folder}: this is a folder; say which of its folds to train on with --fold.")
        train = open_features(data, features=features, queries=queries, missing=missing)
        if not valid:
            return TrainingData(train, None)
        return TrainingData(train, read_features(valid, features=features, queries=queries, missing=missing))
    if len(data) != 1 or valid:
        raise DataError("--fold takes one folder, and its validation part; leave out other files and --valid.")
    if not data[0].is_dir():
        raise DataError(f"{data[0]}: --fold takes a folder of folds, with Fold1..Fold5 or S1.txt..S5.txt in it.")
    parts = _fold(folds_of(data[0], queries), fold, data[0])
    return TrainingData(parts.train, parts.valid)


def _fold(folds: Folds, number: int, data: Path) -> Fold:
    if number > len(folds):
        raise DataError(f"--fold {number}: {data} has {len(folds)} folds.")
    return folds[number - 1]


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@contextlib.contextmanager
def working(cluster: str | None, memory: str | None = None) -> Iterator[None]:
    """Use the given workers inside the block."""
    if cluster is not None and memory is not None:
        raise DataError("--memory is for one machine; a cluster uses the memory that Ray was started with.")
    budget = None if memory is None else bytes_from(memory)
    if cluster is not None:
        from querywise.runtime.ray import Cluster, keep_quiet

        keep_quiet()
        with Cluster(cluster):
            yield
    elif budget is not None:
        from querywise.runtime.workers import ThisProcess, use_workers

        with use_workers(ThisProcess(budget)):
            yield
    else:
        yield


def require_parts(data: Training, memory: str | None) -> None:
    """Raise DataError for a memory budget if the data is all in memory."""
    if memory is not None and data.in_memory:
        raise DataError(
            "--memory applies to one set of shards as stored, without --features, --queries or --fold. `querywise "
            "convert` makes one of this data, and takes --features and --queries."
        )


def bytes_from(text: str) -> int:
    """Parse a number of bytes from texts like 4GB, 1.5g and 800 MB."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    number = 0 if found is None else float(found[1]) * _UNITS[found[2].lower()]
    if number < 1:
        raise DataError(f"--memory {text}: expected a size like 4GB or 800MB.")
    return int(number)
