"""Judged queries with vectors that can be adapted."""

from __future__ import annotations

import numpy as np

from querywise.data.collections import Collection, Document
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.indexed_vectors import with_vectors
from querywise.runtime.arrays import Floats

TOPICS, EACH, DIMENSION = 8, 20, 12


def _near(rows: Floats, noise: float, random: np.random.Generator) -> Floats:
    found: Floats = rows + noise * random.standard_normal(rows.shape)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def made(*, helpful: bool = True) -> tuple[Collection, Index]:
    """Topics whose queries lie together and whose answers lie together, but elsewhere: a shift that can be learned."""
    random = np.random.default_rng(3)
    asked, found = (_near(np.zeros((TOPICS, DIMENSION)), 1.0, random) for _ in range(2))
    topic = np.repeat(np.arange(TOPICS), EACH)
    documents = _near(found[topic], 0.12, random)
    queries = _near(asked[topic], 0.12, random)
    grades = topic if helpful else random.permutation(topic)
    names = [f"d{number}" for number in range(len(topic))]
    words = [f"word{number % 11} other{number % 7}" for number in range(len(topic))]
    texts = [Document(name, "", text) for name, text in zip(names, words, strict=True)]
    ids = tuple(f"q{number}" for number in range(len(topic)))
    table = QueryTable(ids, texts=tuple(f"word{number % 11}" for number in range(len(topic))), vectors=queries)
    judgments = [
        Judgement(query, names[number], 1, "")
        for query, own in zip(ids, grades.tolist(), strict=True)
        for number in np.flatnonzero(topic == own)[:6].tolist()
    ]
    index = with_vectors(build_index(texts), CollectionVectors(as_vectors(names, documents)))
    return Collection("made up", lambda: texts, table, tuple(judgments)), index
