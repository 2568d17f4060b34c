"""Which model answers a query, and the request to Elasticsearch or OpenSearch that ranks by it.

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

from querywise import DataError, QuerywiseError, Router

HERE = Path(__file__).resolve().parent
WINDOW = 100


def first_stage(keywords: str) -> dict[str, Any]:
    """The query whose best documents are ranked anew."""
    return {"query_string": {"query": keywords}}


def ranked(keywords: str, model: str) -> dict[str, Any]:
    """The request that ranks by a model."""
    by_model = {"sltr": {"model": model, "params": {"keywords": keywords}}}
    weights = {"query_weight": 0, "rescore_query_weight": 1}
    return {
        "query": first_stage(keywords),
        "rescore": {"window_size": WINDOW, "query": {**weights, "rescore_query": by_model}},
    }


def logged(keywords: str, feature_set: str) -> dict[str, Any]:
    """The request that fetches the best documents with their features, for a model that looks at them."""
    features = {"sltr": {"_name": "features", "featureset": feature_set, "params": {"keywords": keywords}}}
    return {
        "size": WINDOW,
        "query": {"bool": {"must": [first_stage(keywords)], "filter": [features]}},
        "ext": {"ltr_log": {"log_specs": {"name": "features", "named_query": "features", "missing_as_zero": True}}},
    }


def documents_in(answer: dict[str, Any]) -> list[dict[str, float]]:
    """The features of the documents in the engine's answer to `logged`."""
    try:
        entries = [hit["fields"]["_ltrlog"][0]["features"] for hit in answer["hits"]["hits"]]
        return [{each["name"]: each.get("value", 0.0) for each in entry} for entry in entries]
    except (KeyError, IndexError, TypeError, AttributeError):
        raise without_documents(answer) from None


def without_documents(answer: Any) -> DataError:
    """The answer is an error, or one to another request."""
    said = json.dumps(answer, ensure_ascii=False)[:200]
    return DataError(
        f"The engine's answer has no documents with their features; send what --first prints. Found: {said}"
    )


def read_answer(path: Path) -> Any:
    """The engine's answer, from a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"--answer {path}: the engine's answer cannot be read ({error}).") from None


def request_for(router: Router, given: argparse.Namespace) -> dict[str, Any]:
    """The request that was asked for."""
    if given.first:
        return logged(given.keywords, router.manifest["name"])
    documents = None if given.answer is None else documents_in(read_answer(given.answer))
    model = router.model(given.keywords, query_class=given.query_class, columns=given.columns, documents=documents)
    return ranked(given.keywords, model)


def main() -> int:
    """Print the request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keywords")
    parser.add_argument("--class", dest="query_class")
    parser.add_argument("--columns", type=json.loads)
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--answer", type=Path)
    given = parser.parse_args()
    try:
        router = Router(HERE)
        request = request_for(router, given)
    except QuerywiseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    ignored = None if given.query_class is None else router.about_class(given.query_class)
    if ignored is not None:
        sys.stderr.write(f"{ignored}\n")
    sys.stdout.write(json.dumps(request, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
