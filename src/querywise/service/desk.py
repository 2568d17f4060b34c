"""The judging page: named judges go through pairs of a query and a document, each in an order of their own.

What a judge is shown of a pair is the query and the document. Which system found it is not known here; the grades of
others are hidden until the judge has given one.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from fastapi import FastAPI, Query, Request, Response

from querywise.data.judge_log import MOST_LETTERS, MOST_NAME, RULES, JudgeLog, Line, Pair, is_name
from querywise.data.judgements import Grades, qrels
from querywise.display.words import counted, without_controls
from querywise.errors import DataError
from querywise.service import schema
from querywise.service.api import Api, ApiError, add_static_files, json_response
from querywise.service.guards import decode, read_body
from querywise.service.judging import MOST_JUDGES, JudgesFile
from querywise.service.limits import Hosting, Limits

_Result = TypeVar("_Result")
_Asked = TypeVar("_Asked", schema.PairGrade, schema.PairNote, schema.Undo)
Agreeing = Callable[[Grades, Grades], tuple[float, tuple[float, float, float] | None]]
BLOCK = 10  # pairs of a draw among which each judge has an order of their own
_BODY_BYTES = 100_000
_MOST_SHOWN = 20_000  # letters of a document
_COMPARED = 6  # judges whose agreement is told, those with most grades
_FORMULA = "=+-@\t\r"  # what a spreadsheet would compute
_GRADE = msgspec.json.Decoder(schema.PairGrade)
_NOTE = msgspec.json.Decoder(schema.PairNote)
_UNDO = msgspec.json.Decoder(schema.Undo)
_Judge = Annotated[str, Query(max_length=100, description="The name of the judge.")]
_Place = Annotated[int | None, Query(ge=1, description="A place in the order of this judge.")]


class ShownDocument(NamedTuple):
    """What a judge sees of a document."""

    title: str
    text: str


class Desk(Hosting):
    """The state of the judging page.

    file: where grades are kept. pairs: what is to be judged. drawn: whether the pairs are a draw, to be judged from
    the first on; else the documents of a query come together. queries, documents: their texts. agreeing: how far
    two judges agree: the share of equal grades, and weighted kappa with its interval. standing: where the systems of a
    draw stand, in sentences; None where they are not known.
    """

    def __init__(
        self,
        file: JudgesFile,
        pairs: Sequence[Pair],
        queries: Mapping[str, str],
        documents: Mapping[str, ShownDocument],
        agreeing: Agreeing,
        *,
        drawn: bool,
        token: str,
        standing: Callable[[], list[str]] | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(limits, token)
        self.standing = standing
        for name in {each for pair in pairs for each in pair}:
            if not name.isprintable() or " " in name:
                raise DataError(f"{name!r} cannot be judged: the id contains a space or a control character.")
        self.file, self.pairs, self.drawn = file, tuple(pairs), drawn
        self.queries, self.documents = queries, documents
        self.places = {pair: place for place, pair in enumerate(self.pairs)}
        self.order = lru_cache(MOST_JUDGES)(self._order)
        self.agreement = lru_cache(_COMPARED**2)(self._agreement)
        self._agreeing = agreeing

    @property
    def serves(self) -> str:
        """Say what is served, in the words of the log."""
        return f"{counted(len(self.pairs), 'pair')} to judge into {self.file.path}"

    def _order(self, judge: str) -> tuple[Pair, ...]:
        """The pairs in the order of one judge: drawn by name and query within each block, the same at each visit."""

        def drawn(*words: str) -> bytes:
            return hashlib.sha256("\0".join((judge, *words)).encode(errors="surrogatepass")).digest()

        blocks: dict[object, list[Pair]] = {}
        for place, pair in enumerate(self.pairs):
            blocks.setdefault(place // BLOCK if self.drawn else pair[0], []).append(pair)
        return tuple(
            pair for own in blocks.values() for pair in sorted(own, key=lambda each: (drawn(each[0]), drawn(*each)))
        )

    def _agreement(self, first: str, second: str, grades: frozenset[tuple[Pair, int, int]]) -> schema.PairAgreement:
        """Return the agreement of two judges on the pairs that both graded."""
        queries = len({pair[0] for pair, _, _ in grades})
        found = schema.PairAgreement(first, second, len(grades), queries, None, None)
        if queries < 2:
            found.problem = f"They have both graded documents of {counted(queries, 'query')}; two or more are needed."
            return found
        sides: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = ({}, {})
        for (query, document), *both in sorted(grades):
            for side, grade in zip(sides, both, strict=True):
                side.setdefault(query, {})[document] = grade
        found.same, found.weighted_kappa = self._agreeing(*sides)
        if found.weighted_kappa is None:
            found.problem = "Kappa cannot be told where all grades are the same."
        return found


class DeskRoutes:
    """The routes of the judging page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def state(self) -> Response:
        """The pairs to judge, and the progress."""
        return json_response(await self._look(self._state))

    async def pair(self, judge: _Judge, place: _Place = None, after: _Place = None) -> Response:
        """The pair at a place, or this judge's first ungraded pair, after a place or of all; else the last."""
        _require_name(judge)
        return json_response(await self._look(partial(self._at, judge, place, after)))

    async def grade(self, request: Request) -> Response:
        """Keep a grade."""
        asked = await self._read(_GRADE, request)
        if asked.grade is not None and asked.grade > self._desk.file.highest:
            message = f"Grade {asked.grade} is not one of 0 to {self._desk.file.highest}."
            raise ApiError(422, "no_grade", message, "grade")
        pair = self._pair(asked)
        line = Line(asked.judge, *pair, asked.grade, "")

        def changed(found: JudgeLog) -> Line | None:
            return None if found.by_pair.get(pair, {}).get(asked.judge) == asked.grade else line

        return json_response(await self._keep(changed, asked.judge, pair))

    async def note(self, request: Request) -> Response:
        """Keep a note."""
        asked = await self._read(_NOTE, request)
        text = asked.note.strip()
        if len(text) > MOST_LETTERS:
            message = f"The note has {len(text):,} letters; up to {MOST_LETTERS:,} are kept."
            raise ApiError(413, "long_note", message, "note")
        pair = self._pair(asked)
        line = Line(asked.judge, *pair, None, "", text)

        def changed(found: JudgeLog) -> Line | None:
            return None if found.notes.get((asked.judge, pair), "") == text else line

        return json_response(await self._keep(changed, asked.judge, pair))

    async def undo(self, request: Request) -> Response:
        """Withdraw the last grade; returns its pair."""
        asked = await self._read(_UNDO, request)
        undone: list[Pair] = []

        def last(found: JudgeLog) -> Line:
            pair = found.last_of(asked.judge, self._desk.places)
            if pair is None:
                raise ApiError(409, "nothing_to_undo", f"There is no grade of {asked.judge} to take back.")
            undone.append(pair)
            return Line(asked.judge, *pair, None, "", undo=True)

        return json_response(await self._keep(last, asked.judge, undone))

    async def agreement(self) -> Response:
        """The agreement of every two judges."""
        return json_response(await self._run(self._agreements))

    async def standing(self) -> Response:
        """The comparison of the draw's systems; only if their runs are known."""
        standing = self._desk.standing
        if standing is None:
            raise ApiError(404, "no_runs", "The service was started without the runs of the systems.")
        return json_response(await self._run(lambda: schema.StandingsResponse(standing())))

    async def export(
        self, of: Annotated[str, Query(max_length=110, description="judge:NAME, median, majority or notes.")]
    ) -> Response:
        """Qrels of one judge or of all, or the notes."""
        content, kind = await self._look(partial(_exported, of))
        name = f"{self._desk.file.path.stem}-{of.removeprefix('judge:')}.{'csv' if of == 'notes' else 'qrels'}"
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "x-content-type-options": "nosniff",
        }
        return Response(content.encode(), media_type=kind, headers=headers)

    def _state(self, found: JudgeLog) -> schema.JudgingState:
        desk = self._desk
        number = [len(found.by_pair.get(pair, ())) for pair in desk.pairs]
        graded = dict.fromkeys(found.judges, 0)
        for pair, own in found.by_pair.items():
            for judge in own if pair in desk.places else ():
                graded[judge] += 1
        return schema.JudgingState(
            file=desk.file.path.name,
            highest=desk.file.highest,
            pairs=len(number),
            queries=len({query for query, _ in desk.pairs}),
            graded=sum(each > 0 for each in number),
            graded_twice=sum(each > 1 for each in number),
            in_turn=number.index(0) if 0 in number else len(number),
            drawn=desk.drawn,
            stands=desk.standing is not None,
            judges=[schema.JudgedBy(name, count) for name, count in graded.items()],
            rules={str(rule): said for rule, said in RULES.items()},
        )

    def _at(self, judge: str, place: int | None, after: int | None, found: JudgeLog) -> schema.PairToJudge:
        order = self._desk.order(judge)
        if place is not None and place > len(order):
            raise ApiError(422, "no_place", f"There are {counted(len(order), 'pair')}.", "place")
        if place is None:
            first = (after or 0) % len(order)
            turn = [*range(first, len(order)), *range(first)]
            open_ = (each for each in turn if judge not in found.by_pair.get(order[each], ()))
            place = next(open_, (after or len(order)) - 1) + 1
        return self._shown(judge, order[place - 1], found)

    def _shown(self, judge: str, pair: Pair, found: JudgeLog) -> schema.PairToJudge:
        desk = self._desk
        query, document = pair
        own, text = found.by_pair.get(pair, {}), desk.documents[document].text
        return schema.PairToJudge(
            place=desk.order(judge).index(pair) + 1,
            pairs=len(desk.pairs),
            graded=sum(judge in each for pair, each in found.by_pair.items() if pair in desk.places),
            query=query,
            document=document,
            query_text=desk.queries[query],
            title=desk.documents[document].title,
            text=text[:_MOST_SHOWN],
            cut=len(text) > _MOST_SHOWN,
            grade=own.get(judge),
            note=found.notes.get((judge, pair), ""),
            others={name: grade for name, grade in own.items() if name != judge} if judge in own else None,
        )

    def _agreements(self) -> schema.AgreementResponse:
        by_pair, judges = self._desk.file.look(_grades)
        some = sorted(judges, key=lambda each: -sum(each in own for own in by_pair.values()))[:_COMPARED]
        return schema.AgreementResponse(
            [
                self._desk.agreement(
                    one,
                    two,
                    frozenset((p, own[one], own[two]) for p, own in by_pair.items() if one in own and two in own),
                )
                for one, two in combinations(sorted(some), 2)
            ]
        )

    async def _read(self, decoder: msgspec.json.Decoder[_Asked], request: Request) -> _Asked:
        limits = self._desk.limits
        short = replace(limits, body_bytes=min(limits.body_bytes, _BODY_BYTES))
        asked = decode(decoder, await read_body(request, short))
        _require_name(asked.judge)
        return asked

    def _pair(self, asked: schema.PairGrade | schema.PairNote) -> Pair:
        pair = (asked.query, asked.document)
        if pair not in self._desk.places:
            message = f"Document {asked.document!r} of query {asked.query!r} is not to be judged here."
            raise ApiError(422, "no_pair", message, "document")
        return pair

    async def _keep(
        self, line: Callable[[JudgeLog], Line | None], judge: str, pair: Pair | list[Pair]
    ) -> schema.PairToJudge:
        """Append the line that a function makes of the log, and return the pair as it is then."""
        file = self._desk.file

        def job() -> schema.PairToJudge:
            file.keep(line)
            return file.look(lambda found: self._shown(judge, pair[0] if isinstance(pair, list) else pair, found))

        return await self._run(job)

    async def _look(self, seen: Callable[[JudgeLog], _Result]) -> _Result:
        return await self._run(lambda: self._desk.file.look(seen))

    async def _run(self, job: Callable[[], _Result]) -> _Result:
        """Run a job that may wait for a disk in a thread."""
        try:
            return await self._desk.judges.run(job)
        except ApiError as error:
            if error.code != "too_slow":
                raise
            waited = f"{self._desk.limits.seconds:g} seconds"
            message = f"The disk did not respond within {waited}; whether this was kept is unknown. Reload the page."
            raise ApiError(503, "outcome_unknown", message) from None


