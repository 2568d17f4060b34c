"""The scripts in examples/ run, and print what is kept beside them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.xdist_group("examples")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_prints_what_is_kept(script: Path, tmp_path: Path) -> None:
    here = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == script.with_suffix(".out").read_text()
    for picture in tmp_path.glob("*.svg"):
        assert "<svg" in picture.read_text()
        assert (EXAMPLES / picture.name).is_file(), "the picture is kept, too"


def test_every_example_is_listed_with_its_output() -> None:
    listed = re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text())
    kept = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".out", ".svg")]
    assert sorted(listed) == sorted(kept)
    assert len(SCRIPTS) == 5
