"""A small shop for the engines: products with a title, a body and clicks, and judged queries over them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

_WORDS = (
    "jaguar car cat price how to clean seat leather speed engine zoo rain forest tooth brush soap paint black spare "
    "wheel manual repair guide toy plush print poster shirt mug sticker key ring fast quiet large small new used"
)
WORDS = tuple(_WORDS.split())
CLASSES = ("informational", "navigational")


def documents(count: int = 300, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Products by id."""
    rng = np.random.default_rng(seed)
    return {
        str(1000 + number): {
            "title": " ".join(rng.choice(WORDS, size=int(rng.integers(2, 6)))),
            "body": " ".join(rng.choice(WORDS, size=int(rng.integers(10, 40)))),
            "clicks": int(rng.exponential(80)),
        }
        for number in range(count)
    }


def judgements(count: int = 50, each: int = 16, seed: int = 1) -> list[dict[str, Any]]:
    """Judged queries: navigational ones want the words in the title, the others clicks and the body."""
    rng, found = np.random.default_rng(seed), documents()
    made = []
    for number in range(count):
        words = [str(word) for word in rng.choice(WORDS, size=2, replace=False)]
        kind, labels = number % 2, {}
        matching = [name for name, one in found.items() if set(words) & set((one["title"] + " " + one["body"]).split())]
        for name in rng.choice(matching, size=min(each, len(matching)), replace=False).tolist():
            title = sum(word in found[name]["title"].split() for word in words)
            body = sum(found[name]["body"].split().count(word) for word in words)
            value = 2.0 * title + 0.2 * body if kind else found[name]["clicks"] / 60 + 0.5 * body
            labels[str(name)] = int(np.clip(value + rng.normal(0, 0.4), 0, 3))
        text = f"how to {words[0]} {words[1]}" if kind == 0 else " ".join(words)
        made.append({"_id": str(number), "text": text, "class": CLASSES[kind], "labels": labels})
    return made


def judgement_lines() -> str:
    """The judgements as the pages have them."""
    return "".join(json.dumps(each) + "\n" for each in judgements())
