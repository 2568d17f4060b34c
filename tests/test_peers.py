"""Other libraries' trees in a comparison: trained on the same data as ours, refused where only ours will do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.folds import Fold, Folds, read_folds
from querywise.data.judged import Judged
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.significance import holm
from querywise.evaluation.tuning import TunedFit
from querywise.jobs.compare import CompareOptions, run
from querywise.learners.peers import CatBoost, XGBoost, installed
from querywise.methods import PEERS, find_method
from reproduction import peers
from tests.commands import output, refused, reproduce

DATA = make_judged(120, 12, 5, noise=0.3)
TRAIN, VALID, TEST = (DATA.select(range(first, first + 40)) for first in (0, 40, 80))
KINDS = [
    XGBoost,
    lambda **more: XGBoost(objective="rank:map", **more),
    CatBoost,
    lambda **more: CatBoost(mode="NDCG", **more),
    lambda **more: CatBoost(mode="MAP", **more),
]


def ndcg(ranker: Any, data: Judged) -> float:
    return float(evaluate(ranker.predict(data.candidates), data, measures=["ndcg@10"]).values.mean())


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_the_same_whenever_it_is_asked(kind: Any) -> None:
    one, again = (kind(trees=40, depth=3).fit(TRAIN, valid=VALID) for _ in range(2))
    assert ndcg(one, TEST) > ndcg(_Guess(), TEST) + 0.2
    assert one.predict(TEST.candidates).tobytes() == again.predict(TEST.candidates).tobytes()


class _Guess:
    def predict(self, candidates: Any) -> Any:
        return np.random.default_rng(0).normal(size=len(candidates.features))


@pytest.mark.parametrize("kind", [XGBoost, CatBoost])
def test_a_bag_is_the_mean_of_seeds_and_each_forest_stops_by_itself(kind: Any) -> None:
    bag = kind(trees=300, depth=3, patience=5, bag=3, learning_rate=0.3).fit(TRAIN, valid=VALID)
    scores = np.array([bag._scores(forest, TEST.candidates.features) for forest in bag._forests])
    np.testing.assert_allclose(bag.predict(TEST.candidates), scores.mean(axis=0))
    assert (np.ptp(scores, axis=0) > 0).all()
    longest = kind(trees=300, depth=3, bag=1, learning_rate=0.3).fit(TRAIN)
    assert bag.nbytes / 3 < longest.nbytes / 2


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (XGBoost, {"trees": 0}),
        (XGBoost, {"depth": 17}),
        (CatBoost, {"learning_rate": 0.0}),
        (CatBoost, {"bag": 0}),
        (XGBoost, {"objective": "rank:best"}),
        (CatBoost, {"mode": "best"}),
    ],
)
def test_what_cannot_be_is_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        kind(**wrong).fit(TRAIN)


def test_weights_and_values_beside_grades_are_refused() -> None:
    weighted = Judged(TRAIN.candidates, TRAIN.labels, query_weights=np.arange(1.0, 41.0))
    with pytest.raises(DataError, match="in its own way"):
        XGBoost().fit(weighted)
    high = Judged(TRAIN.candidates, TRAIN.labels * 40)
    with pytest.raises(DataError, match="grades up to 31; found 80"):
        XGBoost().fit(high)


def test_a_library_that_is_missing_is_named() -> None:
    with pytest.raises(DataError, match=r"needs the package absent_boost. .*querywise\[peers\]"):
        installed("absent_boost")


def test_only_comparisons_take_them() -> None:
    assert find_method("xgboost", peers=True) is PEERS["xgboost"]
    with pytest.raises(DataError, match="compare accepts it"):
        find_method("catboost")
    with pytest.raises(DataError, match=r"Known: .*blend, xgboost, catboost\. Did you mean xgboost\?"):
        find_method("xgbost", peers=True)


def test_the_chosen_setting_is_fitted_again_with_all_seeds() -> None:
    method = PEERS["xgboost"]
    fit = TunedFit(method.build, {"depth": (1, 3)}, fixed={"trees": 20}, final={"bag": 2})
    found = fit(TRAIN, VALID)
    assert len(found.tried) == 2
    assert all("bag" not in each.parameters for each in found.tried)
    assert found.final == {"bag": 2}
    assert "kept with {'bag': 2}" in repr(found)
    alone = method.build(trees=20, bag=2, depth=found.parameters["depth"]).fit(TRAIN, valid=VALID)
    assert found.ranker.predict(TEST.candidates).tobytes() == alone.predict(TEST.candidates).tobytes()


def test_a_comparison_gives_all_trees_as_many_seeds(tmp_path: Path) -> None:
    for name, part in {"train": TRAIN, "vali": VALID, "test": TEST}.items():
        write_letor(tmp_path / f"{name}.txt", part)
    asked = CompareOptions(methods=("lambdamart", "xgboost", "catboost", "blend"), fixed={"trees": 5})
    compared = run(asked, read_folds(tmp_path), None, title="")[0].compared
    bags = {name: compared.parameters(name)[0].get("bag") for name in asked.methods}  # type: ignore[union-attr]
    assert bags == {"lambdamart": 5, "xgboost": 5, "catboost": 5, "blend": None}  # which is made of five by itself


@pytest.mark.slow
def test_one_table_has_every_set_and_one_correction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = tmp_path / "data" / "Fold1"
    fold.mkdir(parents=True)
    for name, part in (("train", TRAIN), ("vali", VALID), ("test", TEST)):
        write_letor(fold / f"{name}.txt", part)
    monkeypatch.setattr(peers, "SEEDS", 1)
    said = output(reproduce(tmp_path, "peers", "data", "--out", "made", "--quiet"))
    assert said == "", "nothing but what was asked for"
    numbers = json.loads((tmp_path / "made" / "numbers.json").read_text())
    means = {name: each["mean"] for name, each in numbers["comparison"]["methods"].items()}
    assert set(means) == {"lambdamart", "xgboost", "catboost", "blend"}
    assert numbers["versions"]["xgboost"] == installed("xgboost").__version__
    assert set(numbers["chosen"]["catboost"][0]) >= {"depth", "learning_rate", "mode"}
    assert numbers["chosen"]["blend"][0]["bag"] == 1, "as many seeds for all"
    costs = json.loads((tmp_path / "made" / "costs.json").read_text())
    assert set(costs) == set(means)
    assert all(each["training"] > 0 and each["answer"] > 0 for each in costs.values())
    shutil.copytree(tmp_path / "made", tmp_path / "all" / "other-with-vectors")
    for name in ("other", "vectors"):
        (tmp_path / name).mkdir()
    page = output(reproduce(tmp_path, "peers", "data", "--also", "other:vectors", "--out", "all"))
    assert (tmp_path / "all" / "data" / "rows.json").exists(), "made anew, and the other as it was"
    assert "2 sets, 80 test queries" in page
    assert "for all 12 tests" in page
    for name in ("data", "other with vectors"):
        assert f"| {name} | blend | {means['blend']['map']:.4f} |  |" in page
    (tmp_path / "all" / "data" / "costs.json").unlink()
    output(reproduce(tmp_path, "peers", "data", "--also", "other:vectors", "--out", "all"))
    again = json.loads((tmp_path / "all" / "data" / "costs.json").read_text())  # measured again by themselves
    assert f"| {again['blend']['training']:.3g} |" in (tmp_path / "all" / "data" / "table.md").read_text()
    every = json.loads((tmp_path / "all" / "numbers.json").read_text())
    assert every["p_holm"] == holm([each["p"] for each in every["p"]])
    assert [each["p"] for each in every["p"][:3]] == list(numbers["p"]["map"].values())


@pytest.mark.slow
def test_what_is_finished_before_an_interrupt_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "SEEDS", 1)
    folds, fit = Folds([lambda: Fold(TRAIN, VALID, TEST)]), CatBoost.fit

    def interrupted(*_: object, **__: object) -> CatBoost:
        raise KeyboardInterrupt

    monkeypatch.setattr(CatBoost, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        peers.reproduce(folds, tmp_path)
    assert {path.name for path in (tmp_path / "runs").glob("*.csv")} == {"fold1-lambdamart.csv", "fold1-xgboost.csv"}
    monkeypatch.setattr(CatBoost, "fit", fit)
    monkeypatch.setattr(XGBoost, "fit", interrupted)
    monkeypatch.setattr(peers.Cost, "of", lambda *_: peers.Cost(1.0, 1.0))  # which trains all again
    assert "| xgboost |" in peers.reproduce(folds, tmp_path).read_text()
    assert not (tmp_path / "runs").exists()


def test_several_sets_make_a_table_of_peers_or_curves_alone(tmp_path: Path) -> None:
    said = refused(reproduce(tmp_path, "peers", "stdlib", "--also", "other:nowhere", "--out", "all"))
    assert "--also other:nowhere: other: there is no such file or folder." in said
    said = refused(reproduce(tmp_path, "blend", "data", "--also", "other", "--out", "all"))
    assert "--also: there is no table of several sets of blend. Leave --also out, or name peers or curves." in said
