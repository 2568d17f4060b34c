"""The judging page as tests open it: a small collection, a draw of pairs, and a server."""

from __future__ import annotations

import json
from pathlib import Path

from querywise.evaluation.next_judgments import Pair
from querywise.jobs.judging import write_draw

TOKEN = "open-sesame"
MARKUP = "<img src=x onerror=alert(1)> & <b>juice</b>"
DOCUMENTS = {f"D{number}": (f"Title {number}", f"Text of number {number}.\nA second line.") for number in range(1, 7)}
QUERIES = {"q1": "how to press apples", "q2": MARKUP}
RUNS = {"a": list(DOCUMENTS), "b": list(DOCUMENTS)[::-1]}
PAIRS = [(query, document) for document in DOCUMENTS for query in QUERIES]


def write_desk(folder: Path) -> None:
    """Write `mine`, a text collection, two runs, and `next.tsv`, a draw of the twelve pairs of its two queries."""
    (folder / "mine").mkdir(parents=True)
    documents = [{"_id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()]
    documents[2]["title"] = MARKUP
    (folder / "mine" / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    (folder / "mine" / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries))
    for name, order in RUNS.items():
        lines = [f"{query} Q0 {each} 1 {9 - rank} {name}\n" for query in QUERIES for rank, each in enumerate(order)]
        (folder / f"{name}.trec").write_text("".join(lines))
    drawn = [Pair(*pair, 1 / len(PAIRS), place / 10) for place, pair in enumerate(PAIRS, start=1)]
    write_draw(folder / "next.tsv", drawn)


def words(folder: Path) -> list[object]:
    """What `querywise serve` is told."""
    runs = [word for name in RUNS for word in ("--run", folder / f"{name}.trec")]
    return ["--pairs", folder / "next.tsv", "--collection", folder / "mine", "--judge", folder / "given.qrels", *runs]
