"""First use on a machine: another process compiles the kernels while this one compiles its reader and reads.

`python -m querywise.jobs.first_use` is that process for a training. Compiled code is stored on disk, where the training
finds it. This module imports nothing slow: the sooner that process starts, the sooner the training can.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import numpy as np

from querywise.learners.ranksvm.preferences import SQUARED_HINGE, Preferences
from querywise.runtime.progress import COMPILING, doing
from querywise.runtime.threads import cores

_TRAINED = ("ranksvm", "auto")  # methods that are mostly compiled code: others spend longer on importing libraries
_SECONDS = 300  # for compiling; then the training compiles what is missing
_READER = "data.svmlight.parse"


@contextlib.contextmanager
def compiled_beside(method: str) -> Iterator[Callable[[], None]]:
    """Compile a method's training in another process on first use; call the yielded function to wait for it.

    If that process fails, the training compiles what is missing. The process ends with the block.
    """
    with beside(__name__, _READER) if method in _TRAINED else nullcontext(lambda: None) as wait:
        yield wait


@contextlib.contextmanager
def beside(module: str, *kernels: str) -> Iterator[Callable[[], None]]:
    """Run a module that compiles in another process, unless its kernels are stored; call the yielded function to wait.

    `kernels` are names such as `data.svmlight.parse`.
    """
    if cores() < 2 or not any(map(_is_first, kernels)):
        yield lambda: None
        return
    # -P: a folder named querywise in the current directory is not the package.
    command, nothing = [sys.executable, "-P", "-m", module], subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing) as process:
        try:
            yield lambda: _wait(process)
        finally:
            process.kill()


def _is_first(kernel: str) -> bool:
    """Whether the compiled code of a kernel is not stored yet, although it could be."""
    module, _, name = kernel.rpartition(".")
    *rooms, file = module.split(".")
    files = f"{file}.{name}-*.nbi"  # the index files that numba stores
    given, own = os.environ.get("NUMBA_CACHE_DIR"), Path(__file__).parents[1].joinpath(*rooms)
    if given:
        return not any(Path(given).glob(f"*/{files}"))
    if os.access(own, os.W_OK):
        return not any(own.glob(f"__pycache__/{files}"))
    from querywise.runtime.compiled import kept_in  # numba takes half a second to import

    folder = kept_in(getattr(import_module(f"querywise.{module}"), name))
    return folder is not None and not any(Path(folder).glob(files))


def _wait(process: subprocess.Popen[bytes]) -> None:
    with doing(COMPILING), contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS)


def compile_training() -> None:
    """Compile what a ranking SVM needs, by computing its sums over one pair."""
    pair, ones = Preferences(np.eye(2), np.arange(2), np.array([0, 2])), np.ones(2)
    sums = pair.sums(ones, SQUARED_HINGE)
    pair.curvature(ones, sums.degree, ones, SQUARED_HINGE)


if __name__ == "__main__":
    gc.disable()  # the process ends soon
    compile_training()
