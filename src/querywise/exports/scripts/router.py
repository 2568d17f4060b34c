"""Which model answers a query, and the request to the engine that ranks by it.

Edit this file: `first_stage` is your application's current query, WINDOW the number of its best documents that are
reranked. It needs querywise, and the folder it is in.

    python router.py "jaguar"                           the request, if routing depends on the query's text
    python router.py "jaguar" --class navigational      or by its class
    python router.py "jaguar" --columns '{"clicks": 3}' or on its columns
    python router.py "jaguar" --vector '[0.1, 0.2]'     or by its vector
    python router.py "jaguar" --first                   the first of two requests, where it goes by documents
    python router.py "jaguar" --answer answer.json      the second, given the engine's answer to the first
    python router.py -- "-7 degrees"                    words that begin with a dash, after other options
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from querywise import DataError, QuerywiseError, Router
from querywise.exports.scripts.route_elasticsearch import documents_in, logged, routed

# From here on the file is the same for every engine.

HERE = Path(__file__).resolve().parent


def read_documents(path: Path) -> list[dict[str, float]]:
    """Read the features of the documents in the engine's answer to the first request, from a file."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"--answer {path}: the engine's answer cannot be read ({error}).") from None
    try:
        return documents_in(answer)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        said = json.dumps(answer, ensure_ascii=False)[:200]
        raise DataError(
            f"The engine's answer has no documents with their features; send what --first prints. Found: {said}"
        ) from None


def request_for(router: Router, given: argparse.Namespace) -> dict[str, Any]:
    """Return the request for the options."""
    if given.first:
        return logged(given.keywords, router.manifest["name"])
    documents = None if given.answer is None else read_documents(given.answer)
    return routed(
        router,
        given.keywords,
        query_class=given.query_class,
        vector=given.vector,
        columns=given.columns,
        documents=documents,
    )


def main() -> int:
    """Print the request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keywords")
    parser.add_argument("--class", dest="query_class")
    parser.add_argument("--columns", type=json.loads)
    parser.add_argument("--vector", type=json.loads)
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
