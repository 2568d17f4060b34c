"""Fitted objects ↔ JSON and arrays. Reading constructs objects of known classes only, and executes nothing else.

Whatever a manifest contains, either every value has the type that its class declares and every argument the type in the
constructor's signature, or WrongValueError is raised. A class is named by its module and its own name within the
package, such as `rankers.knn.KnnOnline`; names that have changed since are known too.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.protocols import MadeReady, QueryAdapter, Ranker
from querywise.errors import DataError, ModelFileError
from querywise.runtime.arrays import Arrays
from querywise.runtime.parameters import Package, parameters_of
from querywise.runtime.stored import (
    LARGEST,
    Absent,
    Added,
    AnyOf,
    Check,
    Known,
    Part,
    Text,
    Value,
    WrongValueError,
    declared,
    described,
    is_number,
    plays,
)
from querywise.runtime.values import Json

_LONG_TEXT = 1_000

_DEEPEST = 60  # nesting depth of objects and lists
_FEW, _TIMES = 10_000, 32  # limit on uses of objects: a base number, and so many for each object written
_ENTRIES = ("$class", "number", "parameters", "learned")

_SAID = {NoneType: "none", bool: "true or false", int: "a whole number", float: "a number"}


def encode(model: Ranker | QueryAdapter) -> tuple[Json, Arrays]:
    """Return a ranker or an adapter as JSON, and the arrays that the JSON names."""
    writer = _Writer()
    return writer.encode(model, "ranker"), writer.arrays


class _Writer:
    """Encodes values as JSON; arrays and long texts are replaced by their key, repeated objects by their number."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, key: str) -> Any:
        """Return a value as JSON; its arrays are stored under this key."""
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.generic):
            return self.encode(value.item(), key)
        if isinstance(value, str):
            if len(value) < _LONG_TEXT:
                return value
            # A lone surrogate, which JSON may have let into a query, must not prevent saving a model.
            return self._kept("$text", key, np.frombuffer(value.encode(errors="surrogatepass"), np.uint8))
        if isinstance(value, np.ndarray):
            return self._kept("$array", key, np.ascontiguousarray(value))
        if isinstance(value, csr_array):
            parts = (value.data, value.indices, value.indptr, np.array(value.shape))
            return {"$csr": [self.encode(part, f"{key}.{i}") for i, part in enumerate(parts)]}
        if isinstance(value, (tuple, list)):
            kind = type(value).__name__
            return {"$" + kind: [self.encode(item, f"{key}.{i}") for i, item in enumerate(value)]}
        return self._object(value, key)

    def _kept(self, mark: str, key: str, array: np.ndarray[Any, Any]) -> dict[str, str]:
        self.arrays[key] = array
        return {mark: key}

    def _object(self, value: Any, key: str) -> Any:
        if id(value) in self._numbers:
            return {"$same": self._numbers[id(value)]}
        kind: type = type(value)
        name = checked_name(kind, key)
        number = self._numbers[id(value)] = len(self._numbers)
        learned = {each: item for each, item in vars(value).items() if is_learned(each)}
        if unknown := sorted({*learned} - {*declared(kind)}):
            raise DataError(f"A {kind.__name__} cannot be saved: its `stored` has no {', '.join(unknown)}.")
        return {
            "$class": name,
            "number": number,
            "parameters": {each: self.encode(item, f"{key}.{each}") for each, item in parameters_of(value).items()},
            "learned": {each: self.encode(item, f"{key}.{each}") for each, item in learned.items()},
        }


def checked_name(kind: type, where: str) -> str:
    """Return the name of a class in model folders. Raise DataError if they cannot name it."""
    name = name_of(kind)
    if name is None:
        raise DataError(
            f"A {kind.__name__} cannot be saved ({where} is one): a model folder names classes of querywise "
            "alone, so that loading one executes no other code."
        )
    return name


def is_learned(name: str) -> bool:
    """Return whether a name is that of a learned value."""
    return name.endswith("_") and not name.startswith("_")


def ranks(kind: type) -> bool:
    """Return whether instances of a class are rankers."""
    return plays(kind, Ranker)


