"""Base64 is read as the standard library reads it, and anything else is not read."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest

from querywise.data.json_rows import read_base64
from querywise.runtime.arrays import Bytes


def letters(text: bytes) -> Bytes:
    return np.frombuffer(text, np.uint8)


@pytest.mark.parametrize("size", [*range(14), 300, 301, 302])
def test_bytes_come_back(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8).tobytes()
    found = read_base64(letters(b64encode(content)))
    assert found is not None
    assert found.tobytes() == content


def test_every_letter_is_known() -> None:
    content = bytes(range(256)) * 3
    found = read_base64(letters(b64encode(content)))
    assert found is not None
    assert found.tobytes() == content


@pytest.mark.parametrize("letter", [b" ", b"\\", b"-", b"_", b"=", b"\n", b"\xc3", b"\x00"])
@pytest.mark.parametrize("place", range(8))
def test_no_other_letter_is_taken(letter: bytes, place: int) -> None:
    text = b64encode(b"querywise")[:12]
    assert read_base64(letters(text[:place] + letter + text[place + 1 :])) is None


@pytest.mark.parametrize("text", [b"A", b"AA", b"AAA", b"AAAAA", b"AAAAAA", b"=", b"====", b"AA==AAAA", b"AAAA===="])
def test_what_is_cut_off_or_filled_up_wrongly_is_not_read(text: bytes) -> None:
    assert read_base64(letters(text)) is None
