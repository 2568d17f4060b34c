"""Collections and judged queries with vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.collections import Document
from querywise.data.vectors import CollectionVectors, as_vectors
from querywise.retrieval.index import Index, build_index
from querywise.retrieval.indexed_vectors import with_vectors
from querywise.retrieval.vector_search import VectorIndex

WORDS = ("apple", "pear", "plum", "fig", "kiwi", "lime", "melon", "grape", "cherry", "mango")


def collection_with_vectors(folder: Path) -> tuple[Path, Path]:
    """A collection whose queries use other words than the documents, and vectors that know what they mean."""
    (folder / "docs").mkdir()
    (folder / "vectors").mkdir()
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(len(WORDS), 6))
    documents = [
        {"_id": f"{kind}-{word}", "title": word, "text": f"{word} {kind}"} for word in WORDS for kind in ("tree", "jam")
    ]
    queries = [{"_id": f"q{place}{kind}", "text": f"{kind} fruit"} for place in range(10) for kind in ("tree", "jam")]
    lines = {"corpus": documents, "queries": queries}
    for name, records in lines.items():
        (folder / "docs" / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    grades = [f"q{place}{kind} 0 {kind}-{WORDS[place]} 1" for place in range(10) for kind in ("tree", "jam")]
    (folder / "docs" / "qrels.txt").write_text("\n".join(grades) + "\n")
    of_documents = np.repeat(meaning, 2, axis=0) + 0.01 * rng.normal(size=(20, 6))
    for name, records, values in (
        ("documents", documents, of_documents),
        ("queries", queries, np.repeat(meaning, 2, axis=0)),
    ):
        np.save(folder / "vectors" / f"{name}.npy", values.astype(np.float32))
        (folder / "vectors" / f"{name}.json").write_text(json.dumps([each["_id"] for each in records]))
    return folder / "docs", folder / "vectors"


COUNT, DIMENSION = 400, 8


def vectors(count: int = COUNT, seed: int = 0) -> VectorIndex:
    values = np.random.default_rng(seed).normal(size=(count, DIMENSION))
    values[3::50] = 0.0
    values[20:30] = values[10]  # alike
    return VectorIndex(values, np.linalg.norm(values, axis=1))


def indexed(seed: int = 0) -> Index:
    known = vectors(60, seed)
    documents = [Document(f"d{each}", "", f"word{each} common") for each in range(60)]
    ids = [each.id for each in documents]
    return with_vectors(build_index(documents), CollectionVectors(as_vectors(ids, np.asarray(known.values))))


def lines_of(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)
