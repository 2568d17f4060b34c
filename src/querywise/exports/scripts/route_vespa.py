"""Which weights or profile answer a query, and the request to Vespa that ranks by it.

Made to be changed: `first_stage` is the query your application asks today, WINDOW how many of its best documents are
ranked anew. It needs querywise, and the folder it lies in.

    python router.py "jaguar"                           the request, where routing goes by the query's text
    python router.py "jaguar" --class navigational      or by its class
    python router.py "jaguar" --columns '{"clicks": 3}' or by columns of its own
    python router.py "jaguar" --first                   the first of two requests, where it goes by documents
    python router.py "jaguar" --answer answer.json      the second, given the engine's answer to the first
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from querywise import Router

HERE = Path(__file__).resolve().parent
WINDOW = 100


def first_stage(keywords: str) -> dict[str, Any]:
    """The query whose documents are ranked, as parameters of /search/."""
    return {"yql": "select * from sources * where userQuery()", "query": keywords, "hits": WINDOW}


def by_weights(keywords: str, profile: str, weights: dict[str, float]) -> dict[str, Any]:
    """The request that ranks by weights sent along."""
    cells = ",".join(f"{label}:{value!r}" for label, value in weights.items())
    return {**first_stage(keywords), "ranking": profile, "input.query(w)": f"{{{cells}}}"}


def by_profile(keywords: str, profile: str) -> dict[str, Any]:
    """The request that ranks by a profile of its own; also the first of two, for a model that looks at documents."""
    return {**first_stage(keywords), "ranking": profile}


def documents_in(answer: dict[str, Any]) -> list[dict[str, float]]:
    """The features of the documents in the engine's answer to the first request.

    Older versions of Vespa wrap the name of a function in rankingExpression(…).
    """
    entries = [hit["fields"]["matchfeatures"] for hit in answer["root"].get("children", [])]
    return [
        {name.removeprefix("rankingExpression(").removesuffix(")"): value for name, value in entry.items()}
        for entry in entries
    ]


def main() -> None:
    """Print the request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keywords")
    parser.add_argument("--class", dest="query_class")
    parser.add_argument("--columns", type=json.loads)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--answer", type=Path)
    given = parser.parse_args()
    router = Router(HERE)
    files = {model["name"]: Path(model["file"]) for model in router.manifest["models"]}
    everyone = router.manifest["name"].replace("-", "_")
    if given.first:
        request = by_profile(given.keywords, everyone)
    else:
        documents = None if given.answer is None else documents_in(json.loads(given.answer.read_text()))
        known = {"query_class": given.query_class, "columns": given.columns, "documents": documents}
        if all(path.suffix == ".txt" for path in files.values()):
            request = by_weights(given.keywords, everyone, router.weights(given.keywords, **known))
        else:
            request = by_profile(given.keywords, files[router.model(given.keywords, **known)].stem)
    sys.stdout.write(json.dumps(request, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
