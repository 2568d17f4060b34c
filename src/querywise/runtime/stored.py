"""Declarations of what a class stores: the type, the sizes and the range of every value.

A class that can be stored has an attribute `stored`, made by `contents`, with an entry for each value that it learns
(its name ends in an underscore) and for each constructor argument whose range its type annotation does not give.
Entries of base classes count too. Sizes have names: the same name means the same number throughout an object, and a
nested object passes on its sizes under the names that the outer object gives them. A value whose check needs a size is
declared after a value that has this size. `_check_stored(known)` checks values together.

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
    """An invalid value in a stored object; the message says which one, and what was expected."""


class StoredObject(Protocol):
    """An object of any class that a model folder can name."""


Value: TypeAlias = (
    "bool | int | float | str | NDArray[np.generic] | csr_array | tuple[Value, ...] | list[Value] | StoredObject | None"
)


@dataclass
class Known:
    """The state of an object that is being read: its sizes, and whether it has learned anything.

    `parts` holds the state of the objects read before, by their identity.
    """

    kind: type
    parts: Mapping[int, Known]
    sizes: dict[str, int] = field(default_factory=dict)
    fitted: bool = True
    indices: dict[str, int] = field(default_factory=dict)  # the highest index into a size that is not yet known

    def tie(self, size: Size, found: int, where: str) -> None:
        """Record a size. Raise WrongValueError if it differs from an earlier one."""
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
        """Check that an index is below a size, at once or as soon as the size is known."""
        if size not in self.sizes:
            self.indices[size] = max(place, self.indices.get(size, 0))
        elif place >= self.sizes[size]:
            raise WrongValueError(f"{where} is {place}; expected a number below {self.sizes[size]}, that of {size}")

    def of(self, size: Size) -> int:
        """Return a known size."""
        if isinstance(size, str) and size not in self.sizes:
            raise WrongValueError(f"{self.kind.__name__}.stored declares no value of the size {size!r} before this one")
        return size if isinstance(size, int) else self.sizes[size]

    def size_of(self, part: StoredObject, size: str) -> int:
        """Return a size of a nested object."""
        return self.parts[id(part)].sizes[size]


class Check(Protocol):
    """A check for a value."""

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value passes; `where` names the value in the message."""


@dataclass(frozen=True)
class Table:
    """An array of one type with axes of these sizes; floats are finite.

    Attributes:
        least: the lowest number allowed.
        above: a bound that all numbers exceed.
        below: a size that all numbers are below.
    """

    type: type[np.generic]
    shape: tuple[Size, ...]
    least: float = -math.inf
    above: float = -math.inf
    below: Size | None = None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such an array."""
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
    """The start of each part of a table, and the end of the last part: ascending from 0 to the number of rows."""

    parts: str
    rows: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value holds such starts."""
        Table(np.int64, (f"{self.parts}+1",)).check(value, where, known)
        assert isinstance(value, np.ndarray)
        if value[0] != 0 or value[-1] != known.of(self.rows) or np.any(np.diff(value) < 0):
            raise WrongValueError(f"{where}: expected numbers from 0 up to {known.of(self.rows)}, in ascending order")


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix of finite, non-negative numbers."""

    rows: str
    columns: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such a matrix."""
        if not isinstance(value, csr_array):
            raise WrongValueError(f"{where} is {described(value)}; expected a sparse matrix")
        known.tie(self.rows, value.shape[0], where)
        known.tie(self.columns, value.shape[1], where)
        Table(np.float64, ("entries of " + where,), least=0.0).check(value.data, where, known)


@dataclass(frozen=True)
class Number:
    """A number within inclusive bounds, or greater than `above`; infinity and NaN are allowed only if not `finite`."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    finite: bool = True

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such a number."""
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
    """A whole number within inclusive bounds; the upper bound may be a size.

    `size` is the size that the number is; `below` is the size that it is an index into.
    """

    least: int = 0
    most: Size = LARGEST
    size: str | None = None
    below: str | None = None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such a number."""
        most = known.of(self.most)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= most:
            raise WrongValueError(f"{where} is {described(value)}; expected a whole number from {self.least} to {most}")
        if self.size is not None:
            known.tie(self.size, value, where)
        if self.below is not None:
            known.index(self.below, value, where)


@dataclass(frozen=True)
class Text:
    """A text, or one of the choices if there are any."""

    choices: tuple[str, ...] = ()

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such a text."""
        if not isinstance(value, str) or (self.choices and value not in self.choices):
            expected = f"one of {', '.join(self.choices)}" if self.choices else "a text"
            raise WrongValueError(f"{where} is {described(value)}; expected {expected}")


