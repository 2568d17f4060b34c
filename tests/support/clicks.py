"""A collection, and clicks on it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def collection(folder: Path) -> Path:
    """Documents of three topics, and queries that name them."""
    folder.mkdir()
    chance = np.random.default_rng(0)
    topics = ["apple pear plum", "hammer nail saw", "violin cello flute", "granite basalt slate"]
    with (folder / "corpus.jsonl").open("w") as corpus:
        for number in range(40):
            words = chance.choice(topics[number % 4].split(), 3)
            record = {"_id": f"D{number}", "title": " ".join(words), "text": f"about {words[0]} {number}"}
            corpus.write(json.dumps(record) + "\n")
    lines = [json.dumps({"_id": f"Q{n}", "text": topics[n % 4].split()[n // 4]}) for n in range(12)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def clicks_on(folder: Path) -> Path:
    """Pages of ten documents by number; those whose titles begin with the query are clicked more."""
    chance = np.random.default_rng(1)
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    rows = ["query,session,document,position,clicked"]
    for page in range(600):
        query = queries[page % len(queries)]["text"]
        shown = [each for each in documents if query in each["title"]][:6]
        chance.shuffle(shown)
        for place, each in enumerate(shown, start=1):
            clicked = chance.random() < (0.8 if each["title"].startswith(query) else 0.1) / place
            rows.append(f"{query},s{page},{each['_id']},{place},{int(clicked)}")
    path = folder / "log.csv"
    path.write_text("\n".join(rows) + "\n")
    return path
