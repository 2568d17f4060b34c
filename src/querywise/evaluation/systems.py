"""What can be compared: rankers, fitted or not, models of other libraries, functions; each with a name."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from querywise.contracts.answers import Scorer
from querywise.data.folds import Fold, Folds
from querywise.data.judged import Judged
from querywise.errors import DataError
from querywise.evaluation.foreign import System, fitted, has_learned, is_fit, is_foreign, name_of, scorer_of
from querywise.evaluation.trained import Fit
from querywise.runtime.parameters import is_fitted, unfitted

# Folds as users pass them: from make_folds or read_folds, as a list, or a single fold; a Fold is such a tuple too.
FoldsGiven: TypeAlias = Sequence[tuple[Judged, Judged, Judged]] | Folds | tuple[Judged, Judged, Judged]
_EXPECTED = "Give train, valid and test, or folds: a list of (train, valid, test), or what make_folds(data) makes."
_LONGEST = 60  # most letters of a name


class Systems(NamedTuple):
    """How each system is fitted, by name, and which were already fitted."""

    fits: dict[str, Fit]
    given: tuple[str, ...]
    objects: Mapping[str, System | Fit]

    def name_of(self, baseline: str | System | Fit | None) -> str | None:
        """Return the name of a baseline passed as the system itself; return a name unchanged."""
        if baseline is None or isinstance(baseline, str):
            return baseline
        found = next((name for name, each in self.objects.items() if each is baseline), None)
        if found is None:
            raise DataError(f"The baseline is not among the systems compared: {', '.join(self.objects)}.")
        return found


def systems_of(given: Mapping[str, System | Fit] | Sequence[System | Fit]) -> Systems:
    """Return systems by name; those in a list get unique names."""
    if isinstance(given, Mapping):
        every = dict(given)
    elif isinstance(given, (list, tuple)):
        every = dict(zip(_names(list(given)), given, strict=True))
    else:
        raise DataError(f"Expected a list of systems to compare, or a mapping of names; found a {_kind(given)}.")
    for name, each in every.items():
        _check(name, each)
    as_they_are = tuple(name for name, each in every.items() if _was_fitted(each))
    return Systems({name: _fit(name, each) for name, each in every.items()}, as_they_are, every)


def folds_of(
    first: FoldsGiven | Judged | None, valid: Judged | None, test: Judged | None, *, fitted_before: bool
) -> Sequence[Fold] | Folds:
    """Return the folds given, or one fold of three parts; a test part is enough if nothing is fitted."""
    if first is not None and not isinstance(first, Judged):
        if valid is not None or test is not None:
            raise DataError("Folds have their own validation and test parts: give folds alone, or train, valid, test.")
        return first if isinstance(first, Folds) else _listed(first)
    if test is not None and first is None and valid is None and fitted_before:
        return [Fold(test, test, test)]  # nothing learns from the first two
    return [_fold_of((first, valid, test))]


def _listed(given: Sequence[Any]) -> list[Fold]:
    """Return a list of folds from Folds or tuples of three parts; one such tuple by itself is one fold."""
    if not isinstance(given, (list, tuple)):
        raise DataError(f"folds: found a {_kind(given)}. {_EXPECTED}")
    if any(isinstance(each, Judged) for each in given):
        return [_fold_of(given)]
    return [_fold_of(each, f"folds[{number}]") for number, each in enumerate(given)]


def _fold_of(parts: Any, where: str = "") -> Fold:
    if not isinstance(parts, (list, tuple)):
        raise DataError(f"{where}: expected a fold, (train, valid, test), found a {_kind(parts)}. {_EXPECTED}")
    if len(parts) != len(Fold._fields):
        said = f"{where or 'folds'}: expected the three parts (train, valid, test), found {len(parts)}"
        raise DataError(f"{said}. {_EXPECTED}")
    for name, part in zip(Fold._fields, parts, strict=True):
        if not isinstance(part, Judged):
            found = "there is none" if part is None else f"found a {_kind(part)}"
            raise DataError(f"{where}{'.' if where else ''}{name}: expected a Judged set, {found}. {_EXPECTED}")
    return parts if isinstance(parts, Fold) else Fold(*parts)


def _fit(name: str, system: Any) -> Fit:
    if _is_function(system) and is_fit(system):
        function: Fit = system
        return function
    if _was_fitted(system):
        return partial(_as_it_is, scorer_of(system, name))
    return partial(_fitted, name, system)


def _as_it_is(scorer: Scorer, train: Judged, valid: Judged) -> Scorer:
    """Return a system that was already fitted, ignoring the data."""
    return scorer


def _fitted(name: str, system: System, train: Judged, valid: Judged) -> Scorer:
    """Fit a copy of a system on a fold's training part, leaving the given one unchanged."""
    if is_foreign(system):
        return fitted(name, system, train, valid)
    ranker: Any = _copy(system)
    return scorer_of(ranker.fit(train, valid=valid), name)


def _is_function(system: Any) -> bool:
    return callable(system) and not hasattr(system, "predict")


def _was_fitted(system: Any) -> bool:
    if _is_function(system):
        return not is_fit(system)
    if is_foreign(system):
        return has_learned(system)
    return not hasattr(system, "fit") or is_fitted(system)


def _check(name: str, system: Any) -> None:
    if isinstance(system, type):
        raise DataError(f"{name} is a class; expected an object of it: {name}(…).")
    if not hasattr(system, "predict") and not callable(system):
        raise DataError(
            f"{name}: a {_kind(system)} cannot be compared. Expected a ranker, a model of LightGBM, XGBoost, CatBoost "
            "or scikit-learn, or a function of features; scores in the order of test.candidates are compared as one: "
            "lambda X: scores."
        )


def _copy(ranker: Any) -> Any:
    try:
        return unfitted(ranker)
    except (AttributeError, TypeError):  # a class that does not store its arguments under their names
        return copy.deepcopy(ranker)


def _kind(given: Any) -> str:
    return type(given).__name__


def _names(systems: Sequence[Any]) -> list[str]:
    """Return unique names: the class name, with more details only where needed."""
    names = [name_of(each) for each in systems]
    for tell in (_described, _marked):
        often = Counter(names)
        names = [tell(name, each) if often[name] > 1 else name for name, each in zip(names, systems, strict=True)]
    seen: Counter[str] = Counter()
    taken = set(names)
    for place, name in enumerate(names):
        seen[name] += 1
        number = seen[name]
        while number > 1 and f"{name} {number}" in taken:
            number += 1
        names[place] = name if number == 1 else f"{name} {number}"
        taken.add(names[place])
    return names


def _described(name: str, system: Any) -> str:
    said = repr(system)
    return said if len(said) <= _LONGEST and "\n" not in said and " at 0x" not in said else name


def _marked(name: str, system: Any) -> str:
    return f"{name} (fitted)" if hasattr(system, "fit") and _was_fitted(system) else name
