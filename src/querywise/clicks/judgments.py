"""Judgments from clicks: a gain and its standard error for every query and document that was shown."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from querywise.clicks import kernels
from querywise.clicks.cells import browsing_cells, position_cells, summed
from querywise.clicks.identifiable import Knowledge
from querywise.clicks.impressions import Codes, Impressions
from querywise.clicks.models import (
    EXAMINED,
    ClickModel,
    Prior,
    fit_model,
    fitted_prior,
    position_rates,
    require_model,
)
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints

GRADES = 4  # the highest
_POINTS = 96  # of a posterior's grid
_TOP = 0.99  # quantile of the gains that is worth the highest grade
_POSITIONED = ("position-ctr",)


class Judgments(NamedTuple):
    """What clicks say of every pair.

    query, document: their numbers in the log. impressions, clicks: how often shown and clicked. gain, error: posterior
    mean and standard deviation of attractiveness by `model`. naive: the same by clicks over impressions, as if there
    were no position bias. pessimistic: as if all of the fall of the click rate with the position were bias. prior: of
    attractiveness.
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
    prior: Prior

    def grades(self) -> Ints:
        """Whole grades: 0 up to the prior's mean, then four equal parts up to the highest gains.

        The highest are those above the 99th percentile.
        """
        low = self.prior.mean
        above = self.gain[self.gain > low]
        if not len(above):
            return np.zeros(len(self.gain), np.int64)
        top = max(float(np.quantile(above, _TOP)), low + 1e-12)
        found = np.ceil(GRADES * (self.gain - low) / (top - low) - 1e-9)
        return np.clip(found, 0, GRADES).astype(np.int64)

    def values(self) -> Floats:
        """Real-valued labels: the gain to two decimals where it is above the prior's mean, else 0."""
        return np.where(self.gain > self.prior.mean, np.maximum(np.round(self.gain, 2), 0.01), 0.0)


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


def judge(log: Impressions, model: str, known: Knowledge, alpha: Floats | None = None) -> Judgments:
    """Judge every pair of a log by a model. alpha: the mean of every pair's own prior; None: that of all."""
    naive = fit_model(log, "document-ctr")
    keys = naive.keys
    pair = np.searchsorted(keys, log.keys).astype(np.int32)
    impressions = np.bincount(pair, minlength=len(keys))
    worst = _pessimistic(log, pair, naive.clicks) if log.has_positions else naive.alpha
    if model == "document-ctr" and alpha is None:
        fitted = naive
        gain, error = _beta(naive.prior, naive.clicks, naive.exposure)
    elif model == "propensity":
        assert log.propensity is not None
        exposure = np.maximum(summed(pair, log.propensity, len(keys)), naive.clicks)
        fitted = naive
        gain, error = _beta(fitted_prior(naive.clicks, exposure), naive.clicks, exposure)
    else:
        fitted = fit_model(log, model)
        gain, error = posterior(log, fitted, known, alpha)
    return Judgments(
        model,
        model in (*EXAMINED, "propensity"),
        keys // len(log.documents),
        keys % len(log.documents),
        impressions,
        naive.clicks.astype(np.int64),
        gain,
        error,
        naive.alpha,
        worst,
        fitted.prior,
    )


def posterior(
    log: Impressions, fitted: ClickModel, known: Knowledge, alpha: Floats | None = None
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every pair's attractiveness; of PBM and UBM with the error of θ."""
    strength, count = fitted.prior.a + fitted.prior.b, len(fitted.keys)
    mean = np.full(count, fitted.prior.mean) if alpha is None else np.clip(alpha, 1e-4, 1 - 1e-4)
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
