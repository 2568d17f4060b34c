"""The blocks of code on a page of the documentation."""

from __future__ import annotations

import contextlib
import io
import re

BLOCK = re.compile(r"```(python|sh)\n(.*?)```(?:\n```\n(.*?)```)?", re.DOTALL)


def printed_by(code: str, page: str, names: dict[str, object]) -> str:
    """What a block of Python prints; what it defines stays in `names`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), names)
    return printed.getvalue()
