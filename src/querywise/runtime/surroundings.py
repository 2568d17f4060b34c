"""What a process sets up around itself for a while: environment variables, and a folder that is its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Set environment variables while the block runs, or leave them out: those whose value is None."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def private_folder(longest: int) -> Iterator[str]:
    """A path inside a folder that only this user can look into, for who opens its own to all; removed at the end.

    longest: characters that the path of the folder around it may have; /tmp is used where it has more.
    """
    where = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="qw-", dir=where if len(where) <= longest else "/tmp")
    try:
        yield os.path.join(folder, "ray")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
