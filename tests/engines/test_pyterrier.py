"""Coming from PyTerrier: the whole page runs in one process with Terrier's own index, and says what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.artifacts import UnavailableError, cache, java
from tests.engines.conftest import without
from tests.engines.pages import check_shown, run
from tests.optional import require_pyterrier

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "cranfield"
BLOCK = re.compile(r"```(python|py|bash)\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)
END = "-- end of a block --"


def terrier() -> dict[str, str]:
    """The environment in which PyTerrier finds Java, and Terrier, which it fetches on first use."""
    place = cache() / "pyterrier"
    environment = {
        **os.environ,
        "JAVA_HOME": str(java()),
        "PYTERRIER_HOME": str(place),
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-c", "import pyterrier as pt; pt.java.init()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"PyTerrier cannot start Terrier here: {done.stderr[-500:]}")
    return environment


@pytest.mark.real_data
def test_the_page_with_an_index_of_terrier_says_what_it_shows(tmp_path: Path) -> None:
    require_pyterrier()
    try:
        environment = terrier()
    except UnavailableError as error:
        without(error)
    (tmp_path / "cranfield").symlink_to(DATA)
    *blocks, (language, commands, measured) = BLOCK.findall((ROOT / "docs" / "pyterrier.md").read_text())
    assert language == "bash"
    assert [each[0] for each in blocks].count("py") == 2
    script = tmp_path / "page.py"
    script.write_text("\n".join(f"{code}\nprint({END!r})" for _, code, _ in blocks))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for found, (_, _, shown) in zip(done.stdout.split(f"{END}\n"), blocks, strict=False):
        check_shown(found, shown)
    check_shown(run(commands, tmp_path), measured)
