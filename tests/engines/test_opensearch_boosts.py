"""A multi_match with learned boosts in a real OpenSearch: our scores, and so our order."""

from __future__ import annotations

from typing import Any

import pytest

from querywise.exports.targets import TARGETS
from querywise.retrieval.boosts import BEST, CROSS, MOST
from tests.engines.boosting import TEXTS, Predicted, check
from tests.engines.opensearch import OpenSearch

INDEX = "boosts"
FACTOR = 2.2  # k1 + 1, which OpenSearch 2 multiplies every score by


@pytest.fixture(scope="module")
def predicted(search: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    made = Predicted(tmp_path_factory.mktemp("boosts"), "none")  # the distribution for tests has no stemmers
    index = made.indexes["opensearch"]
    search.ask("PUT", INDEX, {**index, "settings": {**index["settings"], "number_of_shards": 1}})
    search.fill(INDEX, made.documents)
    search.ask("POST", f"{INDEX}/_forcemerge?max_num_segments=1")
    return made


@pytest.mark.parametrize("form", [MOST, BEST, CROSS])
def test_a_multi_match_gives_the_scores_we_predict(search: OpenSearch, predicted: Predicted, form: str) -> None:
    write = TARGETS["opensearch"].fields
    assert write is not None
    assert write.request is not None
    assert predicted.learned[form]["requests"]["opensearch"] == write.request(predicted.every(form)[0])
    for boosts in predicted.every(form):
        request: Any = write.request(boosts)
        for text, own in zip(TEXTS, predicted.scores(boosts), strict=True):
            request["query"]["multi_match"]["query"] = text
            hits = search.ask("POST", f"{INDEX}/_search", {**request, "size": 1000})["hits"]["hits"]
            check(own, {hit["_id"]: hit["_score"] for hit in hits}, f"{text}: {boosts}", FACTOR)
