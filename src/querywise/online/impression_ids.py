"""Impression ids: signed, so that nobody else can make one, and with everything needed to draw the list again.

An id is `SEED.TIME.ARM~ARM.SIGNATURE`: eight bytes and the seconds since 1970 in hexadecimal digits, the rankings that
were interleaved, and the first 16 bytes of an HMAC-SHA256 of everything before, in base64 for URLs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 400  # characters
ARM = r"[A-Za-z0-9_-]{1,60}"
_ID = re.compile(rf"([0-9a-f]{{16}})\.([0-9a-f]{{1,12}})\.({ARM}(?:~{ARM})*)\.([A-Za-z0-9_-]{{22}})", re.ASCII)


class ImpressionId(NamedTuple):
    """The content of an id: the seed of the draw, when it was first made, and the names of the rankings."""

    seed: bytes
    seconds: int
    arms: tuple[str, ...]

    def signed(self, key: bytes) -> str:
        """Format the signed id.

        >>> ImpressionId(bytes(8), 1, ("a", "b")).signed(b"key")
        '0000000000000000.1.a~b.2W8v90iW50pnzvqFfQoAqA'
        """
        text = f"{self.seed.hex()}.{self.seconds:x}.{'~'.join(self.arms)}"
        return f"{text}.{_signature(text, key)}"


def read_id(text: str, key: bytes | None) -> ImpressionId | None:
    """Parse an id; return None unless it was signed with the key. If `key` is None, the signature is not checked."""
    found = _ID.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        return None
    signed = text.rpartition(".")[0]
    if key is not None and not hmac.compare_digest(_signature(signed, key), found[4]):
        return None
    return ImpressionId(bytes.fromhex(found[1]), int(found[2], 16), tuple(found[3].split("~")))


def seed_of(key: bytes, session: str | None, query: str, arms: Sequence[str]) -> bytes:
    """Return the seed of a draw: the same whenever a session repeats a query; random without a session."""
    if session is None:
        return os.urandom(8)
    said = b"\0".join(each.encode(errors="surrogatepass") for each in ("draw", session, query, *arms))
    return hmac.digest(key, said, "sha256")[:8]


def pseudonym(key: bytes, session: str) -> str:
    """Return a session's name in the log, from which only the owner of the key can tell the session."""
    return hmac.digest(key, b"session\0" + session.encode(errors="surrogatepass"), "sha256").hex()[:16]


def share_of(seed: bytes) -> float:
    """Return a number from 0 to 1 derived from a seed, independent of the draw, to compare with a traffic share."""
    return int.from_bytes(hashlib.sha256(b"share" + seed).digest()[:7], "big") / 2**56


def _signature(text: str, key: bytes) -> str:
    return base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256")[:16]).decode().rstrip("=")
