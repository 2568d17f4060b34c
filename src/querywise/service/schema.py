"""Bodies of requests and responses; msgspec reads and checks them in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

if TYPE_CHECKING:
    from querywise.runtime.values import JsonObject
else:
    JsonObject = dict[str, Any]  # msgspec evaluates types at run time and has no recursive ones

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Session = Annotated[str, Meta(min_length=1, max_length=200)] | None
Size = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Values = list[float | None] | dict[str, float | None]
_NUMBER = {"type": ["number", "null"]}
_ARRAY = {"type": "array", "items": _NUMBER}
# JSON that is not decoded yet: the features of all documents are decoded together.
Features = Annotated[
    Raw, Meta(extra_json_schema={"anyOf": [_ARRAY, {"type": "object", "additionalProperties": _NUMBER}]})
]
_ANY_NUMBER = {"type": "number"}
_COLUMNS = {"type": "object", "additionalProperties": _ANY_NUMBER, "maxProperties": 1000}
_VECTOR = {"type": "array", "items": _ANY_NUMBER, "minItems": 1, "maxItems": 20_000}
if TYPE_CHECKING:
    Columns = dict[str, float] | None
    Vector = Raw | list[float] | None
else:  # not decoded before their length is known: a million columns would take half a second
    Columns = Annotated[Raw, Meta(extra_json_schema={"anyOf": [_COLUMNS, {"type": "null"}]})]
    Vector = Annotated[Raw, Meta(extra_json_schema={"anyOf": [_VECTOR, {"type": "null"}]})]
_COLUMNS_BYTES, _VECTOR_BYTES = 100_000, 500_000
_read_columns = msgspec.json.Decoder(Annotated[dict[str, float], Meta(max_length=1000)] | None).decode
read_values = msgspec.json.Decoder(Values).decode
read_vector = msgspec.json.Decoder(Annotated[list[float], Meta(min_length=1, max_length=20_000)]).decode
# Not decoded either: it takes less time together with what it is checked against.
Packed = Annotated[Raw, Meta(extra_json_schema={"type": "string", "contentEncoding": "base64"})]
read_bytes = msgspec.json.Decoder(bytes).decode


Ranking = Annotated[list[Annotated[str, Meta(min_length=1, max_length=1000)]], Meta(max_length=1000)]


class Query(Struct, forbid_unknown_fields=True):
    """A query: who is asking, and what is known of it besides its documents; `columns` are those the model uses."""

    id: Annotated[str, Meta(max_length=1000)] = ""
    text: Annotated[str, Meta(max_length=10_000)] | None = None
    class_: str | None = field(default=None, name="class")
    columns: Columns = None
    vector: Vector = None  # decoded where the model looks at it

    def __post_init__(self) -> None:
        """Read the columns; msgspec makes a refusal of a ValueError."""
        if isinstance(self.vector, Raw):
            if len(memoryview(self.vector)) > _VECTOR_BYTES:
                raise ValueError(f"Expected a `vector` of up to {_VECTOR_BYTES} bytes")
            if bytes(self.vector) == b"null":
                self.vector = None
        given: object = self.columns
        if isinstance(given, Raw):
            if len(memoryview(given)) > _COLUMNS_BYTES:
                raise ValueError(f"Expected `columns` of up to {_COLUMNS_BYTES} bytes")
            try:
                self.columns = _read_columns(given)
            except msgspec.ValidationError as error:
                raise ValueError(f"{str(error).partition(' - at ')[0]} in `columns`") from None


class Document(Struct, forbid_unknown_fields=True, gc=False):
    """A candidate: its features in the model's order, or by name; null and omitted names are missing values."""

    id: Annotated[str, Meta(max_length=1000)]
    features: Features


class Numbers(Struct, forbid_unknown_fields=True, gc=False):
    """A table of numbers as the bytes of its rows, one after the other, little-endian, in base64.

    `shape` is that of the table: its rows and its columns.
    """

    base64: Packed
    dtype: Literal["float64", "float32"]
    shape: Annotated[list[Size], Meta(min_length=2, max_length=2)]


class Table(Struct, forbid_unknown_fields=True, gc=False):
    """Candidates whose features are sent together: a row for each id, a column for each feature in the model's order.

    This is faster to read than numbers in JSON, and gives the same scores. NaN is a missing value, for a model that was
    trained with missing values.
    """

    ids: list[Annotated[str, Meta(max_length=1000)]]
    features: Numbers

    def __len__(self) -> int:
        return len(self.ids)


Documents = list[Document] | Table


class RankRequest(Struct, forbid_unknown_fields=True):
    """One query and its candidates.

    If two models are compared: `session` identifies who asks, so that a repeated query has the same answer, and with
    `teams` the answer says which model each document is credited to.
    """

    query: Query
    documents: Documents
    top: Count | None = None
    session: Session = None
    teams: bool = False


