"""Public signatures say what they take and give: `Any` and `object` stand only where nothing else would be true."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "querywise"

LOOSE = {"Any", "object", "cast"}
TAKES_ANYTHING = {"__eq__", "__exit__"}  # as Python has them

# What remains, and why. Each has its reason in a comment beside it too; a folder, which stands for all files in it, has
# it in its __init__.py.
ALLOWED = {
    "runtime/workers.py: Arguments": "work takes what its own signature says, and the same or where it is kept",
    "runtime/workers.py: Kept": "known to the workers alone",
    "data/parquet/arrow.py: Arrow": "pyarrow comes without types",
    "errors.py: NotFittedError.__init__": "whatever was not fitted: its class is named",
    "exports/scripts/": "files for users to copy, which read what an engine answers, and need no types of ours for it",
    "methods/method.py: Maker": "any class or function",
    "methods/method.py: make": "an object of any class",
    "contracts/estimators.py: Parameter": "whatever the constructors of estimators take, others' included",
    "runtime/parameters.py: is_fitted": "whatever keeps what it has learned under names that end in an underscore",
    "runtime/parameters.py: learned_bytes": "goes through whatever there is inside of an estimator",
    "runtime/parameters.py: parameters_of": "any class, and what its constructor takes",
    "service/schema.py: JsonObject": "msgspec cannot follow a type that holds itself",
    "runtime/cache.py: cached": "settings and data of any type, told apart by `signature` and by identity",
    "runtime/cache.py: signature": "what a constructor may have been given",
}

# Not looked at yet.
LATER: tuple[str, ...] = ()


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def is_loose(annotation: ast.AST | None) -> bool:
    """Whether a type has one of the words in it; what `Annotated` says beside the type is not part of it."""
    if annotation is None:
        return False
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Annotated"):
        assert isinstance(annotation.slice, ast.Tuple)
        return is_loose(annotation.slice.elts[0])
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Literal"):
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return is_loose(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:  # a text, not a type
            return False
    word = getattr(annotation, "id", None) or getattr(annotation, "attr", None)
    return word in LOOSE or any(map(is_loose, ast.iter_child_nodes(annotation)))


def types_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST | None]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    yield function.returns
    yield from (each.annotation for each in every if each is not None)


def named(statement: ast.stmt) -> Iterator[tuple[str, bool]]:
    """The names a statement gives a type to, or makes a type of, and whether that type is loose."""
    if isinstance(statement, ast.AnnAssign):
        target = statement.target
        own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        if isinstance(target, ast.Name) or own:
            name = target.id if isinstance(target, ast.Name) else ast.unparse(target).removeprefix("self.")
            alias = ast.unparse(statement.annotation).endswith("TypeAlias")
            yield name, is_loose(statement.value if alias else statement.annotation)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        made = statement.value
        makes_type = isinstance(made, (ast.Subscript, ast.BinOp)) or (
            isinstance(made, ast.Call) and ast.unparse(made.func) in ("NewType", "TypeVar")
        )
        yield statement.targets[0].id, makes_type and is_loose(made)


def silenced(lines: list[str], function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("type: ignore" in line for line in lines[function.lineno - 1 : function.body[0].lineno - 1])


def found_in(path: Path) -> dict[str, int]:
    """The public names of a file with a loose type, and on which line each stands."""
    text = path.read_text()
    lines, file = text.split("\n"), path.relative_to(ROOT).as_posix()
    found: dict[str, int] = {}

    def visit(body: list[ast.stmt], trail: tuple[str, ...]) -> None:
        for each in body:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(each.name):
                types = () if each.name in TAKES_ANYTHING else tuple(types_of(each))
                if any(map(is_loose, types)) or silenced(lines, each):
                    found[f"{file}: {'.'.join((*trail, each.name))}"] = each.lineno
                if trail:  # what a method says of the object's own attributes
                    inside = [one for one in ast.walk(each) if isinstance(one, ast.AnnAssign)]
                    visit([one for one in inside if isinstance(one.target, ast.Attribute)], trail)
            elif isinstance(each, ast.ClassDef) and is_public(each.name):
                visit(each.body, (*trail, each.name))
            elif isinstance(each, ast.If):
                visit([*each.body, *each.orelse], trail)
            for name, loose in named(each):
                if loose and is_public(name):
                    found[f"{file}: {'.'.join((*trail, name))}"] = each.lineno

    visit(ast.parse(text).body, ())
    return found


def sources() -> list[Path]:
    every = sorted(ROOT.rglob("*.py"))
    return [path for path in every if not path.relative_to(ROOT).as_posix().startswith(LATER)]


def allowed(name: str) -> str | None:
    """The entry of the list that a name falls under, its own or that of its folder."""
    folder = name.partition(":")[0].rpartition("/")[0] + "/"
    return next((entry for entry in (name, folder) if entry in ALLOWED), None)


def unexplained(path: Path) -> list[str]:
    """The loose types of a file that are not allowed, or have no reason beside them."""
    wrong, lines = [], path.read_text().split("\n")
    for name, line in found_in(path).items():
        if not allowed(name):
            wrong.append(f"{name}, line {line}: say its type, or why there is none that is true.")
        elif name in ALLOWED and not any("# " in each for each in lines[line - 2 : line + 1]):
            wrong.append(f"{name}, line {line}: the reason must stand beside it.")
    return wrong


def test_public_signatures_say_what_they_take_and_give() -> None:
    wrong = [each for path in sources() for each in unexplained(path)]
    assert not wrong, "\n".join(wrong)


def test_everything_allowed_is_still_there() -> None:
    every = {allowed(name) for path in sources() for name in found_in(path)}
    assert set(ALLOWED) <= every, "remove from the list what is gone"
    assert len(ALLOWED) < 15


def test_a_loose_type_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "sample.py").write_text(
        "from typing import *\n"
        "Alias = Callable[[int], Any]\n"
        "Said: TypeAlias = 'list[Any]'\n"
        "plain: Literal['object'] = 'object'\n"
        "def give() -> dict[str, Any]: ...\n"
        "def take(*, one: object = None): ...\n"
        "def quiet():  # type: ignore\n"
        "    pass\n"
        "def fine(one: Annotated[str, Any]) -> 'int': ...\n"
        "def _own(one: Any): ...\n"
        "class Thing:\n"
        "    field: Any = None\n"
        "    def __init__(self, *more: Any): self.value: Any = more\n"
        "    def __eq__(self, other: object): ...\n"
        "class _Own:\n"
        "    field: Any = None\n"
    )
    names = [each.removeprefix("sample.py: ") for each in found_in(tmp_path / "sample.py")]
    assert names == ["Alias", "Said", "give", "take", "quiet", "Thing.field", "Thing.__init__", "Thing.value"]
