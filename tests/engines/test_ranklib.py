"""Coming from RankLib: both sides of the page run on the data it names, and say what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.engines import ranklib
from tests.engines.artifacts import UnavailableError, java
from tests.engines.conftest import without
from tests.engines.pages import NUMBER, check_shown, run

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "MQ2008"
BLOCK = re.compile(r"```sh\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)
SAME = {"ndcg@10": "NDCG@10", "map": "MAP", "err@10": "ERR@10", "mrr@10": "RR@10", "dcg@10": "DCG@10"}


def measured(printed: str, name: str) -> float:
    """The first number after a name in what was printed."""
    found = re.search(rf"^ ?{re.escape(name)}\D.*?({NUMBER.pattern})", printed, re.MULTILINE)
    assert found is not None, f"{name} is not in:\n{printed}"
    return float(found[1])


@pytest.mark.real_data
def test_both_sides_of_the_page_say_what_it_shows(tmp_path: Path) -> None:
    try:
        shutil.copy(ranklib.fetch(), tmp_path / "RankLib.jar")
    except UnavailableError as error:
        without(error)
    parts = {"train": "123", "vali": "4", "test": "5"}
    for name, numbers in parts.items():
        (tmp_path / f"{name}.txt").write_text("".join((DATA / f"S{number}.txt").read_text() for number in numbers))
    printed = []
    fetching, *blocks = BLOCK.findall((ROOT / "docs" / "ranklib.md").read_text())
    assert f"com.o19s:RankyMcRankFace:{ranklib.VERSION}" in fetching[0]
    for commands, shown in blocks:
        found = run(commands.replace("java ", f"{java() / 'bin' / 'java'} "), tmp_path)
        check_shown(found, shown)
        printed.append(found)
    ours, theirs = printed[-2:]
    for name, metric in SAME.items():
        assert measured(ours, name) == measured(theirs, metric), "the two evaluators agree on RankLib's scores"
