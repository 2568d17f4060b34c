"""How well click models predict the clicks of later pages: log-likelihood and perplexity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.clicks.impressions import Impressions
from querywise.clicks.models import LEAST, ClickModel, fit_models
from querywise.runtime.arrays import Floats


class Quality(NamedTuple):
    """How well a model predicts pages that it was not fitted to.

    Attributes:
        likelihood: The mean log-likelihood of a page, with clicks given those above.
        by_page: The log-likelihood of every page.
        perplexity: The mean over positions of 2 to the mean number of bits of a click or skip, 1 at best; each click
            alone.
        conditional: The perplexity given the clicks above.
        by_position: The perplexity at every position from 1 on.

    """

    likelihood: float
    by_page: Floats
    perplexity: float
    conditional: float
    by_position: Floats


def quality_of(model: ClickModel, log: Impressions) -> Quality:
    """Evaluate a model on a log whose queries and documents have the same numbers as in fitting."""
    chances = model.chances(log)
    bits = _bits(chances.marginal, log), _bits(chances.given, log)
    by_page = -np.add.reduceat(bits[1], log.starts[:-1]) * np.log(2)
    marginal, given = (_by_position(each, log) for each in bits)
    return Quality(float(by_page.mean()), by_page, float(np.nanmean(marginal)), float(np.nanmean(given)), marginal)


def compare_models(log: Impressions, names: tuple[str, ...], share: float = 0.2) -> dict[str, Quality]:
    """Fit models to the earlier pages of a log and evaluate them on the last `share`."""
    earlier, later = log.split(share)
    fitted = fit_models(earlier, names)
    return {name: quality_of(model, later) for name, model in fitted.items()}


def _bits(chance: Floats, log: Impressions) -> Floats:
    sure = np.clip(chance, LEAST, 1 - LEAST)
    found: Floats = -np.log2(np.where(log.clicked, sure, 1 - sure))
    return found


def _by_position(bits: Floats, log: Impressions) -> Floats:
    """Return perplexity by position from 1 on; NaN for a position without rows. Without positions, one number."""
    shown = np.bincount(log.position)
    with np.errstate(invalid="ignore"):
        found: Floats = 2 ** (np.bincount(log.position, bits) / shown)
    return found[1:] if len(found) > 1 else found
