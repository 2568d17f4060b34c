"""Many strings in two arrays, which can be memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import overload

import numpy as np

from querywise.errors import ModelFileError
from querywise.runtime.arrays import Ints

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Strings(Sequence[str]):
    """Concatenated UTF-8 strings, and where each begins."""

    def __init__(self, content: Bytes, starts: Ints) -> None:
        self.content = content
        self.starts = starts

    @classmethod
    def of(cls, texts: Iterable[str]) -> Strings:
        """Return the strings of a sequence."""
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), dtype=np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        try:
            return self._bytes(place + len(self) if place < 0 else place).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise ModelFileError(f"Text {place} of the index is not UTF-8. Rebuild the index.") from None

    @property
    def is_sound(self) -> bool:
        """Whether the strings lie within the content, in order."""
        starts = self.starts
        in_order = len(starts) and starts[0] == 0 and bool((starts[1:] >= starts[:-1]).all())
        return bool(in_order and starts[-1] == len(self.content))

    @cached_property
    def places(self) -> dict[str, int]:
        """The index of each string."""
        return {each: number for number, each in enumerate(self)}

    def _bytes(self, place: int) -> bytes:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.content[self.starts[place] : self.starts[place + 1]].tobytes()

    def find(self, text: str) -> int:
        """Return the index of a string among sorted ones, or −1."""
        wanted = text.encode("utf-8", "surrogatepass")
        content, starts = self.content.data, self.starts.data
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if bytes(content[starts[middle] : starts[middle + 1]]) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self._bytes(low) == wanted else -1
