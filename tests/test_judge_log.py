"""The log of judges with names: what its lines come to, whoever judges, undoes, or is killed within a line."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.data.judge_log import (
    LOG_BESIDE,
    MOST_LETTERS,
    NOBODY,
    JudgeLog,
    Line,
    is_name,
    lines_of_log,
    together,
)
from querywise.data.judgements import read_grades, read_judgements
from querywise.errors import DataError
from querywise.service.judging import JudgesFile
from tests.worlds import examples

JUDGES = ("ann", "Zoë-2")
PAIRS = [(query, document) for query in ("q1", "q2") for document in ("D1", "D2")]
ACTS = st.tuples(
    st.sampled_from(JUDGES),
    st.sampled_from(PAIRS),
    st.one_of(st.integers(0, 3), st.none(), st.just("undo"), st.text(max_size=20)),
)


def written(act: tuple[str, tuple[str, str], Any]) -> Line:
    judge, pair, what = act
    if what == "undo":
        return Line(judge, *pair, None, "", undo=True)
    return Line(judge, *pair, None, "", what) if isinstance(what, str) else Line(judge, *pair, what, "")


def expected(acts: list[tuple[str, tuple[str, str], Any]]) -> dict[tuple[str, str], dict[str, int]]:
    """The plainest fold there is: every grade in a list, of which an undo takes the newest of its pair."""
    kept: list[tuple[str, tuple[str, str], Any]] = []
    for judge, pair, what in acts:
        if what == "undo":
            own = [place for place, each in enumerate(kept) if each[:2] == (judge, pair)]
            if own:
                del kept[own[-1]]
        elif not isinstance(what, str):
            kept.append((judge, pair, what))
    last = {(pair, judge): grade for judge, pair, grade in kept}
    found: dict[tuple[str, str], dict[str, int]] = {}
    for (pair, judge), grade in last.items():
        if grade is not None:
            found.setdefault(pair, {})[judge] = grade
    return found


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(ACTS, max_size=30))
def test_the_fold_of_what_was_written_is_that_of_the_plainest_program(acts: list[Any]) -> None:
    text = "".join(written(act).text for act in acts)
    found = JudgeLog(lines_of_log(Path("log"), text))
    assert found.by_pair == expected(acts)
    for pair, own in found.by_pair.items():
        assert found.of_all()[pair[0]][pair[1]] == together(list(own.values()))
        for judge, grade in own.items():
            assert found.grades_of(judge)[pair[0]][pair[1]] == grade
    notes = {}
    for judge, pair, what in acts:
        if isinstance(what, str) and what != "undo":
            notes[judge, pair] = what
    assert found.notes == {key: note for key, note in notes.items() if note}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ACTS, max_size=12), st.integers(0, 10_000))
def test_a_log_that_was_cut_anywhere_is_that_of_its_complete_lines_and_goes_on(acts: list[Any], cut: int) -> None:
    content = "".join(written(act).text for act in acts).encode()
    content = content[: cut % (len(content) + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.qrels"
        log = path.with_name(path.name + LOG_BESIDE)
        log.write_bytes(content)
        whole = content[: content.rfind(b"\n") + 1]
        before = JudgeLog(lines_of_log(log, whole.decode()))
        file = JudgesFile(path)
        assert file.look(lambda found: found.by_pair) == before.by_pair
        line = Line("ann", "q1", "D1", 2, "")
        file.keep(lambda _: line)
        assert log.read_bytes() == whole + line.text.encode(), "only what was not complete is gone"
        own = before.by_pair.get(PAIRS[0], {}) | {"ann": 2}
        assert read_grades(path)["q1"]["D1"] == together(list(own.values()))
        again = JudgesFile(path)
        assert again.look(lambda found: found.by_pair) == file.look(lambda found: found.by_pair)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ACTS, max_size=30))
def test_undoing_everything_leaves_nothing(acts: list[Any]) -> None:
    found = JudgeLog(map(written, acts))
    for judge in JUDGES:
        while (pair := found.last_of(judge, PAIRS)) is not None:
            found.add(Line(judge, *pair, None, "", undo=True))
    assert found.by_pair == {}


def test_the_last_act_of_the_pairs_at_hand_is_undone() -> None:
    found = JudgeLog([Line("ann", "q1", "D1", 1, ""), Line("ann", "q2", "D1", 2, ""), Line("bob", "q1", "D1", 3, "")])
    assert found.last_of("ann", PAIRS) == ("q2", "D1")
    assert found.last_of("ann", [("q1", "D1")]) == ("q1", "D1")
    assert found.last_of("eve", PAIRS) is None


def test_old_logs_without_names_are_read_and_names_go_before_them(tmp_path: Path) -> None:
    path = tmp_path / "given.qrels"
    path.write_text("q0 0 D0 1\nq1 0 D1 1\nq1 0 D2 2\n")
    log = path.with_name(path.name + LOG_BESIDE)
    log.write_text("q1 0 D1 2\nq1 0 D2 -\n")
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D1": 2}}
    log.write_text(
        log.read_text() + 'q1 ann D1 0\nq1 bob D1 3\nq1 bob D1 note "why \\u0007"\nq0 ann D0 3\nq0 ann D0 undo\n'
    )
    assert read_grades(path) == {"q0": {"D0": 1}, "q1": {"D1": 1}}, "the median, rounded down; an undo brings back"
    assert {each.where for each in read_judgements(path)} == {f"{path}:1", f"{log}:4"}


@pytest.mark.parametrize(
    "line",
    [
        "q1 ann D1",
        "q1  D1 1",
        "q1 ann D1 one",
        "q1 ann D1 1 2",
        "q1 0 D1 undo",
        'q1 0 D1 note "no name"',
        "q1 ann D1 note what",
        "q1 ann D1 note 7",
        f'q1 ann D1 note "{"x" * (MOST_LETTERS + 1)}"',
        "q1 ann D1 note " + "[" * 100_000,
        "q1 =1+1 D1 1",
        "q1 <b>ann</b> D1 1",
        "q1 ann\x1b D1 1",
        f"q1 {'a' * 41} D1 1",
    ],
)
def test_a_line_of_no_kind_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(DataError, match=r"^log:2: expected 'query 0 document grade'") as refused:
        list(lines_of_log(Path("log"), f"q1 0 D1 1\n{line}\n"))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", ["ann", "Zoë", "王芳", "अनिल", "a.b-c_d", "7up", "x" * 40])
def test_names_of_people_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        NOBODY,
        "",
        "a b",
        "-ann",
        "=SUM(1)",
        "@ann",
        "+1",
        "<b>",
        "a\tb",
        "a\nb",
        "a\u202eb",
        "a/b",
        "x" * 41,
        "Zoe\u0308",
    ],
)
def test_what_could_do_harm_is_no_name(name: str) -> None:
    assert not is_name(name)
