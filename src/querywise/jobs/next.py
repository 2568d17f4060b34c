"""The job of `querywise next`: a file of documents to judge, in order, and the comparison of systems so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from querywise.data.compressed import first_words, lines_of
from querywise.data.judgements import Grades, grades_of, read_grades, read_judgements
from querywise.data.runs import read_runs
from querywise.errors import DataError
from querywise.evaluation.next_judgments import UNIFORM, Estimated, Pair, draw, estimate
from querywise.runtime.files import atomic_text, read_text
from querywise.runtime.values import finite_number

_HEADING = ("query", "document", "share", "priority")


def run(
    runs: Sequence[Path],
    out: Path,
    judged: Path | None,
    *,
    measure: str = "dcg@10",
    cheap: Path | None = None,
    uniform: float = UNIFORM,
    seed: int = 0,
) -> tuple[Estimated, list[Pair]]:
    """Estimate from the draw in a file, which is created if missing; return also the next documents."""
    systems = read_runs(runs)
    known: Grades = grades_of(read_judgements(judged)) if judged is not None and judged.exists() else {}
    if not out.exists():
        labels = None if cheap is None else read_grades(cheap)
        write_draw(out, draw(systems, known, measure=measure, cheap=labels, uniform=uniform, seed=seed))
    pairs = read_draw(out)
    found = estimate(systems, pairs, known, measure=measure)
    return found, [each for each in pairs if each.document not in known.get(each.query, {})]


def write_draw(path: Path, pairs: Sequence[Pair]) -> None:
    """Write a draw: tab-separated, in judging order."""
    with atomic_text(path) as out:
        out.write("\t".join(_HEADING) + "\n")
        for each in pairs:
            if any(letter in name for name in each[:2] for letter in "\t\n\r"):
                raise DataError(f"{each.query!r}, {each.document!r}: an id with a tab or an end of line in it.")
            out.write(f"{each.query}\t{each.document}\t{each.share!r}\t{each.priority!r}\n")


def is_draw(path: Path) -> bool:
    """Whether a file begins like a draw."""
    return tuple(first_words(path)) == _HEADING


def read_draw(path: Path) -> list[Pair]:
    """Read a draw."""
    found: list[Pair] = []
    seen: set[tuple[str, str]] = set()
    for number, line in lines_of(read_text(path)):
        words = tuple(line.split("\t"))
        if number == 1 and words == _HEADING:
            continue
        numbers = [finite_number(word) for word in words[2:]] if len(words) == len(_HEADING) else []
        share, priority = numbers if len(numbers) == 2 else (None, None)
        if (
            share is None
            or priority is None
            or not (0 <= share <= 1 and priority >= (found[-1].priority if found else 0))
        ):
            raise DataError(
                f"{path}:{number}: expected a query, a document, its share and its priority, with tabs between "
                f"them, the lowest priority first; found {line[:80]!r}."
            )
        if words[:2] in seen:
            raise DataError(f"{path}:{number}: document {words[1]!r} of query {words[0]!r} appears a second time.")
        seen.add((words[0], words[1]))
        found.append(Pair(words[0], words[1], share, priority))
    if not found:
        raise DataError(f"{path}: this file has no draw. Remove it, and draw anew.")
    return found
