"""Query vectors that learn: one fit, the whole grid, many queries, many documents, one query; and two linear maps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from benchmarks.results import Result, alone, compared
from benchmarks.timing import best_seconds, seconds
from querywise import AdaptedVectors
from querywise.runtime.arrays import Floats, Ints
from reproduction.linear_maps import LinearMap, LlamaIndexMap, RagliteMap

_SHARE = float(os.environ.get("QUERYWISE_BENCH_ADAPTED", "1"))  # of the sizes below
_DIMENSION = 384
_TOPICS = 200
_RELEVANT = 10  # documents of a training query, of its topic
_HELD_OUT = 200  # queries that quality is measured on


@dataclass(frozen=True)
class World:
    """Documents about topics, and queries whose answers do not lie where the queries do."""

    documents: Floats
    queries: Floats
    topics: Ints  # of the queries
    about: Ints  # of the documents
    gains: csr_array


def measure() -> Iterator[Result]:
    """Vectors that learn: AdaptedVectors, and linear maps as LlamaIndex and RAGLite make them.

    Made-up vectors of 384 numbers: 200 topics, each with a region of queries and another of documents. One fit has
    gamma 4 and l2 0.003; the whole grid chooses by cross-validation. One query is one call of `transform`, and other
    programs weigh on it. NDCG@10 is that of 200 further queries over all documents; the larger is better, so the ratio
    is ours / theirs. LlamaIndex: its linear adapter, multiple-negatives ranking loss (cosines times 20, batches of 10),
    AdamW, the rate falling linearly without warm-up, gradients cut at 1; its defaults, 4 epochs at 2e-5, and 20 at
    1e-3. RAGLite: the orthogonal Procrustes solution over at most 64 wrongly ordered triplets of a query. Both are
    written anew from their formulas, in numpy. QUERYWISE_BENCH_ADAPTED=0.1 takes a tenth of all sizes.
    """
    world = _world(_sized(1_100), _sized(6_000))
    fitted = _by_query()
    yield alone("adapted", f"one fit, {_shape(world)}", ours=_fit(fitted, world), unit="s", below=12)
    chosen = AdaptedVectors()
    yield alone("adapted", f"the whole grid, {_shape(world)}", ours=_fit(chosen, world), unit="s", below=60)
    yield from _against(world, {"by query": fitted, "as chosen": chosen})
    yield _one_query(fitted, world, 0.2)
    many = _world(_sized(10_000), _sized(10_000))
    wide = _by_query()
    yield alone("adapted", f"one fit by landmarks, {_shape(many)}", ours=_fit(wide, many), unit="s", below=60)
    yield _one_query(wide, many, 1.0)
    large = _world(_sized(1_000), _sized(1_000_000))
    yield alone("adapted", f"the whole grid, {_shape(large)}", ours=_fit(AdaptedVectors(), large), unit="s", below=300)


def _against(world: World, ours: dict[str, AdaptedVectors]) -> Iterator[Result]:
    """Quality and time of maps that others train, beside ours."""
    asked, topics = _queries(_HELD_OUT, np.random.default_rng(1))
    plain = _ndcg(asked, topics, world)
    found = {name: _ndcg(adapter.transform(asked), topics, world) for name, adapter in ours.items()}
    for name, quality in found.items():
        yield Result("adapted", f"NDCG@10 {name}, vectors as they are", quality, plain, "", quality / plain, "", None)
    best = max(found.values())
    maps: dict[str, LinearMap] = {
        "LlamaIndex's map, 4 epochs at 2e-5": LlamaIndexMap(4, 2e-5),
        "LlamaIndex's map, 20 epochs at 1e-3": LlamaIndexMap(20, 1e-3),
        "RAGLite's map": RagliteMap(),
    }
    one = _fit(AdaptedVectors("linear", l2=0.003, gate=False), world)
    for name, theirs in maps.items():
        spent = _fit(theirs, world)
        quality = _ndcg(theirs.transform(asked), topics, world)
        yield Result("adapted", f"NDCG@10, {name}", best, quality, "", best / quality, "", None)
        yield compared("adapted", f"one linear map, {name}", ours=one, theirs=spent, unit="s")


def _world(queries: int, documents: int) -> World:
    chance = np.random.default_rng(0)
    about = np.arange(documents) % _TOPICS
    values = _near(_centers(0)[about], chance)
    asked, topics = _queries(queries, chance)
    per_topic = documents // _TOPICS
    columns = (topics[:, None] + _TOPICS * chance.integers(per_topic, size=(queries, _RELEVANT))).ravel()
    rows = np.repeat(np.arange(queries), _RELEVANT)
    gains = csr_array((np.ones(len(rows)), (rows, columns)), shape=(queries, documents))
    gains.sum_duplicates()
    return World(values, asked, topics, about, gains)


def _centers(number: int) -> Floats:
    """Of the topics' documents, or of their queries, which lie a way off."""
    documents = np.random.default_rng(7).normal(size=(_TOPICS, _DIMENSION))
    found: Floats = documents + number * 2 * np.random.default_rng(8).normal(size=documents.shape)
    return found


def _queries(count: int, chance: np.random.Generator) -> tuple[Floats, Ints]:
    topics = chance.integers(_TOPICS, size=count)
    return _near(_centers(1)[topics], chance), topics


def _near(centers: Floats, chance: np.random.Generator) -> Floats:
    """Vectors of length 1 around these; in single precision where there are many."""
    found = centers.astype(np.float32) + 1.5 * chance.standard_normal(centers.shape, dtype=np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    near: Floats = found.astype(np.float64) if len(found) <= 20_000 else found
    return near


def _ndcg(vectors: Floats, topics: Ints, world: World) -> float:
    """The mean over queries; the documents of a query's topic are relevant."""
    discounts = 1 / np.log2(np.arange(2, 12))
    best = np.argsort(-(vectors @ world.documents.T), axis=1, kind="stable")[:, :10]
    return float(((world.about[best] == topics[:, None]) @ discounts / discounts.sum()).mean())


def _by_query() -> AdaptedVectors:
    return AdaptedVectors("by-query", gamma=4.0, l2=0.003, gate=False)


def _fit(adapter: AdaptedVectors | LinearMap, world: World) -> float:
    return seconds(lambda: adapter.fit(world.queries, world.documents, world.gains))


def _one_query(adapter: AdaptedVectors, world: World, below: float) -> Result:
    query, calls = world.queries[0], 100
    adapter.transform(query)
    spent = best_seconds(lambda: [adapter.transform(query) for _ in range(calls)], times=5)
    what = f"one query, {len(world.queries):,} training queries"
    return alone("adapted", what, ours=1e3 * spent / calls, unit="ms", below=below)


def _sized(count: int) -> int:
    return max(int(_SHARE * count), 2 * _TOPICS)


def _shape(world: World) -> str:
    return f"{len(world.queries):,} queries × {len(world.documents):,} documents"
