"""Systems from outside querywise, used unchanged: models of other libraries, and functions of features.

They are recognized by the library that their class comes from, or by the names of their parameters. No library is
imported for that: the one whose model was given is imported already.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from querywise.contracts.answers import Answers, Scorer
from querywise.data.judged import Candidates, Judged
from querywise.errors import DataError, NotFittedError
from querywise.measures.order import check_scores
from querywise.runtime.arrays import Floats
from querywise.runtime.parameters import is_fitted

_LIBRARIES = ("lightgbm", "xgboost", "catboost", "sklearn")
_GROUPS = ("group", "qid")  # parameters that get the sizes of the groups, and the query id of each row
_AS_FUNCTION = "If it takes an array of features, give it as a function: lambda X: model.predict(X)."
_FITTING = ("train", "valid")  # parameters of a function that fits, as opposed to a function of features


class _Predicts(Protocol):
    def predict(self, *given: Any, **named: Any) -> Any:  # of Candidates, an array, or whatever the library takes
        ...


# A ranker, a model of another library, or a function of features.
System: TypeAlias = _Predicts | Callable[..., ArrayLike]


class Foreign:
    """A fitted model of another library, or a function of features, that scores Candidates; errors name it."""

    def __init__(self, name: str, model: System) -> None:
        self._name = name
        self._model = model
        if not hasattr(model, "predict") and is_fit(model):
            raise DataError(
                f"{name}: expected a function of one argument, the features, a row per document. In addition, a "
                "parameter "
                "called group gets the number of documents of each query, one called qid the query of each row."
            )
        _refuse_classes(name, model)
        if not has_learned(model):
            raise NotFittedError(model)

    @property
    def nbytes(self) -> int:
        """The size of the model when pickled; 0 if it cannot be."""
        try:
            return len(pickle.dumps(self._model))
        except Exception:  # noqa: BLE001 - whatever a model has inside
            return 0

    def predict(self, candidates: Candidates, /) -> Floats:
        """Return one finite score per document, in the order of the rows."""
        if not len(candidates.features):
            return np.zeros(0)
        with _speaking_of(self._name, "predict"):
            _check_features(self._model, candidates)
            return check_scores(_flat(_predicted(self._model, candidates)), candidates)


class Unknown:
    """An object of an unknown class with a `predict`, which gets Candidates; errors name it."""

    def __init__(self, name: str, system: Scorer) -> None:
        self.name = name
        self.system = system

    def predict(self, candidates: Candidates, /) -> Floats:
        """Return its scores unchanged."""
        with _speaking_of(self.name, "predict from Candidates", _AS_FUNCTION):
            return self.system.predict(candidates)


def is_system(given: ArrayLike | System) -> TypeGuard[System]:
    """Whether `given` could score documents: it has `predict`, or is callable."""
    return hasattr(given, "predict") or callable(given)


def scorer_of(system: System, name: str | None = None) -> Scorer:
    """Return the scorer of a fitted system: the system itself, or an adapter if it is not one of ours."""
    name = name_of(system) if name is None else name
    if isinstance(system, type):
        raise DataError(f"{name} is a class; expected an object of it: {name}(…).")
    if is_foreign(system):
        return Foreign(name, system)
    ranker: Any = system
    found: Scorer = ranker
    return found if isinstance(found, (Answers, Foreign, Unknown)) else Unknown(name, found)


def name_of(system: System) -> str:
    """Return the class name of a system, or the name of a function."""
    if isinstance(system, type):
        return system.__name__
    if hasattr(system, "predict") or not callable(system):
        kind = type(system).__name__
        return f"{library_of(system)} {kind}" if kind == "Booster" else kind
    inner = system.func if isinstance(system, partial) else system
    name = str(getattr(inner, "__name__", type(inner).__name__))
    return "function" if name == "<lambda>" else name


def fitted(name: str, model: System, train: Judged, valid: Judged) -> Foreign:
    """Fit a copy of another library's model by its own `fit`, with the validation part for early stopping."""
    _refuse_classes(name, model)
    with _speaking_of(name, "be fitted here (fit it yourself, and pass the fitted system)"):
        copy = _fitted_pool(model, train, valid) if library_of(model) == "catboost" else _fitted(model, train, valid)
    return Foreign(name, copy)


def is_foreign(system: System) -> bool:
    """Whether the system takes an array of features rather than Candidates."""
    if not hasattr(system, "predict"):
        return True
    first = next(iter(_parameters(system.predict)), "")
    return first.lower() == "x" or (library_of(system) is not None and first != "candidates")


def library_of(system: System) -> str | None:
    """Return the library of the system's class, or of a class it inherits from; None if it is not a known one."""
    roots = [each.__module__.partition(".")[0] for each in type(system).__mro__]
    return next((root for root in roots if root in _LIBRARIES), None)


def has_learned(model: System) -> bool:
    """Whether another library's model is fitted, as it reports itself; True if it has no `fit`."""
    if not hasattr(model, "fit"):
        return True
    for name in ("is_fitted", "__sklearn_is_fitted__"):
        own = getattr(model, name, None)
        if own is not None:
            return bool(own() if callable(own) else own)
    return is_fitted(model)


