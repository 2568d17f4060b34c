"""Many strings in two arrays, which a file can be mapped into memory as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from querywise.runtime.arrays import Ints

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Strings(Sequence[str]):
    """Strings end to end as UTF-8, and where each begins."""

    def __init__(self, content: Bytes, starts: Ints) -> None:
        self.content = content
        self.starts = starts

    @classmethod
    def of(cls, texts: Iterable[str]) -> Strings:
        """The strings of a sequence."""
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
        found = self._bytes(place + len(self) if place < 0 else place)
        try:
            return found.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # not written here
            return found.decode("utf-8", "replace")

    def _bytes(self, place: int) -> bytes:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.content[self.starts[place] : self.starts[place + 1]].tobytes()

    def is_sound(self) -> bool:
        """Whether the arrays are of the right types, and every string lies in the content."""
        content, starts = self.content, self.starts
        return (
            content.ndim == starts.ndim == 1
            and content.dtype == np.uint8
            and starts.dtype == np.int64
            and len(starts) > 0
            and starts[0] == 0
            and starts[-1] == len(content)
            and bool((starts[1:] >= starts[:-1]).all())
        )

    def find(self, text: str) -> int:
        """The place of a string among sorted ones; −1 if it is not there."""
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
