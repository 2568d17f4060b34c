"""The mutants of a source text: one operator, sign, bound or choice changed in each.

A mutant's name says in which function it is, what is changed, and which of its kind in that function; not where the
function is. So it is the same mutant when files or lines move.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

_OPERATORS: dict[type[ast.AST], tuple[str, str, type[ast.AST]]] = {
    ast.Add: ("+", "-", ast.Sub),
    ast.Sub: ("-", "+", ast.Add),
    ast.Mult: ("*", "/", ast.Div),
    ast.Div: ("/", "*", ast.Mult),
    ast.Lt: ("<", "<=", ast.LtE),
    ast.LtE: ("<=", "<", ast.Lt),
    ast.Gt: (">", ">=", ast.GtE),
    ast.GtE: (">=", ">", ast.Gt),
    ast.Eq: ("==", "!=", ast.NotEq),
    ast.NotEq: ("!=", "==", ast.Eq),
    ast.Is: ("is", "is not", ast.IsNot),
    ast.IsNot: ("is not", "is", ast.Is),
    ast.In: ("in", "not in", ast.NotIn),
    ast.NotIn: ("not in", "in", ast.In),
    ast.And: ("and", "or", ast.Or),
    ast.Or: ("or", "and", ast.And),
}
_OTHER_END = {"min": "max", "argmin": "argmax", "minimum": "maximum"}
_OTHER_END |= {other: name for name, other in _OTHER_END.items()}
_COUNTING = ("range", "arange")
_NO_MATHEMATICS = ("annotation", "returns", "type_params", "decorator_list")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TRANSPARENT = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.Slice, ast.IfExp)  # a bound inside one is still a bound


class Place(NamedTuple):
    """One change in a function's statement: `field` of `owner`, or a part of it, becomes `new`."""

    scope: str
    statement: ast.stmt
    kind: str
    line: int
    owner: ast.AST
    field: str
    part: int | None
    new: Any


@dataclass(frozen=True)
class Mutant:
    """A change, its name that lasts, and the whole file with it."""

    identity: str
    module: str
    file: str
    line: int
    before: str
    after: str
    text: str


def places(node: ast.AST, scope: str = "", statement: ast.stmt | None = None, bound: bool = False) -> Iterator[Place]:
    """Every change there is below a node, in the order of the source; `bound`: whether a number there is one."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert)) or _is_for_types(node):
        return
    inner = f"{scope}.{node.name}".lstrip(".") if isinstance(node, _SCOPES) else scope
    around = node if isinstance(node, ast.stmt) else statement
    if around is not None:
        yield from (Place(inner or "(module)", around, *change) for change in _changes(node, bound))
    for field, value in ast.iter_fields(node):
        if field not in _NO_MATHEMATICS:
            inside = _holds_bounds(node, field) or (bound and isinstance(node, _TRANSPARENT))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from places(child, inner, around, inside)


def _changes(node: ast.AST, bound: bool) -> Iterator[tuple[str, int, ast.AST, str, int | None, Any]]:
    """What can be changed at one node itself."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _OPERATORS:
        old, new, kind = _OPERATORS[type(node.op)]
        yield f"{old} to {new}", node.lineno, node, "op", None, kind()
    elif isinstance(node, ast.Compare):
        for part, operator in enumerate(node.ops):
            old, new, kind = _OPERATORS[type(operator)]
            yield f"{old} to {new}", node.lineno, node, "ops", part, kind()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "no minus", node.lineno, node, "op", None, ast.UAdd()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "no not", node.lineno, node, "operand", None, ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Call) and _name(node.func) in _OTHER_END:
        old, new = _name(node.func), _OTHER_END[_name(node.func)]
        yield f"{old} to {new}", node.lineno, node.func, "id" if isinstance(node.func, ast.Name) else "attr", None, new
    elif bound and isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            yield f"bound {step:+d}", node.lineno, node, "value", None, node.value + step


def _holds_bounds(node: ast.AST, field: str) -> bool:
    if isinstance(node, ast.Call):
        return field == "args" and _name(node.func) in _COUNTING
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Subscript) and field == "slice")


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def mutants(module: str, sources: dict[str, str]) -> list[Mutant]:
    """All mutants of a module's files, in the order of the source."""
    found: list[Mutant] = []
    counts: Counter[tuple[str, str]] = Counter()
    for file, text in sources.items():
        tree = ast.parse(text)
        for place in places(tree):
            counts[place.scope, place.kind] += 1
            identity = f"{module}:{place.scope}:{place.kind}:{counts[place.scope, place.kind]}"
            before = _line(place.statement)
            with _changed(place):
                after, whole = _line(place.statement), ast.unparse(tree)
            found.append(Mutant(identity, module, file, place.line, before, after, whole))
    return found


def _line(statement: ast.stmt) -> str:
    return ast.unparse(statement).partition("\n")[0]


@contextlib.contextmanager
def _changed(place: Place) -> Iterator[None]:
    old = getattr(place.owner, place.field)
    new = place.new if place.part is None else [*old[: place.part], place.new, *old[place.part + 1 :]]
    setattr(place.owner, place.field, new)
    yield
    setattr(place.owner, place.field, old)