def is_fit(function: System) -> bool:
    """Whether a function takes a training and a validation part rather than features."""
    every = _parameters(function)
    needed = [
        name
        for name, each in every.items()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    return len([name for name in needed if name not in _GROUPS]) != 1 or any(name in every for name in _FITTING)


@contextmanager
def _speaking_of(name: str, task: str, todo: str = "") -> Iterator[None]:
    """Make errors raised inside name the system; `todo` is a sentence on what else could be done."""
    try:
        yield
    except NotFittedError:
        raise
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    except Exception as error:  # another library, or a user's function, can raise anything
        told = str(error).strip().partition("\n")[0]
        said = f"{name} could not {task}. {type(error).__name__}: {told}"
        raise DataError(f"{said.rstrip('.')}. {todo}" if todo else said) from error


def _refuse_classes(name: str, model: System) -> None:
    if hasattr(model, "predict_proba"):
        raise DataError(
            f"{name} is a classifier: it predicts classes, which do not rank. Give a function of its probabilities "
            "instead: lambda X: model.predict_proba(X)[:, 1]."
        )


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some compiled functions have none
        return {}


def _predicted(model: Any, candidates: Candidates) -> Any:
    features, library = candidates.features, library_of(model)
    if not hasattr(model, "predict"):
        return model(features, **_groups(model, candidates))
    if library == "lightgbm":
        return _booster(model).predict(features)
    if library == "xgboost" and _booster(model) is model:
        matrix = importlib.import_module("xgboost").DMatrix
        return model.predict(matrix(features, feature_names=model.feature_names, feature_types=model.feature_types))
    if library == "sklearn" and hasattr(model, "feature_names_in_"):
        features = _with_names(features, model.feature_names_in_)
    return model.predict(features, **_groups(model.predict, candidates))


def _groups(function: Any, candidates: Candidates) -> dict[str, ArrayLike]:
    """Return what a function's parameters request about the queries, beside the features."""
    known = {"group": _sizes(candidates), "qid": np.array(candidates.query_ids)[candidates.query_of_row]}
    asked = _parameters(function)
    return {name: known[name] for name in _GROUPS if name in asked}


def _sizes(candidates: Candidates) -> ArrayLike:
    return candidates.sizes[candidates.sizes > 0]


def _with_names(features: Floats, names: Any) -> Any:
    """Return a DataFrame for a model that was fitted on one: pipeline steps may select columns by name."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return features
    return pandas.DataFrame(features, columns=list(names))


def _flat(found: Any) -> Any:
    """Return scores as one row; some regressors return a column."""
    shape = np.shape(found)
    return np.asarray(found)[:, 0] if len(shape) == 2 and shape[1] == 1 else found


def _booster(model: Any) -> Any:
    """Return the booster inside a model of LightGBM or XGBoost."""
    if hasattr(model, "get_booster"):
        return model.get_booster()
    return model.booster_ if hasattr(model, "booster_") else model


def _check_features(model: Any, candidates: Candidates) -> None:
    """Raise DataError if the features differ from those the model was trained on, as far as it knows them."""
    library, count, names = library_of(model), getattr(model, "n_features_in_", None), None
    own = candidates.feature_names or ()
    if library == "lightgbm":
        count, names = _booster(model).num_feature(), _booster(model).feature_name()
        spaceless = {name.replace(" ", "_"): name for name in own}  # as LightGBM stores names
        names = [spaceless.get(name, name) for name in names]
    elif library == "xgboost":
        count, names = _booster(model).num_features(), _booster(model).feature_names
    elif library == "catboost":
        count, names = len(model.feature_names_), model.feature_names_
    else:
        names = getattr(model, "feature_names_in_", None)
    if count is None:
        return
    unnamed = ([f"Column_{i}" for i in range(count)], [str(i) for i in range(count)])  # the libraries' default names
    known = None if names is None or list(names) in unnamed else tuple(map(str, names))
    candidates.require_features(count, known, missing="allowed")  # the library itself accepts or rejects missing values


def _fitted(model: Any, train: Judged, valid: Judged) -> Any:
    from sklearn.base import clone, is_regressor  # takes over a second

    copy = clone(model, safe=False)
    asked, other = _parameters(copy.fit), valid.candidates
    ranks = any(name in asked for name in _GROUPS)
    if library_of(model) == "sklearn" and not is_regressor(model) and not ranks:
        raise DataError("it is neither a regressor nor a ranker.")
    targets, stopping = (_targets(data, ranks=ranks) for data in (train, valid))
    given: dict[str, Any] = {}
    if "eval_X" in asked:  # the current names in LightGBM
        given = {"eval_X": other.features, "eval_y": stopping}
    elif "eval_set" in asked:
        given = {"eval_set": [(other.features, stopping)]}
    if library_of(model) == "xgboost":
        given["verbose"] = False
    if "qid" in asked:
        given |= {"qid": train.candidates.query_of_row}
        given |= {"eval_qid": [other.query_of_row]} if "eval_qid" in asked else {}
    elif "group" in asked:
        given |= {"group": _sizes(train.candidates)}
        given |= {"eval_group": [_sizes(other)]} if "eval_group" in asked else {}
    return copy.fit(train.candidates.features, targets, **given)


def _fitted_pool(model: Any, train: Judged, valid: Judged) -> Any:
    """Fit a CatBoost model, which identifies queries by their ids and would write files to the working folder."""
    pool, ranks = importlib.import_module("catboost").Pool, "group_id" in _parameters(model.fit)
    pools = [
        pool(each.candidates.features, _targets(each, ranks=ranks), group_id=each.candidates.query_of_row)
        for each in (train, valid)
    ]
    copy = type(model)(**{"allow_writing_files": False, **model.get_params()})
    return copy.fit(pools[0], eval_set=pools[1], verbose=False)


def _targets(data: Judged, *, ranks: bool) -> ArrayLike:
    """Return the grades, or for a regressor their values; raise DataError if a library could misread them."""
    if data.query_weights is not None or data.document_weights is not None:
        raise DataError("the data has weights. Fit it with them yourself, and pass the fitted system.")
    if data.gains is not None and ranks:
        raise DataError("the labels have gains. Fit it yourself, and pass the fitted system.")
    return data.labels if data.gains is None else data.gains[data.labels]
