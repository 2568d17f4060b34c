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

from querywise import DataError, QuerywiseError, Router

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
    try:
        if "errors" in answer["root"]:
            raise without_documents(answer)
        entries = [hit["fields"]["matchfeatures"] for hit in answer["root"].get("children", [])]
        return [{function_in(name): value for name, value in entry.items()} for entry in entries]
    except (KeyError, TypeError, AttributeError):
        raise without_documents(answer) from None


def function_in(name: str) -> str:
    """A function by its own name."""
    wrapped = name.startswith("rankingExpression(") and name.endswith(")")
    return name[len("rankingExpression(") : -1] if wrapped else name


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
    files = {model["name"]: Path(model["file"]) for model in router.manifest["models"]}
    everyone = router.manifest["name"].replace("-", "_")
    if given.first:
        return by_profile(given.keywords, everyone)
    documents = None if given.answer is None else documents_in(read_answer(given.answer))
    known = {"query_class": given.query_class, "columns": given.columns, "documents": documents}
    if all(path.suffix == ".txt" for path in files.values()):
        return by_weights(given.keywords, everyone, router.weights(given.keywords, **known))
    return by_profile(given.keywords, files[router.model(given.keywords, **known)].stem)


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
