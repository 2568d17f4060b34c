"""The first training on a machine: another process compiles what it needs while this one compiles its reader and reads.

`python -m querywise.jobs.first_use` is that process. What it compiles is kept on disk, where the training finds it.
Neither imports here what takes long: the sooner that process begins, the sooner the training can.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences
from querywise.runtime.progress import COMPILING, doing
from querywise.runtime.threads import cores

_TRAINED = ("ranksvm", "auto")  # methods that are little but compiled code: others spend longer on importing libraries
_SECONDS = 300  # for compiling; then the training compiles what it misses
_READER = "svmlight.parse-*.nbi"  # what numba keeps of it


@contextlib.contextmanager
def compiled_beside(method: str) -> Iterator[Callable[[], None]]:
    """Compile a method's training in another process, where nothing was compiled yet; call what is yielded to wait.

    Should that process fail, the training compiles what it misses. It ends with the block.
    """
    if method not in _TRAINED or cores() < 2 or not _is_first():
        yield lambda: None
        return
    # -P: a folder named querywise where people happen to be is not the package.
    command, nothing = [sys.executable, "-P", "-m", __name__], subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing) as process:
        try:
            yield lambda: _wait(process)
        finally:
            process.kill()


def _is_first() -> bool:
    """Whether the reader's compiled code is not kept yet, though there is a place for it."""
    given, own = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parents[1] / "data"
    if given:
        return not any(Path(given).glob(f"*/{_READER}"))
    if os.access(own, os.W_OK):
        return not any(own.glob(f"__pycache__/{_READER}"))
    from querywise.data.svmlight import parse  # numba takes half a second to import
    from querywise.runtime.compiled import kept_in

    folder = kept_in(parse)
    return folder is not None and not any(Path(folder).glob(_READER))


def _wait(process: subprocess.Popen[bytes]) -> None:
    with doing(COMPILING), contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS)


def compile_training() -> None:
    """Compile what a ranking SVM needs, by its sums over one pair."""
    pair, ones = Preferences(np.eye(2), np.arange(2), np.array([0, 2])), np.ones(2)
    sums = pair.sums(ones, SQUARED_HINGE)
    pair.curvature(ones, sums.degree, ones, SQUARED_HINGE)


if __name__ == "__main__":
    gc.disable()  # soon all of it is given back
    compile_training()
