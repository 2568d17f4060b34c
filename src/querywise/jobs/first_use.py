"""The first training on a machine: another process compiles what it needs while this one compiles its reader and reads.

`python -m querywise.jobs.first_use NAME` is that process. It trains the method on a few made-up queries; what is
compiled for them is kept on disk, where the training finds it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from querywise.data.synthetic import make_judged
from querywise.methods import Method, find_method
from querywise.runtime.progress import COMPILING, doing
from querywise.runtime.threads import cores

_TRAINED = ("ranksvm",)  # methods that are little but compiled code: others spend longer on importing libraries


@contextlib.contextmanager
def compiled_beside(method: Method) -> Iterator[Callable[[], None]]:
    """Compile a method's training in another process, where nothing was compiled yet; call what is yielded to wait.

    Should that process fail, the training compiles what it misses. It ends with the block.
    """
    if method.name not in _TRAINED or cores() < 2 or not _is_first():
        yield lambda: None
        return
    # -P: a folder named querywise where people happen to be is not the package.
    command = [sys.executable, "-P", "-m", __name__, method.name]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing) as process:
        try:
            yield lambda: _wait(process)
        finally:
            process.kill()


def _is_first() -> bool:
    """Whether the reader's compiled code is not kept yet, though there is a place for it."""
    from querywise.data.svmlight import parse  # numba takes half a second to import
    from querywise.runtime.compiled import kept_in

    folder = kept_in(parse)
    return folder is not None and not any(Path(folder).glob(f"svmlight.{parse.__name__}-*.nbi"))


def _wait(process: subprocess.Popen[bytes]) -> None:
    with doing(COMPILING):
        process.wait()


if __name__ == "__main__":
    find_method(sys.argv[1]).build().fit(make_judged(queries=8, documents=4, features=3))
