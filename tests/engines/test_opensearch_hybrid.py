"""Hybrid queries of a real OpenSearch, with a query's weights in the request, rank as the model does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.judged import Judged
from querywise.data.judgements import read_judgements
from querywise.data.query_table import read_queries
from querywise.data.runs import judge, read_runs, tabulate_runs
from querywise.exports.routing import HybridRouter
from querywise.exports.writing import export_hybrid
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.storage import save
from tests.engines import shop
from tests.engines.opensearch import OpenSearch
from tests.serving import serving

INDEX, DEPTH, SIZE = "hybrid", 100, 200


def vector_of(text: str) -> list[float]:
    """A vector of a text: its words' random vectors, added up."""
    rng = {word: np.random.default_rng(number).standard_normal(8) for number, word in enumerate(shop.WORDS)}
    total = sum((rng[word] for word in text.split() if word in rng), np.full(8, 0.01))
    return [float(each) for each in np.asarray(total).round(4)]


class World:
    """An index with words and vectors, its two runs as files, and judgements."""

    def __init__(self, search: OpenSearch, folder: Path) -> None:
        self.search, self.folder = search, folder
        knn = {"type": "knn_vector", "dimension": 8, "method": {"name": "hnsw", "engine": "lucene", "space_type": "l2"}}
        fields = {"body": {"type": "text"}, "vector": knn}
        settings = {"index.knn": True, "number_of_shards": 1}
        search.ask("PUT", INDEX, {"settings": settings, "mappings": {"properties": fields}})
        documents = shop.documents()
        search.fill(INDEX, {name: {**each, "vector": vector_of(each["title"])} for name, each in documents.items()})
        self.queries = shop.judgements()
        lines: dict[str, list[str]] = {"bm25": [], "vectors": []}
        for query in self.queries:
            for run, asked in self.first_stages(query["text"]).items():
                hits = search.ask("POST", f"{INDEX}/_search", {"size": DEPTH, "query": asked})["hits"]["hits"]
                lines[run] += [
                    f"{query['_id']} Q0 {hit['_id']} {rank} {hit['_score']!r} {run}" for rank, hit in enumerate(hits, 1)
                ]
        for run, written in lines.items():
            (folder / f"{run}.trec").write_text("\n".join(written) + "\n")
        qrels = [f"{each['_id']} 0 {name} {label}" for each in self.queries for name, label in each["labels"].items()]
        (folder / "qrels.txt").write_text("\n".join(qrels) + "\n")
        (folder / "queries.jsonl").write_text(shop.judgement_lines())

    @staticmethod
    def first_stages(text: str) -> dict[str, Any]:
        return {
            "bm25": {"match": {"body": {"query": text}}},
            "vectors": {"knn": {"vector": {"vector": vector_of(text), "k": DEPTH}}},
        }

    def judged(self) -> Judged:
        """The runs beside one another, with the judgements and the texts of the queries."""
        candidates = tabulate_runs(read_runs([self.folder / "bm25.trec", self.folder / "vectors.trec"]))
        candidates = candidates.with_queries(read_queries(self.folder / "queries.jsonl"))
        return judge(candidates, list(read_judgements(self.folder / "qrels.txt")))[0]


@pytest.fixture(scope="module")
def world(search: OpenSearch, tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(search, tmp_path_factory.mktemp("hybrid"))


def filled_in(export: Path) -> None:
    """Fill in what only the user knows, as the page says."""
    request = export / "request.json"
    text = request.read_text().replace("EDIT_ME_vector_field", "vector").replace("EDIT_ME_text_field", "body")
    request.write_text(text.replace('"size": 10', f'"size": {SIZE}'))


@pytest.mark.parametrize("normalise", ["opensearch-min-max", "l2"])
def test_the_hybrid_query_ranks_as_the_model_does(normalise: Any, world: World, tmp_path: Path) -> None:
    judged = world.judged()
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5, normalise=normalise).fit(judged)
    export_hybrid(ranker, "opensearch-hybrid", tmp_path / "export")
    filled_in(tmp_path / "export")
    router, scores = HybridRouter(tmp_path / "export"), ranker.predict(judged.candidates)
    different, worst = set(), 0.0
    for number, query in enumerate(world.queries[:25]):
        request: Any = router.request(query["text"], vector=vector_of(query["text"]))
        weights = router.weights(query["text"])
        different.add(tuple(weights.values()))
        rows = judged.candidates.rows(judged.candidates.query_ids.index(query["_id"]))
        ours = dict(zip((judged.candidates.document_ids or ())[rows], scores[rows].tolist(), strict=True))
        hits = world.search.ask("POST", f"{INDEX}/_search", request)["hits"]["hits"]
        assert {hit["_id"] for hit in hits} == set(ours), number
        worst = max(worst, *(abs(hit["_score"] - ours[hit["_id"]]) for hit in hits))
        order = [ours[hit["_id"]] for hit in hits]
        assert all(a >= b - 1e-5 for a, b in itertools.pairwise(order)), number
    assert worst < 1e-5
    assert len(different) > 3, "queries have weights of their own"


def test_the_weights_of_the_service_are_those_of_the_request(world: World, tmp_path: Path) -> None:
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5).fit(world.judged())
    save(ranker, tmp_path / "fusion")
    export_hybrid(ranker, "opensearch-hybrid", tmp_path / "export")
    filled_in(tmp_path / "export")
    text = world.queries[0]["text"]
    request: Any = HybridRouter(tmp_path / "export").request(text, vector=vector_of(text))
    with serving(tmp_path / "fusion") as server:
        weights = server.post("/v1/weights", {"query": {"text": text}}).json()
    parameters = request["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]["combination"]
    assert parameters["parameters"]["weights"] == [weights["bm25"], weights["vectors"]]
    hits = world.search.ask("POST", f"{INDEX}/_search", request)["hits"]["hits"]
    assert len(hits) > DEPTH


@pytest.mark.parametrize(
    ("normalise", "refused"),
    [("z-score", "normalization technique is not supported"), ("rank", r"supported parameters are \[rank_constant\]")],
)
def test_this_version_refuses_what_the_page_says_it_lacks(
    normalise: Any, refused: str, world: World, tmp_path: Path
) -> None:
    ranker = WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=0.5, normalise=normalise).fit(world.judged())
    export_hybrid(ranker, "opensearch-hybrid", tmp_path / "export")
    filled_in(tmp_path / "export")
    text = world.queries[0]["text"]
    request = HybridRouter(tmp_path / "export").request(text, vector=vector_of(text))
    with pytest.raises(AssertionError, match=refused):
        world.search.ask("POST", f"{INDEX}/_search", request)
