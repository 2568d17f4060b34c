"""The whole job of `querywise fit`: parameters chosen, the ranker trained and saved with how it was made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from querywise.contracts.answers import Sizes, facts_of
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.training import Training
from querywise.evaluation.tuning import Tuned, cross_validate, hint_at, tune_or_fit
from querywise.methods import Method
from querywise.runtime.resume import resuming
from querywise.runtime.values import JsonObject, Settings
from querywise.runtime.workers import workers
from querywise.storage import load, save


@dataclass(frozen=True)
class Asked:
    """What to fit: a method, the settings that are fixed, and how the others are chosen.

    folds: parts of a cross-validation over the training queries, which chooses where there is no validation data.
    notes: what the model's folder must remember of the data.
    """

    method: Method
    fixed: Settings
    measure: str = "map"
    flavour: str = "standard"
    folds: int | None = None
    notes: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class Fitted:
    """What came out: the choice, what is noted in the model folder, and the sizes of clusters where there are some."""

    tuned: Tuned[Ranker]
    notes: JsonObject
    sizes: Sizes | None


def run(asked: Asked, train: Training, valid: Judged | None, out: Path, *, cluster: bool = False) -> Fitted:
    """Choose, train and save; on shards or on a cluster a run that was cut short goes on where it stopped."""
    with _resumable(asked, train, valid, out, cluster=cluster):
        tuned = _tuned(asked, train, valid)
        facts = facts_of(tuned.ranker)
        notes: JsonObject = {"method": asked.method.name, **tuned.as_notes(), **asked.notes}
        if facts.f1 is not None:
            notes["classifier_f1"] = round(facts.f1, 4)
        if facts.sizes is not None:
            notes["clusters"] = facts.sizes._asdict()
        if facts.gains:
            notes["gains"] = [each._asdict() for each in facts.gains]
        save(tuned.ranker, out, notes=notes)
    hint_at([replace(each, method=asked.method.name) for each in tuned.edges])
    return Fitted(tuned, notes, facts.sizes)


def _tuned(asked: Asked, train: Training, valid: Judged | None) -> Tuned[Ranker]:
    base = asked.fixed.get("base")
    build, grid = asked.method.build, asked.method.grid_on(train, base if isinstance(base, str) else None)
    grid, fixed = asked.method.opened(grid, asked.fixed)
    if asked.folds is None:
        return tune_or_fit(
            build, grid, fixed=fixed, train=train, valid=valid, measure=asked.measure, flavour=asked.flavour
        )
    return cross_validate(
        build, grid, fixed=fixed, data=train, folds=asked.folds, measure=asked.measure, flavour=asked.flavour
    )


@contextlib.contextmanager
def _resumable(asked: Asked, train: Training, valid: Judged | None, out: Path, *, cluster: bool) -> Iterator[None]:
    """Training whose finished parts are kept beside the model's folder, where it is on shards or on a cluster."""
    if not cluster and train.in_memory:
        yield
        return
    record = {
        "method": asked.method.name,
        "folds": asked.folds,
        "fixed": {**asked.fixed},
        "measure": asked.measure,
        "flavour": asked.flavour,
        "data": [each.fingerprint() for each in (train, valid) if each is not None],
        "version": version("querywise"),
        "parts": workers().parts,  # what work is cut up by, as is memory
        "memory": workers().memory,
    }
    with resuming(out.absolute().parent / f".{out.name}.unfinished", record, save=save, load=load):
        yield
