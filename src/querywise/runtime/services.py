"""Services at addresses that the operator configures: checks of addresses, and retries while a service is busy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import SplitResult, parse_qsl, urlsplit

from querywise.errors import DataError
from querywise.runtime.http_client import HttpResponse, RequestError
from querywise.runtime.threads import checkpoint, time_left

BUSY = (408, 425, 429, 500, 502, 503, 504)  # statuses that are worth a retry
_REFUSED = (400, 413, 422)  # statuses about the texts, for example if one is too long
_LONGEST_PAUSE = 30.0  # seconds
_SECRET = re.compile("key|token|secret|passw|^sig", re.IGNORECASE)  # in parameter names


class RefusedTextError(DataError):
    """The service rejected these texts; it may accept others."""


def check_service_address(address: str, key: str, example: str) -> SplitResult:
    """Split an address. Raise DataError if it is invalid or contains a secret.

    `key` is the environment variable where the key belongs.
    """
    try:
        parts = urlsplit(address)
        sound = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, sound = urlsplit(""), False
    if not sound or parts.scheme not in ("http", "https"):
        shown = re.sub("//[^/]*@", "//…@", address)
        raise DataError(f"{shown!r:.100}: expected an address like {example}.")
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if _SECRET.search(name)]
    if parts.username is not None or parts.password is not None or names:
        what = f"a parameter {names[0]!r}" if names else "a name or password"
        raise DataError(
            f"The address at {parts.hostname} has {what} in it, which would be written to models and messages. Put a "
            f"key into the environment variable {key}."
        )
    return parts


def ask_again(
    request: Callable[[], HttpResponse], where: str, *, key: str, attempts: int, pause: float
) -> HttpResponse:
    """Return a service's response, retrying while it is busy, with growing pauses.

    The caller limits the total time of all attempts.
    """
    said, tried = "", 0
    while tried < attempts and (pause < time_left() or not tried):
        if tried:
            time.sleep(min(pause, _LONGEST_PAUSE))
            checkpoint()
            pause *= 2
        tried += 1
        try:
            answer = request()
        except RequestError as error:
            said = str(error)
            if error.kind == "refused":
                raise DataError(f"{where}: {said}. {advice(0, key)}") from None
            continue
        if answer.status == 200:
            return answer
        said = f"status {answer.status}: {answer.shown(200)!r}"
        if answer.status not in BUSY:
            kind = RefusedTextError if answer.status in _REFUSED else DataError
            raise kind(f"{where}: {said}. {advice(answer.status, key)}")
        pause = max(pause, answer.wait)
    raise DataError(
        f"{where}: no answer in {tried} attempt{'s' if tried > 1 else ''} ({said}). Answers received before are kept; "
        "try again later."
    )


def advice(status: int, key: str) -> str:
    """Return advice for a response that retries cannot fix."""
    if status in (401, 403):
        return f"Put the key into the environment variable {key}."
    return "Check the address, and the model's name after #."
