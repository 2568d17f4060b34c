"""Borrowing between queries: a rare query's prior for a document comes from its clicks under similar queries.

α₀(q, d) = (r μ + λ Σ_q' s(q, q') c(q', d)) / (r + λ Σ_q' s(q, q') e(q', d)): clicks c and examinations e of the same
document under the ten most similar queries, by words or by the documents clicked for both; μ and r are the mean and
strength of its prior otherwise. λ and the kind of similarity are chosen on a part of the earlier pages, and tested on
the later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, vstack

from querywise.clicks.impressions import Impressions
from querywise.clicks.models import LEAST, ClickModel, fit_model
from querywise.evaluation.significance import SIGNIFICANT, paired_t_test
from querywise.retrieval.words import Tokeniser
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.progress import doing

_NEAREST = 10  # queries
_SHARES = (0.0, 0.1, 0.3, 1.0)
_KINDS = ("words", "documents")
_CELLS = 2_000_000  # products of a block of queries with all: each takes some 60 bytes
_MOST = 200_000_000  # products of all queries with all: half a minute
_BANDS = ((0, 0), (1, 1), (2, 4), (5, 9), (10, 99), (100, None))  # earlier pages of a query


class Band(NamedTuple):
    """Queries by number of earlier pages: the gain in the mean log-likelihood of a click or skip, and its p."""

    name: str
    queries: int
    gain: float
    p: float


class Borrowing(NamedTuple):
    """How queries borrow, and whether that predicts later clicks better. `share` is λ; `gain` and `p` are overall."""

    kind: str
    share: float
    gain: float
    p: float
    bands: tuple[Band, ...]

    @property
    def helps(self) -> bool:
        """Whether later clicks are predicted significantly better."""
        return self.share > 0 and self.gain > 0 and self.p < SIGNIFICANT


def tested_borrowing(log: Impressions, model: str) -> Borrowing:
    """Choose how to borrow on the earlier pages of a log, and test it on the last fifth."""
    base = "document-ctr" if model == "propensity" else model
    with doing("Testing whether rare queries should borrow"):
        earlier, later = log.split()
        first, second = earlier.split()
        fitted = fit_model(first, base)
        options = [(kind, share) for kind in _KINDS for share in _SHARES if share or kind == _KINDS[0]]
        trials = _likelihoods(first, second, fitted, options)
        best = max(range(len(options)), key=lambda number: float(np.nanmean(trials[number])))
        kind, share = options[best]
        plain, ours = _likelihoods(earlier, later, fit_model(earlier, base), [(kind, 0.0), (kind, share)])
    return _tested(earlier, kind, share, plain, ours)


def _tested(earlier: Impressions, kind: str, share: float, plain: Floats, ours: Floats) -> Borrowing:
    seen = ~np.isnan(plain)
    pages = np.bincount(earlier.query, minlength=len(plain))
    bands = []
    for low, high in _BANDS:
        inside = seen & (pages >= low) & (pages <= (high if high is not None else pages.max(initial=0)))
        if inside.any():
            found = paired_t_test(ours[inside], plain[inside])
            name = f"{low}" if low == high else f"{low}+" if high is None else f"{low}–{high}"
            bands.append(Band(name, int(inside.sum()), found.difference, found.p))
    whole = paired_t_test(ours[seen], plain[seen])
    return Borrowing(kind, share, whole.difference, whole.p, tuple(bands))


def borrowed(log: Impressions, fitted: ClickModel, how: Borrowing, means: Floats) -> Floats:
    """Return the prior mean of every pair of a log; `means` are those without borrowing."""
    return _priors(log, fitted, alike(log, how.kind), how.share, fitted.keys, means)


def _likelihoods(
    log: Impressions, later: Impressions, fitted: ClickModel, options: Sequence[tuple[str, float]]
) -> list[Floats]:
    """Return each query's mean log-likelihood of a click or skip on later pages; NaN without such a page."""
    keys = np.union1d(fitted.keys, later.keys)
    place = np.searchsorted(keys, fitted.keys)
    clicks, exposure = np.zeros(len(keys)), np.zeros(len(keys))
    clicks[place], exposure[place] = fitted.clicks, fitted.exposure
    strength, found = fitted.prior.a + fitted.prior.b, []
    owner, known = later.query[later.page_of_row], {kind: alike(log, kind) for kind in {kind for kind, _ in options}}
    for kind, share in options:
        prior = _priors(log, fitted, known[kind], share, keys, np.full(len(keys), fitted.prior.mean))
        alpha = (strength * prior + clicks) / (strength + exposure)
        chance = np.clip(replace(fitted, keys=keys, alpha=alpha).chances(later).given, LEAST, 1 - LEAST)
        told = np.log(np.where(later.clicked, chance, 1 - chance))
        count = np.bincount(owner, minlength=len(log.queries))
        with np.errstate(invalid="ignore"):
            found.append(np.bincount(owner, told, len(log.queries)) / count)
    return found


