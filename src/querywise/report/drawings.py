"""The figures of a report: findings as charts, the same in the page and in files beside it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from querywise.display.words import short
from querywise.evaluation.findings import Findings
from querywise.evaluation.query_vectors import VectorGains
from querywise.evaluation.rankings import query_texts
from querywise.report.charts import Chart, ChartRow, Mark, bar_chart, line_chart, looks, row_chart, scatter_chart
from querywise.runtime.arrays import Floats, Ints

_MOST_BARS = 160
_MOST_POINTS = 800
_GAINS = {"gain": ("c1", "^"), "loss": ("c2", "v"), "no change": ("c7", "o")}
_SHAPES = "os^DvP"  # of classes


class Figure(NamedTuple):
    """A chart, its file name and its description."""

    name: str
    said: str
    chart: Chart


def differences(found: Findings) -> tuple[Figure, ...]:
    """Draw every method's difference from the baseline with its interval, the largest first."""
    if not found.others:
        return ()
    base = found.baseline
    rows = []
    for each in sorted(found.others, key=lambda each: -each.difference):
        low, high = each.interval
        told = f"{each.name}: {each.difference:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}"
        mark = Mark(each.difference, 0, told, hollow=not each.is_significant)
        rows.append(ChartRow(each.name, [mark], each.interval))
    said = f"Difference of every method from {base.name}"
    label = f"difference in {found.measure} from {short(base.name)} ({base.means[found.measure]:.4f})"
    return (Figure("difference.svg", said, row_chart(rows, label=label, said=said)),)


def ndcg_curves(found: Findings) -> tuple[Figure, ...]:
    """Draw NDCG at 1 to 10 by method: Figure 7 of [geng2008]_."""
    lines = {name: list(enumerate(values, start=1)) for name, values in found.ndcg.items()}
    said = f"NDCG at 1 to 10 (flavour {found.compared.flavour})"
    chart = line_chart(lines, names=found.compared.names, labels=("position", "NDCG"), said=said)
    return (Figure("ndcg.svg", said, chart),)


def quality_by_difficulty(found: Findings) -> tuple[Figure, ...]:
    """Draw the main measure by number of relevant documents."""
    chosen = next((each for each in found.breakdowns if each.title == "relevant documents"), None)
    groups = () if chosen is None else tuple(group for group in chosen.groups if group.label != "none")
    if len(groups) < 2:
        return ()
    names, said = found.compared.names, "Quality by number of relevant documents"
    chart = line_chart(
        {name: [(place, group.means[name]) for place, group in enumerate(groups)] for name in names},
        names=names,
        labels=("relevant documents", found.measure),
        ticks=[f"{group.label} ({group.queries} queries)" for group in groups],
        said=said,
    )
    return (Figure("difficulty.svg", said, chart),)


