"""Servers as processes: in a folder of their own, as a user without rights, on a loopback port, and gone afterwards."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

USER = "nobody"  # who runs the engines where the tests run as root, which engines refuse
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class StartError(Exception):
    """A server did not start; the message ends with the end of its log."""


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A folder for one run of a server, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f"querywise-{name}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hand_over(folder: Path) -> None:
    """Give a folder and all in it to the user who runs the server."""
    if os.getuid() != 0:
        return
    user = pwd.getpwnam(USER)
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, each) for each in files)):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def answers(url: str, seconds: float = 2.0) -> bool:
    """Whether an address answers, and not with an error of the server."""
    try:
        with urllib.request.urlopen(url, timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except (OSError, ValueError):
        return False


def listens(port: int) -> bool:
    """Whether something listens on a loopback port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


@contextlib.contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    folder: Path,
    ready: Callable[[], bool],
    *,
    environment: Mapping[str, str] | None = None,
    seconds: float = 180.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process in the folder, which is handed over to its user; goes on once `ready` holds.

    Output goes to `server.log` in the folder. At the end the whole group of processes is stopped. It is stopped too
    if the tests are killed.
    """
    hand_over(folder)
    log = folder / "server.log"
    other = pwd.getpwnam(USER) if os.getuid() == 0 else None
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env={**_plain_environment(folder), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread of the tests holds a lock here)
            user=other.pw_uid if other else None,
            group=other.pw_gid if other else None,
            extra_groups=[] if other else None,
        )
    try:
        _wait(name, process, ready, log, seconds)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and all that it started."""
    for signal_number, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 20.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal_number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # children that outlived it


def _plain_environment(folder: Path) -> dict[str, str]:
    """The environment of a server: nothing of ours but the path and the language."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
    return {**kept, "HOME": str(folder), "TMPDIR": str(folder)}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


def _wait(name: str, process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > end:
            what = f"ended with status {ended}" if ended is not None else f"is not ready after {seconds:.0f} seconds"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise StartError(f"{name} {what}. The end of its log:\n{tail}")
        time.sleep(0.2)
