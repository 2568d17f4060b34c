"""Small worlds whose right answer is visible, and where real data is found."""

from __future__ import annotations

import itertools
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from querywise.data.judged import Candidates, Judged
from querywise.data.run_columns import run_feature_names
from querywise.runtime.arrays import Floats

GOLDEN = Path(__file__).parent / "golden"
REAL_DATA = Path(__file__).parent.parent.parent / "shared" / "data"

needs_real_data = pytest.mark.real_data  # skipped where there is none: see conftest.py


def examples(count: int) -> int:
    """How many examples a property is tried on: so many in a full run, a share of them in the profile `check`."""
    return max(min(count, 5), count * settings().max_examples // 100)


def pairwise(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of choices, few of them, in which every two values of any two choices come together."""
    places = list(itertools.combinations(range(len(choices)), 2))

    def meetings(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
        return {(one, row[one], other, row[other]) for one, other in places}

    every = list(itertools.product(*(range(len(each)) for each in choices)))
    missing, taken = set().union(*map(meetings, every)), []
    while missing:
        best = max(every, key=lambda row: len(meetings(row) & missing))  # the first of those that bring most
        missing -= meetings(best)
        taken.append(tuple(values[number] for values, number in zip(choices, best, strict=True)))
    return taken


def part_of_the_library(folder: Path, *, every: int) -> Path:
    """A folder with every n-th module and package of the standard library: as real, and read in a share of the time."""
    folder.mkdir()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).iterdir())[::every]:
        (folder / path.name).symlink_to(path)
    return folder


def inside(thing: object) -> Any:
    """Something of which a contract tells less than a test looks at."""
    return thing


def two_faced(queries: int, documents: int = 5) -> Judged:
    """Even queries want feature 0 high, odd queries want it low; feature 1 tells which."""
    value = np.linspace(-1.0, 1.0, documents)
    moods = [1.0 if query % 2 == 0 else -1.0 for query in range(queries)]
    features = np.vstack([np.column_stack([value, np.full(documents, mood)]) for mood in moods])
    labels = np.concatenate([(mood * value > 0.5).astype(np.int64) for mood in moods])
    starts = np.arange(queries + 1) * documents
    return Judged(Candidates(features, starts, tuple(map(str, range(queries)))), labels)


def ragged(seed: int = 0, queries: int = 12, features: int = 4, grades: int = 3) -> Judged:
    """Queries of 1 to 9 documents with random features, ties among them, and grades that follow the first feature.

    The last three are a single document, a query without a relevant document, and one where all documents are alike.
    """
    rng = np.random.default_rng(seed)
    sizes = np.concatenate([rng.integers(3, 10, size=queries), [1, 4, 3]])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    x = rng.normal(size=(starts[-1], features)).round(1)
    merit = x[:, 0] + 0.5 * rng.normal(size=len(x))
    labels = np.clip(np.floor(merit + 1), 0, grades - 1).astype(np.int64)
    labels[starts[-3] : starts[-2]] = 0
    x[starts[-2] :] = x[starts[-2]]
    return Judged(Candidates(x, starts, tuple(f"q{number}" for number in range(len(sizes)))), labels)


def as_runs(data: Judged, names: tuple[str, ...] = ("a", "b")) -> Judged:
    """The same documents with the columns of as many first-stage runs: its first features, below −0.5 not found."""
    candidates = data.candidates
    scores = candidates.features[:, : len(names)]
    columns = np.zeros((len(scores), 2 * len(names)))
    for query, run in itertools.product(range(len(candidates)), range(len(names))):
        rows = candidates.rows(query)
        own = scores[rows, run]
        found = own >= -0.5
        ranks = 1 + (own[None, :] > own[:, None]).sum(axis=1)  # those that are alike have the same rank
        columns[rows, 2 * run] = np.where(found, own + 1, 0.0)
        columns[rows, 2 * run + 1] = np.where(found, 1 / ranks, 0.0)
    return replace(data, candidates=replace(candidates, features=columns, feature_names=run_feature_names(names)))


def with_gaps(data: Judged) -> Judged:
    """The same documents with values missing in all features but the last: about a quarter, which ones by the value."""
    features = data.candidates.features.copy()
    own = features[:, :-1]
    own[np.floor(own * 7) % 4 == 0] = np.nan
    return replace(data, candidates=replace(data.candidates, features=features, missing="allowed"))


def explicit_pairs(data: Judged, features: Floats | None = None) -> tuple[Floats, Floats]:
    """Every preference pair written down: the difference of its features, and its query's number."""
    x = data.candidates.features if features is None else features
    differences, owners = [], []
    for query in range(len(data)):
        rows = range(*data.candidates.rows(query).indices(len(x)))
        for a in rows:
            for b in rows:
                if data.labels[a] > data.labels[b]:
                    differences.append(x[a] - x[b])
                    owners.append(float(query))
    return np.array(differences).reshape(-1, x.shape[1]), np.array(owners)
