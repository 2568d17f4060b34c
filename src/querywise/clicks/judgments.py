"""Judgments from clicks: a gain and its standard error for every query and document that was shown."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.clicks import kernels
from querywise.clicks.borrowing import Borrowing, borrowed
from querywise.clicks.cells import browsing_cells, exchanged_theta, position_cells, summed
from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Codes, Impressions
from querywise.clicks.models import (
    ADDED,
    EXAMINED,
    ClickModel,
    Prior,
    fit_model,
    fitted_prior,
    fitted_strength,
    position_rates,
    require_model,
)
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

GRADES = 4  # the highest
_POINTS = 96  # of a posterior's grid
_TOP = 0.99  # quantile of the gains that is worth the highest grade
_POSITIONED = ("position-ctr",)
_LEAST = 1e-4  # mean of a prior, and as far below 1


class Judgments(NamedTuple):
    """What clicks say of every pair.

    query, document: their numbers in the log. impressions, clicks: how often shown and clicked. gain, error: posterior
    mean and standard deviation of attractiveness by `model`. naive: the same by clicks over impressions, as if there
    were no position bias. pessimistic: as if all of the fall of the click rate with the position were bias.
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
        """The mean gain of what was shown: documents above it are better than what people saw."""
        return float(self.gain @ self.impressions / self.impressions.sum())

    def grades(self) -> Ints:
        """Whole grades: 0 up to the average, then four equal parts up to the highest gains.

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
        """Real-valued labels: by how much the gain is above the average, to three decimals; 0 where it is not.

        A document that few examined has about the gain of its prior, near the average, and so a label near 0.
        """
        above = self.gain - self.average
        return np.where(above > 0, np.maximum(np.round(above, 3), 0.001), 0.0)


def choose_model(known: Knowledge, likelihoods: dict[str, float], named: str | None, *, given: bool) -> str:
    """The model that judges: the one named, or of PBM and UBM the one that predicts later pages better.

    Where position bias is not known, clicks over impressions; `given`: whether propensities came with the log.
    """
    if named is not None:
        require_model(named)
        if named in _POSITIONED:
            raise DataError(f"model={named!r} says nothing of documents; name another.", arguments=("model",))
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
    """Judge every pair of a log by a model. borrowing: how rare queries borrow; None: they do not."""
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
    """The model that judges, and the mean of every pair's prior."""
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
    """PBM or UBM with examination as exchanged documents alone tell it, and the mean of every pair's prior.

    One prior for all pairs would do harm twice: documents at the top are the better ones, so EM takes some of the fall
    of their relevance for one of examination; and of documents far down, which few examined, it would make average
    ones. Here a pair's prior has the mean of μ_p = clicks / Σ θ at the positions where it was shown.
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
    """Mean and standard deviation of every pair's attractiveness; of PBM and UBM with the error of θ.

    means: of every pair's prior.
    """
    strength, count = fitted.prior.a + fitted.prior.b, len(fitted.keys)
    mean = np.clip(means, _LEAST, 1 - _LEAST)
    a, b = strength * mean, strength * (1 - mean)
    if fitted.name == "coec":  # as attractiveness: 1 is that of the mean
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
    """The quadratic form of every row, in blocks."""
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
    """Clicks over impressions that count by the click rate of their position, relative to the best one's."""
    rates = position_rates(log)
    exposure = summed(pair, rates[log.position] / rates[np.unique(log.position)].max(), len(clicks))
    exposure = np.maximum(exposure, clicks)
    prior = fitted_prior(clicks, exposure)
    return _beta(prior, clicks, exposure)[0]
