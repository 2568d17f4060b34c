"""Made-up click logs, drawn from a position-based model, and independent click models for tests, in plain Python."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from querywise.clicks.impressions import Impressions
from querywise.clicks.readers import read_clicks
from querywise.runtime.arrays import Floats

Page = tuple[str, Sequence[str], Sequence[bool]]  # a query, the documents shown, and whether each was clicked


Pair = tuple[str, str]
Slot = int | tuple[int, int]  # a position, or one and that of the last click
Chances = list[list[float]]
OfPair = Callable[[str, str], float]
OfRow = Callable[[str, str, int], float]


def _zeros() -> dict[Pair, float]:
    return defaultdict(float)


def _moved(before: Mapping[Pair, float], after: Mapping[Pair, float]) -> float:
    return max(abs(after[each] - before[each]) for each in before)


def made_pages(
    *,
    queries: int = 20,
    documents: int = 5,
    pages: int = 40,
    swaps: float = 0.0,
    eta: float = 1.0,
    seed: int = 0,
) -> list[Page]:
    """Pages of a fixed list for every query, neighbors exchanged in a share of them; θ_p = (1 / p)^eta."""
    chance = np.random.default_rng(seed)
    theta = (1 / np.arange(1, documents + 1)) ** eta
    alpha = chance.beta(1.2, 2.0, size=(queries, documents))
    found: list[Page] = []
    for _ in range(pages):
        for query in range(queries):
            order = np.arange(documents)
            if chance.random() < swaps:
                place = int(chance.integers(documents - 1))
                order[[place, place + 1]] = order[[place + 1, place]]
            clicked = chance.random(documents) < theta * alpha[query, order]
            found.append((f"query {query}", [f"d{query}-{each}" for each in order], clicked.tolist()))
    return found


def rows_text(pages: list[Page], *, separator: str = ",", first: int = 1, times: bool = True) -> str:
    """Pages as a table with a row for every document."""
    names = ["query", "session", "document", "position", "clicked", *(["time"] if times else [])]
    lines = [separator.join(names)]
    for number, (query, shown, clicked) in enumerate(pages):
        for place, (document, click) in enumerate(zip(shown, clicked, strict=True)):
            row = [query, f"s{number}", document, f"{place + first}", f"{int(click)}", f"{1_700_000_000 + number}"]
            lines.append(separator.join(row[: len(names)]))
    return "\n".join(lines) + "\n"


def made_log(folder: Path, pages: list[Page], **how: object) -> Impressions:
    """Pages as they are read from a file."""
    path = folder / "log.csv"
    path.write_text(rows_text(pages, **how))  # type: ignore[arg-type]  # the options of rows_text
    return read_clicks(path)


@contextlib.contextmanager
def engine_with(queries: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The address of a server that answers searches and scrolls as OpenSearch does, with UBI's two indices.

    A search gives its first records and an id, which gives those that follow until none are left. How a real engine
    answers is tested in `tests/engines/test_opensearch_clicks.py`.
    """
    records = {"ubi_queries": list(queries), "ubi_events": list(events)}
    left: dict[str, tuple[str, int, int]] = {}  # scroll → index, first record, how many

    class Engine(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = self.path.split("/")[1]
            index, first, size = left[asked["scroll_id"]] if "scroll_id" in asked else (name, 0, asked["size"])
            scroll = f"scroll {len(left)}"
            left[scroll] = index, first + size, size
            hits = [{"_id": str(place), "_source": each} for place, each in enumerate(records[index])]
            body = json.dumps({"_scroll_id": scroll, "hits": {"hits": hits[first : first + size]}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Plain:
    """Click models written anew from their formulas, one page after the other, in plain Python.

    a, b: the Beta prior of attractiveness; c, d: of satisfaction. Unseen pairs have the prior's mean.
    """

    def __init__(self, pages: list[Page], a: float, b: float, c: float = 1.0, d: float = 1.0) -> None:
        self.pages, self.a, self.b, self.c, self.d = pages, a, b, c, d
        self.depth = max(len(shown) for _, shown, _ in pages)
        counts = [[0.0, 0.0] for _ in range(self.depth)]
        for _, _, clicked in pages:
            for place, click in enumerate(clicked):
                counts[place][0] += 1
                counts[place][1] += click
        rate = sum(each[1] for each in counts) / sum(each[0] for each in counts)
        self.rates = [(click + 10 * rate) / (shown + 10) for shown, click in counts]

    def marginals(self, name: str, test: list[Page]) -> Chances:
        """The chance of a click in every row of other pages."""
        found: list[list[float]] = getattr(self, name.replace("-", "_"))(test)
        return found

    def position_ctr(self, test: list[Page]) -> list[list[float]]:
        return [self.rates[: len(shown)] for _, shown, _ in test]

    def document_ctr(self, test: list[Page]) -> list[list[float]]:
        alpha = self._rates([(page, len(page[1])) for page in self.pages])
        return [[alpha(query, each) for each in shown] for query, shown, _ in test]

    def coec(self, test: list[Page]) -> list[list[float]]:
        won: dict[Pair, float] = defaultdict(float)
        due: dict[Pair, float] = defaultdict(float)
        for query, shown, clicked in self.pages:
            for place, (each, click) in enumerate(zip(shown, clicked, strict=True)):
                won[query, each] += click
                due[query, each] += self.rates[place]
        return [
            [
                self.rates[place] * (won[query, each] + self.a) / (due[query, each] + self.a)
                for place, each in enumerate(shown)
            ]
            for query, shown, _ in test
        ]

    def _rates(self, pages: list[tuple[Page, int]]) -> OfPair:
        """Clicks over impressions in the first rows of every page."""
        won: dict[Pair, float] = defaultdict(float)
        seen: dict[Pair, float] = defaultdict(float)
        for (query, shown, clicked), depth in pages:
            for each, click in zip(shown[:depth], clicked[:depth], strict=True):
                won[query, each] += click
                seen[query, each] += 1
        return lambda query, each: (won[query, each] + self.a) / (seen[query, each] + self.a + self.b)

    def cascade(self, test: list[Page]) -> list[list[float]]:
        depths = [page[2].index(True) + 1 if any(page[2]) else len(page[1]) for page in self.pages]
        alpha = self._rates(list(zip(self.pages, depths, strict=True)))
        return self._chain(test, alpha, lambda query, each, place: 0.0, 1.0)

    def dcm(self, test: list[Page]) -> list[list[float]]:
        on, out_of = [0.0] * self.depth, [0.0] * self.depth
        for _, _, clicked in self.pages:
            places = [place for place, click in enumerate(clicked) if click]
            for place in places:
                out_of[place] += 1
                on[place] += place != places[-1]
        going = [(one + 1) / (two + 2) for one, two in zip(on, out_of, strict=True)]
        return self._chain(test, self._rates(self._to_last()), lambda query, each, place: going[place], 1.0)

    def sdbn(self, test: list[Page]) -> list[list[float]]:
        sigma = self._satisfied()
        return self._chain(test, self._rates(self._to_last()), lambda query, each, _: 1 - sigma(query, each), 1.0)

    def _satisfied(self) -> OfPair:
        ends: dict[Pair, float] = defaultdict(float)
        won: dict[Pair, float] = defaultdict(float)
        for query, shown, clicked in self.pages:
            own = [each for each, click in zip(shown, clicked, strict=True) if click]
            for each in own:
                won[query, each] += 1
            if own:
                ends[query, own[-1]] += 1
        return lambda query, each: (ends[query, each] + self.c) / (won[query, each] + self.c + self.d)

    def _to_last(self) -> list[tuple[Page, int]]:
        found = []
        for page in self.pages:
            places = [place for place, click in enumerate(page[2]) if click]
            found.append((page, places[-1] + 1 if places else len(page[1])))
        return found

    def _chain(self, test: list[Page], alpha: OfPair, after: OfRow, gamma: float) -> Chances:
        found = []
        for query, shown, _ in test:
            at, row = 1.0, []
            for place, each in enumerate(shown):
                one = alpha(query, each)
                row.append(at * one)
                at *= one * after(query, each, place) + (1 - one) * gamma
            found.append(row)
        return found

    def _em(self, slots: Sequence[Sequence[Slot]]) -> tuple[dict[Pair, float], dict[Slot, float]]:
        """EM with attraction as what is missing, which has the same fixed point as with examination."""
        alpha: dict[Pair, float] = defaultdict(lambda: self.a / (self.a + self.b))
        theta: dict[Slot, float] = defaultdict(lambda: 0.5)
        rows = [
            ((query, each), slot, click)
            for (query, shown, clicked), own in zip(self.pages, slots, strict=True)
            for each, slot, click in zip(shown, own, clicked, strict=True)
        ]
        anchored = isinstance(rows[0][1], int)
        anchor = max(range(self.depth), key=lambda place: self.rates[place]) if anchored else -1
        theta[anchor] = 1.0
        cells: dict[tuple[Pair, Slot, bool], int] = defaultdict(int)
        for row in rows:
            cells[row] += 1
        for _ in range(400):
            drawn, shown = _zeros(), _zeros()
            looked: dict[Slot, float] = defaultdict(float)
            at: dict[Slot, float] = defaultdict(float)
            for (pair, slot, click), count in cells.items():
                t, one = theta[slot], alpha[pair]
                none = 1 - t * one
                drawn[pair] += count * (1.0 if click else one * (1 - t) / none)
                looked[slot] += count * (1.0 if click else t * (1 - one) / none)
                shown[pair] += count
                at[slot] += count
            for pair, often in shown.items():
                alpha[pair] = (drawn[pair] + self.a) / (often + self.a + self.b)
            for slot, number in at.items():
                if slot != anchor:
                    theta[slot] = (looked[slot] + 1) / (number + 2)
        return alpha, theta

    def pbm(self, test: list[Page]) -> list[list[float]]:
        alpha, theta = self._em([range(len(shown)) for _, shown, _ in self.pages])
        return [[theta[place] * alpha[query, each] for place, each in enumerate(shown)] for query, shown, _ in test]

    def ubm(self, test: list[Page]) -> list[list[float]]:
        slots = []
        for _, _, clicked in self.pages:
            last = 0
            own: list[Slot] = []
            for place, click in enumerate(clicked, start=1):
                own.append((place, last))
                last = place if click else last
            slots.append(own)
        alpha, theta = self._em(slots)
        found = []
        for query, shown, _ in test:
            chance, row = {0: 1.0}, []
            for place, each in enumerate(shown, start=1):
                one = alpha[query, each]
                clicks = {last: share * theta[place, last] * one for last, share in chance.items()}
                row.append(sum(clicks.values()))
                chance = {last: share - clicks[last] for last, share in chance.items()}
                chance[place] = row[-1]
            found.append(row)
        return found

    def dbn(self, test: list[Page]) -> list[list[float]]:
        """Every way that examination and satisfaction can have gone is listed, page by page."""
        rates, satisfied = self._rates(self._to_last()), self._satisfied()
        alpha = {(query, each): rates(query, each) for query, shown, _ in self.pages for each in shown}
        sigma = {pair: satisfied(*pair) for pair in alpha}
        gamma = 0.9
        kinds, won = self._kinds()
        for step in range(1, 101):
            seen, happy, out_of = _zeros(), _zeros(), _zeros()
            before = {**sigma, ("", ""): gamma}
            on = [0.0, 0.0]
            for (query, listed, clicks), count in kinds.items():
                last = max((place for place, click in enumerate(clicks) if click), default=-1)
                ways = self._ways(query, listed, last, alpha, sigma, gamma)
                total = sum(share for _, share, _ in ways)
                for reached, share, content in ways:
                    part = count * share / total
                    for place in range(reached + 1):
                        seen[query, listed[place]] += part
                    for place in range(min(reached + 1, len(listed) - 1)):
                        ended = content and place == last == reached
                        if clicks[place]:
                            out_of[query, listed[place]] += part
                            happy[query, listed[place]] += part * ended
                        if not ended:
                            on[1] += part
                            on[0] += part * (reached > place)
            for pair in alpha:
                alpha[pair] = (won[pair] + self.a) / (seen[pair] + self.a + self.b)
                sigma[pair] = (happy[pair] + self.c) / (out_of[pair] + self.c + self.d)
            gamma = (on[0] + 1) / (on[1] + 2)
            if step > 10 and _moved(before, {**sigma, ("", ""): gamma}) < 1e-4:
                break
        mean = self.a / (self.a + self.b)
        rest = self.c / (self.c + self.d)
        return self._chain(
            test,
            lambda query, each: alpha.get((query, each), mean),
            lambda query, each, _: (1 - sigma.get((query, each), rest)) * gamma,
            gamma,
        )

    def _kinds(self) -> tuple[dict[tuple[str, tuple[str, ...], tuple[bool, ...]], int], dict[Pair, float]]:
        """How often every page came, and the clicks of every pair."""
        kinds: dict[tuple[str, tuple[str, ...], tuple[bool, ...]], int] = defaultdict(int)
        for query, shown, clicked in self.pages:
            kinds[query, tuple(shown), tuple(clicked)] += 1
        won: dict[Pair, float] = defaultdict(float)
        for (query, listed, clicks), count in kinds.items():
            for each, click in zip(listed, clicks, strict=True):
                won[query, each] += count * click
        return kinds, won

    @staticmethod
    def _ways(
        query: str, shown: Sequence[str], last: int, alpha: dict[Pair, float], sigma: dict[Pair, float], gamma: float
    ) -> list[tuple[int, float, bool]]:
        """(The last examined row, its chance below what all ways have in common, whether the last click satisfied.)

        Down to the last click all is examined and no click satisfied, whichever way it went.
        """
        found: list[tuple[int, float, bool]] = []
        base, at = 1.0, max(last, 0)
        if last >= 0:
            pair = query, shown[last]
            if last == len(shown) - 1:
                return [(last, base, False)]
            found.append((last, base * sigma[pair], True))
            base *= 1 - sigma[pair]
        else:
            base *= 1 - alpha[query, shown[0]]
            if len(shown) == 1:
                return [(0, base, False)]
        for place in range(at, len(shown)):
            if place > at:
                base *= gamma * (1 - alpha[query, shown[place]])
            end = place == len(shown) - 1
            found.append((place, base * (1.0 if end else 1 - gamma), False))
        return found


def plain_perplexity(chances: list[list[float]], pages: list[Page]) -> float:
    """The mean over positions of 2 to the mean number of bits."""
    bits: dict[int, list[float]] = defaultdict(list)
    for row, (_, _, clicked) in zip(chances, pages, strict=True):
        for place, (chance, click) in enumerate(zip(row, clicked, strict=True)):
            sure = min(max(chance, 1e-6), 1 - 1e-6)
            bits[place].append(-math.log2(sure if click else 1 - sure))
    return float(np.mean([2 ** np.mean(each) for each in bits.values()]))


def pages_of(log: Impressions) -> list[Page]:
    """The pages of a log as lists."""
    found: list[Page] = []
    for page in range(len(log)):
        rows = slice(int(log.starts[page]), int(log.starts[page + 1]))
        shown = [log.documents[each] for each in log.document[rows]]
        found.append((log.queries[log.query[page]], shown, log.clicked[rows].tolist()))
    return found


def theta_of(eta: float, documents: int) -> Floats:
    """Examination by position, as `made_pages` has it."""
    found: Floats = (1 / np.arange(1, documents + 1)) ** eta
    return found
