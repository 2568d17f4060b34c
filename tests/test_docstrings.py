"""Every public name explains itself: its parameters, and an example, which pytest runs with all doctests of src/."""

from __future__ import annotations

import doctest
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import querywise
from querywise.sklearn import Ranker

ROOT = Path(__file__).parent.parent
PACKAGE: Any = querywise
PUBLIC: dict[str, Any] = {
    **{name: getattr(PACKAGE, name) for name in PACKAGE.__all__},
    "querywise.sklearn.Ranker": Ranker,
}
OBVIOUS = {"self", "cls", "data", "candidates", "deep", "parameters"}  # of methods, named as everywhere
# Called by the library, not by its users, beside what is public of these classes.
INSIDE = {"Cluster", "Shards", "Blend.blended", "Blend.comparable", "Blend.refusal", "RankSVM.fit_preferences"}


def methods(name: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """The public methods that a class has of its own."""
    for method, value in vars(PUBLIC[name]).items():
        if inspect.isfunction(value) and not method.startswith("_") and not {name, f"{name}.{method}"} & INSIDE:
            yield method, value


def unexplained(function: Callable[..., object], texts: str, obvious: set[str]) -> list[str]:
    """The parameters that no word of the texts is about."""
    every = inspect.signature(function).parameters
    return [name for name in every if name not in obvious and not re.search(rf"\b{name}\b", texts, re.IGNORECASE)]


def explained(text: str) -> set[str]:
    """The names of the docstring's arguments."""
    lines = re.findall(r"^    (\w+(?:, \w+)*): ", section(text, "Args"), flags=re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def section(text: str, name: str) -> str:
    """The lines below a heading of a Google-style docstring."""
    found = re.search(rf"^{name}:\n((?:    .*\n?)+)", text, flags=re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_explained(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert [each for each in inspect.signature(PUBLIC[name]).parameters if each not in explained(text)] == []


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if inspect.isclass(value)])
def test_parameters_of_methods_are_named(name: str) -> None:
    whole = inspect.getdoc(PUBLIC[name]) or ""
    found = {
        method: unexplained(function, f"{inspect.getdoc(function) or ''}\n{whole}", OBVIOUS)
        for method, function in methods(name)
    }
    assert {method: names for method, names in found.items() if names} == {}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_has_an_example_that_imports_what_it_uses(name: str) -> None:
    short = name.rpartition(".")[2]
    text = PUBLIC[name].__doc__ or ""  # its own, and not that of a class it extends
    examples = doctest.DocTestParser().get_examples(text)
    assert any(short in example.source for example in examples)
    assert any(example.want for example in examples)
    assert "+SKIP" not in text
    imported = next(
        example.source for example in examples if re.search(rf"import .*\b{short}\b|\b{short}\(", example.source)
    )
    assert imported.startswith("from querywise"), "an example begins with where its name comes from"


def test_what_raises_names_its_errors() -> None:
    errors = {name for name in PACKAGE.__all__ if name.endswith("Error")}
    quiet = {"Fold", "Shards", "make_judged"}  # refuse nothing of their own
    for name in {*PUBLIC} - errors - quiet:
        raised = section(inspect.getdoc(PUBLIC[name]) or "", "Raises")
        assert any(f"    {error}: " in raised for error in errors), name


def test_functions_say_what_they_return() -> None:
    for name, value in PUBLIC.items():
        if inspect.isfunction(value) and name != "save":
            assert section(inspect.getdoc(value) or "", "Returns"), name


def test_examples_are_run_with_the_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in settings["addopts"]
    assert {"src", "reproduction"} <= set(settings["testpaths"])
