"""Fitted objects → JSON and arrays; `decoding` is the way back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from querywise.contracts.protocols import Ranker
from querywise.errors import DataError
from querywise.runtime.arrays import Arrays
from querywise.runtime.parameters import parameters_of
from querywise.runtime.stored import declared
from querywise.runtime.values import Json
from querywise.storage.classes import name_of

_LONG_TEXT = 1_000


def encode(ranker: Ranker) -> tuple[Json, Arrays]:
    """A ranker as JSON, and the arrays that it names."""
    writer = _Writer()
    return writer.encode(ranker, "ranker"), writer.arrays


def check_savable(ranker: Ranker) -> None:
    """Refuse an object of a class that a model folder cannot name."""
    _checked_name(ranker, "the ranker")


class _Writer:
    """Values as JSON; arrays and long texts become their key, an object seen before its number."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, key: str) -> Any:
        """A value as JSON; its arrays are kept under this key."""
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.generic):
            return self.encode(value.item(), key)
        if isinstance(value, str):
            if len(value) < _LONG_TEXT:
                return value
            # Half a surrogate pair, which JSON may have let into a query, is no reason not to save a model.
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
        name = _checked_name(value, key)
        number = self._numbers[id(value)] = len(self._numbers)
        learned = {each: item for each, item in vars(value).items() if is_learned(each)}
        kind: type = type(value)
        if unknown := sorted({*learned} - {*declared(kind)}):
            raise DataError(f"A {kind.__name__} cannot be saved: its `stored` has no {', '.join(unknown)}.")
        return {
            "$class": name,
            "number": number,
            "parameters": {each: self.encode(item, f"{key}.{each}") for each, item in parameters_of(value).items()},
            "learned": {each: self.encode(item, f"{key}.{each}") for each, item in learned.items()},
        }


def _checked_name(value: object, where: str) -> str:
    name = name_of(type(value))
    if name is None:
        raise DataError(
            f"A {type(value).__name__} cannot be saved ({where} is one): a model folder names classes of querywise "
            "alone, so that loading one executes nothing of anybody else's."
        )
    return name


def is_learned(name: str) -> bool:
    """Whether a name is that of a learned value."""
    return name.endswith("_") and not name.startswith("_")
