"""Judgments from clicks: a gain and its standard error for every query and document that was shown, or preferences.

Preferences are by inverse propensity: a clicked document stands above those of its page without a click. Every click is
a separate query, with weight 1 / θ of its position: a click where few users would have looked stands for many. So any
learner that takes query weights learns from pairs by inverse propensity, including boosted trees and local models.
Equal queries are merged, with the sum of their weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.clicks import kernels
from querywise.clicks.borrowing import Borrowing, borrowed
from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Codes, Impressions
from querywise.clicks.models import (
    ADDED,
    EXAMINED,
    ClickModel,
    Prior,
    browsing_cells,
    exchanged_theta,
    fit_model,
    fitted_prior,
    fitted_strength,
    position_cells,
    position_rates,
    require_model,
    summed,
)
from querywise.data.judged import Candidates, Judged
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

GRADES = 4  # the highest grade
_POINTS = 96  # points of a posterior's grid
_TOP = 0.99  # quantile of the gains that gets the highest grade
_POSITIONED = ("position-ctr",)
_LEAST = 1e-4  # the least mean of a prior, and its least distance from 1
QUANTILE = 0.99  # of the inverse propensities of clicks; larger ones are clipped to it


class Judgments(NamedTuple):
    """The judgment of every pair from clicks.

    Attributes:
        query, document: Their numbers in the log.
        impressions, clicks: How often the pair was shown and clicked.
        gain, error: Posterior mean and standard deviation of attractiveness by `model`.
        naive: The gain by clicks over impressions, as if there were no position bias.
        pessimistic: The gain as if the whole fall of the click rate with position were bias.

    """

    model: str
    debiased: bool
    query: Ints
    document: Ints
    impressions: Ints
    clicks: Ints
    gain: Floats
    error: Floats
    naive: Floats
    pessimistic: Floats

    @property
    def average(self) -> float:
        """The mean gain of shown documents: those above it are better than what users saw."""
        return float(self.gain @ self.impressions / self.impressions.sum())

    def grades(self) -> Ints:
        """Return integer grades: 0 up to the average, then four equal steps up to the highest gains.

        The highest are those above the 99th percentile.
        """
        low = self.average
        above = self.gain[self.gain > low]
        if not len(above):
            return np.zeros(len(self.gain), np.int64)
        top = max(float(np.quantile(above, _TOP)), low + 1e-12)
        found = np.ceil(GRADES * (self.gain - low) / (top - low) - 1e-9)
        return np.clip(found, 0, GRADES).astype(np.int64)

    def values(self) -> Floats:
        """Return real-valued labels: the gain above the average, to three decimals; 0 if it is not above.

        A document that few users examined has about the gain of its prior, near the average, and so a label near 0.
        """
        above = self.gain - self.average
        return np.where(above > 0, np.maximum(np.round(above, 3), 0.001), 0.0)


def choose_model(known: Knowledge, likelihoods: dict[str, float], named: str | None, *, given: bool) -> str:
    """Return the model that judges: the one named, or the one of PBM and UBM that predicts later pages better.

    If position bias is not known, it is clicks over impressions. `given` tells whether the log has propensities.
    """
    if named is not None:
        require_model(named)
        if named in _POSITIONED:
            raise DataError(f"model={named!r} gives no grades of documents; name another.", arguments=("model",))
        if named in EXAMINED and not known.known:
            raise DataError(
                f"model={named!r} would give debiased judgments that this log does not support. {known.reason} Take "
                "document-ctr or coec, or shuffle some traffic first.",
                arguments=("model",),
            )
        return named
    if given:
        return "propensity"
    if not known.known or len(known.positions) < 2:
        return "document-ctr"
    return max(EXAMINED, key=lambda name: likelihoods.get(name, -np.inf))


def judge(log: Impressions, model: str, known: Knowledge, borrowing: Borrowing | None = None) -> Judgments:
    """Judge every pair of a log by a model; `borrowing` tells how rare queries borrow, None if they do not."""
    naive = fit_model(log, "document-ctr")
    keys = naive.keys
    pair = np.searchsorted(keys, log.keys).astype(np.int32)
    fitted, means = _fitted(log, model, naive, pair, known)
    if borrowing is not None:
        means = borrowed(log, fitted, borrowing, means)
    gain, error = posterior(log, fitted, known, means)
    return Judgments(
        model,
        model in (*EXAMINED, "propensity"),
        keys // len(log.documents),
        keys % len(log.documents),
        np.bincount(pair, minlength=len(keys)),
        naive.clicks.astype(np.int64),
        gain,
        error,
        naive.alpha,
        _pessimistic(log, pair, naive.clicks) if log.has_positions else naive.alpha,
    )


def _fitted(
    log: Impressions, model: str, naive: ClickModel, pair: Codes, known: Knowledge
) -> tuple[ClickModel, Floats]:
    """Return the model that judges, and the prior mean of every pair."""
    if model in EXAMINED:
        return debiased(log, model, naive, pair, known)
    if model == "propensity":
        assert log.propensity is not None
        exposure = np.maximum(summed(pair, log.propensity, len(naive.keys)), naive.clicks)
        fitted = replace(naive, name=model, exposure=exposure, prior=fitted_prior(naive.clicks, exposure))
    else:
        fitted = naive if model == "document-ctr" else fit_model(log, model)
    return fitted, np.full(len(fitted.keys), fitted.prior.mean)


def debiased(
    log: Impressions, model: str, naive: ClickModel, pair: Codes, known: Knowledge
) -> tuple[ClickModel, Floats]:
    """Return PBM or UBM with examination estimated from exchanged documents, and the prior mean of every pair.

    One prior for all pairs would do harm twice: documents at the top are better, so EM would mistake some of the fall
    in relevance for one in examination; and it would pull documents far down, which few examined, to the average. Here
    a pair's prior has the mean of μ_p = clicks / Σ θ at the positions where it was shown.
    """
    count, places = len(naive.keys), len(known.theta)
    if model == "pbm":
        cells, theta, place = position_cells(log, pair), known.theta, np.arange(places)
    else:
        cells, place = browsing_cells(log, pair), np.repeat(np.arange(places), places)
        theta = exchanged_theta(cells, np.repeat(known.theta, places), known.anchor * places)
    exposed = cells.shown * theta[cells.slot]
    at, mean = place[cells.slot], naive.clicks.sum() / exposed.sum()
    rates = (summed(at, cells.clicks, places) + ADDED * mean) / (summed(at, exposed, places) + ADDED)
    means = summed(cells.pair, cells.shown * np.clip(rates, _LEAST, 1 - _LEAST)[at], count)
    means /= summed(cells.pair, cells.shown, count)
    exposure = np.maximum(summed(cells.pair, exposed, count), naive.clicks)
    strength, middle = fitted_strength(naive.clicks, exposure, means), float(means.mean())
    prior = Prior(strength * middle, strength * (1 - middle))
    alpha = (strength * means + naive.clicks) / (strength + exposure)
    theta = theta if model == "pbm" else theta.reshape(places, places)
    return replace(naive, name=model, alpha=alpha, prior=prior, exposure=exposure, theta=theta), means


def posterior(log: Impressions, fitted: ClickModel, known: Knowledge, means: Floats) -> tuple[Floats, Floats]:
    """Return the mean and standard deviation of every pair's attractiveness; for PBM and UBM with the error of θ.

    `means` are the prior means of the pairs.
    """
    strength, count = fitted.prior.a + fitted.prior.b, len(fitted.keys)
    mean = np.clip(means, _LEAST, 1 - _LEAST)
    a, b = strength * mean, strength * (1 - mean)
    if fitted.name == "coec":  # as attractiveness: 1 is the mean
        error = np.sqrt(fitted.clicks + fitted.prior.a) / (fitted.exposure + fitted.prior.a)
        return np.minimum(fitted.prior.mean * fitted.alpha, 1.0), fitted.prior.mean * error
    if fitted.name not in EXAMINED:
        return _beta(Prior(a, b), fitted.clicks, fitted.exposure)  # type: ignore[arg-type]  # of every pair its own
    pair = np.searchsorted(fitted.keys, log.keys).astype(np.int32)
    cells = (position_cells if fitted.name == "pbm" else browsing_cells)(log, pair)
    grid = (np.arange(_POINTS) + 0.5) / _POINTS
    gain, spread = np.empty(count), np.empty(count)
    starts, theta = cells.starts(count), np.ravel(fitted.theta)
    kernels.posteriors(starts, cells.slot, cells.shown, cells.clicks, theta, a, b, grid, gain, spread)
    positions = cells.slot if fitted.name == "pbm" else cells.slot // len(fitted.theta)
    exposed = cells.shown * theta[cells.slot]
    share = exposed / (summed(cells.pair, exposed, count)[cells.pair] + strength)
    table = csr_array((share, (cells.pair, positions)), shape=(count, len(known.covariance)))
    return gain, np.sqrt(spread**2 + gain**2 * _quadratic(table, known.covariance))


def _quadratic(table: csr_array, covariance: Floats) -> Floats:
    """Return the quadratic form of every row, in blocks."""
    found = np.empty(table.shape[0])
    for first in range(0, len(found), 100_000):
        block = table[first : first + 100_000].toarray()
        found[first : first + 100_000] = np.einsum("ij,ij->i", block @ covariance, block)
    return np.maximum(found, 0.0)


def _beta(prior: Prior, clicks: Floats, exposure: Floats) -> tuple[Floats, Floats]:
    total = prior.a + prior.b + exposure
    mean = (prior.a + clicks) / total
    return mean, np.sqrt(mean * (1 - mean) / (total + 1))


def _pessimistic(log: Impressions, pair: Codes, clicks: Floats) -> Floats:
    """Return clicks over impressions, weighted by the relative click rate of their position."""
    rates = position_rates(log)
    exposure = summed(pair, rates[log.position] / rates[np.unique(log.position)].max(), len(clicks))
    exposure = np.maximum(exposure, clicks)
    prior = fitted_prior(clicks, exposure)
    return _beta(prior, clicks, exposure)[0]


class ClickPreferences(NamedTuple):
    """Clicked documents above others: preference `i` has documents `starts[i]:starts[i + 1]`, the clicked one first.

    Attributes:
        query: The query's number in the log.
        weight: Clicks / θ.
        clipped: The largest 1 / θ.

    """

    query: Ints
    starts: Ints
    document: Ints
    weight: Floats
    clipped: float


def preferences(log: Impressions, known: Knowledge) -> ClickPreferences:
    """Return the preferences of a log whose position bias is known, or that has propensities."""
    if log.propensity is None and not known.known:
        raise DataError(
            f"Pairs by inverse propensity need examination probabilities. {known.reason}", arguments=("pairs",)
        )
    clicked = np.flatnonzero(log.clicked)
    inverse = 1 / (known.theta[log.position] if log.propensity is None else log.propensity)[clicked]
    clipped = float(np.quantile(inverse, QUANTILE))
    found: dict[tuple[int, int, bytes], float] = {}
    for row, page, weight in zip(clicked.tolist(), log.page_of_row[clicked].tolist(), inverse.tolist(), strict=True):
        rows = slice(int(log.starts[page]), int(log.starts[page + 1]))
        others = np.sort(log.document[rows][~log.clicked[rows]])
        if len(others):
            key = int(log.query[page]), int(log.document[row]), others.tobytes()
            found[key] = found.get(key, 0.0) + min(weight, clipped)
    if not found:
        raise DataError("No page shows a clicked document beside one without a click, so there is no preference.")
    lists = [np.concatenate([[document], np.frombuffer(others, np.int32)]) for _, document, others in found]
    return ClickPreferences(
        np.array([query for query, _, _ in found], np.int64),
        np.cumsum([0, *(len(each) for each in lists)]),
        np.concatenate(lists).astype(np.int64),
        np.array(list(found.values())),
        clipped,
    )


def preferred(found: ClickPreferences, log: Impressions, candidates: Candidates, names: Mapping[str, str]) -> Judged:
    """Return every preference as a weighted query of candidates, in the group of its original query.

    `names` maps a query's text in the log to its id.
    """
    assert candidates.document_ids is not None
    owners = [candidates.query_ids[query] for query in candidates.query_of_row.tolist()]
    place = {pair: row for row, pair in enumerate(zip(owners, candidates.document_ids, strict=True))}
    rows: list[int] = []
    starts, ids, groups, weights = [0], list[str](), list[str](), list[float]()
    for number, query in enumerate(found.query.tolist()):
        documents = found.document[found.starts[number] : found.starts[number + 1]].tolist()
        own = names.get(log.queries[query], log.queries[query])
        there = [place.get((own, log.documents[each]), -1) for each in documents]
        known = [row for row in there if row >= 0]
        if there[0] >= 0 and len(known) > 1:
            rows += known
            starts.append(len(rows))
            ids.append(f"{own} #{number + 1}")
            groups.append(own)
            weights.append(float(found.weight[number]))
    if not rows:
        raise DataError("No clicked document is among the candidates together with another of its page.")
    labels = np.zeros(len(rows), np.int64)
    labels[starts[:-1]] = 1
    table = candidates.queries
    texts = {} if table is None or table.texts is None else dict(zip(table.ids, table.texts, strict=True))
    known_texts = tuple(texts.get(each) for each in groups)
    made = Candidates(
        candidates.features[rows],
        np.array(starts),
        tuple(ids),
        document_ids=tuple(candidates.document_ids[row] for row in rows),
        feature_names=candidates.feature_names,
        queries=QueryTable(tuple(ids), texts=known_texts, groups=tuple(groups)),
        missing=candidates.missing,
    )
    return Judged(made, labels).with_weights(np.array(weights))