class BatchRequest(Struct, forbid_unknown_fields=True):
    """Several queries, answered together."""

    requests: list[RankRequest]


class UnreadBatch(Struct):
    """Several queries, to be counted before any of them is read."""

    requests: list[Raw]


class ExplainRequest(Struct, forbid_unknown_fields=True):
    """One query to explain; with `above` and `below`, why the one document is above the other.

    Without documents the query is looked up: its text in the index, its id among the judged queries. `top` is that of
    `/v1/search`.
    """

    query: Query
    documents: Documents | None = None
    above: str | None = None
    below: str | None = None
    top: Count | None = None


class WeightsRequest(Struct, forbid_unknown_fields=True):
    """One query whose runs are to be fused.

    `runs` are their scores, by run and document, for a model whose weights depend on them; without them such a query
    gets the weights for all queries.
    """

    query: Query
    runs: dict[str, dict[Annotated[str, Meta(max_length=1000)], float]] | None = None


class VectorRequest(Struct, forbid_unknown_fields=True):
    """One query, by its text or by its own vector. `dtype`: answer with the vector as bytes in base64, of that type.

    `explain`: return which judged queries moved it, and what that changed.
    """

    query: Query
    dtype: Literal["float64", "float32"] | None = None
    explain: bool = False


class VectorResponse(Struct):
    """The vector to search by: the query's own or, if `adapted`, the one that the model moved.

    Numbers or, if a `dtype` was requested, a table of one row. `shift`: if `explain` was requested and the vector is
    adapted.
    """

    vector: list[float] | Numbers
    adapted: bool
    model: str
    shift: VectorShift | None = None


class VectorShift(Struct):
    """How a query's vector was moved. `cosine`: between the vector before and after. `pulls`: the largest share first.

    `gained`: documents among the ten most similar to the adapted vector, but not to the query's own; `lost`: the other
    way round. Both are from the whole index, whatever the model ranks.
    """

    cosine: float
    pulls: list[QueryPull]
    gained: list[ShiftedDocument]
    lost: list[ShiftedDocument]


class QueryPull(Struct):
    """A training query that moved another: how similar they are, and its share of the shift; below 0 it held back."""

    query: KnownQuery
    similarity: float
    share: float


class ShiftedDocument(Struct):
    """A document with its rank by the adapted vector, and by the query's own; None is beyond the first hundred."""

    id: str
    title: str
    rank: int | None
    rank_plain: int | None


class RouteRequest(Struct, forbid_unknown_fields=True):
    """One query to be ranked by an engine.

    `name` is the name of the export that was uploaded there. `documents` are the engine's first results with their
    features, for a model that uses them.
    """

    query: Query
    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*$(?!\n)", max_length=200)] = "querywise"
    documents: Documents | None = None


class JudgedQuery(Struct, forbid_unknown_fields=True):
    """A query to judge: a judged query by its id, or a search by its text."""

    id: Annotated[str, Meta(max_length=1000)] | None = None
    text: Annotated[str, Meta(max_length=10_000)] | None = None


class JudgementRequest(Struct, forbid_unknown_fields=True):
    """The grade of a document for a query, which replaces an earlier one; null removes it."""

    query: JudgedQuery
    document: Annotated[str, Meta(min_length=1, max_length=1000)]
    grade: Annotated[int, Meta(ge=0, le=9)] | None


class JudgementResponse(Struct):
    """The state of the file: the query's id there, the document's grade, and the total number of grades."""

    query: str
    document: str
    grade: int | None
    judgements: int


class Judging(Struct):
    """The judgments given on the page: the query's id in the file, and the grades of the documents shown here."""

    query: str
    grades: dict[str, int]


_Name = Annotated[str, Meta(max_length=100)]
_Id = Annotated[str, Meta(min_length=1, max_length=1000)]


class PairGrade(Struct, forbid_unknown_fields=True):
    """The grade that a judge gives a pair, which replaces an earlier one; null withdraws it."""

    judge: _Name
    query: _Id
    document: _Id
    grade: Annotated[int, Meta(ge=0, le=9)] | None


class PairNote(Struct, forbid_unknown_fields=True):
    """A judge's note on a pair, which replaces an earlier one; an empty note removes it."""

    judge: _Name
    query: _Id
    document: _Id
    note: str


class Undo(Struct, forbid_unknown_fields=True):
    """Withdraw the last grade of a judge that was not withdrawn yet."""

    judge: _Name


class JudgedBy(Struct):
    """A judge, and how many of the pairs the judge has graded."""

    name: str
    graded: int


