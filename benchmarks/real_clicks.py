"""Real click logs: how well each click model predicts later pages, and clicks beside human judgments.

`python -m benchmarks.real_clicks ../shared/data/clicks` fits every model to `yandex/train.tsv.gz` and measures it on
`yandex/test.tsv.gz`; then it reads the sample of User Behavior Insights in `ubi/` and sets it against the judgments
beside it, in the format of OpenSearch's Search Relevance Workbench. Nothing is chosen here.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from querywise.clicks.identifiable import what_is_known
from querywise.clicks.impressions import Impressions, normalized, together
from querywise.clicks.models import fit_models, quality_of, usable_models
from querywise.clicks.readers import read_clicks
from querywise.jobs.clicks import ClickOptions, LogFindings, learn

Grades = dict[tuple[str, str], float]


def main() -> None:
    """Print both tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    folder: Path = options.parse_args().folder
    print("Yandex's sessions")
    lines(models(read_clicks(folder / "yandex" / "train.tsv.gz"), read_clicks(folder / "yandex" / "test.tsv.gz")))
    print("\nThe sample of User Behavior Insights")
    found = learn(str(folder / "ubi" / "ubi_queries_events.ndjson.gz"), ClickOptions())
    print(*found.told, found.known.reason, sep="\n")
    lines(beside(found, workbench_grades(folder / "ubi" / "esci_us_judgments.json.gz")))


def lines(rows: Sequence[Sequence[str]]) -> None:
    """A table in Markdown."""
    for place, row in enumerate(rows):
        print(f"| {' | '.join(row)} |")
        if not place:
            print(f"|{'|'.join(['---'] + ['---:'] * (len(row) - 1))}|")


def models(train: Impressions, test: Impressions) -> list[list[str]]:
    """Every model, the best first by log-likelihood on the test pages."""
    train, test = together(train, test)
    seen, asked = np.unique(train.keys), np.unique(test.keys)
    print(f"{len(train):,} pages to learn from, {len(test):,} to predict; {(~np.isin(asked, seen)).sum():,} of "
          f"{len(asked):,} pairs of the latter are new. {what_is_known(train).reason}")  # fmt: skip
    fitted = fit_models(train, usable_models(train))
    found = sorted(((name, quality_of(each, test)) for name, each in fitted.items()), key=lambda each: -each[1][0])
    heads = ["model", "log-likelihood of a page", "perplexity", "given clicks above", "at position 1", "at 10"]
    return [heads] + [
        [name, f"{each.likelihood:.4f}", f"{each.perplexity:.4f}", f"{each.conditional:.4f}",
         f"{each.by_position[0]:.3f}", f"{each.by_position[9]:.3f}"]
        for name, each in found
    ]  # fmt: skip


def workbench_grades(path: Path) -> Grades:
    """Ratings by normalized query and document."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lists = json.load(file)["judgmentRatings"]
    return {
        (normalized(each["query"]), one["docId"]): float(one["rating"]) for each in lists for one in each["ratings"]
    }


def beside(found: LogFindings, grades: Grades) -> list[list[str]]:
    """Pairs that were shown, by their rating: how many, how often they were shown and clicked, and their mean gain."""
    log, made = found.log, found.judgments
    pairs = zip(made.query.tolist(), made.document.tolist(), strict=True)
    rating = np.array([grades.get((log.queries[query], log.documents[each]), np.nan) for query, each in pairs])
    both = {query for query, _ in grades} & set(log.queries)
    print(f"{len({query for query, _ in grades})} queries have ratings, {len(log.queries)} are in the log, {len(both)} "
          f"in both; {np.isfinite(rating).sum()} of {len(rating):,} judgments have a rating.")  # fmt: skip
    rows = [["rating", "pairs", "impressions", "clicks", "mean gain"]]
    for value in (*np.unique(rating[np.isfinite(rating)]).tolist(), None):
        own = np.isnan(rating) if value is None else rating == value
        counts = (own.sum(), made.impressions[own].sum(), made.clicks[own].sum())
        name = "none" if value is None else f"{value:g}"
        rows.append([name, *(f"{int(each):,}" for each in counts), f"{made.gain[own].mean():.4f}"])
    return rows


if __name__ == "__main__":
    main()
