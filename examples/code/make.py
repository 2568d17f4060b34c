"""Make this collection anew: a function's docstring as the query, the code without it as the document that answers.

    python examples/code/make.py src/querywise examples/code

The collection that is kept here was made once and stays as it is, so that what is printed of it stays the same.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from querywise.data.collections import Collection, Document, write_collection
from querywise.data.judgements import Judgement
from querywise.data.query_table import QueryTable
from querywise.retrieval.stdlib import first_sentence

ROOMS = ("data", "evaluation", "locality", "rankers", "retrieval", "runtime")
SHORTEST = 4  # words of a docstring, and lines of a function


def functions(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Every function with a docstring and some lines of code: its name, the docstring's first sentence, the code."""
    for path in sorted(path for room in ROOMS for path in (folder / room).rglob("*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            said = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if not isinstance(node, ast.FunctionDef) or said is None:
                continue
            sentence = first_sentence(said)[0]
            node.body = node.body[1:] or [ast.Pass()]
            code = ast.unparse(node)
            if len(sentence.split()) >= SHORTEST and len(code.splitlines()) >= SHORTEST:
                yield f"{module}.{node.name}", sentence, code


def collection(folder: Path) -> Collection:
    """All functions as documents, each the one answer to its own docstring; what is there twice is left out."""
    found = list(functions(folder))
    names = Counter(name for name, _, _ in found)
    said = Counter(sentence for _, sentence, _ in found)
    kept = [each for each in found if names[each[0]] == said[each[1]] == 1]
    documents = [Document(name, name.rpartition(".")[2].replace("_", " ").strip(), code) for name, _, code in kept]
    queries = QueryTable(tuple(f"q{n}" for n in range(1, len(kept) + 1)), texts=tuple(each[1] for each in kept))
    judgements = [Judgement(query, each[0], 1, "made") for query, each in zip(queries.ids, kept, strict=True)]
    return Collection("code", lambda: documents, queries, tuple(judgements))


if __name__ == "__main__":
    write_collection(collection(Path(sys.argv[1])), Path(sys.argv[2]))
