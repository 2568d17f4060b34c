"""Splits into training, validation and test sets by query, never by row; groups of queries stay together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.data.coverage import whole_grades
from querywise.data.judged import Judged, concatenate
from querywise.data.judgements import write_judgements
from querywise.data.letor import (
    FEATURES,
    QRELS,
    QUERIES,
    RUN_FILES,
    check_names,
    read_letor,
    side_judgements,
    side_runs,
    with_side_files,
    with_side_judgements,
    write_letor,
    write_side_files,
)
from querywise.data.query_groups import deal, equal_sizes, first_groups
from querywise.data.query_table import QueryTable
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.files import OutputFolder, PathLike, atomic_folder
from querywise.runtime.progress import track
from querywise.runtime.values import is_whole

_ENDINGS = (".txt", ".txt.gz", ".txt.xz")
PARTS = 5
_PART_FILES = {f"S{number}{ending}" for number in range(1, PARTS + 1) for ending in (".txt", QRELS)}
_ROUNDING = 1e-6  # how far the sum of the shares may be from 1


class Fold(NamedTuple):
    """One split of a judged set: fit on `train`, choose parameters on `valid`, report on `test`.

    A tuple with names: `train, valid, test = fold`. `compare` takes plain tuples of the three parts too.

    Args:
        train, valid, test: judged sets; no query is in two of them.

    >>> from querywise import Fold, make_judged, split
    >>> fold = Fold(*split(make_judged(10, 3, 2)))
    >>> fold
    Fold(queries: train 6, valid 2, test 2; 2 features)
    >>> len(fold.test)
    2
    """

    train: Judged
    valid: Judged
    test: Judged

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {len(part):,}" for name, part in self._asdict().items())
        return f"Fold(queries: {counts}; {counted(self.train.feature_count, 'feature')})"

    def fingerprint(self) -> list[str]:
        """Return a checksum of each part, which together identify the split."""
        return [mark for part in self for mark in part.fingerprint()]


class Folds:
    """Several folds, each made on access.

    Args:
        makers: one function per fold, which makes it.
        parts: the parts that the folds were made from, in the order of the files.
        after: a final change to every fold, made once, such as learning something from its training set.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Fold]],
        parts: Sequence[Judged] = (),
        after: Callable[[Fold], Fold] | None = None,
    ) -> None:
        self._makers = makers
        self._parts = parts
        self._after = after
        self._made: dict[int, Fold] = {}

    def __len__(self) -> int:
        return len(self._makers)

    def __repr__(self) -> str:
        queries = counted(sum(map(len, self._parts)), "query")
        return f"Folds({counted(len(self), 'fold')}{f' of {queries}' if self._parts else ', read when asked for'})"

    def __getitem__(self, fold: int) -> Fold:
        if self._after is None:
            return self._makers[fold]()
        number = range(len(self))[fold]
        if number not in self._made:
            self._made[number] = self._after(self._makers[number]())
        return self._made[number]

    def __iter__(self) -> Iterator[Fold]:
        return (self[number] for number in range(len(self)))

    def first(self, count: int) -> Folds:
        """Return the first `count` folds."""
        return Folds(self._makers[:count], after=self._after)

    def map(self, change: Callable[[Fold], Fold]) -> Folds:
        """Return the same folds with a change that is made before anything is learned from the training set."""
        return Folds([partial(_changed, make, change) for make in self._makers], self._parts, self._after)

    def learning(self, after: Callable[[Fold], Fold]) -> Folds:
        """Return the same folds with a step that learns something from each training set."""
        return Folds(self._makers, self._parts, after)

    def then(self, change: Callable[[Fold], Fold]) -> Folds:
        """Return the same folds with a further change after all others."""
        before = self._after
        return Folds(self._makers, self._parts, change if before is None else lambda fold: change(before(fold)))

    def sizes(self) -> list[int]:
        """Return the number of training queries of every fold."""
        return [len(make().train) for make in self._makers]

    def whole(self) -> Judged:
        """Return all test queries in the order of the files: all parts, or the folds' test files, joined."""
        parts = list(self._parts) or [fold.test for fold in self]
        return parts[0] if len(parts) == 1 else concatenate(parts)  # a single part keeps the order of its input

    def with_queries(self, table: QueryTable) -> Folds:
        """Return the same folds with the query data of `table`."""
        known = self.map(lambda fold: Fold(*(part.with_queries(table) for part in fold)))
        return Folds(known._makers, [part.with_queries(table) for part in self._parts], self._after)


