"""Every write, with each of its file operations failing in turn: the old or the new is there, and the next succeeds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.failing_disks import SHORT, WRITES, failing, full, killed_everywhere, linked, tried

EACH = [pytest.param(name, marks=[pytest.mark.slow] if each.long else []) for name, each in WRITES.items()]


@pytest.mark.parametrize("name", EACH)
def test_whichever_operation_fails_the_old_or_the_new_is_there_and_the_next_attempt_succeeds(
    name: str, tmp_path: Path
) -> None:
    found = tried(name, tmp_path, failing)
    assert found.problems == []
    assert found.points > 3
    assert len(found.told) > 2 or WRITES[name].quiet
    assert not any("\n" in each for each in found.told)


@pytest.mark.skipif(os.name == "nt", reason="links need permissions there")
@pytest.mark.parametrize("name", EACH)
def test_whichever_name_of_its_own_is_a_link_a_write_leaves_what_it_leads_to_alone(name: str, tmp_path: Path) -> None:
    found = linked(name, tmp_path)
    assert found.problems == []
    assert found.points > 7
    assert not any("\n" in each for each in found.told)


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_wherever_the_disk_is_full_the_old_or_the_new_is_there_and_the_next_attempt_succeeds(
    name: str, tmp_path: Path
) -> None:
    found = tried(name, tmp_path, full)
    assert found.problems == []
    assert found.told or WRITES[name].quiet
    assert not any("\n" in each for each in found.told)


@pytest.mark.slow
def test_wherever_the_process_is_killed_the_old_or_the_new_is_there_and_the_next_attempt_succeeds(
    tmp_path: Path,
) -> None:
    """Of the short writes; `python -m benchmarks faults` tries all."""
    found = killed_everywhere(tmp_path, SHORT)
    assert [problem for each in found.values() for problem in each.problems] == []
    assert set(found) == set(SHORT)
    assert all(each.points > 3 for each in found.values())
