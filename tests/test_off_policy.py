"""Off-policy estimates against sums over everything that can happen, and against the policies themselves."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.errors import DataError
from querywise.online.interleaving import interleave, propensities
from querywise.online.off_policy import estimates, page_weights, rates
from querywise.online.outcomes import logged_pages
from tests.commands import run
from tests.support.online import DOCUMENTS, NOW, Played
from tests.worlds import examples

chances = st.lists(st.floats(0.05, 1), min_size=3, max_size=3).map(lambda each: np.array(each) / sum(each))
click_rates = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(np.array)


@settings(max_examples=examples(50), deadline=None)
@given(chances, chances, click_rates, click_rates)
def test_ips_and_doubly_robust_are_unbiased_whatever_the_model(
    logging: np.ndarray, target: np.ndarray, rate: np.ndarray, model: np.ndarray
) -> None:
    """The mean of an estimate over all logs of two rows, each with its chance, is the target's click rate."""
    truth = float(target @ rate)
    means = {"IPS": 0.0, "doubly robust": 0.0}
    for items in itertools.product(range(3), repeat=2):
        for clicks in itertools.product((0.0, 1.0), repeat=2):
            chance = math.prod(
                logging[item] * (rate[item] if click else 1 - rate[item])
                for item, click in zip(items, clicks, strict=True)
            )
            item = np.array(items)
            weights = target[item] / logging[item]
            found = estimates(np.array(clicks), weights, model[item], np.full(2, target @ model))
            for each in found:
                if each.name in means:
                    means[each.name] += chance * each.value
    assert means == pytest.approx({"IPS": truth, "doubly robust": truth})


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    logging, target, rate = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.4, 0.5])
    held = dict.fromkeys(("IPS", "SNIPS", "doubly robust"), 0)
    for _ in range(400):
        item = rng.choice(3, 600, p=logging)
        clicks = (rng.random(600) < rate[item]).astype(float)
        for each in estimates(clicks, target[item] / logging[item], *rates(clicks, item, target)):
            if each.name in held:
                held[each.name] += each.low <= target @ rate <= each.high
    assert all(0.91 <= each / 400 <= 0.98 for each in held.values()), held


def test_a_policy_is_estimated_by_its_own_log_as_its_mean() -> None:
    clicks = np.array([1.0, 0, 0, 1, 1])
    for each in estimates(clicks, np.ones(5)):
        assert each.value == pytest.approx(0.6)
        assert each.error == pytest.approx(clicks.std(ddof=1) / math.sqrt(5))
        assert each.clicks == pytest.approx(3)
        assert "rests on 3.0 clicks" in each.warning
    many = np.tile(clicks, 200)
    assert {each.warning for each in estimates(many, np.ones(1000))} == {""}
    lopsided = np.ones(1000)
    lopsided[0] = 1e4
    assert "clicks in effect" in estimates(many, lopsided)[0].warning
    assert "about 50% of what it would show was never shown" in estimates(many, np.full(1000, 0.5))[0].warning


def test_clipping_lowers_and_normalizing_stays_among_the_rewards() -> None:
    rng = np.random.default_rng(1)
    weights, clicks = rng.pareto(1, 500), np.ones(500)
    clicks[:100] = 0
    found = {each.name: each.value for each in estimates(clicks, weights)}
    assert found["clipped"] < found["IPS"]
    assert 0 <= found["SNIPS"] <= 1


def test_pages_are_estimated_by_item_and_position_as_their_ranker_has_them() -> None:
    """Over all draws of an interleaving, what another order's documents get is what its page would get."""
    rankings, order = [["a", "b", "c", "d"], ["b", "d", "a", "c"]], ["b", "a", "d"]
    attraction = {"a": 0.3, "b": 0.7, "c": 0.2, "d": 0.5}
    looked = (1.0, 0.6, 0.4)
    clicks, weights = [], []
    for number in range(4_000):
        shown = interleave(rankings, number.to_bytes(4, "big"), 3).documents
        own = propensities(rankings, shown)
        clicks.append([attraction[document] * look for document, look in zip(shown, looked, strict=True)])
        weights.append(page_weights(order, shown, own))
    reachable = [any(page[place] for page in weights) for place in range(3)]
    truth = sum(attraction[order[place]] * looked[place] for place in range(3) if reachable[place])
    ips, snips, _ = estimates(np.array(clicks), np.array(weights))
    assert ips.value == pytest.approx(truth, abs=4 * ips.error)
    assert snips.value == pytest.approx(truth)


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be evaluated"):
        estimates(np.ones(3), np.zeros(3))
    with pytest.raises(DataError, match="3 weights for 2 rows"):
        estimates(np.ones(2), np.ones(3))
    with pytest.raises(DataError, match="a weight of 0 or more"):
        estimates(np.ones(2), np.array([1.0, math.nan]))


def test_another_rankers_clicks_are_estimated_from_a_log(tmp_path: Path) -> None:
    made, rng = Played(tmp_path / "log"), np.random.default_rng(0)
    attraction = {document: 0.1 + 0.15 * number for number, document in enumerate(DOCUMENTS)}
    for number in range(300):
        signed, draw = made.show("q", f"s{number}", NOW - 50_000, b=["d1", "d0", *DOCUMENTS[2:]])
        for document in draw.documents:
            if rng.random() < attraction[document]:
                made.click(signed, document, NOW - 49_990)
    made.log.close()
    clicks, weights = logged_pages(tmp_path / "log", {"q": ["d1", "d0"]})
    assert clicks.shape == weights.shape == (300, 2)
    truth = attraction["d1"] + attraction["d0"]
    lines = [{"query": "q", "documents": ["d1", "d0"]}, {"query": "unseen", "documents": ["d1"]}]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    done = run(tmp_path, "online", "log", "--estimate", "orders.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    [ips, snips, clipped] = json.loads(done.stdout)["estimates"]
    assert [each["name"] for each in (ips, snips, clipped)] == ["IPS", "SNIPS", "clipped"]
    for each in (ips, snips):
        assert each["value"] == pytest.approx(truth, abs=4 * each["error"])
    assert "clicks a page" in run(tmp_path, "online", "log", "--estimate", "orders.jsonl").stdout
    (tmp_path / "orders.jsonl").write_text('{"query": "q"}\n')
    done = run(tmp_path, "online", "log", "--estimate", "orders.jsonl")
    assert done.returncode == 2
    assert "orders.jsonl:1" in done.stderr