def _changed(make: Callable[[], Fold], change: Callable[[Fold], Fold]) -> Fold:
    return change(make())


def read_folds(folder: PathLike) -> Folds:
    """Read folds from a LETOR folder: `Fold1..5/{train,vali,test}.txt`, `S1..S5.txt`, or a single `train.txt`, ….

    From parts, fold f trains on S_f, S_f+1, S_f+2, validates on S_f+3 and tests on S_f+4; numbers wrap after 5. If the
    folder also holds `queries.jsonl` or `features.txt` (a name per line), they are read too, as are all judgments of a
    part's queries in a file beside it, such as `S1.qrels`.

    Args:
        folder: the folder.

    Returns:
        Folds; each has `train`, `valid` and `test`, and is read on access.

    Raises:
        DataError: A folder without such files, a line that is not LETOR, and a query that is in two parts.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import make_judged, read_folds
    >>> from querywise.data.folds import write_parts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_parts(make_judged(10, 5, 3), Path(folder) / "parts")
    ...     print(read_folds(Path(folder) / "parts")[0])
    Fold(queries: train 6, valid 2, test 2; 3 features)
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder. Expected one with Fold1..Fold5 or S1.txt..S5.txt in it.")
    if _find(root, "train") is not None:
        return Folds([partial(_read_fold, root, root)])
    numbered = [path for path in root.glob("Fold*") if path.is_dir() and is_whole(path.name[4:])]
    if numbered:
        return Folds(
            [partial(_read_fold, path, root) for path in sorted(numbered, key=lambda path: int(path.name[4:]))]
        )
    files = [file for part in range(1, PARTS + 1) if (file := _find(root, f"S{part}")) is not None]
    if len(files) < PARTS:
        raise DataError(
            f"{root}: neither Fold1..Fold5 folders nor the files S1.txt..S5.txt, nor train.txt, vali.txt and test.txt, "
            "are here."
        )
    return _rotated(_read_parts(files, root))


def make_folds(data: Judged, *, folds: int = PARTS, seed: int = 0, by_time: str | None = None) -> Folds:
    """Cut a judged set into `folds` equal parts by query, at random, and rotate them as LETOR does.

    Args:
        data: a judged set of three queries or more. Where its queries have groups, a group is in one part.
        folds: how many, from 3 to the number of queries. Each tests on one part and validates on another.
        seed: which query is in which part.
        by_time: a column of the query data, such as a date as a number. Queries are then cut in its order into two
            parts more than there are folds: each fold trains on all parts before those that it validates and tests on.
            A group is where its last query is.

    Returns:
        Folds; each has `train`, `valid` and `test`. No query is in two of them.

    Raises:
        DataError: Fewer than three folds, and more than there are queries or groups of them; no such column, and too
            few different values in it.

    >>> from querywise import make_folds, make_judged
    >>> folds = make_folds(make_judged(10, 5, 3))
    >>> len(folds), folds[0]
    (5, Fold(queries: train 6, valid 2, test 2; 3 features))
    """
    if by_time is not None:
        parts = _in_order(data, by_time, folds + 2)
        return Folds([partial(_after_earlier, parts, number) for number in range(folds)], [data])
    made = _rotated(cut_up(data, folds=folds, seed=seed))
    return Folds([partial(made.__getitem__, number) for number in range(len(made))], [data])


def write_parts(data: Judged, folder: PathLike, *, seed: int = 0) -> None:
    """Write a judged set as `S1.txt` to `S5.txt`, split by query, with its side files, as `read_folds` reads them.

    If all judgments are known, those of each part go to a file beside it, such as `S1.qrels`.

    Existing parts are replaced as a whole once everything is written, and stay until then.
    """
    root = Path(folder)
    check_parts_folder(root)
    check_names(data)
    parts = cut_up(data, seed=seed)
    with atomic_folder(root) as made:
        for number, part in enumerate(track(parts, "Parts"), start=1):
            write_letor(made / f"S{number}.txt", part)
            if part.missed is not None:
                write_judgements(made / f"S{number}{QRELS}", part.query_ids, whole_grades(part))
        write_side_files(data, made)


_FOLDER = OutputFolder(
    belongs=lambda name: name in {QUERIES, FEATURES, *RUN_FILES, *_PART_FILES},
    stray="is in this folder, which would be replaced as a whole. Name another.",
)
check_parts_folder = _FOLDER.check


def cut_up(data: Judged, *, folds: int = PARTS, seed: int = 0) -> list[Judged]:
    """Split a judged set at random into nearly equal parts by query; groups of queries stay together."""
    if len(data) < 3:
        raise DataError(
            f"Folds need at least three queries, for training, validation and testing; there are {len(data)} queries."
        )
    if not 3 <= folds <= len(data):
        raise DataError(
            f"{folds} folds need at least one query each, and 3 is the minimum; there are {len(data)} queries."
        )
    shuffled = np.random.default_rng(seed).permutation(len(data))
    return [data.select(part) for part in deal(shuffled, equal_sizes(len(data), folds), data.groups)]


def _after_earlier(parts: Sequence[Judged], number: int) -> Fold:
    """Return the fold that validates and tests on two parts after those up to `number`."""
    valid, test = parts[number + 1 : number + 3]
    return Fold(concatenate(parts[: number + 1]), valid, test)


def _in_order(data: Judged, column: str, parts: int) -> list[Judged]:
    """Cut a judged set into nearly equal parts in the order of a column; groups and equal values stay together."""
    table = data.candidates.queries
    names = () if table is None else table.column_names
    if table is None or table.columns is None or column not in names:
        raise DataError(
            f"by_time={column!r} is no column of the query data; it has {', '.join(names) or 'none'}. Give every query "
            'one in queries.jsonl, as a number: "columns": {"date": 20260131}.',
            arguments=("by_time",),
        )
    times, last = table.columns[:, names.index(column)], np.full(len(data), -np.inf)
    np.maximum.at(last, data.groups, times)
    _, value, counts = np.unique(last[data.groups], return_inverse=True, return_counts=True)
    place = ((np.cumsum(counts) - counts / 2) * parts / len(data)).astype(np.int64)[value]
    found = [np.flatnonzero(place == part) for part in range(parts)]
    if not all(map(len, found)):
        raise DataError(
            f"{parts} parts in the order of {column!r} need more different values: there are {len(counts)}, of "
            f"{len(data)} queries, and queries of one value or group are in one part.",
            arguments=("by_time",),
        )
    return [data.select(part) for part in found]


def split_queries(data: Judged, *, share: float = 0.8, seed: int = 0) -> tuple[Judged, Judged]:
    """Split a judged set at random into two parts, the first with `share` of its queries; groups stay together."""
    cut = round(share * len(data))
    if not 0 < cut < len(data):
        raise DataError(f"A share of {share} leaves one side of {len(data)} queries empty.")
    shuffled = np.random.default_rng(seed).permutation(len(data))
    first, second = deal(shuffled, [cut, len(data) - cut], data.groups)
    return data.select(first), data.select(second)


def some_queries(data: Judged, count: int) -> Judged:
    """Return `count` random queries, in whole groups; smaller samples are subsets of larger ones."""
    return data.select(first_groups(np.random.default_rng(0).permutation(len(data)), count, data.groups))


def split(data: Judged, parts: Sequence[float] = (0.6, 0.2, 0.2), *, seed: int = 0) -> tuple[Judged, ...]:
    """Split a judged set at random by query, by default into training, validation and test queries.

    The part of a query depends only on the query ids, their groups and the seed, not on the order of the rows.
    Within a part the queries keep their order.

    Args:
        data: the judged set.
        parts: the share of the queries that each part gets; they add up to 1. A part has at least one query. Where
            queries have groups, a group is in one part, and shares are kept as nearly as that allows.
        seed: which query is in which part.

    Returns:
        As many judged sets as there are shares.

    Raises:
        DataError: Fewer than two shares, shares that do not add up to 1, and fewer queries, or groups of them, than
            parts.

    >>> from querywise import make_judged, split
    >>> train, valid, test = split(make_judged(10, 3, 2))
    >>> len(train), len(valid), len(test)
    (6, 2, 2)
    """
    shares = _checked_shares(parts)
    count = len(shares)
    if len(data) < count:
        raise DataError(f"{count} parts need at least {count} queries, one each; there are {len(data)} queries.")
    cuts = np.round(np.cumsum(shares)[:-1] * len(data)).astype(np.int64)
    for number in range(count - 1):  # at least one query in each part
        least = number + 1 if number == 0 else int(cuts[number - 1]) + 1
        cuts[number] = min(max(int(cuts[number]), least), len(data) - (count - 1 - number))
    by_id = np.array(sorted(range(len(data)), key=lambda query: data.query_ids[query]), np.int64)
    shuffled = by_id[np.random.default_rng(seed).permutation(len(data))]
    sizes = np.diff(cuts, prepend=0, append=len(data))
    return tuple(data.select(part) for part in deal(shuffled, sizes, data.groups))


def _checked_shares(parts: Sequence[float]) -> list[float]:
    """Return the shares of `split` after checking them."""
    shares = [float(each) for each in parts] if isinstance(parts, (Sequence, np.ndarray)) else []
    if len(shares) < 2 or not all(0 < each < 1 for each in shares) or abs(sum(shares) - 1) > _ROUNDING:
        raise DataError(
            f"split(parts={parts!r}): expected two or more shares above 0 that add up to 1, such as (0.6, 0.2, 0.2)."
        )
    return shares


def _rotated(parts: Sequence[Judged]) -> Folds:
    count = len(parts)

    def fold(first: int) -> Fold:
        turned = [parts[(first + step) % count] for step in range(count)]
        return Fold(concatenate(turned[:-2]), turned[-2], turned[-1])

    return Folds([partial(fold, first) for first in range(count)], parts)


def _read_fold(folder: Path, root: Path) -> Fold:
    found = [
        next((file for name in names if (file := _find(folder, name)) is not None), None)
        for names in (("train",), ("vali", "valid"), ("test",))
    ]
    if any(file is None for file in found):
        raise DataError(f"{folder}: expected train.txt, vali.txt and test.txt (plain, .gz or .xz) in this folder.")
    return Fold(*_read_parts([file for file in found if file is not None], root))


def _find(folder: Path, stem: str) -> Path | None:
    return next((folder / (stem + ending) for ending in _ENDINGS if (folder / (stem + ending)).is_file()), None)


def _read_parts(files: Sequence[Path], root: Path) -> list[Judged]:
    """Read the parts of a split, all as wide as the widest. Raise DataError if a query is in two of them."""
    beside = side_judgements(files)
    parts = [with_side_judgements(read_letor(file), [file]) for file in files]
    home: dict[str, Path] = {}
    for number, part in enumerate(parts):
        for query_id, size in zip(part.query_ids, part.candidates.sizes.tolist(), strict=True):
            file = files[number] if size else beside[number]
            if home.setdefault(query_id, file) != file:
                raise DataError(
                    f"Query {query_id!r} is in both {home[query_id]} and {file}. Parts are split by query; "
                    "give every query a unique id."
                )
    width = max(part.candidates.features.shape[1] for part in parts)
    parts = [with_side_files(part.widened(width), root) for part in parts]
    runs = side_runs(root, parts[0].feature_names or ())
    return [replace(part, runs=runs) for part in parts]
