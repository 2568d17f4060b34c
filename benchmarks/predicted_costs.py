"""What the service says an answer will cost, beside what it then takes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result, alone
from querywise import save
from querywise.service.limits import BATCHES, SIZES, USUAL
from querywise.service.loaded_model import LoadedModel
from tests.support.rankers import RANKERS, fitted_once

_TOLD_APART = 0.005  # seconds: shorter times are of no account
_BELOW = 3  # times: the service refuses by twice the time that is allowed, and the machine may be busy
_AGAIN = 20  # repetitions of what took longer: the shortest one counts


def measure_predictions() -> Iterator[Result]:
    """Requests of 1, 10 and 100 queries with 1, 10 and 100 documents, ranked by every ranker of the tests.

    Ours is the largest ratio of the time that one took to the time that was estimated for it when the model was loaded.
    """
    worst, count, where = 0.0, 0, ""
    with tempfile.TemporaryDirectory() as place:
        for number, name in enumerate(RANKERS):
            save(fitted_once(name).ranker, Path(place) / str(number))
            model = LoadedModel.from_folder(Path(place) / str(number))
            for queries in (1, *BATCHES):
                for documents in SIZES[: USUAL + 1]:
                    took = model._rehearse(queries, documents, 3)
                    estimate = model.cost.seconds([documents] * queries)
                    if not math.isfinite(took):
                        continue
                    count += 1
                    if took > _BELOW * max(estimate, _TOLD_APART):  # or something else ran just then
                        took = min(took, model._rehearse(queries, documents, _AGAIN))
                    ratio = max(took, _TOLD_APART) / max(estimate, _TOLD_APART)
                    if ratio > worst:
                        worst, where = ratio, f"{name}, {queries} queries of {documents} documents"
    print(f"costs are estimated worst for {where}")
    what = f"costs of {count} requests to {len(RANKERS)} rankers: most times the estimate"
    yield alone("faults", what, ours=worst, unit="", below=_BELOW)
