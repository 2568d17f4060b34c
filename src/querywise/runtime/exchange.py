"""Two paths change places in one step, where the system can do that."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_HERE = -100  # AT_FDCWD: relative paths are relative to the working folder
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV}  # of systems and file systems that cannot


def exchange(first: Path, second: Path) -> bool:
    """Let two paths change places; False, and nothing done, where the system cannot do it in one step."""
    names = os.fsencode(first), os.fsencode(second)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            failed = system.renamex_np(names[0], names[1], ctypes.c_uint(_EXCHANGE))
        else:
            failed = system.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    except (AttributeError, OSError, TypeError):  # a system without the call
        return False
    if not failed:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
