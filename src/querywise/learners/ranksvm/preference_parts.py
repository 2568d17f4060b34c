"""The preference pairs of a judged set in parts, each where the workers keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from querywise.data.rows import require_preferences
from querywise.data.training import Part, Training
from querywise.learners.ranksvm.preferences import Preferences
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.scaling import Scale, Scaling
from querywise.runtime.workers import Kept, ThisProcess, Workers, workers


@dataclass(frozen=True)
class PreferenceParts:
    """Preferences in parts, one after the other; `pairs` counts those of every query."""

    workers: Workers
    parts: Sequence[Preferences | Kept]
    pairs: Ints
    cuts: Ints  # the first query of each part, and how many there are in all

    @staticmethod
    def of(preferences: Preferences) -> PreferenceParts:
        """All in one part, here."""
        return PreferenceParts(ThisProcess(), [preferences], preferences.pairs, np.array([0, len(preferences.pairs)]))

    def split(self, values: Floats) -> list[Floats]:
        """A value for every query, part by part."""
        return [values[first:last] for first, last in pairwise(self.cuts.tolist())]


def preference_parts(data: Training, scale: Scale) -> tuple[PreferenceParts, Scaling]:
    """The pairs of a training set with its features on one scale, part by part, and that scale."""
    return cached("pairs", scale, data, lambda: _made_parts(data, scale))


def _made_parts(data: Training, scale: Scale) -> tuple[PreferenceParts, Scaling]:
    pool = workers()
    found = data.surveys()
    pairs = np.concatenate([each.pairs for each in found])
    require_preferences(pairs)
    scaling = Scaling.by([each.moments for each in found], scale)
    parts = pool.keep(_preferences, data.parts(), shared=(scaling,))
    cuts = np.cumsum([0, *(len(each.pairs) for each in found)])
    return PreferenceParts(pool, parts, pairs, cuts), scaling


def _preferences(part: Part, scaling: Scaling) -> Preferences:
    data = part.load()
    return Preferences(scaling.apply(data.candidates.features), data.labels, data.candidates.starts)