@dataclass(frozen=True)
class Several:
    """A tuple or a list of values of one kind, as many as the size says."""

    each: Check
    size: Size

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such a sequence."""
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
        """Raise WrongValueError unless the value is None or passes."""
        if value is not None:
            self.other.check(value, where, known)


@dataclass(frozen=True)
class Absent:
    """A value that some objects of the class lack."""

    other: Check

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError if the value is present and invalid."""
        self.other.check(value, where, known)


@dataclass(frozen=True)
class Added:
    """An argument that folders of earlier versions lack; `earlier` is the value to use for them."""

    earlier: bool | int | float | str | None

    def check(self, value: Value, where: str, known: Known) -> None:
        """Accept every value: its type annotation is checked elsewhere."""


@dataclass(frozen=True)
class Part:
    """An object of a class, or of any class that implements a protocol.

    `sizes` maps each of its sizes to this object's name for it; None ignores them. `fitted` requires it to be fitted.
    """

    role: type
    sizes: Mapping[str, Size] | None = field(default_factory=dict)
    fitted: bool = True

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is such an object."""
        part = known.parts.get(id(value))
        if part is None or not plays(part.kind, self.role):
            raise WrongValueError(f"{where} is {described(value)}; expected a {self.role.__name__}")
        if self.fitted and not part.fitted:
            raise WrongValueError(f"{where} is a {part.kind.__name__} that is not fitted")
        ties = {} if self.sizes is None else {"features": "features", **self.sizes}
        for name, size in ties.items():
            if name in part.sizes:
                known.tie(size, part.sizes[name], where)
            if name in part.indices and isinstance(size, str):
                known.index(size, part.indices[name], where)


@dataclass(frozen=True)
class AnyOf:
    """A value that passes one of several checks; `expected` describes valid values."""

    checks: tuple[Check, ...]
    expected: str

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value passes one of the checks."""
        for each in self.checks:
            try:
                each.check(value, where, known)
            except WrongValueError:
                continue
            return
        raise WrongValueError(f"{where} is {described(value)}; expected {self.expected}")


def is_number(value: Value) -> bool:
    """Return whether a value is a whole or floating-point number, and not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def described(value: Value) -> str:
    """Return a short description of a value."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:60]
    return f"a {type(value).__name__}"


def contents(*more: Mapping[str, Check], **values: Check) -> Mapping[str, Check]:
    """Return the declared values of a class: its own by name, and those shared with other classes."""
    return {name: check for each in (*more, values) for name, check in each.items()}


def floats(*shape: Size, least: float = -math.inf, above: float = -math.inf) -> Table:
    """Declare an array of floats."""
    return Table(np.float64, shape, least, above)


def ints(*shape: Size, below: Size | None = None) -> Table:
    """Declare an array of non-negative whole numbers."""
    return Table(np.int64, shape, least=0, below=below)


def bools(*shape: Size) -> Table:
    """Declare an array of booleans."""
    return Table(np.bool_, shape)


def part(role: type, **sizes: Size) -> Part:
    """Declare a fitted object and this object's names for its sizes; by default both have the same features."""
    return Part(role, sizes)


COUNT = Whole(1, 2**31 - 1)
POSITIVE = Number(above=0.0)
SHARE = Number(least=0.0, most=1.0)
ANY_NUMBER = Number(finite=False)  # shown to users, never computed with


class QueryAdapter(Protocol):
    """Anything that transforms query vectors once fitted, and can be saved on its own or in a ranker."""

    blocks: Sequence[int] | None
    queries_: Singles

    @property
    def adapts(self) -> bool:
        """Whether it changes queries at all."""
        ...

    def transform(self, query_vectors: Floats) -> Floats:
        """Return the vectors to search engines with."""
        ...

    def with_shares(self, query_vectors: Floats) -> Floats:
        """Return the untransformed vectors, weighted by the shares of several embedders."""
        ...

    def said(self) -> str:
        """Return a sentence or two on what was learned."""
        ...


FITTED = contents(  # values that every ranker learns
    feature_count_=Whole(0, 100_000, "features"),
    feature_names_=Optional(Several(Text(), "features")),
    adapter_=Absent(Part(QueryAdapter, sizes=None)),
)


@cache
def declared(kind: type) -> Mapping[str, Check]:
    """Return what a class and its base classes declare to store; empty for all other classes."""
    return contents(*(vars(each).get("stored", {}) for each in reversed(kind.__mro__)))


@cache
def plays(kind: type, role: type) -> bool:
    """Return whether a class is the given one, or implements the given protocol.

    A class implements a protocol if its methods accept the arguments of the protocol's, and if its declared values or
    constructor arguments include the protocol's attributes.
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
    """Return whether a method can be called like another one."""
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
    """Raise WrongValueError with this message unless the condition holds."""
    if not holds:
        raise WrongValueError(message)
