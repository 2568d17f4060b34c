"""What was tried beside `AdaptedVectors`: documents that move too, two kernels at once, and words that learn.

`python -m benchmarks.vectors_tried ../shared/data --out docs/figures/vectors-tried` looks at training queries of the
first fold alone, 100 at most, of Cranfield, Vaswani and the embedded collection, with MiniLM's vectors. They are cut
into five parts; each part is ranked by what the four others taught, with the setting that is best on the four others.
A new way would be kept if it were significantly better than what it replaces, alone or fused with the other list:
NDCG@10, paired t-tests over the queries of all three collections together, one Holm correction.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from querywise.data.folds import some_queries
from querywise.evaluation.significance import corrected, paired_t_test
from querywise.report.tables import Cell, Column, Table
from querywise.retrieval.adapted_vectors import BOTH, BY_QUERY
from querywise.retrieval.judged_vectors import JudgedVectors, Pool
from querywise.retrieval.query_adapter import AdapterProblem, Array, Basis, Kernel
from querywise.retrieval.reading import Retrieval, folds_from_text
from querywise.retrieval.scores import USUAL, bm25_weights
from querywise.retrieval.side_by_side import unit
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.values import JsonObject
from reproduction.papers import write_findings

COLLECTIONS = {"Cranfield": "cranfield", "Vaswani": "vaswani", "Python's documentation": "stdlib"}
L2 = (0.1, 0.01)  # tried of every way
TEMPERATURE, WORD_TEMPERATURE = 0.05, 2.0  # of cosines, and of sums of BM25
_MOST, _PARTS, _STEPS, _ROUGH = 100, 5, 10, 1e-2  # queries; parts of them; of L-BFGS, and the gap it may stop at
_LISTED, _CUT, _RRF = 50, 10, 60  # documents of a list, and of NDCG; the constant of reciprocal ranks
_MARKS, _ADDED = 80, 30  # queries that span a kernel of words; words that join a query
BM25, ADAPTED = "BM25", "adapted vectors"

Scores: TypeAlias = Iterator[Any]  # test queries × documents, one table for each of L2
Way: TypeAlias = "Callable[[World, Ints, Ints, Any], Scores]"


@dataclass(frozen=True, eq=False)
class World:
    """Training queries of a collection. words: documents × terms, what each adds to BM25; asked: queries × terms."""

    pool: Pool
    data: JudgedVectors
    words: csr_array
    asked: csr_array

    @cached_property
    def documents(self) -> Array:
        """All of them, of unit length."""
        return self.data.pool(everything=True).documents

    def shares(self, rows: Ints) -> csr_array:
        """Queries × documents: the share of each relevant one."""
        return csr_array(self.data.gains[rows].multiply(1 / self.data.gains[rows].sum(axis=1)[:, None]))

    def quality(self, lists: Ints) -> Floats:
        """NDCG@10 of every query."""
        gains, discounts = self.data.gains.toarray(), 1 / np.log2(np.arange(2, _CUT + 2))
        found = np.take_along_axis(gains, lists[:, :_CUT], axis=1) @ discounts
        return np.asarray(found / (-np.sort(-gains, axis=1)[:, :_CUT] @ discounts))


def world_of(folder: Path, place: str) -> World:
    """The training queries of the first fold of a collection."""
    how = Retrieval(top=1, vector_top=1, vectors=(folder / "vectors" / place,), adapt="auto")
    folds, adaptation = folds_from_text(Path(place) if place == "stdlib" else folder / place, how)
    assert adaptation is not None
    assert adaptation.collection.queries is not None
    train, index, table = some_queries(folds[0].train, _MOST), adaptation.index, adaptation.collection.queries
    data = JudgedVectors.of(*adaptation.given(train), None, np.asarray(train.groups, dtype=np.int64))
    field, size = index.fields["both"], (len(index), len(index.terms))
    terms = np.repeat(np.arange(size[1]), np.diff(field.starts))
    words = csr_array((bm25_weights(field, USUAL), (field.documents, terms)), shape=size)
    texts = dict(zip(table.ids, table.texts or (), strict=True))
    known = [[term for term in index.numbers_of(texts[query] or "") if term >= 0] for query in data.ids]
    rows = np.repeat(np.arange(len(known)), list(map(len, known)))
    asked = csr_array((np.ones(len(rows)), (rows, np.concatenate(known))), shape=(len(known), size[1]))
    return World(data.pool(), data, words, asked)


def moved(queries: Floats, marks: Floats, kernel: Kernel, basis: Basis, coordinates: Floats) -> Floats:
    """f(q), of unit length."""
    linear, exponential = basis.response(coordinates)
    found = queries if linear is None else queries + queries @ linear
    return unit(found if exponential is None else found + kernel.exponential(queries, marks) @ exponential)


def minimized(value: Any, start: Floats, l2: float, bounds: Any = None) -> Floats:
    """Where some steps of L-BFGS lead; value: of a point and l2, with the gradient."""
    options: Any = {"maxiter": _STEPS}
    found: Any = minimize(value, start, (l2,), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.asarray(found.x)


def plain_words(world: World, train: Ints, test: Ints, _: None) -> Scores:
    """BM25; nothing is learned."""
    yield (world.asked[test] @ world.words.T).toarray()


def adapted(world: World, train: Ints, test: Ints, kernel: Kernel) -> Scores:
    """What the library does with one kernel."""
    pool, own, start = world.pool.select(train).without_others(), world.pool.queries[test], None
    problem = pool.problem(kernel, pool.queries, TEMPERATURE, 1.0)
    for l2 in L2:
        start = replace(problem, l2=l2).solve(start, tolerance=_ROUGH, most=_STEPS).coordinates
        yield moved(own, pool.queries, kernel, problem.basis, start) @ world.documents.T


class TwoKernels(Kernel):
    """A far and a near one: the exponential with gamma, and with four times that."""

    def exponential(self, queries: Array, landmarks: Array) -> Array:
        """Their sum."""
        assert self.gamma is not None
        near: Array = Kernel(0.0, 4 * self.gamma).exponential(queries, landmarks)
        return near + super().exponential(queries, landmarks)


def both_sides(world: World, train: Ints, test: Ints, kernel: Kernel) -> Scores:
    """Documents move too, to d + Md of unit length, learned together with the queries' shifts.

    Before lengths are 1, f(q)ᵀ(d + Md) = (f(q) + Mᵀf(q))ᵀd: M could as well be another linear map of queries.
    """
    pool, own = world.pool.select(train).without_others(), world.pool.queries[test]
    problem, size = pool.problem(kernel, pool.queries, TEMPERATURE, 0.0), pool.queries.shape[1]
    basis, free = problem.basis, replace(problem, basis=Basis(np.eye(len(pool)), None, None))
    cut = basis.values.shape[1] * size
    variables = np.zeros(cut + size * size)

    def evaluated(flat: Floats, l2: float) -> tuple[float, Floats]:
        responses, across = flat[:cut].reshape(-1, size), flat[cut:].reshape(size, size)
        vectors = pool.queries + basis.values @ responses
        loss, slopes = free.value_and_gradient(vectors + vectors @ across - pool.queries)
        gradient = np.concatenate(
            [(basis.values.T @ (slopes + slopes @ across.T)).ravel(), (vectors.T @ slopes).ravel()]
        )
        return loss + l2 * float(flat @ flat), gradient + 2 * l2 * flat

    for l2 in L2:
        variables = minimized(evaluated, variables, l2)
        documents = unit(world.documents + world.documents @ variables[cut:].reshape(size, size).T)
        yield moved(own, pool.queries, kernel, basis, variables[:cut].reshape(-1, size)) @ documents.T


def word_weights(world: World, train: Ints, test: Ints, _: None) -> Scores:
    """Every word of training queries gets a weight for all queries, by the same loss; 1 where nothing says more."""
    own, right = world.asked[train], world.shares(train)
    good, words, columns = right @ world.words, world.words.T.tocsr(), right.toarray()
    weights = np.ones(own.shape[1])

    def evaluated(weights: Floats, l2: float) -> tuple[float, Floats]:
        scores = (own.multiply(weights[None]) @ words).toarray() / WORD_TEMPERATURE
        scores -= (tops := scores.max(axis=1, keepdims=True))
        totals = np.exp(scores, out=scores).sum(axis=1, keepdims=True)
        ours = own.multiply(weights[None]).multiply(good).sum() / WORD_TEMPERATURE
        off = (world.words.T @ (scores / totals - columns).T).T
        slopes = np.asarray(own.multiply(off).sum(axis=0)).ravel() / (WORD_TEMPERATURE * len(train))
        loss = (float(np.sum(np.log(totals) + tops)) - ours) / len(train)
        return loss + l2 * float(np.sum((weights - 1) ** 2)), slopes + 2 * l2 * (weights - 1)

    for l2 in L2:
        weights = minimized(evaluated, weights, l2, [(0.0, None)] * len(weights))
        yield (world.asked[test].multiply(weights[None]) @ words).toarray()


class InWords(AdapterProblem):
    """The same problem in the space of terms: a document is what its terms add to BM25."""

    @cached_property
    def _documents(self) -> Any:
        return self.documents.astype(np.float32)


def more_words(world: World, train: Ints, test: Ints, _: None) -> Scores:
    """Words of the answers of similar queries join a query, the best thirty, and its own words get weights."""
    points, kernel, start = world.pool.queries, BY_QUERY[1], None
    marks = points[np.random.default_rng(0).permutation(train)[:_MARKS]]
    queries, own = (world.asked[rows].toarray() for rows in (train, test))
    basis = Basis.of(kernel, points[train], marks)
    words: Any = world.words
    targets, even = (world.shares(train) @ words).toarray(), np.full(len(train), 1 / len(train))
    for l2 in L2:
        problem = InWords(basis, queries, words, targets, even, WORD_TEMPERATURE, l2)
        start = problem.solve(start, tolerance=_ROUGH, most=_STEPS).coordinates
        exponential: Any = basis.response(start)[1]
        found = np.maximum(own + kernel.exponential(points[test], marks) @ exponential, 0.0)
        others = np.where(own > 0, 0.0, found)
        least = np.partition(others, -_ADDED, axis=1)[:, -_ADDED, None]
        yield (csr_array(np.where((own > 0) | (others > least), found, 0.0)) @ words.T).toarray()


# What is tried, with its options beside L2, and what it would replace.
WAYS: dict[str, tuple[Way, tuple[Any, ...], str | None]] = {
    BM25: (plain_words, (None,), None),
    ADAPTED: (adapted, (BY_QUERY[1], BOTH), None),
    "documents move too": (both_sides, (BY_QUERY[1],), ADAPTED),
    "two kernels": (adapted, (TwoKernels(0.0, 2.0), TwoKernels(1.0, 2.0)), ADAPTED),
    "words get weights": (word_weights, (None,), BM25),
    "words of answers join": (more_words, (None,), BM25),
}


def lists_by(world: World, way: Way, options: tuple[Any, ...]) -> Ints:
    """The best documents of every query, by what other parts taught and by the setting that is best on these."""
    parts, every = world.pool.parts(_PARTS, 0), np.arange(len(world.pool))
    found: dict[tuple[int, int], Ints] = {}
    for number, option in enumerate(options):
        for rows in parts:
            for step, scores in enumerate(way(world, np.setdiff1d(every, rows), rows, option)):
                lists = found.setdefault((number, step), np.zeros((len(every), _LISTED), np.int64))
                lists[rows] = np.argsort(-scores, axis=1, kind="stable")[:, :_LISTED]
    values, chosen = {setting: world.quality(lists) for setting, lists in found.items()}, np.zeros_like(lists)
    for rows in parts:
        best = max(values, key=lambda setting: float(np.delete(values[setting], rows).mean()))
        chosen[rows] = found[best][rows]
    return chosen


def fused(world: World, one: Ints, other: Ints) -> Ints:
    """Two lists by reciprocal ranks."""
    scores, gains = np.zeros((len(one), len(world.documents))), 1 / (_RRF + np.arange(1, _LISTED + 1))
    for lists in (one, other):
        np.put_along_axis(scores, lists, np.take_along_axis(scores, lists, 1) + gains, 1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :_LISTED]


def main() -> None:
    """Try all, and write what came out."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("folder", type=Path, help="with cranfield, vaswani, and vectors of these and of stdlib")
    options.add_argument("--out", type=Path, required=True, help="folder for numbers.json and table.md")
    asked = options.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    values: dict[tuple[str, str], list[Floats]] = {}  # of each way, alone and fused, by collection
    for place in COLLECTIONS.values():
        world = world_of(asked.folder, place)
        lists = {name: lists_by(world, way, tried) for name, (way, tried, _) in WAYS.items()}
        for name, (_, _, old) in WAYS.items():
            other = ADAPTED if BM25 in (name, old) else BM25
            values.setdefault((name, ""), []).append(world.quality(lists[name]))
            values.setdefault((name, other), []).append(world.quality(fused(world, lists[name], lists[other])))
        print(place, {each: round(float(own[-1].mean()), 4) for each, own in values.items()}, flush=True)
    pairs = {(name, beside): (old, beside) for name, beside in values if (old := WAYS[name][2])}
    every = {each: np.concatenate(own) for each, own in values.items()}
    tests = corrected({new: paired_t_test(every[new], every[old]) for new, old in pairs.items()})
    rows: list[tuple[Cell, ...]] = []
    for each, own in values.items():
        test = tests.get(each)
        told = (None, None) if test is None else (test.found.difference, test.p_holm)
        rows.append((" + ".join(filter(None, each)), *(float(part.mean()) for part in own), *told))
    columns = [
        Column("list"),
        *(Column(f"{name}, {len(own)}", "value") for name, own in zip(COLLECTIONS, own, strict=True)),
    ]
    columns += [Column("difference", "signed"), Column("p (Holm)", "p")]
    caption = (
        "NDCG@10 of training queries of the first fold, each ranked by what others taught; how many stands behind the "
        "collection. `+`: fused by reciprocal ranks. difference and p: of all queries together, against BM25 or "
        f"adapted vectors in the same place; paired t-test, Holm's correction for {len(tests)} tests."
    )
    numbers: JsonObject = {" + ".join(filter(None, new)): list(each.numbers) for new, each in tests.items()}
    print(write_findings(asked.out, numbers, [Table(tuple(columns), tuple(rows), caption)]).read_text())


if __name__ == "__main__":
    main()
