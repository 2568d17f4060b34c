"""Models saved by earlier versions load, and score, explain and export as they did: to the last bit on such a machine.

Elsewhere sums are added up in another order, so their last digits differ.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from querywise.methods import find_method
from querywise.storage import load
from tests.golden.make import ENGINES, HERE, exported
from tests.golden.worlds import answers, asked, machine, training

FOLDERS = sorted(path.name for path in HERE.iterdir() if path.is_dir())
REMOVED = ("routed", "routed-views")  # kinds that are no longer there


@cache
def golden(name: str) -> tuple[dict[str, Any], bool]:
    """What was written, and whether this is a machine that should get the same bits."""
    written = json.loads((HERE / f"{name}.json").read_text())
    return written[name], written["machine"] == machine()


def same_bits(found: Any, expected: Any) -> None:
    assert np.array_equal(np.asarray(found), np.asarray(expected))


def alike(found: Any, expected: Any, where: str = "") -> None:
    """The same up to rounding."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name in expected:
            alike(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            alike(ours, theirs, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), where
    else:
        assert found == expected, where


def test_every_kind_that_can_be_saved_is_among_them() -> None:
    from querywise import storage

    found = {word for name in FOLDERS for word in (HERE / name / "manifest.json").read_text().split('"')}
    assert set(storage._SAVABLE) <= found


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in REMOVED])
def test_a_saved_model_scores_explains_and_exports_as_it_did(name: str) -> None:
    scores, exactly = golden("scores")
    ranker = load(HERE / name)
    found = ranker.predict(asked().candidates)
    if exactly:
        same_bits(found, scores[name])
    else:
        alike(found.tolist(), scores[name])
    said, _ = golden("answers")
    again = {**answers(ranker), **{engine: exported(ranker, engine) for engine in ENGINES}}
    if not exactly:  # the digits of weights and thresholds are in these texts
        for each in (said[name], again):
            each.update({engine: None for engine in ENGINES if isinstance(each[engine], dict)})
    alike(json.loads(json.dumps(again)), said[name])


def test_a_method_scores_as_it_did() -> None:
    scores, exactly = golden("methods")
    data, queries = training(), asked()
    for name in [name for name in scores if name not in REMOVED]:
        found = find_method(name).build().fit(data, valid=queries).predict(queries.candidates)
        if exactly:
            same_bits(found, scores[name])
        else:
            alike(found.tolist(), scores[name], name)
