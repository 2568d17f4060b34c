"""The charts of the page, by the name of the figure beside it that shows the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np

from querywise.display.words import short
from querywise.evaluation.findings import Findings
from querywise.report.charts import Mark, bar_chart, legend, line_chart, looks, scatter_chart
from querywise.runtime.arrays import Floats, Ints

_MOST_BARS = 160
_MOST_POINTS = 800
_GAINS = {"gain": ("c1", "^"), "loss": ("c2", "v"), "no change": ("c7", "o")}


def charts(found: Findings) -> dict[str, str]:
    """Name of a figure → its chart."""
    made = {
        "ndcg.svg": _ndcg(found),
        "relevant.svg": _relevant(found),
        "difficulty.svg": _difficulty(found),
        "time.svg": _time(found),
        "against-k.svg": _against_k(found),
        "gains.svg": _gains(found),
        "queries.svg": _plane(found),
        **_oracles(found),
        **_transforms(found),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def _ndcg(found: Findings) -> str:
    lines = {name: list(enumerate(values, start=1)) for name, values in found.ndcg.items()}
    return line_chart(lines, names=found.compared.names, labels=("position", "NDCG"), said="NDCG at 1 to 10")


def _difficulty(found: Findings) -> str | None:
    chosen = next((each for each in found.breakdowns if each.title == "relevant documents"), None)
    groups = () if chosen is None else tuple(group for group in chosen.groups if group.label != "none")
    if len(groups) < 2:
        return None
    names = found.compared.names
    return line_chart(
        {name: [(place, group.means[name]) for place, group in enumerate(groups)] for name in names},
        names=names,
        labels=("relevant documents", found.measure),
        ticks=[f"{group.label.split(': ')[-1]} ({group.queries} queries)" for group in groups],
        said=f"{found.measure} by number of relevant documents",
    )


def _relevant(found: Findings) -> str:
    values = np.asarray(found.relevant)
    width = max(1, int(np.ceil((values.max(initial=0) + 1) / 40)))
    counts = np.bincount(values // width).tolist()
    edges = [number * width - 0.5 for number in range(len(counts) + 1)]
    texts = [
        f"{_range(number * width, number * width + width - 1)} relevant: {count} queries"
        for number, count in enumerate(counts)
    ]
    said = "How many queries have how many relevant documents"
    return bar_chart(edges, counts, texts, labels=("relevant documents", "queries"), said=said)


def _gains(found: Findings) -> str | None:
    gains = gains_of(found)
    if gains is None:
        return None
    ordered = np.sort(gains)[::-1]
    cuts = np.unique(np.linspace(0, len(ordered), min(len(ordered), _MOST_BARS) + 1).round().astype(int)).tolist()
    pairs = list(itertools.pairwise(cuts))
    values = [float(ordered[begin:end].mean()) for begin, end in pairs]
    texts = [f"query {_range(one + 1, two)}: {value:+.4f}" for (one, two), value in zip(pairs, values, strict=True)]
    said = f"Gain of {found.shown} on {found.compared.baseline}, query by query"
    labels = ("test queries, sorted by gain", f"gain in {found.measure}")
    return bar_chart([cut + 0.5 for cut in cuts], values, texts, labels=labels, said=said)


def _time(found: Findings) -> str | None:
    timed = [each for each in found.methods if np.isfinite(each.predict_milliseconds) and each.predict_milliseconds > 0]
    if len(timed) < 2:
        return None
    seen = looks(found.compared.names)
    marks = []
    for each in timed:
        value, spent = each.means[found.measure], each.predict_milliseconds
        marks.append(Mark(spent, value, f"{each.name}: {value:.4f} at {spent:.3g} ms per query", *seen[each.name]))
    labels = ("milliseconds per query", found.measure)
    drawn = scatter_chart(marks, labels=labels, log=True, said=f"{found.measure} against time per query")
    return legend({each.name: seen[each.name] for each in timed}) + drawn


def _against_k(found: Findings) -> str | None:
    if not found.against_k:
        return None
    share = any(isinstance(k, float) for points in found.against_k.values() for k in points)
    lines = {
        name: [(100 * k if share else k, value) for k, value in sorted(points.items())]
        for name, points in found.against_k.items()
    }
    labels = ("k, % of the training queries" if share else "k", "on validation data")
    said = "Validation quality against the number of neighbours"
    return line_chart(lines, names=found.compared.names, labels=labels, said=said)


def _oracles(found: Findings) -> dict[str, str]:
    if not found.oracles:
        return {}
    level = (found.compared.baseline, found.oracles[0].baseline)
    chart = partial(line_chart, names=found.compared.names, level=level, log=True)
    ranks = {
        each.name: [(place, each.by_rank[place - 1]) for place in _in_steps(len(each.by_rank))]
        for each in found.oracles
    }
    numbers = {each.name: sorted(each.by_number.items()) for each in found.oracles}
    return {
        "oracle.svg": chart(
            ranks,
            labels=("rank of the model, the best for each query first", "MAP"),
            said="What always choosing the r-th best model would reach",
        ),
        "upper-bound.svg": chart(
            numbers,
            labels=("models to choose from, drawn at random from the method's own", "MAP"),
            said="What always choosing the best of so many models would reach",
        ),
    }


def _plane(found: Findings) -> str | None:
    compared = found.compared
    source = next((name for name in compared.names if compared.trained[name][0].extra.places), None)
    gains = gains_of(found)
    if source is None or gains is None:
        return None
    places = np.array(compared.trained[source][0].extra.places)
    if places.ndim != 2 or places.shape[1] < 2:
        return None
    first = np.flatnonzero(compared.fold_of == 0)
    labels = ("first principal component", "second principal component")
    said = f"The first fold's test queries as {source} places them"
    return _by_gain(found, places[:, :2], gains[first], first, labels=labels, said=said)


def _transforms(found: Findings) -> dict[str, str]:
    made: dict[str, str] = {}
    compared = found.compared
    base = compared.evaluations[compared.baseline][found.measure]
    for name in compared.names:
        moved = compared.moved(name)
        if moved is not None and name != compared.baseline and np.nansum(np.abs(moved - [1, 0])) > 0:
            known = np.flatnonzero(np.isfinite(moved[:, 0]))
            gains = (compared.evaluations[name][found.measure] - base)[known]
            said = f"How {name} moved each query's target values"
            drawn = _by_gain(found, moved[known], gains, known, labels=("scale α", "shift β"), said=said)
            made[f"transforms-{len(made) + 1}.svg"] = drawn
    return made


def _by_gain(
    found: Findings, places: Floats, gains: Floats, queries: Ints, *, labels: tuple[str, str], said: str
) -> str:
    """Queries in a plane, by what they gained, in colour and shape; of very many, some."""
    chosen = _some(len(gains), _MOST_POINTS)
    marks = []
    for place in chosen:
        look, shape = _GAINS["gain" if gains[place] > 0 else "loss" if gains[place] < 0 else "no change"]
        text = f"{name_of_query(found, int(queries[place]))}: {gains[place]:+.4f}"
        marks.append(Mark(float(places[place, 0]), float(places[place, 1]), text, look, shape))
    return legend(_GAINS) + scatter_chart(marks, labels=labels, said=said)


def gains_of(found: Findings) -> Floats | None:
    """What every query gained under the method whose queries are looked at."""
    if found.shown is None:
        return None
    compared = found.compared
    ours, theirs = (compared.evaluations[name][found.measure] for name in (found.shown, compared.baseline))
    difference: Floats = ours - theirs
    return difference


def name_of_query(found: Findings, query: int) -> str:
    """A query's text, cut short, or its id."""
    candidates = found.compared.test.candidates
    table = candidates.queries
    text = None if table is None or table.texts is None else table.texts[query]
    return short(text or candidates.query_ids[query], 60)


def _some(count: int, most: int = 200) -> Sequence[int]:
    """Places from the first to the last, at most so many."""
    if count <= most:
        return range(count)
    places: list[int] = np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()
    return places


def _in_steps(count: int) -> list[int]:
    """Numbers from 1 to a count, each larger than the last by about the same factor."""
    steps: list[int] = np.unique(np.geomspace(1, max(count, 1), 60).round().astype(int)).tolist()
    return steps


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
