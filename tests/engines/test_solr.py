"""docs/engines/solr.md, command by command, in a real Solr; what it ranks, and that old models stay in service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import querywise
from querywise.storage import load
from tests.engines import pages, shop
from tests.engines.solr import Solr

SEARCHED = {"df": "body", "qf": "title^2 body"}


class Journey:
    """The page's commands, run, with what each block printed."""

    def __init__(self, solr: Solr, folder: Path) -> None:
        self.solr, self.folder = solr, folder
        self.printed: dict[str, str] = {}

    def follow(self) -> None:
        for block in pages.blocks("solr"):
            if block.language == "json" and '"store"' in block.text:
                (self.folder / "features.json").write_text(block.text)
            elif block.language == "python":
                (self.folder / "log.py").write_text(block.text)
            elif block.is_commands:
                for line in block.text.splitlines():
                    said = line.replace("admin/collections?action=RELOAD&name", "admin/cores?action=RELOAD&core")
                    self.printed[line] = pages.run(said, self.folder, URL=self.solr.url)

    def said(self, *words: str) -> str:
        """What the first command with these words in it printed."""
        return next(printed for line, printed in self.printed.items() if all(word in line for word in words))


@pytest.fixture(scope="module")
def journey(node: Solr, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    node.create("shop", defaults=SEARCHED)
    node.create("scratch")
    node.fill("shop", shop.documents())
    folder = tmp_path_factory.mktemp("solr")
    (folder / "judgements.jsonl").write_text(shop.judgement_lines())
    made = Journey(node, folder)
    made.follow()
    return made


def test_every_command_of_the_page_was_run(journey: Journey) -> None:
    shown = [line for block in pages.blocks("solr") if block.is_commands for line in block.text.splitlines()]
    assert set(shown) <= set(journey.printed)
    assert {line.split()[0] for line in shown} == {"curl", "python", "querywise"}


def test_the_log_has_every_judged_document_with_its_features(journey: Journey) -> None:
    lines = (journey.folder / "train.txt").read_text().splitlines()
    assert len(lines) == sum(len(each["labels"]) for each in shop.judgements())
    data = querywise.read_letor(journey.folder / "train.txt")
    clicks = [shop.documents()[name]["clicks"] for name in data.candidates.document_ids or ()]
    assert data.candidates.features[:, 2].tolist() == clicks
    assert (data.candidates.features[:, 0] == 0).any(), "a title without the words counts 0"
    found = (data.candidates.features[:, 1] > 0).mean()
    assert found > 0.8, "words are looked for one by one, not as a phrase"


def test_the_models_are_scored_alike_and_features_are_computed_as_in_training(journey: Journey) -> None:
    assert journey.said("export/check_parity.py", "scratch") == "100 documents are scored alike by 21 models.\n"
    assert "computed as in training" in journey.said("--log shop")
    assert journey.said("export/upload.py") == "The feature store shop-search and 21 models are in shop.\n"
    assert "are gone" in journey.said("export-2/upload.py", "--remove")
    assert journey.solr.count("scratch") == 0, "the check takes away what it brought"
    assert journey.solr.models("scratch") == []
    assert journey.solr.stores("scratch") == []


def ranked_there(journey: Journey, export: str, *words: str, rows: int = 100) -> list[tuple[str, float]]:
    """The documents that Solr returns for the request that a router writes, with their scores."""
    request = json.loads(pages.run(f"python {export}/router.py {' '.join(words)}", journey.folder))
    return [(each["id"], each["score"]) for each in journey.solr.select("shop", {**request, "rows": str(rows)})]


def features_there(journey: Journey, text: str, ids: list[str]) -> Any:
    asked = {
        "q": "{!terms f=id v=$documents}",
        "documents": ",".join(ids),
        "keywords": text,
        "fl": "id,[features store=shop-search format=dense efi.keywords=$keywords]",
        "rows": str(len(ids)),
    }
    found = journey.solr.select("shop", asked)
    return {each["id"]: [float(part.rpartition("=")[2]) for part in each["[features]"].split(",")] for each in found}


@pytest.mark.parametrize(
    ("export", "model", "words"),
    [
        ("export", "model", ()),
        ("export-classes", "classes", ("--class", "navigational")),
        ("export-classes", "classes", ("--class", "informational")),
    ],
)
def test_solr_ranks_as_the_model_does(journey: Journey, export: str, model: str, words: tuple[str, ...]) -> None:
    text = "how to clean jaguar leather"
    found = ranked_there(journey, export, f"'{text}'", *words)
    assert len(found) == 100
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    values = features_there(journey, text, [name for name, _ in found])
    ranker = load(journey.folder / model)
    table = querywise.QueryTable(("q",), texts=(text,), classes=(words[1],) if words else None)
    features = np.array([values[name] for name, _ in found])
    candidates = querywise.Candidates(
        features, np.array([0, len(features)]), ("q",), queries=table, feature_names=("title", "body", "clicks")
    )
    ours = ranker.predict(candidates)
    assert [score for _, score in found] == pytest.approx(ours.tolist(), rel=1e-5, abs=1e-6)


def test_a_query_routed_by_its_documents_takes_two_requests(journey: Journey) -> None:
    request = json.loads((journey.folder / "request.json").read_text())
    assert request["rq"].startswith("{!ltr model=shop-search-2-")  # what the page's last router wrote
    answer = json.loads((journey.folder / "answer.json").read_text())
    assert answer["response"]["docs"]
    router = querywise.Router(journey.folder / "export-documents")
    assert router.requests == 2
    again = json.loads(pages.run("python export-documents/router.py jaguar --answer answer.json", journey.folder))
    found = journey.solr.select("shop", again)
    assert found
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)


def test_newer_models_leave_the_old_ones_in_service(journey: Journey) -> None:
    old = ranked_there(journey, "export", "'how to clean jaguar leather'")
    pages.run("python export-2/upload.py --url $URL --collection shop", journey.folder, URL=journey.solr.url)
    new = ranked_there(journey, "export-2", "'how to clean jaguar leather'")
    assert {name for name, _ in new} == {name for name, _ in old}
    assert new != old
    assert ranked_there(journey, "export", "'how to clean jaguar leather'") == old, (
        "back again: the old folder's router"
    )
    pages.run("python export-2/upload.py --url $URL --collection shop --remove", journey.folder, URL=journey.solr.url)
    assert ranked_there(journey, "export", "'how to clean jaguar leather'") == old
    assert not any(name.startswith("shop-search-2") for name in journey.solr.models("shop"))


def test_a_users_words_are_searched_as_words(journey: Journey) -> None:
    for text in ("title:jaguar -cat", 'AC/DC "live', "jaguar ${nothing} {!func}1", "it's 100% (free)", "straße 日本"):
        request = journey_request(journey, text)
        journey.solr.select("shop", request)  # no error
    plain = {each["id"] for each in journey.solr.select("shop", journey_request(journey, "jaguar -cat"))}
    assert plain == {each["id"] for each in journey.solr.select("shop", journey_request(journey, "jaguar cat"))}


def journey_request(journey: Journey, text: str) -> dict[str, str]:
    (journey.folder / "words.txt").write_text(text)
    made = pages.run('python export/router.py "$(cat words.txt)"', journey.folder)
    return {**json.loads(made), "rows": "1000"}
