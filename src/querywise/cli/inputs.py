"""A command's arguments as settings and training data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from querywise.data.judged import Judged
    from querywise.data.training import Training
    from querywise.runtime.values import JsonObject


def local_settings(k: str | None, clusters: str | None, view: str | None, reference: str | None) -> JsonObject:
    """The options of query-dependent methods, as the methods take them: columns counted from 0."""
    from querywise.errors import DataError
    from querywise.runtime.numerals import is_whole, number

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
    """A feature by name, or by its number in the file, counted from 1."""
    from querywise.errors import DataError
    from querywise.runtime.numerals import is_whole

    if is_whole(text.removeprefix("-").removeprefix("+")) and text[:2] != "-+":
        if int(text) < 1:
            raise DataError(f"--reference {text}: columns are numbered from 1.")
        return int(text) - 1
    return text


def read_training(
    data: list[Path], valid: list[Path], *, fold: int | None, features: int | None, queries: Path | None
) -> tuple[Training, Judged | None]:
    """The training part and, where there is one, the validation part."""
    from querywise.data.sources import Kind, kind_of, open_features, read_features
    from querywise.errors import DataError
    from querywise.retrieval.reading import folds_of, is_collection

    if fold is None:
        folder = next((path for path in data if path.is_dir() and kind_of(path) not in (Kind.SHARDS, Kind.LOG)), None)
        if folder is not None:
            raise DataError(f"{folder}: this is a folder; say which of its folds to train on with --fold.")
        train = open_features(data, features=features, queries=queries)
        return train, read_features(valid, features=features, queries=queries) if valid else None
    if len(data) != 1 or valid:
        raise DataError("--fold takes one folder, and its validation part; leave out other files and --valid.")
    if not data[0].is_dir() and not is_collection(data[0]):
        raise DataError(f"{data[0]}: --fold takes a folder of folds, with Fold1..Fold5 or S1.txt..S5.txt in it.")
    folds = folds_of(data[0], queries)
    if fold > len(folds):
        raise DataError(f"--fold {fold}: {data[0]} has {len(folds)} folds.")
    parts = folds[fold - 1]
    return parts.train, parts.valid
