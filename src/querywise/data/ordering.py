"""Orders of queries and points that depend on their content, not on the order in which they are given."""

from __future__ import annotations

import hashlib

import numpy as np

from querywise.data.judged import Judged
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached

_DIGITS = 9  # digits, relative to the largest coordinate, that are compared


def content_order(data: Judged, *, by_labels: bool = True) -> Ints:
    """Return the queries sorted by a checksum of their documents, labels and data; ids do not count.

    With `by_labels=False`, labels only break ties between queries that are otherwise identical.

    Random draws and sequential sums use this order, so that permuted training queries give the same model. Queries that
    are identical in everything are interchangeable.
    """
    if by_labels:
        return cached("content order", (), data, lambda: np.argsort(_checksums(data), kind="stable"))
    return np.lexsort((_checksums(data), _checksums(data, by_labels=False)))


def by_coordinates(points: Floats) -> Ints:
    """Return the order of points by their first coordinate, then the second, and so on, ignoring rounding errors.

    >>> by_coordinates(np.array([[2.0, 1.0], [1.0, 5.0], [2.0, 0.0]]))
    array([1, 2, 0])
    """
    sizes = np.abs(points).max(axis=0, initial=0.0)
    rounded = np.round(points / np.where(sizes > 0, sizes, 1.0), _DIGITS)
    if not points.shape[1]:
        return np.arange(len(points))
    turn = np.argsort(rounded[:, 0], kind="stable")
    same = rounded[turn[1:], 0] == rounded[turn[:-1], 0]
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():  # compare the other coordinates
        rows = turn[tied]
        turn[tied] = rows[np.lexsort(rounded[rows].T[::-1])]
    return turn


def _checksums(data: Judged, *, by_labels: bool = True) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    candidates, table = data.candidates, data.candidates.queries
    found = np.zeros(len(data), dtype=np.uint64)
    for query in range(len(data)):
        rows = candidates.rows(query)
        known = () if table is None else (
            None if table.texts is None else table.texts[query],
            None if table.classes is None else table.classes[query],
        )  # fmt: skip
        parts = [repr(known).encode(), candidates.features[rows].tobytes()]
        if by_labels:
            parts.append(data.labels[rows].tobytes())
        if table is not None and table.groups is not None and table.groups[query] is not None:
            parts.append(repr(table.groups[query]).encode())
        if by_labels and data.judged is not None:
            parts.append(data.judged[rows].tobytes())
        if by_labels and data.query_weights is not None:
            parts.append(data.query_weights[query : query + 1].tobytes())
        if by_labels and data.document_weights is not None:
            parts.append(data.document_weights[rows].tobytes())
        if table is not None:
            more = [each for each in (table.columns, table.vectors) if each is not None]
            parts += [np.ascontiguousarray(each[query]).tobytes() for each in more]
        checksum = hashlib.blake2b(b"".join(parts), digest_size=8).digest()
        found[query] = int.from_bytes(checksum, "big")
    return found
