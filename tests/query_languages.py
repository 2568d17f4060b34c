"""What search engines make of a user's words: the query languages, and the query types that have none.

A document is found where one of the words is in it. Documents are fields by name; only texts are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any


class BadRequestError(Exception):
    """What the engine answers with an error."""


def words_in(text: str) -> set[str]:
    """Words as an analyser finds them: letters and digits, in lowercase letters."""
    return set(re.findall(r"\w+", text.lower()))


def has_words(text: str, document: dict[str, Any], fields: Iterable[str]) -> bool:
    """A query without a language: one of the words is in one of the fields, which may be patterns."""
    patterns = tuple(fields)
    named = [field for field in document if any(fnmatchcase(field, pattern) for pattern in patterns)]
    texts = [document[field] for field in named if isinstance(document[field], str) and field != "_id"]
    return any(words_in(text) & words_in(each) for each in texts)


def check_syntax(text: str) -> None:
    """Refuse what Lucene's query parser refuses, of its language the common part."""
    plain = re.sub(r"\\.", "", text)
    for mark in '"/':
        if plain.count(mark) % 2:
            raise BadRequestError(f"Failed to parse query [{text}]: {mark} is not closed")
    outside = re.sub(r'"[^"]*"|/[^/]*/', " x ", plain)
    for first, last in ("()", "[]", "{}"):
        if outside.count(first) != outside.count(last):
            raise BadRequestError(f"Failed to parse query [{text}]: {first} and {last} do not pair")
    if re.search(r"([:+!^\\-]|\b(AND|OR|NOT|TO))\s*(\)|$)|^\s*(AND|OR)\b", outside):
        raise BadRequestError(f"Failed to parse query [{text}]: a term is missing")


def in_language(text: str, document: dict[str, Any], fields: Iterable[str], *, strict: bool) -> bool:
    """A query in a language of `field:word`, `-word` and `NOT word`; where strict, broken syntax is refused."""
    if strict:
        check_syntax(text)
    found = False
    for negation, field, word in re.findall(r"(\bNOT\s+|(?<!\w)[-!])?(?:(\w+):)?(\w+)", text):
        if word in ("AND", "OR"):
            continue
        here = has_words(word, document, (field,) if field else fields)
        if negation and here:
            return False
        found = found or (here and not negation)
    return found


def found_by_elasticsearch(query: dict[str, Any], document: dict[str, Any]) -> bool:
    """Queries of Elasticsearch and OpenSearch; `sltr` in a filter logs and lets everything through."""
    [(kind, asked)] = query.items()
    if kind in ("match_all", "sltr"):
        return True
    if kind == "bool":
        needed = [each for part in ("must", "filter") for each in asked.get(part, [])]
        if not needed:
            return any(found_by_elasticsearch(each, document) for each in asked["should"])
        return all(found_by_elasticsearch(each, document) for each in needed)
    if kind == "ids":
        return document["_id"] in asked["values"]
    if kind == "exists":
        return asked["field"] in document
    if kind == "function_score":
        return found_by_elasticsearch(asked.get("query", {"match_all": {}}), document)
    if kind == "match_none":
        return False
    if kind == "terms":
        [(field, values)] = asked.items()
        return document[field] in values
    if kind == "match":
        [(field, text)] = asked.items()
        return has_words(text, document, (field,))
    if kind == "multi_match":
        return has_words(asked["query"], document, asked["fields"])
    if kind == "query_string":
        return in_language(asked["query"], document, ("*",), strict=True)
    raise BadRequestError(f"unknown query [{kind}]")


def found_by_vespa(asked: dict[str, Any], document: dict[str, Any]) -> bool:
    """The condition of a request's `yql`."""
    condition = asked["yql"].partition(" where ")[2]
    if condition == "true":
        return True
    if condition == "userQuery()":
        return in_language(asked["query"], document, ("*",), strict=False)
    given = re.fullmatch(r'\(\{grammar: "(\w+)"(, allowEmpty: true)?\}userInput\(@(\w+)\)\)', condition)
    if given is None:
        raise BadRequestError(f"Could not parse {condition}")
    text = asked[given[3]]
    if given[1] != "tokenize":
        return in_language(text, document, ("*",), strict=False)
    if not words_in(text) and not given[2]:
        raise BadRequestError("Parsing of the user input gave no query")
    return has_words(text, document, ("*",))
