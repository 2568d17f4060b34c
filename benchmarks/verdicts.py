"""Repeat every p of the four papers' pages from stored values, and hold each printed verdict to its rule.

`python -m benchmarks.verdicts` does it for every folder of docs/figures/ that has values.json.gz, or for those named.
From that file, a number for each test query and column, it computes anew the means, differences and p that table.md
prints, and every claim's tests and verdict. SciPy's own tests are used, and the rule is written down here once more:
nothing of `reproduction` is imported. What is no function of values by test query (times, training queries,
groups of clusters, transformations of training queries) is named as such, and so is what rests on columns that the
folder has not: of a folder without the file, whose run did not write one, verdicts alone are held to the rule. Ends
with 1 if anything differs.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
VALUES = "values.json.gz"
SIGNIFICANT = 0.05
AT = "aTVT, λ_α = 10, λ_β = 1"
_FEW = 13  # queries, of which the signed-rank test counts all signs if some are tied
_PARTS = {"a quarter": 4, "half": 2, "all": 1}
_DIFFICULTIES = {"1 to 3": "hard", "4 to 20": "normal", "more than 20": "easy"}
_CUTS = (0, 10, 25, 50, 75, 90, 100)
_CELL = re.compile(r"(?<!\\)\|")
Floats = NDArray[np.float64]
Columns = Mapping[str, Floats]


class NotStoredError(KeyError):
    """A column that the run has not written."""


class Stored(dict[str, Floats]):
    """The columns that the run has written."""

    def __missing__(self, name: str) -> Floats:
        raise NotStoredError(name)


@dataclass
class Checked:
    """What was compared with what is printed, and what differs; unstored: cells and tests without their columns."""

    cells: int = 0
    claims: int = 0
    unstored: int = 0
    left_out: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def hold(self, where: str, printed: str, find: Callable[[], str | float | None], digits: int = 4) -> None:
        """A printed cell is what is found, up to one unit of its last digit."""
        try:
            found = find()
        except NotStoredError:
            self.unstored += 1
            return
        self.cells += 1
        if isinstance(found, str) or found is None:
            same = printed == (found or "")
        elif printed.startswith("< "):
            same = found < float(printed[2:]) * (1 + 1e-6)
        else:
            same = bool(printed) and abs(float(printed.replace(",", "")) - found) <= 0.51 * 10.0**-digits + 1e-7
        if not same:
            self.wrong.append(f"{where}: printed {printed!r}, found {found}")


def check(folder: Path) -> Checked:
    """Everything that a folder prints against its values."""
    path = folder / VALUES
    stored: dict[str, Any] = {"queries": [], "columns": {}}
    if path.exists():
        stored = json.loads(gzip.decompress(path.read_bytes()))
    columns = Stored({name: np.array(each, np.float64) for name, each in stored["columns"].items()})
    content = json.loads((folder / "numbers.json").read_text())
    checked = Checked()
    tables = _tables((folder / "table.md").read_text())
    for table in tables:
        first = table[0][0]
        for heading, known in _TABLES.items():
            if first.startswith(heading):
                known(checked, table, columns, stored["queries"])
                break
        else:
            if first != "the paper":
                checked.left_out.append(first)
    printed = [row for table in tables if table[0][0] == "the paper" for row in table[1:]]
    if len(printed) != len(content["claims"]):
        checked.wrong.append(f"{len(content['claims'])} claims in numbers.json, {len(printed)} in table.md")
    for claim, row in zip(content["claims"], printed, strict=False):
        _check_claim(checked, claim, row, columns)
    return checked


def _check_claim(checked: Checked, claim: Mapping[str, Any], row: Sequence[str], columns: Columns) -> None:
    """Its tests from the values, its verdict by the rule, and both as printed."""
    where = claim["claim"]
    checked.claims += 1
    for part in claim["parts"]:
        if part["test"]:
            try:
                difference, p = _TESTS[part["test"]](part, columns)
            except NotStoredError:
                checked.unstored += 1
                continue
            for what, one, other in (("difference", difference, part["difference"]), ("p", p, part["p"])):
                if not math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-7):
                    checked.wrong.append(f"{where}: {what} of {part['columns']}: stored {other}, found {one}")
        elif part["p"] is not None:
            checked.wrong.append(f"{where}: a p without a test")
    largest, outcome = by_rule(claim)
    told = f"{outcome}: {claim['here']}" if outcome == "not testable" else outcome
    shown = "" if outcome == "not testable" else claim["here"]
    for cell, found in zip(row, (where, claim["paper"], shown, largest, told), strict=True):
        checked.hold(where, cell, partial(_same, found))
    if (claim["outcome"], claim["p"]) != (outcome, largest):
        checked.wrong.append(f"{where}: stored {claim['outcome']}, {claim['p']}; by the rule {outcome}, {largest}")


def by_rule(claim: Mapping[str, Any]) -> tuple[float | None, str]:
    """The p that a claim rests on and its verdict, as docs/reproduction.md has the rule."""
    parts = claim["parts"]
    if not parts:  # nothing was measured against the paper: why is printed
        return None, claim["outcome"] if claim["outcome"] in ("not testable", "holds by construction") else "no parts"
    ps = [part["p"] for part in parts if part["p"] is not None]
    if min(part["difference"] for part in parts) > 0:
        if not ps:
            return None, "reproduced, no test"
        return max(ps), "reproduced, significant" if max(ps) < SIGNIFICANT else "reproduced, not significant"
    against = [part["p"] for part in parts if part["difference"] < 0 and part["p"] is not None]
    if not against:
        return None, "not reproduced"
    p = min(1.0, min(against) * len(ps))
    return p, "reversed" if p < SIGNIFICANT else "not reproduced"


def _pair(part: Mapping[str, Any], columns: Columns) -> tuple[Floats, Floats]:
    """Both columns where both are known, and where the queries belong."""
    ours, theirs = (columns[name] for name in part["columns"])
    chosen = ~np.isnan(ours) & ~np.isnan(theirs)
    if part["among"]:
        chosen &= columns[part["among"]] > 0
    return ours[chosen], theirs[chosen]


def _paired(part: Mapping[str, Any], columns: Columns) -> tuple[float, float]:
    ours, theirs = _pair(part, columns)
    return part["sign"] * float(np.mean(ours - theirs)), min(1.0, part.get("settings", 1) * _t(ours, theirs))


def _t(ours: Floats, theirs: Floats) -> float:
    if len(ours) < 2 or not np.ptp(ours - theirs):
        return 1.0 if len(ours) < 2 or not np.any(ours - theirs) else 0.0
    return float(stats.ttest_rel(ours, theirs).pvalue)


def _signed_rank(part: Mapping[str, Any], columns: Columns) -> tuple[float, float]:
    ours, theirs = _pair(part, columns)
    return part["sign"] * float(np.mean(ours - theirs)), _wilcoxon(ours, theirs)


def _wilcoxon(ours: Floats, theirs: Floats) -> float:
    gain = ours - theirs
    if not np.any(gain):
        return 1.0
    if len(gain) <= _FEW:
        return float(stats.permutation_test((gain,), _signed_sum, permutation_type="samples").pvalue)
    return float(stats.wilcoxon(gain).pvalue)


def _signed_sum(gain: Floats) -> float:
    return float(np.sign(gain) @ stats.rankdata(np.abs(gain)))


def _equivalent(part: Mapping[str, Any], columns: Columns) -> tuple[float, float]:
    gain = np.subtract(*_pair(part, columns))
    room = part["bound"] - abs(float(gain.mean()))
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain))
    p = float(stats.t.cdf(-room / error, len(gain) - 1)) if error else float(room <= 0)
    return room, p if room > 0 else 1 - p


def _unpaired(part: Mapping[str, Any], columns: Columns) -> tuple[float, float]:
    name, first, second = part["columns"]
    one, other = (columns[name][(columns[each] > 0) & ~np.isnan(columns[name])] for each in (first, second))
    return part["sign"] * float(one.mean() - other.mean()), float(stats.mannwhitneyu(one, other).pvalue)


def _ranked(part: Mapping[str, Any], columns: Columns) -> tuple[float, float]:
    found = stats.spearmanr(*_pair(part, columns))
    return part["sign"] * float(found.statistic), float(found.pvalue)


_TESTS: dict[str, Callable[[Mapping[str, Any], Columns], tuple[float, float]]] = {
    "t": _paired,
    "wilcoxon": _signed_rank,
    "equivalence": _equivalent,
    "mann-whitney": _unpaired,
    "spearman": _ranked,
}


def _tables(text: str) -> list[list[list[str]]]:
    """Every table of a page: its rows, the headings first."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            found.append([])
        elif not line.startswith("| ---"):
            found[-1].append([cell.strip().replace("\\|", "|") for cell in _CELL.split(line.strip()[1:-1])])
    return [table for table in found if table]


