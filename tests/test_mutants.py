from __future__ import annotations

import itertools

import pytest

from benchmarks.mutants import sample
from benchmarks.mutations import Mutant, mutants


def of(source: str) -> list[Mutant]:
    return mutants("module", {"file.py": source})


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a + b", {"a - b"}),
        ("a - b", {"a + b"}),
        ("a * b", {"a / b"}),
        ("a / b", {"a * b"}),
        ("a += b", {"a -= b"}),
        ("a < b", {"a <= b"}),
        ("a <= b", {"a < b"}),
        ("a > b", {"a >= b"}),
        ("a >= b", {"a > b"}),
        ("a == b", {"a != b"}),
        ("a != b", {"a == b"}),
        ("a < b <= c", {"a <= b <= c", "a < b < c"}),
        ("a is None", {"a is not None"}),
        ("a not in b", {"a in b"}),
        ("-a", {"+a"}),
        ("not a", {"not not a"}),
        ("a and b", {"a or b"}),
        ("a and (b or c)", {"a or (b or c)", "a and (b and c)"}),
        ("max(a)", {"min(a)"}),
        ("a.argmin()", {"a.argmax()"}),
        ("np.maximum(a, b)", {"np.minimum(a, b)"}),
        ("range(3)", {"range(4)", "range(2)"}),
        ("np.arange(1, b)", {"np.arange(2, b)", "np.arange(0, b)"}),
        ("a[1:]", {"a[2:]", "a[0:]"}),
        ("a[-1]", {"a[+1]", "a[-2]", "a[-0]"}),
        ("a == 1", {"a != 1", "a == 2", "a == 0"}),
    ],
)
def test_every_kind_changes_one_place(source: str, changed: set[str]) -> None:
    assert {mutant.text for mutant in of(source)} == changed
    assert len(of(source)) == len(changed)


@pytest.mark.parametrize(
    "source",
    [
        '"""a + b"""',
        "def f(a: tuple[1 + 1]=2) -> c[-1]: ...",
        "a: Literal[1] = b",
        "raise ValueError(f'{a + 1}', a - 1)",
        "a = f'{b + 1}'",
        "if TYPE_CHECKING:\n    a = b + c",
        "if typing.TYPE_CHECKING:\n    a = b + c",
        "f(3, 'text', True)",
        "a['key']",
        "a | b",
    ],
)
def test_what_is_no_mathematics_stays_as_it_is(source: str) -> None:
    assert not of(source)


SOURCE = """
class C:
    def first(self, a, b):
        return a + b + 1

def second(a):
    def inner(b):
        return a[0] + b
    return inner if a + 1 > 0 else a
"""


def test_a_name_says_which_of_its_kind_in_its_function() -> None:
    names = [mutant.identity for mutant in of(SOURCE)]
    assert names[:3] == ["module:C.first:+ to -:1", "module:C.first:+ to -:2", "module:second.inner:+ to -:1"]
    assert len(set(names)) == len(names)


def test_names_stay_when_lines_functions_and_files_move() -> None:
    first, second = SOURCE.split("def second")
    moved = {"new.py": f"x = 1\n\n# a comment\n\ndef second{second}", "other.py": f"\n\n{first}"}
    there, here = {each.identity: each for each in mutants("module", moved)}, of(SOURCE)
    assert set(there) == {each.identity for each in here}
    for each in here:
        assert (there[each.identity].before, there[each.identity].after) == (each.before, each.after)
        assert there[each.identity].line != each.line


def test_a_mutant_says_where_it_is_and_what_was_there() -> None:
    found = of("def f(a):\n    if a > b:\n        return a + 1\n")
    assert [(each.line, each.before, each.after) for each in found] == [
        (2, "if a > b:", "if a >= b:"),
        (3, "return a + 1", "return a - 1"),
    ]


def test_the_sample_is_spread_evenly_and_always_the_same() -> None:
    every = of("\n".join(["a + b"] * 100))
    places = [each.line for each in sample(every, 24)]
    assert places == [each.line for each in sample(every, 24)]
    assert {later - earlier for earlier, later in itertools.pairwise(places)} == {4, 5}
    assert sample(every[:5], 24) == every[:5]