class JudgingState(Struct):
    """The pairs to judge, and the progress. `in_turn`: how many pairs, from the first on, somebody has graded.

    `stands`: whether the systems can be compared.
    """

    file: str
    highest: int
    pairs: int
    queries: int
    graded: int
    graded_twice: int
    in_turn: int
    drawn: bool
    stands: bool
    judges: list[JudgedBy]
    rules: dict[str, str]


class PairToJudge(Struct):
    """A pair as one judge sees it, at its place in that judge's order. `others`: their grades, once this judge has one.

    `graded`: how many pairs this judge has graded. `cut`: whether the document has more text than is shown.
    """

    place: int
    pairs: int
    graded: int
    query: str
    document: str
    query_text: str
    title: str
    text: str
    cut: bool
    grade: int | None
    note: str
    others: dict[str, int] | None


class PairAgreement(Struct):
    """Two judges' agreement. `weighted_kappa`: with the ends of its 95 % interval; `problem`: why there is none."""

    first: str
    second: str
    pairs: int
    queries: int
    same: float | None
    weighted_kappa: tuple[float, float, float] | None
    problem: str | None = None


class StandingsResponse(Struct):
    """The comparison of every two systems by the judgments so far, in sentences."""

    said: list[str]


class AgreementResponse(Struct):
    """Every two judges, those with most grades first."""

    agreements: list[PairAgreement]


class InterleaveRequest(Struct, forbid_unknown_fields=True):
    """Two to five rankings of one query, by any engines: for each its name and the ids of its documents, best first.

    `session` and `teams` as in `/v1/rank`. `top`: how many documents are shown; all by default.
    """

    query: Query
    rankings: Annotated[dict[str, Ranking], Meta(min_length=2, max_length=5)]
    top: Count | None = None
    session: Session = None
    teams: bool = False


class InterleaveResponse(Struct, omit_defaults=True):
    """One list of all, and the id to send clicks with.

    `teams`: the number of the ranking that each document is credited to, from 0; null for none.
    """

    impression: str
    documents: list[str]
    teams: list[int | None] | None = None


class Event(Struct, forbid_unknown_fields=True):
    """A click on a document of an impression, or another action."""

    impression: Annotated[str, Meta(max_length=400)]
    document: Annotated[str, Meta(min_length=1, max_length=1000)]
    action: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,39}$(?!\n)")] = "click"
    position: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class EventsRequest(Struct, forbid_unknown_fields=True):
    """Clicks and other actions of users on impressions."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=100)]


class EventsResponse(Struct):
    """How many events were accepted, and are now on the disk, and how many were not.

    `duplicates` are already known, `unknown` events have an impression id that was not made here, and `late` events one
    that is older than 30 minutes.
    """

    accepted: int
    duplicates: int
    unknown: int
    late: int


class ExperimentResponse(Struct):
    """The experiment that this service logs.

    `model` and `against` are the versions of the model that is served and of the one it is compared with, if any;
    `share` of the queries is interleaved. `verdict` is what `querywise online --json` said of the log so many seconds
    ago (`age`); null while it is read for the first time, and where `problem` says why there is none. `hour`: what this
    service counted in the last 60 minutes, by the names of `/metrics`. `failing`: why the log cannot be written; null
    while it can.
    """

    model: str
    against: str | None
    share: float
    verdict: JsonObject | None
    problem: str | None
    age: float | None
    hour: dict[str, int]
    failing: str | None


class RouteResponse(Struct):
    """The name in the engine of the model that answers the query, and the version of the model that chose it."""

    name: str
    model: str


class RankedDocument(Struct, gc=False):
    """A document and its score; only scores of one query can be compared."""

    id: str
    score: float


class RankResponse(Struct, omit_defaults=True):
    """The documents, best first, and the version of the model that ranked them."""

    query: str
    model: str
    documents: list[RankedDocument]
    impression: str | None = None  # of an interleaved answer: what clicks are sent with
    teams: list[int | None] | None = None


class BatchResponse(Struct):
    """The answers, in the order of the requests."""

    responses: list[RankResponse]


class FoundDocument(Struct):
    """A candidate under both models: its rank and score under each; `grade` if somebody judged it.

    `ranks`: its rank in every first-stage run that found it, and in `fused`, all runs by their reciprocal ranks.
    """

    id: str
    title: str
    snippet: str
    rank: int
    score: float
    rank_everyone: int
    score_everyone: float
    grade: int | None = None
    ranks: dict[str, int] = {}


class RunWeight(Struct):
    """The weight of a first-stage run for this query, and for all queries."""

    run: str
    here: float
    everyone: float | None


class KnownQuery(Struct):
    """A query that the service knows: one to try, or a training query that influenced another."""

    id: str
    text: str | None = None
    class_: str | None = field(default=None, name="class")


class SearchResponse(Struct):
    """A query's candidates in the order of its own model, and in that of one model for all.

    `candidates` were ranked; `documents` are the first of any order. `runs`: the first-stage orders that `ranks` of the
    documents refer to. `weights`: the weights of runs, if the model has them. `judging`: only if results can be judged.
    `interleaved`: if two models are compared, the ids of the documents to show, in this order, with the `impression` to
    send clicks with, and the `teams` if they were requested. `without_vectors`: the embedder returned no vector for the
    query, so documents were found by BM25 alone, and are ranked as if they were similar to nothing.
    """

    query: KnownQuery
    model: str
    candidates: int
    documents: list[FoundDocument]
    explanation: JsonObject | None
    neighbours: list[KnownQuery]
    milliseconds: float
    runs: list[str]
    weights: list[RunWeight]
    judging: Judging | None = None
    without_vectors: bool = False
    impression: str | None = None
    interleaved: list[str] = []
    teams: list[int | None] = []


class Hit(Struct):
    """A document that the engine found, with its content from the engine; its score is that of the returned order."""

    id: str
    score: float
    source: JsonObject


class HitsResponse(Struct, omit_defaults=True):
    """The engine's documents in the order of a model, best first, and the version of the model.

    `model` is null if no model could rank them: they are then in the engine's own order, and `note` says why.
    `impression` and `teams` as in `/v1/rank`.
    """

    query: str
    model: str | None
    documents: list[Hit]
    impression: str | None = None
    teams: list[int | None] | None = None
    note: str | None = None


class QueriesResponse(Struct):
    """Judged queries to choose from."""

    queries: list[KnownQuery]


class QueryDifference(Struct):
    """The quality of the model's order of a judged query, and of each order that it is compared with."""

    id: str
    value: float
    others: dict[str, float]


