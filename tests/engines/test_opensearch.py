"""docs/engines/opensearch.md, command by command, in a real OpenSearch; then mistakes."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import querywise
from querywise.storage import load
from tests import commands
from tests.engines import pages, shop
from tests.engines.opensearch import OpenSearch

SIZE = 100


class Journey:
    """The page's commands, run, with what each printed."""

    def __init__(self, search: OpenSearch, folder: Path) -> None:
        self.search, self.folder = search, folder
        self.printed: dict[str, str] = {}

    def follow(self, page: str) -> None:
        for block in pages.blocks(page):
            if block.language == "json":
                (self.folder / "features.json").write_text(block.text)
            elif block.language == "python":
                (self.folder / "log.py").write_text(block.text)
            elif block.text.startswith("POST "):
                place, _, body = block.text.partition("\n")
                self.printed["logged"] = json.dumps(self.search.ask("POST", place.split()[1], json.loads(body)))
            elif block.is_commands:
                for line in block.text.splitlines():
                    self.printed[line] = self.run(line)

    def run(self, line: str) -> str:
        """A command; those of querywise in this process, which is quick."""
        if not line.startswith("querywise "):
            return pages.run(line, self.folder, URL=self.search.url, KEY="none")
        done = commands.run(self.folder, *shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self, *words: str) -> str:
        """What the first command with these words in it printed."""
        return next(printed for line, printed in self.printed.items() if all(word in line for word in words))


