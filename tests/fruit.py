"""A small collection to be served: shops and farms, and queries of two kinds that want the one or the other."""

from __future__ import annotations

from pathlib import Path

from querywise.data.collections import Collection, Document
from querywise.data.judgements import Judgement
from querywise.data.letor import write_letor
from querywise.data.query_table import QueryTable, write_queries
from querywise.methods import METHODS
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index, save_index
from querywise.storage import save

FRUIT = ("apple", "pear", "plum", "fig", "kiwi", "date", "lime", "lemon", "melon", "grape", "cherry", "mango")
MARKUP = "<img src=x onerror=alert(1)> & <b>juice</b>"
LONG = "a_document_with_no_space_in_its_name_and_longer_than_the_screen_of_a_telephone.html"


def collection() -> Collection:
    """Shops and farms, and queries of two kinds that want the one or the other."""
    documents = [
        Document(
            f"{kind}-{fruit}",
            fruit if kind == "shop" else f"{fruit} trees",
            f"sold here: {fruit} juice" if kind == "shop" else f"raised in a wide field with care: {fruit} for juice",
            {"stock": float(place % 5)},
        )
        for place, fruit in enumerate(FRUIT)
        for kind in ("shop", "farm")
    ]
    odd = [Document("markup", MARKUP, "juice", {"stock": 1.0}), Document(LONG, LONG, f"{LONG} juice", {"stock": 2.0})]
    asked = [(f"{word}-{fruit}", f"{word} {fruit} juice", word) for fruit in FRUIT for word in ("buy", "grow")]
    asked.append(("q", "buy fig juice", "buy"))  # an id like any other
    ids, texts, classes = zip(*asked, strict=True)
    wanted = {"buy": "shop", "grow": "farm"}
    judgements = tuple(
        Judgement(query, f"{kind}-{text.split()[1]}", 2 if wanted[word] == kind else 0, "here")
        for query, text, word in asked
        for kind in ("shop", "farm")
    )
    return Collection("fruit", lambda: [*documents, *odd], QueryTable(ids, texts, classes), judgements)


def write_served(folder: Path) -> None:
    """Write an index, judged.txt and queries.jsonl of the collection, and two models: local, and single for all."""
    made = collection()
    index = build_index(made.documents())
    save_index(index, folder / "index")
    judged, _ = judged_candidates(made, index)
    write_letor(folder / "judged.txt", judged)
    assert made.queries is not None
    write_queries(folder / "queries.jsonl", made.queries)
    save(METHODS["knn-online"].build(l2=0.1, k=0.4, view="text").fit(judged), folder / "local")
    save(METHODS["single"].build(l2=0.1).fit(judged), folder / "single")