def stands_alone(kind: type) -> bool:
    """Return whether instances of a class are saved in folders of their own; all others are parts of such objects."""
    return ranks(kind) or plays(kind, QueryAdapter)


def decode(value: Json, arrays: Arrays) -> Ranker | QueryAdapter:
    """Return the ranker or the adapter that was encoded."""
    reader = _Reader(arrays)
    try:
        found: Ranker | QueryAdapter = reader.decode(value, 0)
        known = reader.known.get(id(found))
    finally:
        reader.known.clear()  # break the reference cycles between them
    if known is None or not stands_alone(known.kind) or not known.fitted:
        raise WrongValueError("it is not a fitted ranker")
    return found


class _Reader:
    """The inverse of the writer. It constructs only classes that may be saved and sets only their declared values."""

    def __init__(self, arrays: Arrays) -> None:
        self.known: dict[int, Known] = {}  # every object constructed, by identity
        self._arrays = arrays
        self._made: dict[int, Any] = {}  # by number; this also keeps their ids valid
        self._uses: dict[int, int] = {}  # number of objects in each, counting nested ones
        self._used = self._written = 0

    def decode(self, value: Any, depth: int) -> Any:
        """Return the value that was encoded."""
        if depth > _DEEPEST:
            raise WrongValueError(f"values are nested more than {_DEEPEST} deep")
        if isinstance(value, dict):
            return self._object(value, depth) if len(value) != 1 else self._marked(*value.items(), depth=depth)
        if isinstance(value, list):
            raise WrongValueError("a list does not state its type")
        if isinstance(value, float) and not math.isfinite(value):
            raise WrongValueError(f"there is a number {value}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise WrongValueError(f"there is a whole number above {LARGEST}")
        return value

    def _marked(self, item: tuple[str, Any], *, depth: int) -> Any:
        """Return a value whose marker says how it is encoded."""
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
        raise WrongValueError(f"{item[0]!r} with {str(item[1])[:60]!r} is not recognized")

    def _count(self, uses: int) -> None:
        """Count the uses of objects: a few that contain each other could otherwise take exponential time."""
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
            raise WrongValueError(f"the {name} has no valid number")
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
        # Register the object last: one that contained itself would never end.
        self._made[number], self._uses[number], self.known[id(made)] = made, self._used - before, known
        return made

    def _learn(self, made: Any, learned: dict[str, Any], known: Known) -> None:
        """Set either none or all of an object's learned values."""
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
        if isinstance(made, MadeReady):
            made.make_ready()


def _text(array: Any, key: str) -> str:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise WrongValueError(f"the text {key} is {array.dtype} of shape {array.shape}; expected bytes")
    text: str = array.tobytes().decode(errors="surrogatepass")
    return text


def _sparse(data: Any, indices: Any, pointers: Any, shape: Any) -> csr_array:
    """Return a sparse matrix, after checking that every entry has a valid row and column."""
    parts = (data, indices, pointers, shape)
    if not all(isinstance(each, np.ndarray) and each.ndim == 1 for each in parts):
        raise WrongValueError("a sparse matrix is not made of rows of numbers")
    if any(each.dtype not in (np.int32, np.int64) for each in parts[1:]) or len(shape) != 2 or shape.min() < 0:
        raise WrongValueError("a sparse matrix has indices that are not whole numbers")
    if len(pointers) - 1 != shape[0] or pointers[0] != 0 or np.any(np.diff(pointers) < 0):
        raise WrongValueError("the rows of a sparse matrix do not follow each other")
    if not pointers[-1] == len(indices) == len(data):
        raise WrongValueError("a sparse matrix's stated number of entries is wrong")
    if len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]:
        raise WrongValueError("a sparse matrix has an entry in a column that it does not have")
    return csr_array((data, indices, pointers), shape=tuple(shape.tolist()))


@cache
def argument_checks(kind: type) -> dict[str, Check]:
    """Return the type check for each argument of a class's constructor."""
    hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    names = [name for name in inspect.signature(kind).parameters if name != "self"]
    return {name: _check_for(hints[name]) for name in names}


