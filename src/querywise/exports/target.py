"""What a target of exports is, what is written for it, and what targets share: checks, and forms of requests.

A form is JSON in which `$text`, `$vector` and `$weight:RUN` stand for what a query brings, or SQL with parameters. What
only the user knows, as the names of fields, is marked EDIT_ME.
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

UNFINISHED = "EDIT_ME"  # a placeholder, for the user to say how the engine computes a feature


@dataclass(frozen=True)
class Files:
    """What is written for an engine.

    texts: the files' contents by their paths in the export. in_engine: the features' names in the engine. places: the
    path of each model's file by the model's name. computed: the names of all features that the user's definitions have.
    """

    texts: Mapping[str, str]
    in_engine: tuple[str, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    computed: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoredModels:
    """How an engine runs models that are uploaded to it: its arithmetic, and what is written for it.

    write: makes the files, from the models, the name of the export, and the user's features or None for a template.
    steps: makes the part of the export's README on uploading and querying. scripts: the NAME of the engine's parts of
    scripts, check_NAME.py, upload_NAME.py and route_NAME.py in `scripts/`, which may lack any of them. check: the
    options check_parity.py needs. takes_weights: whether a request can carry a model's weights, so that the model need
    not be stored in the engine. no_sums: why the engine cannot run weighted sums, and what to do instead; None where it
    can. least: the least value that a feature has in the engine.
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
    """An engine's request that fuses runs, with their weights in it.

    form: what the engine fuses runs with. normalisations: its name of each of ours that it has, which are those of
    `data/normalisation.py` (ENGINE_NORMALISATIONS). write: makes the files, that of the request first, from the runs'
    common weights, the engine's name of the normalisation and the name of the export. meaning: what the weights mean
    there, for the README. most: how many runs it takes.
    """

    form: str
    normalisations: Mapping[str, str]
    write: Callable[[Mapping[str, float], str, str], Mapping[str, str]]
    meaning: str
    most: int = 1000


@dataclass(frozen=True)
class FieldLayout:
    """The fields of a collection, for an engine's index.

    exact: those whose texts are also kept whole. medians: of every number, what stands for a missing one. lacking: the
    numbers that some documents do not have; unfit: those that are below 0 somewhere, or days, which no score is.
    """

    fields: Fields
    exact: tuple[str, ...] = ()
    medians: Mapping[str, float] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FieldQuery:
    """A feature of fields that an engine computes by a query.

    how: what is computed, in the words of `field_queries`. fields: of which fields, with their weights. missing: what a
    number counts where a document lacks it.
    """

    name: str
    how: str
    fields: Mapping[str, float]
    missing: float = 0.0


@dataclass(frozen=True)
class ByFields:
    """An engine's search by fields.

    request: by boosts, or nothing where the engine cannot add fields up so; None of a target that only ranks. index:
    what its index needs to have our words, from the fields and how our text becomes terms; None where that is not
    known. features: the queries of features as the engine takes them.
    """

    request: Callable[[Boosts], JsonObject | None] | None
    index: Callable[[FieldLayout, Tokeniser], JsonObject] | None
    features: Callable[[Sequence[FieldQuery]], Json]


@dataclass(frozen=True)
class Target:
    """What a ranker is exported to: a search engine that runs its models, takes its weights of runs, or both.

    fields: how it searches by boosts of fields.
    """

    title: str
    models: StoredModels | None = None
    request: Request | None = None
    fields: ByFields | None = None


@dataclass(frozen=True)
class Routing:
    """What decides which model answers a query.

    by: any of text, vector, columns, class and documents, the last the engine's first answers. These take a request of
    their own; the others come with the query.
    """

    by: tuple[str, ...]

    @property
    def requests(self) -> int:
        """How many requests to the engine a query takes."""
        return 2 if "documents" in self.by else 1


@dataclass(frozen=True)
class Written:
    """What an export holds.

    models: their names. routing: what decides which model answers a query, or which weights it has; None where all
    queries have the same. unfinished: whether something is a template to fill in. exactness: how the engine's
    arithmetic ranks the data; None where none was given. weights: of runs, for all queries, by run; of models none.
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
    """The files of an export by their paths, and the entries of its manifest that are of models or of a request.

    adapter: what moves the vectors of queries before they are put into the request; None where they stay.
    """

    done: Written
    texts: Mapping[str, str]
    features: Settings | None = None
    models: tuple[Json, ...] = ()
    request: Settings | None = None
    adapter: AdaptedVectors | None = None


def as_text(content: Json) -> str:
    """JSON, indented."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def defined(content: Json, expected: str, inside: tuple[str, str] = ("", "")) -> list[JsonObject]:
    """The user's features, a list of objects; DataError with what is expected where they are something else.

    inside: the names of two objects around the list, of which the outer one or both may be left out.
    """
    inner = content.get(inside[0], content) if isinstance(content, dict) else content
    found = inner.get(inside[1]) if isinstance(inner, dict) else inner
    given = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(given) < len(found):
        raise DataError(expected)
    return given


def check_feature_names(wanted: tuple[str, ...], found: Sequence[Json], where: str) -> None:
    """Refuse the user's features where one of the model's is missing or a name is repeated."""
    names: list[str] = []
    for name in found:
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: every feature needs a name; found {name!r}.")
        names.append(name)
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if repeated is not None:
        raise DataError(f"{where}: the feature {repeated!r} is there twice; names must be unique.")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"{where}: the model's feature {missing[0]!r} is not among its {len(names)} features "
            f"({len(missing)} of {len(wanted)} are missing). It has: {', '.join(names[:8])}."
        )


DEPTH = 100  # documents of each run
TEXT, VECTOR = "$text", "$vector"
_BY_VECTORS = ("vector", "knn", "dense", "embedding")  # what the name of a run by vectors has in it


def weight_of(run: str) -> str:
    """What stands for a run's weight."""
    return f"$weight:{run}"


def by_vectors(run: str) -> bool:
    """Whether a run is of vectors, by its name: its part of the request then has a vector, and else the text."""
    return any(each in run.lower() for each in _BY_VECTORS)


def identifier(run: str) -> str:
    """A run's name as a word of letters, digits and underscores."""
    word = re.sub(r"\W", "_", run)
    return f"r_{word}" if word[:1].isdigit() else word
