"""The JavaScript of the service's page: modules that find one another, and do not go round in circles."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

PAGE = Path(__file__).parent.parent / "src" / "querywise" / "service" / "page"
IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+\.js)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", re.MULTILINE)


def modules() -> dict[str, str]:
    return {path.name: path.read_text() for path in PAGE.glob("*.js")}


def imports(text: str) -> dict[str, list[str]]:
    """The names that a module takes, by the module that it takes them from."""
    assert len(IMPORT.findall(text)) == len(re.findall(r"\bimport\b", re.sub(r"//.*", "", text))), "all of one form"
    return {name: names.split(", ") for names, name in IMPORT.findall(text)}


def test_what_is_imported_is_exported_and_used_and_what_is_exported_is_imported() -> None:
    texts = modules()
    exported = {(name, each) for name, text in texts.items() for each in EXPORT.findall(text)}
    taken = [(user, name, each) for user, text in texts.items() for name, own in imports(text).items() for each in own]
    assert taken
    assert {(name, each) for _, name, each in taken} == exported
    bodies = {name: IMPORT.sub("", text) for name, text in texts.items()}
    assert [(user, each) for user, _, each in taken if not re.search(rf"\b{each}\b", bodies[user])] == []


def test_every_function_that_is_called_is_defined_or_imported() -> None:
    texts = modules()
    defined = re.compile(r"^(?:export )?(?:async )?(?:const|function|class) (\w+)", re.MULTILINE)
    everywhere = {each for text in texts.values() for each in defined.findall(text)}
    for name, text in texts.items():
        code = re.sub(r"//.*|/\*\*.*?\*/", "", text)
        own = set(defined.findall(code)).union(*imports(text).values())
        local = set(re.findall(r"(?:const|let) (\w+)", code))
        called = set(re.findall(r"(?:(?<![\w.])|(?<=\.\.\.))(\w+)\(", code)) & everywhere
        assert called - own - local == set(), name


def test_imports_do_not_go_round_in_circles() -> None:
    TopologicalSorter({name: imports(text) for name, text in modules().items()}).prepare()  # a CycleError if they do