@dataclass(frozen=True)
class _Plain:
    """A plain value of one type. A whole number may be written as 5.0, and a boolean as 0 or 1."""

    type: type

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value has this type."""
        if self.type is NoneType:
            fits = value is None
        elif self.type is bool:
            fits = isinstance(value, (bool, int)) and value in (0, 1)
        else:
            fits = is_number(value) and isinstance(value, (int, float)) and not math.isnan(value)
            if fits and self.type is int:
                fits = math.isfinite(value) and value == int(value)  # type: ignore[arg-type]
        if not fits:
            raise WrongValueError(f"{where} is {described(value)}; expected {_SAID[self.type]}")


@dataclass(frozen=True)
class _Sequence:
    """A tuple or a list of values of one type, or a one-dimensional array of numbers."""

    each: Check

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless every item is valid."""
        if isinstance(value, str):  # a single name stands for a list of one
            value = [value]
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if not isinstance(value, (tuple, list)):
            raise WrongValueError(f"{where} is {described(value)}; expected a list")
        for number, item in enumerate(value):
            self.each.check(item, f"{where}[{number}]", known)


class _Array:
    """An array of any type; the class declares the details."""

    def check(self, value: Value, where: str, known: Known) -> None:
        """Raise WrongValueError unless the value is an array."""
        if not isinstance(value, np.ndarray):
            raise WrongValueError(f"{where} is {described(value)}; expected an array")


def _check_for(hint: Any) -> Check:
    if get_origin(hint) in (Union, UnionType):
        every = tuple(map(_check_for, get_args(hint)))
        return AnyOf(every, " or ".join(map(_in_words, get_args(hint))))
    if get_origin(hint) is Literal:
        return Text(get_args(hint))
    if get_origin(hint) is Sequence:
        return _Sequence(_check_for(get_args(hint)[0]))
    if get_origin(hint) is np.ndarray:
        return _Array()
    if hint is str:
        return Text()
    if hint in _SAID:
        return _Plain(hint)
    return Part(hint, None, fitted=False)


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    return _SAID.get(hint, f"a {getattr(hint, '__name__', 'list')}")


_PACKAGE = "querywise"
# The only modules that a folder can cause to be imported: those with classes that can be stored.
_NAME = re.compile(
    r"((?:learners|locality|rankers)(?:\.[a-z]\w{,50}){1,4}|runtime\.scaling|retrieval\.adapted_vectors)\.([A-Z]\w{,50})",
    re.ASCII,
)