def _priors(log: Impressions, fitted: ClickModel, like: csr_array, share: float, keys: Ints, means: Floats) -> Floats:
    """Return α₀ of pairs, where `means` has μ of each."""
    if not share:
        return means
    strength = fitted.prior.a + fitted.prior.b
    clicks, exposure = (_of_neighbors(log, fitted.keys, each, like, keys) for each in (fitted.clicks, fitted.exposure))
    found: Floats = (strength * means + share * clicks) / (strength + share * np.maximum(exposure, clicks))
    return found


def _of_neighbors(log: Impressions, keys: Ints, values: Floats, like: csr_array, wanted: Ints) -> Floats:
    """Return Σ s(q, q') value(q', d) of the pairs wanted."""
    width = len(log.documents)
    table = csr_array((values, (keys // width, keys % width)), shape=(len(log.queries), width))
    summed = (like @ table).tocsr()
    summed.sort_indices()
    there = np.repeat(np.arange(len(log.queries)), np.diff(summed.indptr)) * np.int64(width) + summed.indices
    if not len(there):
        return np.zeros(len(wanted))
    place = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
    return np.where(there[place] == wanted, summed.data[place], 0.0)


def alike(log: Impressions, kind: str) -> csr_array:
    """Return each query's ten most similar, with the cosine: of words weighted by rarity, or of clicks on documents."""
    if kind == "words":
        made = Tokeniser(None)
        terms: dict[str, int] = {}
        rows = [[terms.setdefault(each, len(terms)) for each in made.terms(text)] for text in log.queries]
        owners = np.repeat(np.arange(len(rows), dtype=np.int64), [len(each) for each in rows])
        columns = np.fromiter((term for each in rows for term in each), np.int64)
    else:
        owners = log.query[log.page_of_row][log.clicked].astype(np.int64)
        columns = log.document[log.clicked].astype(np.int64)
    size = (len(log.queries), max(int(columns.max(initial=0)) + 1, 1))
    table = csr_array((np.ones(len(columns)), (owners, columns)), shape=size)
    rarity = np.log(size[0] / np.maximum(np.bincount(table.indices, minlength=size[1]), 1)) + 1e-9
    table = (table @ diags_array(rarity)).tocsr()
    lengths = np.sqrt(np.maximum(table.power(2).sum(axis=1), 1e-300))
    table = _without_common((diags_array(1 / lengths) @ table).tocsr())
    shared = np.bincount(table.indices, minlength=size[1])
    ends = np.concatenate([[0], np.cumsum(shared[table.indices])])[table.indptr[1:]]
    starts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1] + 1, _CELLS))).tolist()
    blocks = pairwise([0, *(each for each in starts if 0 < each < size[0]), size[0]])
    found: csr_array = vstack([_nearest(table, first, last) for first, last in blocks], format="csr")
    return found


def _without_common(table: csr_array) -> csr_array:
    """Drop features shared by so many queries that comparing them takes too long; they say little about each."""
    shared = np.bincount(table.indices, minlength=table.shape[1]).astype(np.float64)
    rarest = np.argsort(shared, kind="stable")
    kept = np.zeros(table.shape[1])
    kept[rarest[np.cumsum(shared[rarest] ** 2) <= _MOST]] = 1.0
    return table if kept.all() else (table @ diags_array(kept)).tocsr()


def _nearest(table: csr_array, first: int, last: int) -> csr_array:
    """Return the nearest of a block of rows, excluding the rows themselves."""
    found = (table[first:last] @ table.T).tocsr()
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    other = found.indices != rows + first
    rows, columns, values = rows[other], found.indices[other], found.data[other]
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = rank < _NEAREST
    return csr_array((values[kept], (rows[kept], columns[kept])), shape=found.shape)
