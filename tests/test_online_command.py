"""`querywise online` and `promote`: what a log says, against a recount, and the better model put in place."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from querywise.data.synthetic import make_judged
from querywise.errors import DataError, ModelFileError
from querywise.jobs.online import examine, picture, sentences
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.online.log import WINDOW_SECONDS, draw_once
from querywise.online.outcomes import read_draws
from querywise.online.verdict import log_e_value
from querywise.service.loaded_model import ModelFolder
from querywise.storage import load, save, version_of
from querywise.storage.models import before, promote, put_back
from tests.commands import run
from tests.support.online import BETTER, DOCUMENTS, NOW, Played, played


def test_the_better_model_is_found_and_every_number_is_a_recount(tmp_path: Path) -> None:
    made = played(tmp_path / "log", 120, share=0.8)
    done = run(tmp_path, "online", "log", "--json", "--picture", "rate.svg")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [contest] = found["contests"]
    assert (contest["wins"], contest["losses"]) == (made.won["b"], made.won["a"])
    assert contest["e_value"] == pytest.approx(
        float(np.exp(log_e_value(np.array(made.won["b"]), np.array(made.won["a"]))))
    )
    assert contest["better"]
    assert contest["decided_after"] <= 120
    assert contest["interval"][0] > 0.5
    assert found["more_impressions"] is None
    assert found["impressions"] == found["draws"] == 120
    by_class = {each["name"]: each for each in found["kinds"]}
    assert by_class["class cars"]["draws"] == by_class["class cats"]["draws"] == 60
    assert by_class["far from the training queries"]["draws"] == 40
    assert by_class["first draw of its query"]["draws"] == 7
    assert by_class["2nd to 10th draw of its query"]["draws"] == 63
    assert all(each["alpha"] == pytest.approx(0.05 / 7) for each in found["kinds"])
    assert sum(each["wins"] for name, each in by_class.items() if name.startswith("class")) == made.won["b"]
    assert "no preference" in "".join(ElementTree.parse(tmp_path / "rate.svg").getroot().itertext())
    told = run(tmp_path, "online", "log").stdout
    assert "Decided: users prefer b. b won" in told
    assert "class cats" in told


def test_equal_models_stay_undecided_and_what_it_would_take_is_told(tmp_path: Path) -> None:
    played(tmp_path / "log", 61, share=0.55, seed=3)
    verdict, noted, names = examine(tmp_path / "log")
    assert names == ["a~b"]
    [told] = [each for each in sentences(verdict, noted) if "decided" in each.lower()]
    assert told.startswith("Not decided: b won ")
    assert verdict.more_impressions is not None
    assert f"{verdict.more_impressions:,} more impressions" in told
    assert picture(verdict).file().startswith("<?xml")


def test_a_draw_counts_once_and_clicks_count_within_its_window(tmp_path: Path) -> None:
    made, old = Played(tmp_path / "log"), NOW - 50_000
    signed, draw = made.show("q", "s", old)
    again, _ = made.show("q", "s", old + 600)
    made.click(signed, draw.documents[0], old + 1)
    made.click(again, draw.documents[0], old + 601)  # the same document of the same draw
    made.click(again, draw.documents[1], old + WINDOW_SECONDS + 30)  # of the draw's window, which has closed
    made.click(signed, "d99", old + 2)  # was not shown
    made.click("nobody", "d1", old + 2)
    made.click(signed, draw.documents[1], old + 3, action="hover")
    made.show("q", "another", NOW - 5)  # open
    forged, _ = made.show("p", "s", old)
    content = b"".join(each.read_bytes() for each in (tmp_path / "log").glob("log-*"))
    name = next((tmp_path / "log").glob("log-*"))
    name.write_bytes(content.replace(forged[-22:].encode(), b"A" * 22))
    made.log.close()
    [draws], noted = read_draws(tmp_path / "log", now=NOW)
    assert (len(draws), draws.impressions, draws.query) == (1, 2, ("q",))
    assert draws.credits.tolist() == [[int(draw.teams[0] == 0), int(draw.teams[0] == 1)]]
    assert vars(noted) == {
        "impressions": 3, "clicks": 1, "unknown": 1, "outside": 1, "late": 1, "unsigned": 1, "open": 1,
    }  # fmt: skip
    [later], _ = read_draws(tmp_path / "log", now=NOW + 2 * WINDOW_SECONDS)
    assert len(later) == 2
    [hovered], _ = read_draws(tmp_path / "log", actions=("hover",))
    assert hovered.credits.sum() == 1


def test_rankings_are_told_apart_and_the_last_ones_are_looked_at(tmp_path: Path) -> None:
    made = Played(tmp_path / "log")
    made.show("q", "s", NOW - 50_000)
    for number in range(30):
        drawn = draw_once(made.log.key, {"a": DOCUMENTS, "c": BETTER, "d": DOCUMENTS}, f"q{number}", None, 6)
        shown = drawn._replace(id=drawn.id._replace(seconds=NOW - 40_000))
        signed = shown.id.signed(made.log.key)
        made.add(shown.record(signed))
        made.click(signed, "d5", NOW - 39_990)
    made.log.close()
    verdict, _, names = examine(tmp_path / "log")
    assert names == ["a~b", "a~c~d"]
    assert [each.name for each in verdict.contests] == ["c", "d"]
    assert {each.alpha for each in verdict.contests} == {0.025}
    assert verdict.contests[0].wins > verdict.contests[1].wins
    done = run(tmp_path, "online", "log", "--arms", "a~b")
    assert "no draw of b against a has a winner" in done.stdout
    assert "a~c~d" in done.stdout
    done = run(tmp_path, "online", "log", "--arms", "x~y")
    assert done.returncode == 2
    assert "--arms x~y: not in this log, which has a~b, a~c~d" in done.stderr
    done = run(tmp_path, "online", tmp_path)
    assert done.returncode == 2
    assert "not the log of an experiment" in done.stderr
    assert "there is no such folder" in run(tmp_path, "online", "nowhere").stderr


def test_queries_that_are_lost_are_told(tmp_path: Path) -> None:
    played(tmp_path / "log", 40, share=0.1)
    verdict, _, _ = examine(tmp_path / "log")
    assert verdict.contests[0].rate < 0.3
    assert verdict.lost
    assert all(losses - wins >= 2 for _, wins, losses in verdict.lost)
    assert "queries that b loses most" in run(tmp_path, "online", "log").stdout


def test_a_model_is_promoted_and_put_back(tmp_path: Path) -> None:
    data = make_judged(10, 6, 3)
    for name, l2 in (("a", 1.0), ("b", 2.0)):
        save(RankSVM(l2).fit(data), tmp_path / name)
    versions = {name: version_of(tmp_path / name) for name in "ab"}
    served = ModelFolder(tmp_path / "a")
    done = run(tmp_path, "promote", "b", "--over", "a")
    assert done.returncode == 0, done.stderr
    assert f"a now has model {versions['b'][:12]}" in done.stdout
    assert version_of(tmp_path / "a") == versions["b"]
    assert version_of(before(tmp_path / "a")) == versions["a"]
    assert served.refresh() == "replaced"
    assert served.current.version == versions["b"][:12]
    assert run(tmp_path, "promote", "--back", "--over", "a").returncode == 0
    assert version_of(tmp_path / "a") == versions["a"]
    assert put_back(tmp_path / "a") == versions["b"]
    assert load(tmp_path / "a").l2 == 2.0  # type: ignore[attr-defined]
    assert len(list((tmp_path / "a").iterdir())) == 2
    assert promote(tmp_path / "b", tmp_path / "new") == versions["b"]


def test_what_cannot_be_promoted_is_refused(tmp_path: Path) -> None:
    save(RankSVM().fit(make_judged(10, 6, 3)), tmp_path / "a")
    with pytest.raises(ModelFileError, match="no previous model"):
        put_back(tmp_path / "a")
    with pytest.raises(DataError, match="already in place"):
        promote(tmp_path / "a", tmp_path / "a")
    with pytest.raises(ModelFileError, match="not a model folder"):
        promote(tmp_path / "nothing", tmp_path / "a")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "chapter.txt").write_text("one")
    with pytest.raises(DataError, match="not a querywise model"):
        promote(tmp_path / "a", tmp_path / "notes")
    done = run(tmp_path, "promote", "--over", "a")
    assert done.returncode == 2
    assert "or pass --back" in done.stderr