@pytest.fixture(scope="module")
def journey(learning: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    learning.ask("PUT", "shop", {"settings": {"number_of_shards": 1}})
    learning.fill("shop", shop.documents())
    folder = tmp_path_factory.mktemp("opensearch")
    (folder / "judgements.jsonl").write_text(shop.judgement_lines())
    made = Journey(learning, folder)
    made.follow("opensearch")
    return made


def test_every_command_of_the_page_was_run(journey: Journey) -> None:
    shown = [line for block in pages.blocks("opensearch") if block.is_commands for line in block.text.splitlines()]
    assert set(shown) <= set(journey.printed)
    assert {line.split()[0] for line in shown} == {"curl", "python", "querywise"}


def test_the_log_has_every_judged_document_with_its_features(journey: Journey) -> None:
    lines = (journey.folder / "train.txt").read_text().splitlines()
    assert len(lines) == sum(len(each["labels"]) for each in shop.judgements())
    assert (journey.folder / "features.txt").read_text() == "title\nbody\nclicks\n"
    data = querywise.read_letor(journey.folder / "train.txt")
    clicks = [shop.documents()[name]["clicks"] for name in data.candidates.document_ids or ()]
    assert data.candidates.features[:, 2].tolist() == clicks
    assert (data.candidates.features[:, 0] == 0).any(), "a title without the words counts 0"


def test_the_models_are_scored_alike_and_features_are_computed_as_in_training(journey: Journey) -> None:
    assert journey.said("export/check_parity.py", "$URL") == "100 documents are scored alike by 21 models.\n"
    assert "computed as in training" in journey.said("--log shop")
    assert journey.said("export-forest/check_parity.py") == "100 documents are scored alike by 1 model.\n"
    assert journey.said("export/upload.py") == "The feature set shop-search and 21 models are in the engine.\n"
    assert "are gone" in journey.said("export/upload.py", "--remove")


def ranked_here(
    journey: Journey, export: str, feature_set: str, text: str, model: str | None = None
) -> dict[str, float]:
    """Our own scores of the documents that the first stage finds, by the model that the router chooses."""
    first = {"multi_match": {"query": text, "fields": ["*"], "lenient": True}}
    features = {"sltr": {"_name": "f", "featureset": feature_set, "params": {"keywords": text}}}
    spec = {"name": "f", "named_query": "f", "missing_as_zero": True}
    asked = {
        "size": SIZE,
        "query": {"bool": {"must": [first], "filter": [features]}},
        "ext": {"ltr_log": {"log_specs": spec}},
    }
    hits = journey.search.ask("POST", "shop/_search", asked)["hits"]["hits"]
    rows = [[each["value"] for each in hit["fields"]["_ltrlog"][0]["f"]] for hit in hits]
    router = querywise.Router(journey.folder / export)
    names = {entry["name"]: entry["number"] for entry in router.manifest["models"]}
    number = names[router.model(text) if model is None else model]
    data = querywise.Candidates(
        np.array(rows), np.array([0, len(rows)]), ("q",), feature_names=("title", "body", "clicks")
    )
    answer = router.ranker.answer(data)
    chosen = answer.everyone if number < 0 else answer.local.models()[number]
    scores = chosen.predict(data)
    return dict(zip((hit["_id"] for hit in hits), scores.tolist(), strict=True))


def asked_of_the_engine(journey: Journey, request: str) -> list[tuple[str, float]]:
    found = journey.search.ask("POST", "shop/_search", {**json.loads(request), "size": SIZE})
    return [(hit["_id"], hit["_score"]) for hit in found["hits"]["hits"]]


def assert_ranked_alike(found: list[tuple[str, float]], ours: dict[str, float]) -> None:
    """The same documents with the same scores, in the same order but for ties within 32-bit rounding."""
    assert len(found) == len(ours) > 5
    for name, score in found:
        assert score == pytest.approx(ours[name], rel=1e-5, abs=1e-5)
    order = [ours[name] for name, _ in found]
    assert all(a >= b - 1e-5 * max(1.0, abs(a)) for a, b in itertools.pairwise(order))


@pytest.mark.parametrize("text", ["how to clean a jaguar", "car paint", "jaguar", 'AC/DC "live', "größe title:jaguar"])
def test_the_engine_ranks_by_the_routers_model_as_we_do(journey: Journey, text: str) -> None:
    request = pages.run(f"python export-2/router.py '{text}'", journey.folder)
    found = asked_of_the_engine(journey, request)
    if text in shop.WORDS or any(word in shop.WORDS for word in text.split()):
        assert_ranked_alike(found, ranked_here(journey, "export-2", "shop-search-2", text))


def test_newer_models_answer_by_their_own_names_and_the_old_ones_can_come_back(
    journey: Journey, tmp_path: Path
) -> None:
    text = "how to clean a jaguar"
    assert '"shop-search-2-' in pages.run(f"python export-2/router.py '{text}'", journey.folder)
    old = pages.run(f"python export/router.py '{text}'", journey.folder)
    with pytest.raises(AssertionError, match="Unknown model"):
        asked_of_the_engine(journey, old)  # the page removed them at its end
    pages.run("python export/upload.py --url $URL", journey.folder, URL=journey.search.url)
    assert_ranked_alike(asked_of_the_engine(journey, old), ranked_here(journey, "export", "shop-search", text))


def test_classes_and_documents_choose_the_model(journey: Journey) -> None:
    request = json.loads(pages.run("python export-classes/router.py jaguar --class navigational", journey.folder))
    model = request["rescore"]["query"]["rescore_query"]["sltr"]["model"]
    assert model == "shop-classes-1"
    found = asked_of_the_engine(journey, json.dumps(request))
    assert_ranked_alike(found, ranked_here(journey, "export-classes", "shop-classes", "jaguar", model))
    request = json.loads(pages.run("python export-documents/router.py jaguar --answer answer.json", journey.folder))
    model = request["rescore"]["query"]["rescore_query"]["sltr"]["model"]
    found = asked_of_the_engine(journey, json.dumps(request))
    assert_ranked_alike(found, ranked_here(journey, "export-documents", "shop-documents", "jaguar", model))


def test_a_forest_ranks_as_we_do(journey: Journey) -> None:
    by_forest = {"sltr": {"model": "shop-forest", "params": {"keywords": "jaguar"}}}
    first = {"multi_match": {"query": "jaguar", "fields": ["*"], "lenient": True}}
    weights = {"query_weight": 0, "rescore_query_weight": 1, "rescore_query": by_forest}
    request = {"query": first, "rescore": {"window_size": SIZE, "query": weights}}
    found = asked_of_the_engine(journey, json.dumps(request))
    rows = {name: None for name, _ in found}
    features = {"sltr": {"_name": "f", "featureset": "shop-forest", "params": {"keywords": "jaguar"}}}
    asked: Any = {
        "size": SIZE,
        "query": {"bool": {"filter": [{"terms": {"_id": list(rows)}}, features]}},
        "ext": {"ltr_log": {"log_specs": {"name": "f", "named_query": "f", "missing_as_zero": True}}},
    }
    hits = journey.search.ask("POST", "shop/_search", asked)["hits"]["hits"]
    values = np.array([[each["value"] for each in hit["fields"]["_ltrlog"][0]["f"]] for hit in hits])
    data = querywise.Candidates(values, np.array([0, len(hits)]), ("q",), feature_names=("title", "body", "clicks"))
    scores = load(journey.folder / "forest").predict(data).tolist()
    assert_ranked_alike(found, dict(zip((hit["_id"] for hit in hits), scores, strict=True)))


def test_the_page_of_elasticsearch_runs_against_the_same_plugin(journey: Journey, tmp_path: Path) -> None:
    for name in ("train.txt", "features.txt", "queries.jsonl", "features.json"):
        (tmp_path / name).write_bytes((journey.folder / name).read_bytes())
    other = Journey(journey.search, tmp_path)
    other.follow("elasticsearch")
    assert other.said("check_parity.py") == "100 documents are scored alike by 21 models.\n"