def relevant_per_query(found: Findings) -> tuple[Figure, ...]:
    """Draw the number of queries by number of relevant documents: Figure 4 of [lin2011]_."""
    values = np.asarray(found.relevant)
    width = max(1, int(np.ceil((values.max(initial=0) + 1) / 40)))
    counts = np.bincount(values // width).tolist()
    edges = [number * width - 0.5 for number in range(len(counts) + 1)]
    texts = [
        f"{_range(number * width, number * width + width - 1)} relevant: {count} queries"
        for number, count in enumerate(counts)
    ]
    said = "Relevant documents per test query"
    chart = bar_chart(edges, counts, texts, labels=("relevant documents", "queries"), said=said)
    return (Figure("relevant.svg", said, chart),)


def gain_per_query(found: Findings) -> tuple[Figure, ...]:
    """Draw every query's gain under the best method, sorted."""
    gains = gains_of(found)
    if gains is None:
        return ()
    ordered = np.sort(gains)[::-1]
    cuts = np.unique(np.linspace(0, len(ordered), min(len(ordered), _MOST_BARS) + 1).round().astype(int)).tolist()
    pairs = list(itertools.pairwise(cuts))
    values = [float(ordered[begin:end].mean()) for begin, end in pairs]
    texts = [f"query {_range(one + 1, two)}: {value:+.4f}" for (one, two), value in zip(pairs, values, strict=True)]
    said = f"Gain of {found.shown} on {found.compared.baseline}, query by query"
    labels = ("test queries, sorted by gain", f"gain in {found.measure}")
    chart = bar_chart([cut + 0.5 for cut in cuts], values, texts, labels=labels, said=said)
    return (Figure("gains.svg", said, chart),)


def quality_against_time(found: Findings) -> tuple[Figure, ...]:
    """Draw the main measure against the time to rank a query."""
    timed = [each for each in found.methods if np.isfinite(each.predict_milliseconds) and each.predict_milliseconds > 0]
    if len(timed) < 2:
        return ()
    seen = looks(found.compared.names)
    marks = []
    for each in timed:
        value, spent = each.means[found.measure], each.predict_milliseconds
        marks.append(Mark(spent, value, f"{each.name}: {value:.4f} at {spent:.3g} ms per query", *seen[each.name]))
    labels, said = ("milliseconds per query", found.measure), "Quality against time per query"
    named = {each.name: seen[each.name] for each in timed}
    return (Figure("time.svg", said, scatter_chart(marks, labels=labels, named=named, log=True, said=said)),)


def quality_against_k(found: Findings) -> tuple[Figure, ...]:
    """Draw the best validation value at every k tried: Figure 8 of [geng2008]_, on validation data."""
    if not found.against_k:
        return ()
    share = any(isinstance(k, float) for points in found.against_k.values() for k in points)
    lines = {
        name: [(100 * k if share else k, value) for k, value in sorted(points.items())]
        for name, points in found.against_k.items()
    }
    labels = ("k, % of the training queries" if share else "k", "on validation data")
    said = "Validation quality against the number of neighbours"
    return (Figure("against-k.svg", said, line_chart(lines, names=found.compared.names, labels=labels, said=said)),)


def oracles(found: Findings) -> tuple[Figure, ...]:
    """Draw what the r-th best model reaches, and the best of several: Figure 3 and after Figure 2 of [lin2011]_."""
    if not found.oracles:
        return ()
    level = (found.compared.baseline, found.oracles[0].baseline)
    chart = partial(line_chart, names=found.compared.names, level=level, log=True)
    ranks = {
        each.name: [(place, each.by_rank[place - 1]) for place in _in_steps(len(each.by_rank))]
        for each in found.oracles
    }
    numbers = {each.name: sorted(each.by_number.items()) for each in found.oracles}
    first = "What always choosing the r-th best model would reach"
    second = "What always choosing the best of so many models would reach"
    one = chart(ranks, labels=("rank of the model, the best for each query first", "MAP"), said=first)
    labels = ("models to choose from, drawn at random from the method's own", "MAP")
    two = chart(numbers, labels=labels, said=second)
    return Figure("oracle.svg", first, one), Figure("upper-bound.svg", second, two)


def queries_in_the_plane(found: Findings) -> tuple[Figure, ...]:
    """Draw test queries of the first fold in two principal components, by class or gain: Figure 1 of [geng2008]_."""
    compared = found.compared
    source = next((name for name in compared.names if compared.trained[name][0].extra.places), None)
    gains = gains_of(found)
    if source is None or gains is None:
        return ()
    places = np.array(compared.trained[source][0].extra.places)
    if places.ndim != 2 or places.shape[1] < 2:
        return ()
    first = np.flatnonzero(compared.fold_of == 0)
    kinds, named = _by_class(found, first)
    if not named:
        kinds, named = _by_outcome(gains[first])
    said = f"The first fold's test queries as {source} places them, by {'gain' if named is _GAINS else 'class'}"
    labels = ("first principal component", "second principal component")
    marks = _marks(found, places[:, :2], gains[first], first, [named[kind] for kind in kinds])
    return (Figure("queries.svg", said, scatter_chart(marks, labels=labels, named=named, said=said)),)


def transforms_by_gain(found: Findings) -> tuple[Figure, ...]:
    """Draw every query's (α, β) under aTVT, by its gain [zha2006]_."""
    made: list[Figure] = []
    compared = found.compared
    base = compared.evaluations[compared.baseline][found.measure]
    for name in compared.names:
        moved = compared.moved(name)
        if moved is not None and name != compared.baseline and np.nansum(np.abs(moved - [1, 0])) > 0:
            known = np.flatnonzero(np.isfinite(moved[:, 0]))
            gains = (compared.evaluations[name][found.measure] - base)[known]
            said = f"How {name} moved each query's target values while it was a training query, by the query's gain"
            kinds, named = _by_outcome(gains)
            marks = _marks(found, moved[known], gains, known, [named[kind] for kind in kinds])
            chart = scatter_chart(marks, labels=("scale α", "shift β"), named=named, said=said)
            made.append(Figure(f"transforms-{len(made) + 1}.svg", said, chart))
    return tuple(made)


def gain_by_cosine(found: Findings, gains: VectorGains) -> tuple[Figure, ...]:
    """Draw each query's gain from training the query vectors against the cosine to its nearest training query."""
    if not gains.moved:
        return ()
    kinds, named = _by_outcome(gains.gains)
    places = np.column_stack([gains.nearest, gains.gains])
    marks = _marks(found, places, gains.gains, np.arange(len(places)), [named[kind] for kind in kinds])
    said = "Gain by adapted query vectors, by the nearest training query"
    labels = ("cosine to the nearest training query", f"gain in {gains.measure}")
    return (Figure("vectors-gain.svg", said, scatter_chart(marks, labels=labels, named=named, said=said)),)


def _by_class(found: Findings, queries: Ints) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Return the class of each query, and the looks of classes; no looks without classes."""
    classes = found.compared.judged.classes
    kinds = [classes[query] or "no class" for query in queries.tolist()]
    known = [*found.compared.classes, *(["no class"] if "no class" in kinds else [])]
    looks = {name: (f"c{1 + place % 6}", _SHAPES[place % 6]) for place, name in enumerate(known)}
    return kinds, looks if found.compared.classes else {}


def _by_outcome(gains: Floats) -> tuple[list[str], dict[str, tuple[str, str]]]:
    return ["gain" if gain > 0 else "loss" if gain < 0 else "no change" for gain in gains.tolist()], _GAINS


def _marks(
    found: Findings, places: Floats, gains: Floats, queries: Ints, looks: Sequence[tuple[str, str]]
) -> list[Mark]:
    """Return marks of queries in a plane, each with its gain; a sample if there are very many."""
    marks = []
    for place in _some(len(gains), _MOST_POINTS):
        text = f"{name_of_query(found, int(queries[place]))}: {gains[place]:+.4f}"
        marks.append(Mark(float(places[place, 0]), float(places[place, 1]), text, *looks[place]))
    return marks


def gains_of(found: Findings) -> Floats | None:
    """Return every query's gain under the method whose queries are shown."""
    if found.shown is None:
        return None
    compared = found.compared
    ours, theirs = (compared.evaluations[name][found.measure] for name in (found.shown, compared.baseline))
    difference: Floats = ours - theirs
    return difference


def name_of_query(found: Findings, query: int) -> str:
    """Return a query's text, shortened, or its id."""
    return short(query_texts(found.compared)[query] or found.compared.judged.query_ids[query], 60)


def _some(count: int, most: int = 200) -> Sequence[int]:
    """Return at most `most` indices from the first to the last, evenly spaced."""
    if count <= most:
        return range(count)
    places: list[int] = np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()
    return places


def _in_steps(count: int) -> list[int]:
    """Return numbers from 1 to a count, spaced by about the same factor."""
    steps: list[int] = np.unique(np.geomspace(1, max(count, 1), 60).round().astype(int)).tolist()
    return steps


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
