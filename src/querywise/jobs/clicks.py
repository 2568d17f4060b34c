"""The job of `querywise clicks`: read a log, compare models, assess the log, and write judgments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from querywise.clicks.borrowing import Borrowing, tested_borrowing
from querywise.clicks.folder import JudgmentCounts, documents_beside, human_grades, write_folder
from querywise.clicks.identifiable import Knowledge, what_is_known
from querywise.clicks.impressions import MOST_POSITIONS, Bots, Impressions
from querywise.clicks.judgments import Judgments, choose_model, judge, preferences
from querywise.clicks.models import Quality, compare_models, require_model, usable_models
from querywise.clicks.readers import CLICKS, read_clicks
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.report.clicks import page_of
from querywise.runtime.values import JsonObject

_FEWEST = 10  # pages needed to hold some out
_MANY_DOCUMENTS = 1_000  # of one query


@dataclass(frozen=True)
class ClickOptions:
    """What to do with a log.

    Attributes:
        model: The model that judges; None chooses one.
        actions: The UBI events that count as clicks.
        without_bots: Drop sessions that are probably not by a person.
        weights: Whether queries are weighted by certainty in training.
        borrow: Whether rare queries borrow: auto, if that predicts later clicks better; on or off.
        pairs: Learn from pairs by inverse propensity instead of gains.
        device: Read only the rows of this device.

    """

    model: str | None = None
    actions: Sequence[str] = CLICKS
    without_bots: bool = False
    weights: bool = False
    borrow: str = "auto"
    pairs: bool = False
    device: str | None = None


@dataclass(frozen=True)
class LogFindings:
    """The findings on a log. `qualities` of every model are on the last fifth of the pages; empty for a short log."""

    log: Impressions
    bots: Bots
    qualities: dict[str, Quality]
    known: Knowledge
    judgments: Judgments
    borrowing: Borrowing | None
    told: list[str] = field(default_factory=list)


def learn(source: str, asked: ClickOptions) -> LogFindings:
    """Read a log and judge its documents."""
    if asked.model is not None:
        require_model(asked.model)
    log = read_clicks(source, actions=asked.actions, device=asked.device)
    bots = log.bots()
    if asked.without_bots and len(bots.pages):
        log = log.select(np.setdiff1d(np.arange(len(log)), bots.pages))
    _require_clicks(log)
    names = usable_models(log)
    qualities = compare_models(log, names) if len(log) >= _FEWEST else {}
    known = what_is_known(log)
    likelihoods = {name: each.likelihood for name, each in qualities.items()}
    model = choose_model(known, likelihoods, asked.model, given=log.propensity is not None)
    if model not in names and model != "propensity":
        lacking = "positions" if not log.has_positions else "sessions"
        raise DataError(f"model={model!r} needs {lacking}, which this log lacks.", arguments=("model",))
    borrowing = None
    if asked.borrow != "off" and len(log) >= _FEWEST:
        borrowing = tested_borrowing(log, model)
    use = borrowing is not None and (asked.borrow == "on" or borrowing.helps)
    found = judge(log, model, known, borrowing if use else None)
    return LogFindings(log, bots, qualities, known, found, borrowing, sentences(log, bots, asked))


def write(
    out: Path,
    found: LogFindings,
    asked: ClickOptions,
    *,
    collection: Path | None = None,
    features: Path | None = None,
    report: bool = False,
    source: str = "",
) -> JudgmentCounts:
    """Write the judgments with everything that belongs to them, and a page."""
    beside = documents_beside(collection, features)
    human = human_grades(found.log, found.judgments, beside)
    page = page_of(found.log, found.qualities, found.known, found.judgments, found.told, source, human)
    pairs = preferences(found.log, found.known) if asked.pairs else None
    notes = _manifest(found, asked)
    if pairs is not None:
        if beside.candidates is None:
            raise DataError("Pairs by inverse propensity are made of a feature log.", arguments=("pairs", "features"))
        notes |= {"pairs": len(pairs.query), "largest_inverse_propensity": pairs.clipped}
    return write_folder(out, found.log, found.judgments, beside, notes, page if report else None, pairs)


def _manifest(found: LogFindings, asked: ClickOptions) -> JsonObject:
    return {
        "format": 1,
        "kind": "judgments from clicks",
        "model": found.judgments.model,
        "debiased": found.judgments.debiased,
        "reason": found.known.reason,
        "weights": asked.weights,
        "pages": len(found.log),
        "average": found.judgments.average,
    }


def _require_clicks(log: Impressions) -> None:
    if not log.clicked.any():
        raise DataError(
            f"There is no click in the log: {len(log)} result pages and {len(log.document)} documents shown. Clicks on "
            "documents that were not shown do not count. Nothing can be judged."
        )
    if log.clicked.all():
        raise DataError(
            f"All of the {len(log.document)} documents shown were clicked, so this log seems to hold clicks alone: "
            "what was shown and not clicked is needed too: add a row for every document shown, with clicked = 0."
        )


def sentences(log: Impressions, bots: Bots, asked: ClickOptions) -> list[str]:
    """Summarize the log in sentences."""
    notes, found = log.notes, []
    queries, visits = len(np.unique(log.query)), np.unique(log.visits[log.visits >= 0])
    who = counted(len(visits), "session" if log.client is None else "client")
    found.append(
        f"{counted(len(log), 'result page')} of {counted(queries, 'query', 'queries')}"
        f"{f' in {who}' if len(visits) else ''}, "
        f"{len(log.document):,} documents shown ({len(np.unique(log.document)):,} distinct), "
        f"{int(log.clicked.sum()):,} clicks at {len(np.unique(log.position)):,} positions."
    )
    bands = ", ".join(f"{queries:,} with {name}" for name, queries, _ in log.bands())
    found.append(f"Queries by how many result pages they have: {bands}.")
    if log.has_times:
        first, last = (datetime.fromtimestamp(each, UTC).isoformat(" ", "minutes") for each in log.time[[0, -1]])
        found.append(f"From {first} to {last}.")
    else:
        found.append("The time of pages is not known: pages are taken to be in the order of the file.")
    if notes.texts > len(log.queries):
        joined = notes.texts - len(log.queries)
        found.append(
            f"{joined:,} of {notes.texts:,} query texts differ from another only in case, spaces or Unicode form."
        )
    kinds = (
        (notes.outside, "clicks on documents that were not shown are left out"),
        (notes.repeated, "further clicks on a document of the same page are left out"),
        (notes.duplicates, "rows repeat a document at the same position of a page and are left out"),
        (notes.unreadable, "rows or events without a query, or a document id that can be printed, are left out"),
        (notes.deep, f"documents below position {MOST_POSITIONS} count as shown there"),
        (notes.shared, "documents were shown at a position that another document of the page has"),
    )
    found += [f"{number:,} {what}." for number, what in kinds if number]
    if notes.devices:
        most = sorted(notes.devices.items(), key=lambda each: -each[1])
        found.append(
            f"Documents shown by device: {', '.join(f'{count:,} on {name}' for name, count in most[:10])}."
            f"{_of_device(asked.device, len(most))}"
        )
    if notes.from_zero:
        found.append("Positions are counted from 0 in the log; here they are counted from 1.")
    if notes.unordered:
        found.append("The log is not in the order of time; its pages were sorted.")
    return found + _warnings(log, bots, asked)


def _of_device(device: str | None, devices: int) -> str:
    if device is not None:
        return f" Those on {device} alone are read."
    return " They share one position curve; read each device alone if its pages look different." * (devices > 1)


def _warnings(log: Impressions, bots: Bots, asked: ClickOptions) -> list[str]:
    found = []
    if not log.has_positions:
        found.append(
            "Warning: there are no positions, so clicks over expected clicks and models of examination are impossible. "
            "Judgments are clicks over impressions, which favor what was shown at the top."
        )
    elif len(np.unique(log.position)) == 1:
        found.append("Warning: all documents were shown at one position; there is no position bias to see.")
    if not log.notes.has_pages:
        found.append(
            "Warning: without a session column it is not known which rows were one page; UBM, cascade, DCM and the "
            "Bayesian networks are left out."
        )
    elif np.logical_or.reduceat(log.clicked, log.starts[:-1]).all():
        found.append(
            "Warning: every page has a click. If pages without a click were not logged, documents look more attractive "
            "than they are."
        )
    most = int(np.bincount(np.unique(log.keys) // len(log.documents)).max())
    if most > _MANY_DOCUMENTS:
        found.append(f"Warning: one query was shown with {most:,} different documents.")
    if bots.sessions:
        what = "are left out" if asked.without_bots else "count as all others do unless bots are left out"
        whose = counted(bots.sessions, "session" if log.client is None else "client")
        found.append(
            f"{whose} with {counted(len(bots.pages), 'page')} are unlikely to be people's (more than 100 pages, or "
            f"more clicks than chance allows) and {what}."
        )
    return found