def _grades(found: JudgeLog) -> tuple[dict[Pair, dict[str, int]], list[str]]:
    """The grades of all pairs, and the judges: copies, as the log may grow meanwhile."""
    return {pair: dict(own) for pair, own in found.by_pair.items()}, [*found.judges]


def _require_name(judge: str) -> None:
    if not is_name(judge):
        message = f"A judge's name has 1 to {MOST_NAME} letters and digits, and between them . - or _, but no space."
        raise ApiError(422, "no_name", message, "judge")


def _exported(of: str, found: JudgeLog) -> tuple[str, str]:
    """The text of a file, and its content type."""
    if of == "notes":
        return _notes(found), "text/csv"
    kind, _, name = of.partition(":")
    if kind == "judge" and name in found.judges:
        return "".join(qrels(found.grades_of(name), of)), "text/plain"
    for rule in RULES:
        if of == rule:
            return "".join(qrels(found.of_all(rule), rule)), "text/plain"
    raise ApiError(404, "no_export", f"There is nothing called {of!r}: expected judge:NAME, median, majority or notes.")


def _notes(found: JudgeLog) -> str:
    """Return the notes as a table; a spreadsheet cannot mistake its cells for formulas."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(("query", "document", "judge", "grade", "note"))
    for (judge, pair), note in found.notes.items():
        grade = found.by_pair.get(pair, {}).get(judge, "")
        table.writerow([_cell(each) for each in (*pair, judge, str(grade), note)])
    return out.getvalue()


def _cell(text: str) -> str:
    plain = without_controls(text)
    return f"'{plain}" if text[:1] in _FORMULA and text else plain


def desk_api(desk: Desk) -> Api:
    """The application, without its guard."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.judges.close()

    app, routes = Api(lifespan=lifespan), DeskRoutes(desk)
    for path, endpoint, request in (
        ("/v1/judging/grade", routes.grade, schema.PairGrade),
        ("/v1/judging/note", routes.note, schema.PairNote),
        ("/v1/judging/undo", routes.undo, schema.Undo),
    ):
        app.add_body_route(path, endpoint, app.describe(request, schema.PairToJudge))
    app.add_get_route("/v1/judging", routes.state, schema.JudgingState)
    app.add_get_route("/v1/judging/pair", routes.pair, schema.PairToJudge)
    app.add_get_route("/v1/judging/agreement", routes.agreement, schema.AgreementResponse)
    app.add_get_route("/v1/judging/standing", routes.standing, schema.StandingsResponse)
    app.add_api_route("/v1/judging/export", routes.export, methods=["GET"], response_class=Response)

    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    async def readyz() -> Response:
        """Whether it should be sent requests; 503 while it shuts down."""
        return json_response({"status": "draining" if desk.draining else "ready"}, 503 if desk.draining else 200)

    app.add_api_route("/healthz", healthz, methods=["GET"])
    app.add_api_route("/readyz", readyz, methods=["GET"])
    add_static_files(app, "judge.html")
    return app
