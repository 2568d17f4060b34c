"""Export targets: what is written for each, and what they share, such as checks and request forms.

A form is JSON in which `$text`, `$vector` and `$weight:RUN` stand for a query's values, or SQL with parameters. What
only the user knows, such as field names, is marked EDIT_ME.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from querywise.data.fields import Fields
from querywise.errors import DataError
from querywise.exports.arithmetic import Arithmetic, Exactness
from querywise.exports.models import Exported
from querywise.retrieval.adapted_vectors import AdaptedVectors
from querywise.retrieval.boosts import Boosts
from querywise.retrieval.words import Tokeniser
from querywise.runtime.values import Json, JsonObject, Settings

UNFINISHED = "EDIT_ME"  # a placeholder, for the user to define how the engine computes a feature


@dataclass(frozen=True)
class Files:
    """The files written for an engine.

    Attributes:
        texts: The files' contents by their paths in the export.
        in_engine: The features' names in the engine.
        places: The path of each model's file by the model's name.
        computed: The names of all features in the user's definitions.

    """

    texts: Mapping[str, str]
    in_engine: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredModels:
    """How an engine runs models that are uploaded to it: its arithmetic, and the files it needs.

    Attributes:
        write: Returns the files, from the models, the name of the export, and the user's features or None for a
            template.
        steps: Returns the part of the export's README on uploading and querying.
        scripts: The NAME of the engine's parts of scripts, check_NAME.py, upload_NAME.py and route_NAME.py in
            `scripts/`, any of which may be absent.
        check: The options that check_parity.py needs.
        takes_weights: Whether a request can carry a model's weights, so that the engine need not store the model.
        no_sums: Why the engine cannot run weighted sums, and what to do instead; None if it can.
        least: The smallest value that a feature can have in the engine.

    """

    arithmetic: Arithmetic
    write: Callable[[Exported, str, Json], Files]
    steps: Callable[[Exported, str], str]
    scripts: str
    check: str = "--url URL"
    takes_weights: bool = False
    no_sums: str | None = None
    least: float = -math.inf


@dataclass(frozen=True)
class Request:
    """An engine's request that fuses runs and contains their weights.

    Attributes:
        form: The engine feature that fuses runs.
        normalisations: The engine's names of those of our normalizations (ENGINE_NORMALISATIONS in
            `data/normalisation.py`) that it supports.
        write: Returns the files, that of the request first, from the runs' common weights, the engine's name of the
            normalization and the name of the export.
        meaning: What the weights mean there, for the README.
        most: The most runs it takes.

    """

    form: str
    normalisations: Mapping[str, str]
    write: Callable[[Mapping[str, float], str, str], Mapping[str, str]]
    meaning: str
    most: int = 1000


@dataclass(frozen=True)
class FieldLayout:
    """The fields of a collection, for an engine's index.

    Attributes:
        exact: Fields whose texts are also kept whole.
        medians: For every number, the value that replaces a missing one.
        lacking: Numbers that some documents lack.
        unfit: Numbers that are sometimes negative, or days, which scores cannot be.

    """

    fields: Fields
    exact: tuple[str, ...] = ()
    medians: Mapping[str, float] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FieldQuery:
    """A feature of fields that an engine computes by a query.

    Attributes:
        how: The kind of feature, as named in `field_queries`.
        fields: The fields, with their weights.
        missing: The value of a number that a document lacks.

    """

    name: str
    how: str
    fields: Mapping[str, float]
    missing: float = 0.0


@dataclass(frozen=True)
class ByFields:
    """An engine's search by fields.

    Attributes:
        request: Returns the request with boosts, or None if the engine cannot combine fields this way; None for a
            target that only ranks.
        index: Returns the index definition with our terms, from the fields and our tokenizer; None if not known.
        features: Returns the queries of features in the engine's format.

    """

    request: Callable[[Boosts], JsonObject | None] | None
    index: Callable[[FieldLayout, Tokeniser], JsonObject] | None
    features: Callable[[Sequence[FieldQuery]], Json]


@dataclass(frozen=True)
class Target:
    """A target of exports: a search engine that runs a ranker's models, takes its weights of runs, or both.

    `fields` tells how it searches with boosts of fields.
    """

    title: str
    models: StoredModels | None = None
    request: Request | None = None
    fields: ByFields | None = None


@dataclass(frozen=True)
class Routing:
    """What decides which model scores a query.

    `by` lists any of text, vector, columns, class and documents, the last being the engine's first results, which take
    a request of their own; the others come with the query.
    """

    by: tuple[str, ...]

    @property
    def requests(self) -> int:
        """The number of requests to the engine that a query takes."""
        return 2 if "documents" in self.by else 1


@dataclass(frozen=True)
class Written:
    """The contents of an export.

    Attributes:
        models: Their names.
        routing: What decides which model scores a query, or which weights it has; None if all queries have the same.
        unfinished: Whether something is a template to fill in.
        exactness: How the engine's arithmetic ranks the data; None without data.
        weights: Weights of runs for all queries, by run; empty for models.

    """

    engine: str
    models: tuple[str, ...]
    routing: Routing | None
    unfinished: bool
    exactness: Exactness | None
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def by(self) -> tuple[str, ...]:
        """What routing depends on."""
        return () if self.routing is None else self.routing.by


@dataclass(frozen=True)
class Content:
    """The files of an export by path, and the entries of its manifest for models or a request.

    `adapter` adapts query vectors before they are put into the request; None leaves them unchanged.
    """

    done: Written
    texts: Mapping[str, str]
    features: Settings | None = None
    models: tuple[Json, ...] = ()
    request: Settings | None = None
    adapter: AdaptedVectors | None = None


def as_text(content: Json) -> str:
    """Format as indented JSON."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def defined(content: Json, expected: str, inside: tuple[str, str] = ("", "")) -> list[JsonObject]:
    """Return the user's features, a list of objects; raise DataError with the expected format otherwise.

    `inside` names two objects around the list, of which the outer one or both may be absent.
    """
    inner = content.get(inside[0], content) if isinstance(content, dict) else content
    found = inner.get(inside[1]) if isinstance(inner, dict) else inner
    given = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(given) < len(found):
        raise DataError(expected)
    return given


def check_feature_names(wanted: tuple[str, ...], found: Sequence[Json], where: str) -> None:
    """Raise DataError if the user's features lack one of the model's or repeat a name."""
    names: list[str] = []
    for name in found:
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: every feature needs a name; found {name!r}.")
        names.append(name)
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise DataError(f"{where}: the feature {repeated!r} appears twice; names must be unique.")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"{where}: the model's feature {missing[0]!r} is not among its {len(names)} features "
            f"({len(missing)} of {len(wanted)} are missing). It has: {', '.join(names[:8])}."
        )


DEPTH = 100  # documents of each run
TEXT, VECTOR = "$text", "$vector"
_BY_VECTORS = ("vector", "knn", "dense", "embedding")  # parts of names that mark a run by vectors


def weight_of(run: str) -> str:
    """Return the placeholder of a run's weight."""
    return f"$weight:{run}"


def by_vectors(run: str) -> bool:
    """Whether a run is by vectors, from its name: its part of the request then has a vector instead of the text."""
    return any(each in run.lower() for each in _BY_VECTORS)


def identifier(run: str) -> str:
    """Return a run's name as a word of letters, digits and underscores."""
    word = re.sub(r"\W", "_", run)
    return f"r_{word}" if word[:1].isdigit() else word
