"""Groups of queries, such as the wordings of one need: checks, and assignment of whole groups to parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from querywise.data.rows import is_missing
from querywise.errors import DataError
from querywise.runtime.arrays import Ints

Group = str | int | None
Groups = ArrayLike | Sequence[Group] | Mapping[str, Group]


def checked_groups(groups: Groups, query_ids: Sequence[str]) -> tuple[str | None, ...]:
    """Return the group of every query as text; None for a query on its own.

    `groups` are one per query, or by query id; a query without an entry is on its own.
    """
    if isinstance(groups, Mapping):
        known = set(query_ids)
        stranger = next((each for each in groups if each not in known), None)
        if stranger is not None:
            raise DataError(
                f"query_groups has a group for query {stranger!r}, which is not among the {len(known)} queries."
            )
        given = [groups.get(query_id) for query_id in query_ids]
    else:
        given = listed(groups)
    if len(given) != len(query_ids):
        raise DataError(f"There are {len(query_ids)} queries but {len(given)} query groups; one per query is needed.")
    return tuple(_name(each, query_id) for each, query_id in zip(given, query_ids, strict=True))


def listed(groups: ArrayLike | Sequence[Group]) -> list[Group]:
    """Return groups of rows or queries as a list, from a list, an array or a column of a table."""
    found: Any = groups.tolist() if hasattr(groups, "tolist") else groups
    if isinstance(found, (str, bytes)) or not hasattr(found, "__iter__"):
        raise DataError(f"query_groups must be one text or whole number per query; found {groups!r:.60}.")
    return list(found)


def _name(group: Any, query_id: str) -> str | None:
    """Return a group as text (7 and 7.0 both become "7"), or None if there is none."""
    if is_missing(group):
        return None
    if isinstance(group, (float, np.floating)) and float(group).is_integer():
        group = int(group)
    if isinstance(group, (bool, np.bool_)) or not isinstance(group, (str, int, np.integer)) or not str(group).strip():
        raise DataError(
            f"The group of query {query_id!r} is {group!r:.60}; expected a text or a whole number, or None for a query "
            "that is in no group."
        )
    return str(group)


def groups_of_rows(by_row: Sequence[Group], starts: Ints, query_ids: Sequence[str]) -> tuple[str | None, ...]:
    """Return the group of every query from those of its rows, which must agree.

    Query i has rows starts[i]:starts[i + 1].
    """
    owners = [query_ids[query] for query in np.repeat(np.arange(len(query_ids)), np.diff(starts)).tolist()]
    names = [_name(each, query_id) for each, query_id in zip(by_row, owners, strict=True)]
    found: dict[str, str | None] = {}
    for name, query_id in zip(names, owners, strict=True):
        if found.setdefault(query_id, name) != name:
            raise DataError(
                f"Query {query_id!r} is in group {found[query_id]!r} in one row and in {name!r} in another. All rows "
                "of a query need the same group."
            )
    return tuple(found.get(query_id) for query_id in query_ids)


def are_alone(groups: Ints) -> bool:
    """Return whether every query is a group of its own."""
    return len(np.unique(groups)) == len(groups)


def equal_sizes(count: int, parts: int) -> Ints:
    """Return the sizes of `parts` parts, which differ by at most 1.

    >>> equal_sizes(11, 3)
    array([4, 4, 3])
    """
    return count // parts + (np.arange(parts) < count % parts)


def deal(order: Ints, sizes: Sequence[int] | Ints, groups: Ints) -> list[Ints]:
    """Assign queries to parts of about these sizes; no group is split, and no part is empty.

    If every query is a group of its own, the parts are consecutive slices of these sizes. Otherwise groups are assigned
    from large to small, in the given order if they are of about the same size, each to the part that lacks the most
    queries.

    Args:
        order: the indices of the queries, shuffled.
        sizes: the sizes of the parts.
        groups: the index of every query's group, as in `Judged.groups`.

    >>> [part.tolist() for part in deal(np.array([3, 0, 2, 1, 4]), [3, 2], np.array([0, 1, 0, 1, 1]))]
    [[1, 3, 4], [0, 2]]
    """
    own = groups[order]
    if are_alone(own):
        return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
    _, first, group, counts = np.unique(own, return_index=True, return_inverse=True, return_counts=True)
    if len(counts) < len(sizes):
        raise DataError(
            f"{len(sizes)} parts need as many groups of queries, so that no group is in two of them; the {len(order)} "
            f"queries are in {len(counts)} groups."
        )
    room, empty = np.array(sizes, dtype=np.int64), np.ones(len(sizes), np.bool_)
    place = np.zeros(len(counts), dtype=np.int64)
    turn = np.lexsort((first, -np.log2(counts).astype(np.int64)))  # by powers of two, so that the order still matters
    for left, each in zip(range(len(turn), 0, -1), turn, strict=True):
        lacking = np.where(empty | (left > empty.sum()), room, np.iinfo(np.int64).min)
        part = int(np.argmax(lacking))
        place[each], room[part], empty[part] = part, room[part] - counts[each], False
    return [np.sort(order[place[group] == part]) for part in range(len(sizes))]


def deal_in_turn(shuffled: Ints, parts: int, groups: Ints) -> Ints:
    """Return the part of every query: its shuffled index modulo `parts`, or if there are groups, as in `deal`.

    >>> deal_in_turn(np.array([2, 0, 1]), 2, np.arange(3))
    array([0, 0, 1])
    """
    place = shuffled % parts
    if not are_alone(groups):
        for number, part in enumerate(deal(np.argsort(shuffled), np.bincount(place, minlength=parts), groups)):
            place[part] = number
    return place


def first_groups(order: Ints, count: int, groups: Ints) -> Ints:
    """Return the first `count` queries of an order, sorted: as many whole groups as fit, and at least one.

    >>> first_groups(np.array([3, 0, 2, 1]), 3, np.array([0, 1, 0, 1])).tolist()
    [1, 3]
    """
    own = groups[order]
    if are_alone(own):
        return np.sort(order[:count])
    _, first, group, counts = np.unique(own, return_index=True, return_inverse=True, return_counts=True)
    turn = np.argsort(first)
    fitting = max(int(np.searchsorted(np.cumsum(counts[turn]), count, side="right")), 1)
    return np.sort(order[np.isin(group, turn[:fitting])])