class DifferencesResponse(Struct):
    """Judged queries by the measure of their orders: the model's, and those that it is compared with.

    `orders` are `everyone`, for a model of more than one for all, and the first-stage orders of `/v1/search`. `queries`
    are all judged queries or, if that would take too long, as many as possible, spread over the whole set.
    """

    model: str
    measure: str
    orders: list[str]
    judged_queries: int
    queries: list[QueryDifference]


class ModelSetting(Struct):
    """A setting of the fitted method, with its value."""

    name: str
    type: str
    default: bool | int | float | str | None
    choices: list[str]
    help: str
    value: bool | int | float | str | None


class ModelResponse(Struct):
    """The model that is served; `per_query`: whether a query can have a model of its own.

    `settings` are those of the fitted method, if the model's notes name one. `highest_grade`: the highest grade that
    can be given here; null if results cannot be judged. `retrain`: the command that retrains the model with the
    judgments given here added, with words in capitals for what the service does not know; null if search results cannot
    be judged. `experiment`: whether two models, or rankings that are sent, are compared here. `feature_descriptions`:
    the meanings of features that `querywise features` and `fuse` make.
    """

    version: str
    ranker: str
    per_query: bool
    feature_count: int
    feature_names: list[str] | None
    missing: str
    versions: dict[str, str]
    notes: JsonObject
    settings: list[ModelSetting]
    searches: bool
    judged_queries: int
    highest_grade: int | None = None
    retrain: str | None = None
    experiment: bool = False
    feature_descriptions: dict[str, str] = {}


class Problem(Struct):
    """A message that says what went wrong; `where` is the location in the request."""

    code: str
    message: str
    where: str | None = None


class ErrorResponse(Struct):
    """The shape of every error."""

    error: Problem


WithDocuments = RankRequest | BatchRequest | ExplainRequest | RouteRequest


def documents_of(asked: WithDocuments | WeightsRequest) -> list[Documents]:
    """The documents with features of each query."""
    if isinstance(asked, WeightsRequest):
        return []
    return [each.documents or [] for each in (asked.requests if isinstance(asked, BatchRequest) else [asked])]


def sizes(asked: WithDocuments | WeightsRequest) -> list[int]:
    """How many documents each query has."""
    return list(map(len, documents_of(asked)))


def listed(asked: WithDocuments | WeightsRequest) -> int:
    """How many documents come one by one, and not as a table of bytes."""
    return sum(len(each) for each in documents_of(asked) if isinstance(each, list))


def unread(values: list[float]) -> Raw:
    """Features as JSON that is not decoded, as in a request."""
    return Raw(msgspec.json.encode(values))


def components(*kinds: type) -> tuple[list[JsonObject], JsonObject]:
    """The JSON schemas of some types, as references, and the definitions that they refer to."""
    schemas, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return list(schemas), parts
