"""Judgments from clicks in a folder: gains and standard errors by query and document, as labels and query weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.data.judged import Judged
from querywise.data.labels import labels_from
from querywise.errors import DataError
from querywise.runtime.files import parse_json, read_text
from querywise.runtime.values import JsonObject, finite_number

MANIFEST, GAINS, FEATURES = "clicks.json", "gains.tsv", "features.parquet"
WEIGHTS = "weights.tsv"  # of preferences, if features are those of pairs weighted by inverse propensity
HEADING = ("query-id", "corpus-id", "gain", "error", "label")


class ClickGain(NamedTuple):
    """Click evidence for a document: its attractiveness, the standard error, and the real-valued label from it."""

    gain: float
    error: float
    label: float


Gains = Mapping[str, Mapping[str, ClickGain]]  # query → document → gain


def is_click_folder(path: Path) -> bool:
    """Return whether a path is a folder of judgments from clicks."""
    return (path / MANIFEST).is_file()


def read_gains(folder: Path) -> dict[str, dict[str, ClickGain]]:
    """Return the gains in a folder: query → document → gain."""
    path = folder / GAINS
    lines = read_text(path).split("\n")
    if tuple(lines[0].split("\t")) != HEADING:
        raise DataError(f"{path}:1: expected the columns {', '.join(HEADING)}; found {lines[0][:80]!r}.")
    found: dict[str, dict[str, ClickGain]] = {}
    for number, line in enumerate(lines[1:], start=2):
        if line:
            query, document, *values = (line.split("\t") + [""] * len(HEADING))[: len(HEADING)]
            numbers = [finite_number(each) for each in values]
            if any(each is None or each < 0 for each in numbers):
                raise DataError(f"{path}:{number}: expected three numbers from 0 up; found {line[:80]!r}.")
            found.setdefault(query, {})[document] = ClickGain(*(float(each or 0) for each in numbers))
    return found


def labels_in(gains: Gains) -> dict[str, dict[str, float]]:
    """Return only the labels: query → document → label."""
    return {query: {document: each.label for document, each in own.items()} for query, own in gains.items()}


def read_manifest(folder: Path) -> JsonObject:
    """Return the content of the folder's manifest."""
    found = parse_json(read_text(folder / MANIFEST), folder / MANIFEST)
    if not isinstance(found, dict):
        raise DataError(f"{folder / MANIFEST}: expected a record; found {found!r:.60}.")
    return found


def weighed_by_clicks(data: Judged, folder: Path) -> Judged:
    """Return preferences with their click weights."""
    weights: dict[str, float] = {}
    for number, line in enumerate(read_text(folder / WEIGHTS).split("\n"), start=1):
        if line:
            name, _, text = line.rpartition("\t")
            weight = finite_number(text)
            if weight is None or not name:
                raise DataError(f"{folder / WEIGHTS}:{number}: expected a query and a weight; found {line[:80]!r}.")
            weights[name] = weight
    return data.with_weights(weights)


def judged_by_clicks(data: Judged, folder: Path) -> Judged:
    """Return the same documents with the gains in a folder (see `with_gains`)."""
    try:
        return with_gains(data, read_gains(folder), weigh=read_manifest(folder).get("weights") is True)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def with_gains(data: Judged, gains: Gains, *, weigh: bool) -> Judged:
    """Return the same documents with their gains as real-valued labels; `weigh` weights queries by certainty.

    A query's weight is Σ 1 / error² over its judged documents, so that queries with more clicks count more; the mean
    weight is 1. Documents that were not shown are unjudged, and queries without a judged document are dropped.
    """
    rows = data.candidates
    if rows.document_ids is None:
        raise DataError("judgments from clicks belong to documents, and these have no ids.")
    values, judged = np.zeros(len(data.labels)), np.zeros(len(data.labels), np.bool_)
    weights = np.zeros(len(data))
    for query, name in enumerate(rows.query_ids):
        own: Mapping[str, ClickGain] = gains.get(name, {})
        for row in range(rows.starts[query], rows.starts[query + 1]):
            found = own.get(rows.document_ids[row])
            if found is not None:
                values[row], judged[row] = found.label, True
                weights[query] += 1 / max(found.error, 1e-6) ** 2
    kept = np.flatnonzero(weights)
    if not len(kept):
        raise DataError(
            "none of the documents judged by clicks is among the candidates. Do queries and documents have the same "
            "ids in the log and in the data?"
        )
    labels, table = labels_from(values, True)
    made = replace(data, labels=labels, gains=table, judged=judged, missed=None).with_weights().select(kept)
    return made.with_weights(weights[kept] / weights[kept].mean()) if weigh else made