def _measure(heading: str) -> str:
    return {"mean NDCG@1..10": "mean_ndcg@10", "mean NDCG": "mean_ndcg"}.get(heading, heading.lower())


def _same(found: str | float | None) -> str | float | None:
    return found


def _rows(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Averages of methods and paired t-tests against rivals; of zha2006 gains and signed-rank tests."""
    headings = table[0]

    def find(name: str, heading: str, rival: str) -> float | None:
        against = re.fullmatch(r"p \((.+?), (.+)\)", heading)
        if against is not None:
            measure = _against(against[1], headings)
            ours, theirs = (f"{each} | {measure}" for each in (name, against[2]))
            return None if ours == theirs else _t(columns[ours], columns[theirs])
        if heading in ("gain, %", "p"):
            return _gain(columns, name, rival)[heading == "p"] if rival else None
        return float(columns[f"{name} | {_measure(heading)}"].mean())

    for row in table[1:]:
        cells = dict(zip(headings, row, strict=True))
        for heading, cell in list(cells.items())[1:]:
            if heading != "against":
                checked.hold(f"{row[0]}, {heading}", cell, partial(find, row[0], heading, cells.get("against", "")))


def _against(measure: str, headings: Sequence[str]) -> str:
    """The measure that a test names in short."""
    long = "mean NDCG@1..10"
    return _measure(long if measure == "mean NDCG" and long in headings else measure)


def _gain(columns: Columns, name: str, rival: str, chosen: NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """The gain in DCG@5, per cent, and its p by the signed-rank test."""
    ours, theirs = (columns[f"{each} | dcg@5"] for each in (name, rival))
    if chosen is not None:
        ours, theirs = ours[chosen], theirs[chosen]
    base = float(theirs.mean())
    return 100 * (float(ours.mean()) / base - 1 if base else 0.0), _wilcoxon(ours, theirs)


def _mean(columns: Columns, name: str) -> float:
    return float(np.nanmean(columns[name]))


def _by_share(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Quality and change ratios against k."""
    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            kind, _, name = heading.partition(" ")
            column = f"{name} | k = {row[0]} % | {'change ratio' if kind == 'γ' else kind.lower()}"
            if cell:
                checked.hold(f"k = {row[0]} %, {heading}", cell, partial(_mean, columns, column))


def _by_parts(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Change ratios by the number of training queries."""
    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            column = f"{heading.removeprefix('γ ')} | training queries in {_PARTS[row[0]]} | change ratio"
            checked.hold(f"{row[0]}, {heading}", cell, partial(_mean, columns, column))


def _by_clusters(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """MAP against the number of clusters; thin groups are of training queries."""
    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            if not heading.startswith("thin"):
                column = f"{heading} | {row[0]} clusters | map"
                checked.hold(f"{row[0]} clusters, {heading}", cell, partial(_mean, columns, column))


def _by_gamma(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """MAP of SSER against γ."""
    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            column = f"sser | {row[0]} | {heading} | map"
            checked.hold(f"{row[0]}, {heading}", cell, partial(_mean, columns, column))


def _by_difficulty(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """MAP by number of relevant documents, and tests against the first row."""
    base = table[1][0]
    for row in table[1:]:
        for place, heading in enumerate(table[0]):
            word = _DIFFICULTIES.get(heading.partition(" (")[0])
            if word is not None:
                mean, p = partial(_among, columns, row[0], word), partial(_p_among, columns, row[0], base, word)
                checked.hold(f"{row[0]}, {heading}", row[place], mean)
                checked.hold(f"{row[0]}, p of {heading}", row[place + 1], p)


def _among(columns: Columns, name: str, word: str) -> float:
    """MAP over the queries of a kind."""
    return float(columns[f"{name} | map"][columns[word] > 0].mean())


def _p_among(columns: Columns, name: str, base: str, word: str) -> float | None:
    """The test against the first row over the queries of a kind."""
    chosen = columns[word] > 0
    return None if name == base else _t(*(columns[f"{each} | map"][chosen] for each in (name, base)))


def _grid(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """DCG@5 over the grid of λ, as `1.9538 (+1.00 %, p = 0.139)`."""

    def find(name: str) -> str:
        gain, p = _gain(columns, name, "regression")
        said = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        return f"{_mean(columns, f'{name} | dcg@5'):.4f} ({gain:+.2f} %, {said})"

    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            name = f"aTVT, {row[0]}, {heading}"
            if cell != "not computed":
                checked.hold(name, cell, partial(find, name))


def _by_gain(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Queries sorted by gain: their gain, and their mean α and β."""

    def find(low: int, high: int, place: int) -> float | None:
        gains = columns[f"{AT} | gain"]
        own = np.argsort(-gains, kind="stable")[round(low * len(gains) / 100) : round(high * len(gains) / 100)]
        moved = np.column_stack([columns[f"{AT} | {each}"][own] for each in ("α", "β")])
        moved = moved[np.isfinite(moved).all(axis=1)]
        mean, below = float(gains[own].mean()), float(columns["regression | dcg@5"][own].mean())
        shown = map(float, moved.mean(axis=0)) if len(moved) else (None, None)
        found: list[float | None] = [mean, 100 * mean / below if below else None, *shown]
        return found[place]

    for row, low, high in zip(table[1:], _CUTS[:-1], _CUTS[1:], strict=True):
        for place, cell in enumerate(row[1:]):
            checked.hold(f"{row[0]}, {table[0][1 + place]}", cell, partial(find, low, high, place))


def _by_move(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Quarters of the queries by how far (α, β) moved."""

    def find(quarter: int, place: int) -> float | None:
        away = columns[f"{AT} | |α^0.1 − 1| + |β / 10|"]
        known = np.flatnonzero(np.isfinite(away))
        own = np.array_split(known[np.argsort(-away[known], kind="stable")], 4)[quarter]
        chosen = np.zeros(len(away), np.bool_)
        chosen[own] = True
        if not place:
            return float(len(own))
        return _gain(columns, AT, "regression", chosen)[place - 1] if len(own) else None

    for quarter, row in enumerate(table[1:]):
        for place, cell in enumerate(row[1:]):
            checked.hold(f"{row[0]}, {table[0][1 + place]}", cell, partial(find, quarter, place))


def _examples(checked: Checked, table: Sequence[Sequence[str]], columns: Columns, queries: Sequence[str]) -> None:
    """Average precision of single queries."""

    def find(query: str, name: str) -> float:
        values = columns[f"{name} | map"]
        return float(values[list(queries).index(query)])

    for row in table[1:]:
        for heading, cell in zip(table[0][1:], row[1:], strict=True):
            checked.hold(f"{row[0]}, {heading}", cell, partial(find, row[0], heading.removeprefix("AP, ")))


_TABLES: dict[str, Callable[[Checked, Sequence[Sequence[str]], Columns, Sequence[str]], None]] = {
    "method": _rows,
    "k, % of m": _by_share,
    "of the training queries": _by_parts,
    "clusters": _by_clusters,
    "MAP of SSER": _by_gamma,
    "MAP by relevant documents": _by_difficulty,
    "DCG@5 with aTVT": _grid,
    "queries, sorted by gain": _by_gain,
    "queries, by |α^0.1": _by_move,
    "query": _examples,
}


def judged() -> list[Path]:
    """The folders of docs/figures/ whose claims name what they rest on."""
    found = []
    for path in sorted(FIGURES.glob("*/numbers.json")):
        content = json.loads(path.read_text())
        if isinstance(content, dict) and all("parts" in each for each in content.get("claims", [{}])):
            found.append(path.parent)
    return found


def main(folders: Sequence[Path]) -> int:
    """Print what was checked in each folder, and what differs; 1 if anything does."""
    wrong = 0
    for folder in folders or judged():
        found = check(folder)
        wrong += len(found.wrong)
        more = f"; {found.unstored} cells and tests without stored values" if found.unstored else ""
        more += f"; not by test query: {', '.join(found.left_out)}" if found.left_out else ""
        print(f"{folder.name}: {found.claims} claims and {found.cells} cells checked, {len(found.wrong)} differ{more}")
        for each in found.wrong:
            print(f"  {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main([Path(each) for each in sys.argv[1:]]))
