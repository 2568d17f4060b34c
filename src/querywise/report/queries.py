"""Every query of a report, as data for the page: what is known of it, its values, and its rankings.

The rankings of the queries that moved most are in the page itself, within a bound. The others are in files beside it,
which the page loads as scripts when one of them is opened: a page that is opened as a file may load nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from querywise.evaluation.breakdown import nearest_distances, relevant_documents
from querywise.evaluation.compared import Compared
from querywise.evaluation.findings import Findings
from querywise.evaluation.rankings import all_ranks, document_names, grades, query_texts, ranked, why
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.values import Json, JsonObject

CALLED = "querywiseRankings"  # the function that a file of rankings calls
_CUT = 140  # characters of a query's text in the table
_TITLE = 120  # characters of a document's title
_INSIDE = 600_000  # bytes of rankings in the page itself
_TOGETHER = 200  # queries in a file beside it


@dataclass(frozen=True)
class QueryData:
    """content: what the page holds. files: name → script, of the rankings that are not in it."""

    content: JsonObject
    files: Mapping[str, str]


def query_data(found: Findings, titles: Mapping[str, str]) -> QueryData:
    """Everything the table of queries shows. titles: of documents, by their ids, as far as known."""
    compared = found.compared
    features = list(dict.fromkeys(each.feature for told in found.uses.values() for each in told))
    rankings = _rankings(compared, titles, features)
    largest = np.argsort(-_moved(found), kind="stable").tolist()
    inside, size = set[int](), 0
    for query in largest:
        size += len(rankings[query].encode())
        if size > _INSIDE:
            break
        inside.add(query)
    outside = [query for query in range(len(rankings)) if query not in inside]
    files: dict[str, str] = {}
    place = [0] * len(rankings)  # the number of the file, 0 for the page
    for number, first in enumerate(range(0, len(outside), _TOGETHER), start=1):
        some = outside[first : first + _TOGETHER]
        told = ",".join(f'"{query}":{rankings[query]}' for query in some)
        files[f"{number}.js"] = f"{CALLED}({{{told}}});\n"
        for query in some:
            place[query] = number
    content: JsonObject = {
        **_known(found),
        "features": features or None,
        "unexplained": [found.unexplained.get(name) for name in compared.names],
        "file": place,
        "rankings": {str(query): json.loads(rankings[query]) for query in sorted(inside)},
    }
    return QueryData(content, files)


def script_json(content: Json) -> str:
    """JSON that can stand in an element <script>: nothing in it ends that, or is anything but text."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return _safe(text)


def _safe(text: str) -> str:
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _known(found: Findings) -> JsonObject:
    """What is known of every query, column by column."""
    compared, test = found.compared, found.compared.judged
    texts, nearest = query_texts(compared), nearest_distances(compared)
    shown = [text or name for text, name in zip(texts, test.query_ids, strict=True)]
    return {
        "measure": found.measure,
        "baseline": compared.baseline,
        "shown": found.shown,
        "methods": list(compared.names),
        "ids": list(test.query_ids),
        "texts": [None if text is None else _cut(text) for text in texts],
        "long": [int(len(text) > _CUT) for text in shown],
        "classes": list(test.classes) if any(test.classes) else None,
        "relevant": relevant_documents(compared).tolist(),
        "candidates": test.candidates.sizes.tolist(),
        "distances": None if nearest is None else [_round(each) for each in nearest[1].tolist()],
        "values": [
            [_round(each) for each in compared.evaluations[name][found.measure].tolist()] for name in compared.names
        ],
    }


def _rankings(compared: Compared, titles: Mapping[str, str], features: Sequence[str]) -> list[str]:
    """Every query's rankings as JSON that can stand in a script."""
    numbers = {name: number for number, name in enumerate(features)}
    ranks, texts = all_ranks(compared), query_texts(compared)
    made = []
    for query in range(len(compared.judged)):
        some = ranked(compared, ranks, query)
        names = document_names(compared, query, some.rows)
        text = texts[query]
        made.append(
            script_json(
                {
                    **({} if text is None or len(text) <= _CUT else {"text": text}),
                    "documents": list(names),
                    "titles": [_title(titles.get(name, "")) for name in names] if titles else None,
                    "grades": list(grades(compared, some.rows)),
                    "ranks": some.ranks.T.tolist(),
                    **({"why": _why(compared, query, some.rows, numbers)} if features else {}),
                }
            )
        )
    return made


def _why(compared: Compared, query: int, rows: Ints, numbers: Mapping[str, int]) -> list[Json]:
    """By ranker, for each document the numbers of features, each followed by what it adds; 0 for nothing."""
    made: list[Json] = []
    for told in why(compared, query, rows).values():
        flat = [[part for name, value in each for part in (numbers[name], value)] or 0 for each in told or ()]
        made.append(flat or None)
    return made


def _moved(found: Findings) -> Floats:
    """By how much the value of each query differs between the two rankings that are shown first."""
    compared = found.compared
    theirs = compared.evaluations[compared.baseline][found.measure]
    return np.abs(compared.evaluations[found.shown or compared.baseline][found.measure] - theirs)


def _cut(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _CUT else plain[:_CUT].rstrip() + "…"


def _title(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _TITLE else plain[: _TITLE - 1].rstrip() + "…"


def _round(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
