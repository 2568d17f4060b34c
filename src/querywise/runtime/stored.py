"""How a class declares what it stores: the type, the sizes and the range of every value.

A class that can be stored has an attribute `stored`, made by `contents`, with an entry for each value it learns (its
name ends in an underscore) and for each argument of its constructor whose range the signature does not tell. Entries of
the classes it extends count too. Sizes have names: the same name is the same number in an object, and a part of an
object passes on its sizes under the names that the object gives them. A value below a size, or that begins at its rows,
is declared after one that has this size. `_check_stored(known)` checks values together.

>>> class Centroids:
...     stored = contents(FITTED, balance=Number(least=0.0), centres_=floats("classes", "features"))
>>> sorted(declared(Centroids))
['adapter_', 'balance', 'centres_', 'feature_count_', 'feature_names_']
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from querywise.runtime.arrays import Floats, Singles

Size: TypeAlias = str | int  # a name, `name+1`, `name>0` (at least one), or the number itself
LARGEST = 2**63 - 1  # the largest whole number of any value


class WrongValueError(ValueError):
    """A value of a stored object that cannot be used; the message says which, and what was expected."""


class StoredObject(Protocol):
    """An object of any class that a folder can name."""


Value: TypeAlias = (
    "bool | int | float | str | NDArray[np.generic] | csr_array | tuple[Value, ...] | list[Value] | StoredObject | None"
)


@dataclass
class Known:
    """What is known of an object that is being read: its sizes, and whether it has learned anything.

    parts: what is known of the objects read before, by their identity.
    """

    kind: type
    parts: Mapping[int, Known]
    sizes: dict[str, int] = field(default_factory=dict)
    fitted: bool = True
    indices: dict[str, int] = field(default_factory=dict)  # the highest index into a size that is not known yet

    def tie(self, size: Size, found: int, where: str) -> None:
        """A size that was found; refused where it is another than was found before."""
        name, _, more = size.removesuffix(">0").partition("+") if isinstance(size, str) else ("", "", str(size))
        extra = int(more or 0)
        if size == f"{name}>0" and not found:
            raise WrongValueError(f"{where} has no {name}; expected at least one")
        expected = self.sizes.setdefault(name, found - extra) if name else 0
        if found != expected + extra:
            raise WrongValueError(f"{where} has {found} {name or 'entries'}; expected {expected + extra}")
        if name in self.indices:
            self.index(name, self.indices.pop(name), where)

    def index(self, size: str, place: int, where: str) -> None:
        """A number below a size; where that is not known yet, it is looked at once it is."""
        if size not in self.sizes:
            self.indices[size] = max(place, self.indices.get(size, 0))
        elif place >= self.sizes[size]:
            raise WrongValueError(f"{where} is {place}; expected a number below {self.sizes[size]}, that of {size}")

    def of(self, size: Size) -> int:
        """A size that is known."""
        if isinstance(size, str) and size not in self.sizes:
            raise WrongValueError(f"{self.kind.__name__}.stored declares no value of the size {size!r} before this one")
        return size if isinstance(size, int) else self.sizes[size]

    def size_of(self, part: StoredObject, size: str) -> int:
        """A size of a part."""
        return self.parts[id(part)].sizes[size]


class Check(Protocol):
    """Something that a value must be."""

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse a value that is something else; `where` names it."""


