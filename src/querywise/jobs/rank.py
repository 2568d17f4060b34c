"""The job of `querywise rank`: score documents of many queries with a fitted ranker, part by part."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.parquet.arrow import is_part, part_name
from querywise.data.parquet.tables import write_scored_part
from querywise.data.training import Shard, Training
from querywise.runtime.arrays import Floats
from querywise.runtime.files import OutputFolder, recover_folder, refused_if_not_written, replace_folder
from querywise.runtime.resume import resume_folder
from querywise.runtime.values import JsonObject
from querywise.runtime.workers import workers

_FOLDER = OutputFolder(
    a_file="this is a file; scores in Parquet are a folder.",
    belongs=is_part,
    stray="is in this folder, which would be replaced as a whole. Name another.",
)
check_scores_folder = _FOLDER.check


def scores_of(ranker: Ranker, data: Training) -> Floats:
    """Return one score per document, in the order of the rows."""
    found = workers().each(_scores, data.parts(), shared=(ranker,), label="Ranking")
    return np.concatenate(found) if found else np.zeros(0)


def in_rows(scores: Floats, data: Training) -> Floats:
    """Return scores in the order of the input's rows, if these were grouped by query."""
    return data.candidates.in_source_order(scores) if isinstance(data, Judged) else scores


def write_scored(ranker: Ranker, version: str, data: Training, out: Path) -> int:
    """Write a folder of Parquet files with a score for every document, one per part; return the number of documents.

    Parts are written to a folder beside `out`, which replaces it once all are there. Finished parts of an interrupted
    run of the same model (`version`) on the same data are reused.
    """
    check_scores_folder(out)
    recover_folder(out)
    parts = data.parts()
    beside = out.absolute().parent / f".{out.name}.unfinished"
    names = [part_name(number) for number in range(len(parts))]
    settings: JsonObject = {"model": version, "data": data.fingerprint(), "parts": len(names)}
    with refused_if_not_written(out), resume_folder(beside, settings):
        rows = workers().each(_write_scores, parts, names, shared=(beside, ranker), label="Ranking")
        for stray in [each for each in beside.iterdir() if each.name not in names]:
            stray.unlink()  # the record, and unfinished files of a lost worker
        replace_folder(beside, out.resolve())
    return sum(rows)


def _scores(part: Shard, ranker: Ranker) -> Floats:
    return ranker.predict(part.load().candidates)


def _write_scores(part: Shard, name: str, folder: Path, ranker: Ranker) -> int:
    """Score the documents of one part and write them, unless that is done."""
    candidates = part.load().candidates
    if not (folder / name).is_file():
        write_scored_part(folder / name, candidates, ranker.predict(candidates))
    return len(candidates.features)