# Classes that folders written up to version 0.2 name without their module. This list is frozen.
_BARE = """
    learners.classic.adarank.AdaRank learners.classic.hyperplanes.MultipleHyperplanes learners.classic.listnet.ListNet
    learners.classic.rankboost.RankBoost learners.linear.LinearModels learners.local_models.FittedModels
    learners.local_models.PreparedRows learners.ranksvm.local_models.PreparedRankSVM learners.ranksvm.ranksvm.RankSVM
    learners.regression.kernel.KernelRidge learners.trees.boosting.LambdaMART learners.trees.boosting.TreeRegression
    learners.trees.context.QueryContext locality.combinations.SimilarQueries locality.groupings.Clusters
    locality.groupings.RelevantClusters locality.neighborhoods.Everyone locality.neighborhoods.Nearest
    locality.neighborhoods.Radius locality.views.columns.Columns locality.views.columns.SideBySide
    locality.views.divergence.Divergence locality.views.gradients.GradientView locality.views.metric.LearnedMetric
    locality.views.signals.RunSignals locality.views.signals.SignalView locality.views.text.NGrams
    locality.views.text.TextView locality.views.topmean.TopMean locality.views.twomodels.TwoModels
    locality.views.vector.VectorView rankers.atvt.ATVT rankers.blend.Blend rankers.classes.QueryClasses
    rankers.clusters.Naive rankers.clusters.SelectRanker rankers.clusters.Transform rankers.column.OneFeature
    rankers.ensemble.ensemble.SER rankers.ensemble.ensemble.SSER rankers.groups.GroupModels rankers.knn.KnnOffline1
    rankers.knn.KnnOffline2 rankers.knn.KnnOnline rankers.missing.MissingValues rankers.nearby.NearbyBlend
    rankers.neighbors.Locality rankers.normalised.QueryNormalised rankers.offline_models.OfflineModels
    rankers.single.Single rankers.voting.Borda rankers.voting.CombMNZ rankers.voting.CombSUM
    rankers.voting.ReciprocalRank rankers.weights.by_query.WeightsByQuery rankers.weights.confidence.Confidence
    rankers.weights.forest.ForestWeights rankers.weights.from_signals.SignalWeights rankers.weights.fusion.EqualWeights
    rankers.weights.fusion.Weights rankers.weights.neighbours.NeighbourWeights rankers.weights.on_runs.OnRuns
    runtime.scaling.Scaling
"""
# Modules whose classes have moved, and where to.
_MOVED = {
    "learners.regression.kernel": "learners.regression",
    "locality.views.gradients": "locality.views.learned",
    "locality.views.metric": "locality.views.learned",
    "locality.views.signals": "locality.views.columns",
    "locality.views.twomodels": "locality.views.topmean",
    "locality.views.vector": "locality.views.columns",
    "rankers.classes": "rankers.clusters",
    "rankers.column": "rankers.single",
    "rankers.groups": "rankers.clusters",
    "rankers.missing": "rankers.wrappers",
    "rankers.nearby": "rankers.blend",
    "rankers.normalised": "rankers.wrappers",
    "rankers.offline_models": "rankers.knn",
    "rankers.voting": "rankers.weights.fusion",
    "rankers.weights.confidence": "rankers.weights.fusion",
    "rankers.weights.forest": "rankers.weights.by_query",
    "rankers.weights.from_signals": "rankers.weights.by_query",
    "rankers.weights.neighbours": "rankers.weights.by_query",
    "rankers.weights.on_runs": "rankers.wrappers",
}
# Names in folders that have changed since: classes, and learned values (class.name_).
FORMER = {name.rpartition(".")[2]: name for name in _BARE.split()}
# Classes that no longer exist, and why.
REMOVED = {
    "Routed": "it was no better than the blend it was made of. Fit the method blend instead.",
    **dict.fromkeys(("LinearGains", "NearbyGains"), "it was a part of Routed, which was no better than its blend."),
}


def name_of(kind: type) -> str | None:
    """Return the name of a class in model folders, or None if no folder can name it."""
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{_PACKAGE}.")
    return name if _class(name) is kind else None


def current(name: str) -> str:
    """Return the current name for a name in a folder."""
    module, dot, kind = FORMER.get(name, name).rpartition(".")
    return f"{_MOVED.get(module, module)}{dot}{kind}"


def class_named(name: Json) -> type:
    """Return the class with this name, current or former; only the module that the name contains is imported."""
    if not isinstance(name, str):
        raise WrongValueError("an object does not say its class")
    if name in REMOVED:
        raise ModelFileError(f"The model is a {name}, which was removed: {REMOVED[name]}")
    kind = _class(current(name))
    if kind is None:
        raise ModelFileError(
            f"The model is a {name[:100]!r}, which this version does not know. Use the querywise version that wrote "
            "it, or fit "
            "the model anew."
        )
    package: Package | None = getattr(kind, "package", None)
    if package is not None and (problem := package.missing(f"The model is a {kind.__name__}, which")):
        raise ModelFileError(problem)
    return kind


def _class(name: str) -> type | None:
    """Return the class with this name, or None if the name is malformed or unknown."""
    found = _NAME.fullmatch(name)
    return None if found is None else _defined(f"{_PACKAGE}.{found[1]}", found[2])


@lru_cache(256)
def _defined(module: str, name: str) -> type | None:
    """Return the class with this name that the module itself defines, if it declares what it stores."""
    try:
        kind = vars(importlib.import_module(module)).get(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(f"{_PACKAGE}."):
            return None
        raise
    return kind if isinstance(kind, type) and kind.__module__ == module and declared(kind) else None