@dataclass(frozen=True)
class Table:
    """An array of one type, its axes of these sizes; floats are finite.

    least: no number is lower. above: all are higher. below: all are lower than this size.
    """

    type: type[np.generic]
    shape: tuple[Size, ...]
    least: float = -math.inf
    above: float = -math.inf
    below: Size | None = None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is no such array."""
        if not isinstance(value, np.ndarray) or value.dtype != self.type or value.ndim != len(self.shape):
            raise WrongValueError(
                f"{where} is {described(value)}; expected {self.type.__name__} with {len(self.shape)} axes"
            )
        for axis, size in enumerate(self.shape):
            known.tie(size, value.shape[axis], where)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise WrongValueError(f"{where} has a number that is not finite")
        if value.size and value.dtype.kind != "b":
            lowest, highest = value.min(), value.max()
            if lowest < self.least or lowest <= self.above:
                raise WrongValueError(f"{where} has {lowest}; expected numbers {self._from()}")
            if self.below is not None and highest >= known.of(self.below):
                raise WrongValueError(f"{where} has {highest}; expected numbers below {known.of(self.below)}")

    def _from(self) -> str:
        return f"from {self.least} up" if math.isfinite(self.least) else f"above {self.above}"


@dataclass(frozen=True)
class Starts:
    """Where each of several parts of a table begins, and where the last ends: from 0 up to all rows, never lower."""

    parts: str
    rows: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        Table(np.int64, (f"{self.parts}+1",)).check(value, where, known)
        assert isinstance(value, np.ndarray)
        if value[0] != 0 or value[-1] != known.of(self.rows) or np.any(np.diff(value) < 0):
            raise WrongValueError(f"{where}: expected numbers from 0 up to {known.of(self.rows)}, in ascending order")


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix of finite numbers from 0 up."""

    rows: str
    columns: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if not isinstance(value, csr_array):
            raise WrongValueError(f"{where} is {described(value)}; expected a sparse matrix")
        known.tie(self.rows, value.shape[0], where)
        known.tie(self.columns, value.shape[1], where)
        Table(np.float64, ("entries of " + where,), least=0.0).check(value.data, where, known)


@dataclass(frozen=True)
class Number:
    """A number within bounds, both included, or `above` the lower one. finite: infinity and NaN are none."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    finite: bool = True

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if not is_number(value):
            raise WrongValueError(f"{where} is {described(value)}; expected a number")
        assert isinstance(value, (int, float))
        if not math.isfinite(value):
            inside = not self.finite
        else:
            inside = self.least <= value <= self.most and value > self.above
        if not inside:
            low = f"from {self.least}" if math.isfinite(self.least) else f"above {self.above}"
            raise WrongValueError(f"{where} is {value}; expected a number {low} up to {self.most}")


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds, both included; the upper one may be a size.

    size: the size that it is. below: the size that it is an index of.
    """

    least: int = 0
    most: Size = LARGEST
    size: str | None = None
    below: str | None = None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        most = known.of(self.most)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= most:
            raise WrongValueError(f"{where} is {described(value)}; expected a whole number from {self.least} to {most}")
        if self.size is not None:
            known.tie(self.size, value, where)
        if self.below is not None:
            known.index(self.below, value, where)


@dataclass(frozen=True)
class Text:
    """A text; one of these, where there are any."""

    choices: tuple[str, ...] = ()

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if not isinstance(value, str) or (self.choices and value not in self.choices):
            expected = f"one of {', '.join(self.choices)}" if self.choices else "a text"
            raise WrongValueError(f"{where} is {described(value)}; expected {expected}")


@dataclass(frozen=True)
class Several:
    """A tuple or a list of values of one kind, so many as the size says."""

    each: Check
    size: Size

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        if not isinstance(value, (tuple, list)):
            raise WrongValueError(f"{where} is {described(value)}; expected a list")
        known.tie(self.size, len(value), where)
        for number, item in enumerate(value):
            self.each.check(item, f"{where}[{number}]", known)


@dataclass(frozen=True)
class Optional:
    """None, or a value that passes the check."""

    other: Check

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is neither."""
        if value is not None:
            self.other.check(value, where, known)


@dataclass(frozen=True)
class Absent:
    """A value that not every object of the class has."""

    other: Check

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse a value that is there and does not pass."""
        self.other.check(value, where, known)


@dataclass(frozen=True)
class Added:
    """An argument that folders of earlier versions do not have. earlier: the value that they stand for."""

    earlier: bool | int | float | str | None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse nothing: the signature tells what it must be."""


@dataclass(frozen=True)
class Part:
    """An object of a class, or of any class that keeps to a protocol.

    sizes: this object's name of each of its sizes; None: they are not looked at. fitted: whether it must have learned
    something.
    """

    role: type
    sizes: Mapping[str, Size] | None = field(default_factory=dict)
    fitted: bool = True

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what is none."""
        part = known.parts.get(id(value))
        if part is None or not plays(part.kind, self.role):
            raise WrongValueError(f"{where} is {described(value)}; expected a {self.role.__name__}")
        if self.fitted and not part.fitted:
            raise WrongValueError(f"{where} is a {part.kind.__name__} that has learned nothing")
        ties = {} if self.sizes is None else {"features": "features", **self.sizes}
        for name, size in ties.items():
            if name in part.sizes:
                known.tie(size, part.sizes[name], where)
            if name in part.indices and isinstance(size, str):
                known.index(size, part.indices[name], where)


