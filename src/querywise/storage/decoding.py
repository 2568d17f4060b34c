"""JSON and arrays → fitted objects. Reading makes objects of the known classes alone, and executes nothing else.

Whatever a manifest holds, it becomes an object whose values are all what its class declares, or is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.protocols import Ranker
from querywise.errors import DataError, ModelFileError
from querywise.runtime.arrays import Arrays
from querywise.runtime.stored import LARGEST, Absent, Added, Known, WrongValueError, declared, plays
from querywise.runtime.values import Json
from querywise.storage.arguments import argument_checks
from querywise.storage.classes import FORMER, class_named, name_of
from querywise.storage.encoding import is_learned

_DEEPEST = 60  # objects and lists inside each other
_FEW, _TIMES = 10_000, 32  # objects, each counted wherever it is used: a few, and so many for each that is written
_ENTRIES = ("$class", "number", "parameters", "learned")


def decode(value: Json, arrays: Arrays) -> Ranker:
    """The ranker that was encoded."""
    reader = _Reader(arrays)
    try:
        found = reader.decode(value, 0)
        known = reader.known.get(id(found))
    finally:
        reader.known.clear()  # each of them refers to all
    if known is None or not plays(known.kind, Ranker) or not known.fitted:
        raise WrongValueError("it is not a fitted ranker")
    fitted: Ranker = found
    return fitted


class _Reader:
    """The inverse of the writer. Only classes that may be saved are made, only their own values are set."""

    def __init__(self, arrays: Arrays) -> None:
        self.known: dict[int, Known] = {}  # of every object made, by identity
        self._arrays = arrays
        self._made: dict[int, Any] = {}  # by number; they also keep their identity
        self._uses: dict[int, int] = {}  # how many objects each is, those inside it counted
        self._used = self._written = 0

    def decode(self, value: Any, depth: int) -> Any:
        """The value that was encoded."""
        if depth > _DEEPEST:
            raise WrongValueError(f"values are nested more than {_DEEPEST} deep")
        if isinstance(value, dict):
            return self._object(value, depth) if len(value) != 1 else self._marked(*value.items(), depth=depth)
        if isinstance(value, list):
            raise WrongValueError("there is a list that does not say what it is")
        if isinstance(value, float) and not math.isfinite(value):
            raise WrongValueError(f"there is a number {value}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise WrongValueError(f"there is a whole number above {LARGEST}")
        return value

    def _marked(self, item: tuple[str, Any], *, depth: int) -> Any:
        """A value under a mark that says how it is written."""
        match item:
            case ("$array", str(key)) if key in self._arrays:
                return self._arrays[key]
            case ("$text", str(key)) if key in self._arrays:
                return _text(self._arrays[key], key)
            case ("$float", "nan" | "inf" | "-inf" as number):
                return float(number)
            case ("$tuple", list(items)):
                return tuple(self.decode(each, depth + 1) for each in items)
            case ("$list", list(items)):
                return [self.decode(each, depth + 1) for each in items]
            case ("$csr", [data, indices, pointers, shape]):
                return _sparse(*(self.decode(part, depth + 1) for part in (data, indices, pointers, shape)))
            case ("$same", int(number)) if number in self._made:
                self._count(self._uses[number])
                return self._made[number]
        raise WrongValueError(f"{item[0]!r} with {str(item[1])[:60]!r} is not understood")

    def _count(self, uses: int) -> None:
        """Count objects where they are used: a few that hold each other could be used more often than there is time."""
        self._written += 1
        self._used += uses
        if self._used > _FEW + _TIMES * self._written:
            raise WrongValueError("the same objects are used too often")

    def _object(self, value: dict[str, Any], depth: int) -> Any:
        kind = class_named(value.get("$class"))
        name, before = kind.__name__, self._used
        self._count(1)
        if not all(isinstance(value.get(each), dict) for each in ("parameters", "learned")):
            raise WrongValueError(f"the {name} has no parameters, or nothing learned")
        signature, values = argument_checks(kind), declared(kind)
        earlier = {each: check.earlier for each, check in values.items() if isinstance(check, Added)}
        given = {**earlier, **value["parameters"]}
        whole = name_of(kind)
        learned = {FORMER.get(f"{whole}.{each}", each): item for each, item in value["learned"].items()}
        if {*given} != {*signature} or not {*learned} <= {*values} or not all(map(is_learned, learned)):
            raise ModelFileError(f"The manifest's {name} has other parameters than this version's.")
        number = value.get("number")
        if {*value} != {*_ENTRIES} or isinstance(number, bool) or not isinstance(number, int) or number in self._made:
            raise WrongValueError(f"the {name} has no number of its own, or more than is known")
        known = Known(kind, self.known)
        arguments = {each: self.decode(item, depth + 1) for each, item in given.items()}
        for each, check in signature.items():
            check.check(arguments[each], f"{name}.{each}", known)
            if each in values:
                values[each].check(arguments[each], f"{name}.{each}", known)
        made = kind(**arguments)
        decoded = {each: self.decode(item, depth + 1) for each, item in learned.items()}
        try:
            self._learn(made, decoded, known)
        except DataError as error:
            raise WrongValueError(f"{name}: {error}") from None
        # Last: an object that was inside itself would have no end.
        self._made[number], self._uses[number], self.known[id(made)] = made, self._used - before, known
        return made

    def _learn(self, made: Any, learned: dict[str, Any], known: Known) -> None:
        """Set what an object has learned: nothing, or all of it."""
        name = known.kind.__name__
        values = {each: check for each, check in declared(known.kind).items() if is_learned(each)}
        known.fitted = bool(learned) or not values
        if not known.fitted:
            return
        for each, check in values.items():
            if each in learned:
                check.check(learned[each], f"{name}.{each}", known)
                setattr(made, each, learned[each])
            elif not isinstance(check, Absent):
                raise WrongValueError(f"{name}.{each} is missing")
        if hasattr(made, "_check_stored"):
            made._check_stored(known)


def _text(array: Any, key: str) -> str:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise WrongValueError(f"the text {key} is {array.dtype} of shape {array.shape}; expected bytes")
    text: str = array.tobytes().decode(errors="surrogatepass")
    return text


def _sparse(data: Any, indices: Any, pointers: Any, shape: Any) -> csr_array:
    """A sparse matrix whose every number has its row and its column."""
    parts = (data, indices, pointers, shape)
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in parts):
        raise WrongValueError("a sparse matrix is not made of rows of numbers")
    if any(each.dtype not in (np.int32, np.int64) for each in parts[1:]) or len(shape) != 2 or shape.min() < 0:
        raise WrongValueError("a sparse matrix has places that are not whole numbers")
    if len(pointers) - 1 != shape[0] or pointers[0] != 0 or np.any(np.diff(pointers) < 0):
        raise WrongValueError("the rows of a sparse matrix do not follow each other")
    if not pointers[-1] == len(indices) == len(data):
        raise WrongValueError("a sparse matrix has another number of entries than it says")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise WrongValueError("a sparse matrix has an entry in a column that it does not have")
    return csr_array((data, indices, pointers), shape=tuple(shape.tolist()))
