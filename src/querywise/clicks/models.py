"""Click models: how a click depends on the document and on where it was shown.

All have an attractiveness α of every query–document pair with a Beta prior fitted to all pairs:

    position CTR     P(click) = ρ_p, the click rate at the position
    document CTR     P(click) = α
    COEC             P(click) = ρ_p · clicks / expected clicks
    PBM              P(click) = θ_p · α
    UBM              P(click) = θ_{p, last click} · α
    cascade          the user goes on from each result until the first click
    DCM              after a click at p the user goes on with probability λ_p
    SDBN             after a click the user is satisfied with probability σ of the pair, and stops
    DBN              the same, and goes on from any result with probability γ

PBM and UBM are fitted to cells: how often every pair was shown and clicked in each case of examination.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import betaln

from querywise.clicks import kernels
from querywise.clicks.impressions import Codes, Impressions
from querywise.errors import DataError
from querywise.runtime.arrays import Bools, Floats, Ints
from querywise.runtime.progress import doing

LEAST = 1e-6  # least probability of a click or skip, so that no log-likelihood is infinite
STEPS, TOLERANCE = 100, 1e-4  # of EM: the most steps, and the largest change of examination at which it stops
_PRIOR_AT = (3, 10)  # steps after which the prior is refitted
_STRENGTHS = np.geomspace(0.1, 1_000, 41)
_STRONG = 50.0
_LEVELS = 200  # rounding levels of prior means
ADDED = 10  # impressions added at every position
MODELS = ("position-ctr", "document-ctr", "coec", "pbm", "ubm", "cascade", "dcm", "sdbn", "dbn")
NEED_PAGES = ("ubm", "cascade", "dcm", "sdbn", "dbn")
EXAMINED = ("pbm", "ubm")  # models of examination by position, which debias
_STEPS, _SMALL = 30, 1e-8  # of Newton's method
_HELD = 1.0  # clicks by which a position is held to the click rates: they remain where nothing was exchanged


class Cells(NamedTuple):
    """Counts of every pair shown and clicked in each slot, sorted by pair; a slot is a case of examination."""

    pair: Codes
    slot: Codes
    shown: Floats
    clicks: Floats

    def starts(self, pairs: int) -> Ints:
        """Return where the cells of every pair begin."""
        return np.searchsorted(self.pair, np.arange(pairs + 1)).astype(np.int64)


def counted_cells(pair: Codes, slot: Codes, clicked: Bools, slots: int) -> Cells:
    """Count rows with the same pair and slot."""
    keys = pair.astype(np.int64) * slots + slot
    clicks_at = np.sort(keys[clicked])
    keys.sort()
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    distinct = keys[first]
    shown = np.diff(np.append(first, len(keys))).astype(np.float64)
    clicks = np.searchsorted(clicks_at, distinct, "right") - np.searchsorted(clicks_at, distinct, "left")
    return Cells(
        (distinct // slots).astype(np.int32), (distinct % slots).astype(np.int32), shown, clicks.astype(np.float64)
    )


def position_cells(log: Impressions, pair: Codes) -> Cells:
    """Return counts by pair and position."""
    return counted_cells(pair, log.position.astype(np.int32), log.clicked, log.positions + 1)


def browsing_cells(log: Impressions, pair: Codes) -> Cells:
    """Return counts by pair, position and position of the last click."""
    last, side = np.zeros(len(log.position), np.int16), log.positions + 1
    kernels.last_clicks(log.starts, log.position, log.clicked, last)
    slot = log.position.astype(np.int32) * side + last
    return counted_cells(pair, slot, log.clicked, side * side)


def summed(codes: Codes | Ints, values: Floats, size: int) -> Floats:
    """Return the sum of the values of every code."""
    return np.bincount(codes, values, size).astype(np.float64, copy=False)


def exchanged_theta(cells: Cells, start: Floats, anchor: int) -> Floats:
    """Return examination by position from exchanged documents alone, whatever the attractiveness of each.

    Given a pair's clicks, they fall on positions with probabilities w_p = n_p θ_p / Σ n_q θ_q. Newton's method
    maximizes Σ clicks log w, which is concave in log θ, minus (log θ − log start)² / 2 so that every position has a
    solution.
    """
    clicks = summed(cells.slot, cells.clicks, len(start))
    first = np.log(np.maximum(start, 1e-9))
    found, free = first.copy(), np.flatnonzero(np.arange(len(start)) != anchor)
    for _ in range(_STEPS):
        table, total = _shares(cells, np.exp(found))
        slope = clicks - table.T @ total - _HELD * (found - first)
        curve = information_of(cells, np.exp(found)) + _HELD * np.eye(len(start))
        step = np.linalg.solve(curve[np.ix_(free, free)], slope[free])
        found[free] += np.clip(step, -1.0, 1.0)
        if np.abs(step).max(initial=0.0) < _SMALL:
            break
    return np.clip(np.exp(found), 1e-6, 1.0)


def _shares(cells: Cells, theta: Floats) -> tuple[csr_array, Floats]:
    """Return the probabilities w of every pair, and its clicks."""
    pairs = int(cells.pair[-1]) + 1
    exposed = cells.shown * theta[cells.slot]
    share = exposed / summed(cells.pair, exposed, pairs)[cells.pair]
    table = csr_array((share, (cells.pair, cells.slot)), shape=(pairs, len(theta)))
    return table, summed(cells.pair, cells.clicks, pairs)


def information_of(cells: Cells, theta: Floats) -> Floats:
    """Return the information on log θ, positions × positions."""
    shares, clicks = _shares(cells, theta)
    table = shares.multiply(np.sqrt(clicks)[:, None]).tocsr()
    found: Floats = -(table.T @ table).toarray()
    # Compute the diagonal from the other sums, so that positions without neighbors have exactly 0.
    np.fill_diagonal(found, 0.0)
    found[np.diag_indices(len(theta))] = -found.sum(axis=1)
    return found


class Prior(NamedTuple):
    """A Beta distribution, equivalent to having seen `a` clicks and `b` skips."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        """The mean of the distribution."""
        return self.a / (self.a + self.b)


_EVEN = Prior(1.0, 1.0)


def fitted_prior(clicks: Floats, exposure: Floats) -> Prior:
    """Return the Beta prior with the highest likelihood for the clicks and examinations of all pairs.

    The mean is the overall one; the strength is the best of 41 from 0.1 to 1,000, by the beta-binomial likelihood times
    exp(−strength / 50), so that a few pairs that happen to agree do not give a very strong prior.
    """
    used = exposure > 0
    if not used.any():
        return _EVEN
    mean = min(max(float(clicks[used].sum() / np.maximum(exposure, clicks)[used].sum()), 1e-4), 1 - 1e-4)
    best = fitted_strength(clicks, exposure, np.full(len(clicks), mean))
    return Prior(mean * best, (1 - mean) * best)


def fitted_strength(clicks: Floats, exposure: Floats, mean: Floats) -> float:
    """Return the common strength a + b of Beta priors with one mean for each pair, as in `fitted_prior`."""
    used = exposure > 0
    won, out_of = clicks[used], np.maximum(exposure, clicks)[used]
    digits = 10.0 ** (1 - np.floor(np.log10(out_of)))  # two digits are enough, and leave few distinct numbers
    level = np.round(mean[used] * _LEVELS)
    coded, first, counts = np.unique(
        won * (_LEVELS + 1) + level + 1j * np.round(out_of * digits) / digits, return_index=True, return_counts=True
    )
    won, out_of, center = won[first], np.maximum(coded.imag, won[first]), mean[used][first]

    def likelihood(strength: float) -> float:
        a, b = center * strength, (1 - center) * strength
        return float(((betaln(a + won, b + out_of - won) - betaln(a, b)) * counts).sum()) - strength / _STRONG

    return float(max(_STRENGTHS, key=likelihood))


class Chances(NamedTuple):
    """The click probability in every row: alone, and given the clicks above it on its page."""

    marginal: Floats
    given: Floats


@dataclass(frozen=True, eq=False)
class ClickModel:
    """A fitted click model.

    Attributes:
        keys: The pairs, sorted.
        alpha: Their attractiveness; other pairs have the prior's mean.
        theta: Examination by position, or by position and last click; 1 at `anchor`.
        sigma: The satisfaction of the pairs.
        after: The probability of going on after a click, by position.
        exposure: The expected number of examinations of each pair.

    """

    name: str
    keys: Ints
    alpha: Floats
    prior: Prior
    exposure: Floats
    clicks: Floats
    theta: Floats = field(default_factory=lambda: np.ones(1))
    sigma: Floats = field(default_factory=lambda: np.zeros(0))
    satisfaction: Prior = _EVEN
    after: Floats = field(default_factory=lambda: np.zeros(0))
    gamma: float = 1.0
    steps: int = 0

    def attractiveness(self, log: Impressions) -> Floats:
        """Return α of every row."""
        return looked_up(self.keys, self.alpha, log.keys, 1.0 if self.name == "coec" else self.prior.mean)

    def chances(self, log: Impressions) -> Chances:
        """Return click probabilities on other pages of the same queries and documents (see `together`)."""
        alpha, position = self.attractiveness(log), log.position.astype(np.int64)
        if self.name in ("cascade", "dcm", "sdbn", "dbn"):
            after = np.zeros(len(alpha))
            if self.name == "dcm":
                after = _clipped(self.after, position)
            elif self.name != "cascade":
                sigma = looked_up(self.keys, self.sigma, log.keys, self.satisfaction.mean)
                after = (1 - sigma) * self.gamma
            marginal, given = np.empty(len(alpha)), np.empty(len(alpha))
            kernels.chain_clicks(log.starts, log.clicked, alpha, after, self.gamma, marginal, given)
            return Chances(marginal, given)
        if self.name == "ubm":
            marginal, given = np.empty(len(alpha)), np.empty(len(alpha))
            last = len(self.theta) - 1
            places = np.minimum(log.position, last).astype(np.int16)
            kernels.browsing_clicks(log.starts, places, log.clicked, alpha, self.theta, marginal, given)
            return Chances(marginal, given)
        found = alpha * _clipped(self.theta, position)
        return Chances(found, found)


def _clipped(table: Floats, position: Ints) -> Floats:
    """Return values by position; below the last known position, the value of the last."""
    found: Floats = table[np.minimum(position, len(table) - 1)]
    return found


def looked_up(keys: Ints, values: Floats, wanted: Ints, otherwise: float) -> Floats:
    """Return the values of the keys wanted, where `keys` are sorted."""
    if not len(keys):
        return np.full(len(wanted), otherwise)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], otherwise)


class _Data(NamedTuple):
    """The data to fit: the distinct pairs, and the pair index of every row."""

    log: Impressions
    keys: Ints
    pair: Codes


def fit_models(log: Impressions, names: tuple[str, ...], prior: Prior | None = None) -> dict[str, ClickModel]:
    """Fit several models; `prior` is the prior of attractiveness, by default fitted to the log."""
    keys = np.unique(log.keys)
    pair = np.searchsorted(keys, log.keys).astype(np.int32)
    data, found = _Data(log, keys, pair), {}
    for name in names:
        require_model(name)
        with doing(f"Fitting {name}"):
            found[name] = _FITS[name](data, prior)
    return found


def fit_model(log: Impressions, name: str, prior: Prior | None = None) -> ClickModel:
    """Fit one model."""
    return fit_models(log, (name,), prior)[name]


def require_model(name: str) -> None:
    """Raise DataError if no model has this name."""
    if name not in MODELS:
        raise DataError(f"model={name!r}: expected one of {', '.join(MODELS)}.", arguments=("model",))


def usable_models(log: Impressions) -> tuple[str, ...]:
    """Return the models that can be fitted to a log: document CTR without positions, no chain models without pages."""
    if not log.has_positions:
        return ("document-ctr",)
    return MODELS if log.notes.has_pages else tuple(name for name in MODELS if name not in NEED_PAGES)


def position_rates(log: Impressions) -> Floats:
    """Return the click rate at every position, with ten impressions at the overall rate added; entry 0 is unused."""
    shown = np.bincount(log.position, minlength=log.positions + 1)
    clicks = np.bincount(log.position[log.clicked], minlength=log.positions + 1)
    found: Floats = (clicks + ADDED * clicks.sum() / shown.sum()) / (shown + ADDED)
    return found


def _by_position(data: _Data, _: Prior | None) -> ClickModel:
    none = np.zeros(0)
    rates, anything = position_rates(data.log), Prior(1e12, 1e-12)
    return ClickModel("position-ctr", np.zeros(0, np.int64), none, anything, none, none, theta=rates)


def _by_document(data: _Data, prior: Prior | None) -> ClickModel:
    shown = np.bincount(data.pair, minlength=len(data.keys)).astype(np.float64)
    return _of_counts("document-ctr", data, shown, _clicks_of(data), prior)


def _of_counts(name: str, data: _Data, exposure: Floats, clicks: Floats, prior: Prior | None) -> ClickModel:
    known = prior or fitted_prior(clicks, exposure)
    alpha = (known.a + clicks) / (known.a + known.b + exposure)
    return ClickModel(name, data.keys, alpha, known, exposure, clicks)


def _clicks_of(data: _Data) -> Floats:
    return np.bincount(data.pair[data.log.clicked], minlength=len(data.keys)).astype(np.float64)


def _coec(data: _Data, prior: Prior | None) -> ClickModel:
    """Fit clicks over expected clicks, shrunk toward 1 by the number of clicks in the prior."""
    rates, clicks = position_rates(data.log), _clicks_of(data)
    expected = summed(data.pair, rates[data.log.position], len(data.keys))
    known = prior or fitted_prior(clicks, np.bincount(data.pair, minlength=len(data.keys)).astype(np.float64))
    alpha = (clicks + known.a) / (expected + known.a)
    return ClickModel("coec", data.keys, alpha, known, expected, clicks, theta=rates)


def _pbm(data: _Data, prior: Prior | None) -> ClickModel:
    cells = position_cells(data.log, data.pair)
    anchor, theta = exchanged(data.log, cells)
    return _examination("pbm", data, cells, prior, anchor, theta)


def exchanged(log: Impressions, cells: Cells) -> tuple[int, Floats]:
    """Return the most clicked position, and examination at others from exchanged documents; `cells` by position."""
    rates = np.where(np.bincount(log.position) > 0, np.maximum(position_rates(log), LEAST), 0.0)
    anchor = int(np.argmax(rates))
    return anchor, exchanged_theta(cells, rates / rates[anchor], anchor)


def _ubm(data: _Data, prior: Prior | None) -> ClickModel:
    side = data.log.positions + 1
    theta = np.repeat(exchanged(data.log, position_cells(data.log, data.pair))[1], side)
    made = _examination("ubm", data, browsing_cells(data.log, data.pair), prior, -1, theta)
    return _with(made, theta=made.theta.reshape(side, side))


def _examination(name: str, data: _Data, cells: Cells, prior: Prior | None, anchor: int, start: Floats) -> ClickModel:
    """Run EM: expected examinations, then θ = (examined + 1) / (shown + 2) and α = (a + clicks) / (a + b + examined).

    It maximizes the likelihood times Beta(a + 1, b + 1) of every α and Beta(2, 2) of every θ. `anchor` is the slot
    whose θ is 1, or −1 for none; `start` is the initial θ. The prior is fitted after 3 and 10 steps, then kept.
    """
    pairs, slots, theta = len(data.keys), len(start), start.copy()
    clicks = summed(cells.pair, cells.clicks, pairs)
    shown_in = summed(cells.slot, cells.shown, slots)
    exposure, examined = np.zeros(pairs), np.zeros(slots)
    known = prior or fitted_prior(clicks, summed(cells.pair, cells.shown * theta[cells.slot], pairs))
    alpha = np.full(pairs, known.mean)
    for step in range(1, STEPS + 1):
        kernels.examination_step(*cells, theta, alpha, exposure, examined)
        if prior is None and step in _PRIOR_AT:
            known = fitted_prior(clicks, exposure)
        alpha = (known.a + clicks) / (known.a + known.b + exposure)
        before, theta = theta, (examined + 1) / (shown_in + 2)
        if anchor >= 0:
            theta[anchor] = 1.0
        if step > _PRIOR_AT[-1] and np.abs(theta - before).max() < TOLERANCE:
            break
    return ClickModel(name, data.keys, alpha, known, exposure, clicks, theta=theta, steps=step)


def _down_to(data: _Data, *, first: bool) -> tuple[Bools, Bools]:
    rows, last = np.zeros(len(data.pair), np.bool_), np.zeros(len(data.pair), np.bool_)
    kernels.examined_rows(data.log.starts, data.log.clicked, first, rows, last)
    return rows, last


def _cascade(data: _Data, prior: Prior | None) -> ClickModel:
    rows, first = _down_to(data, first=True)
    shown = np.bincount(data.pair[rows], minlength=len(data.keys)).astype(np.float64)
    clicks = np.bincount(data.pair[first], minlength=len(data.keys)).astype(np.float64)
    return _of_counts("cascade", data, shown, clicks, prior)


def _dcm(data: _Data, prior: Prior | None) -> ClickModel:
    """Fit λ_p = (clicks at p that another follows + 1) / (clicks at p + 2)."""
    rows, last = _down_to(data, first=False)
    shown = np.bincount(data.pair[rows], minlength=len(data.keys)).astype(np.float64)
    at, count = data.log.position, data.log.positions + 1
    clicks, ends = np.bincount(at[data.log.clicked], minlength=count), np.bincount(at[last], minlength=count)
    made = _of_counts("dcm", data, shown, _clicks_of(data), prior)
    return _with(made, after=(clicks - ends + 1) / (clicks + 2))


def _sdbn(data: _Data, prior: Prior | None) -> ClickModel:
    rows, last = _down_to(data, first=False)
    shown = np.bincount(data.pair[rows], minlength=len(data.keys)).astype(np.float64)
    clicks, ends = _clicks_of(data), np.bincount(data.pair[last], minlength=len(data.keys)).astype(np.float64)
    satisfaction = fitted_prior(ends, clicks)
    sigma = (satisfaction.a + ends) / (satisfaction.a + satisfaction.b + clicks)
    return _with(_of_counts("sdbn", data, shown, clicks, prior), sigma=sigma, satisfaction=satisfaction)


class _Ends(NamedTuple):
    """The ends of pages, from the last click on, grouped by query, and what is certain about the rows above.

    Attributes:
        examined: Of every pair, the rows down to the first one of an end.
        followed: Of every pair, the clicks above other rows.
        passed: The number of rows above ends.

    """

    starts: Ints
    clicked: Bools
    pair: Codes
    examined: Floats
    followed: Floats
    passed: float


def _ends(data: _Data) -> _Ends:
    log, pairs = data.log, len(data.keys)
    first, clicked = log.starts[:-1].copy(), np.zeros(len(log), np.bool_)
    last = np.flatnonzero(_down_to(data, first=False)[1])
    first[log.page_of_row[last]], clicked[log.page_of_row[last]] = last, True
    certain = np.arange(len(data.pair)) <= first[log.page_of_row]
    followed = log.clicked.copy()
    followed[log.starts[1:] - 1] = False
    order = np.argsort(log.query, kind="stable")  # keeps the pairs of a query close in memory
    sizes = (log.starts[1:] - first)[order]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.repeat(first[order] - starts[:-1], sizes) + np.arange(starts[-1])
    examined, following = (np.bincount(data.pair[each], minlength=pairs) for each in (certain, followed))
    passed = float(certain.sum() - len(log))
    return _Ends(
        starts, clicked[order], data.pair[rows], examined.astype(np.float64), following.astype(np.float64), passed
    )


def _dbn(data: _Data, prior: Prior | None) -> ClickModel:
    """Run EM over examinations and satisfactions, starting from the simplified network."""
    start = _sdbn(data, prior)
    known, alpha, sigma, gamma = start.prior, start.alpha, start.sigma, 0.9
    ends, clicks = _ends(data), start.clicks
    for step in range(1, STEPS + 1):
        exposure, satisfied, going = ends.examined.copy(), np.zeros(len(data.keys)), np.full(2, ends.passed)
        kernels.chain_step(ends.starts, ends.clicked, ends.pair, alpha, sigma, gamma, exposure, satisfied, going)
        if prior is None and step in _PRIOR_AT:
            known = fitted_prior(clicks, exposure)
        before = gamma, sigma
        alpha = (known.a + clicks) / (known.a + known.b + exposure)
        sigma = (start.satisfaction.a + satisfied) / (start.satisfaction.a + start.satisfaction.b + ends.followed)
        gamma = float((going[0] + 1) / (going[1] + 2))
        change = max(abs(gamma - before[0]), float(np.abs(sigma - before[1]).max(initial=0)))
        if step > _PRIOR_AT[-1] and change < TOLERANCE:
            break
    return ClickModel(
        "dbn",
        data.keys,
        alpha,
        known,
        exposure,
        clicks,
        sigma=sigma,
        satisfaction=start.satisfaction,
        gamma=gamma,
        steps=step,
    )


def _with(model: ClickModel, **values: Floats | Prior) -> ClickModel:
    return replace(model, **values)  # type: ignore[arg-type]  # names of its fields


_FITS: dict[str, Callable[[_Data, Prior | None], ClickModel]] = {
    "position-ctr": _by_position,
    "document-ctr": _by_document,
    "coec": _coec,
    "pbm": _pbm,
    "ubm": _ubm,
    "cascade": _cascade,
    "dcm": _dcm,
    "sdbn": _sdbn,
    "dbn": _dbn,
}


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
    marginal, given = (_predicted_by_position(each, log) for each in bits)
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


def _predicted_by_position(bits: Floats, log: Impressions) -> Floats:
    """Return perplexity by position from 1 on; NaN for a position without rows. Without positions, one number."""
    shown = np.bincount(log.position)
    with np.errstate(invalid="ignore"):
        found: Floats = 2 ** (np.bincount(log.position, bits) / shown)
    return found[1:] if len(found) > 1 else found