@dataclass(frozen=True)
class AnyOf:
    """A value that passes one of several checks; `expected` says which values those are."""

    checks: tuple[Check, ...]
    expected: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Refuse what passes none."""
        for each in self.checks:
            try:
                each.check(value, where, known)
            except WrongValueError:
                continue
            return
        raise WrongValueError(f"{where} is {described(value)}; expected {self.expected}")


def is_number(value: Value) -> bool:
    """Whether it is a whole or a floating-point number, and not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def described(value: Value) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def contents(*more: Mapping[str, Check], **values: Check) -> Mapping[str, Check]:
    """What objects of a class hold: its own values by name, and those that other classes have too."""
    return {name: check for each in (*more, values) for name, check in each.items()}


def floats(*shape: Size, least: float = -math.inf, above: float = -math.inf) -> Table:
    """An array of floats."""
    return Table(np.float64, shape, least, above)


def ints(*shape: Size, below: Size | None = None) -> Table:
    """An array of whole numbers from 0 up."""
    return Table(np.int64, shape, least=0, below=below)


def bools(*shape: Size) -> Table:
    """An array of truth values."""
    return Table(np.bool_, shape)


def part(role: type, **sizes: Size) -> Part:
    """A fitted object, and this object's names of its sizes; its features are this object's unless they are named."""
    return Part(role, sizes)


COUNT = Whole(1, 2**31 - 1)
POSITIVE = Number(above=0.0)
SHARE = Number(least=0.0, most=1.0)
ANY_NUMBER = Number(finite=False)  # shown to people, and never computed with


class QueryAdapter(Protocol):
    """Whatever moves query vectors once it has been fitted, and can be stored: alone, or in a ranker found by them."""

    blocks: Sequence[int] | None
    queries_: Singles

    @property
    def adapts(self) -> bool:
        """Whether it moves queries at all."""
        ...

    def transform(self, query_vectors: Floats) -> Floats:
        """The vectors that engines are to be asked for."""
        ...

    def with_shares(self, query_vectors: Floats) -> Floats:
        """The same before they are moved, with the shares of several embedders."""
        ...

    def said(self) -> str:
        """What was learned, in a sentence or two."""
        ...


FITTED = contents(  # what every ranker learns
    feature_count_=Whole(0, 100_000, "features"),
    feature_names_=Optional(Several(Text(), "features")),
    adapter_=Absent(Part(QueryAdapter, sizes=None)),
)


@cache
def declared(kind: type) -> Mapping[str, Check]:
    """What a class declares that it stores, with what the classes it extends declare; empty for all other classes."""
    return contents(*(vars(each).get("stored", {}) for each in reversed(kind.__mro__)))


@cache
def plays(kind: type, role: type) -> bool:
    """Whether a class is the one asked for, or has what a protocol asks for.

    That is: its methods take what those of the protocol take, and the values it declares, or the arguments of its
    constructor, have the names of the protocol's.
    """
    if Protocol not in role.__bases__:
        return issubclass(kind, role)
    asked = [each for each in role.__mro__ if Protocol in each.__bases__]
    names = {name for each in asked for name in inspect.get_annotations(each)}
    methods = {name: method for each in reversed(asked) for name, method in vars(each).items() if name[0] != "_"}
    return names <= {*declared(kind), *inspect.signature(kind).parameters} and all(
        hasattr(kind, name) and (not inspect.isfunction(method) or _takes(getattr(kind, name), method))
        for name, method in methods.items()
    )


def _takes(own: Any, asked: Any) -> bool:
    """Whether a method can be called as another one is."""
    parameters = inspect.signature(asked).parameters.values()
    try:
        inspect.signature(own).bind(
            *(each for each in parameters if each.kind is not each.KEYWORD_ONLY),
            **{each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY},
        )
    except TypeError:
        return False
    return True


def require(holds: bool, message: str) -> None:
    """Refuse an object whose values do not fit together."""
    if not holds:
        raise WrongValueError(message)
