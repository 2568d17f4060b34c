"""A judged set on disk: shards of whole queries, and a manifest that lists them.

A set of shards is a folder: `part-00000.parquet`, … in order, `shards.json` with the feature names and a checksum of
every file, `queries.jsonl` where there is query data, and `judgements.parquet` where all that was judged is known.
One shard is a Judged like any other, so whatever works query by query works on a set larger than memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from querywise.data.judged import Candidates, Judged, survey_of
from querywise.data.judgements import Grades
from querywise.data.parquet.arrow import about, is_part
from querywise.data.parquet.budget import require_room_for_a_shard, require_room_for_all
from querywise.data.parquet.judgements import JUDGEMENTS, of_queries, read_grades
from querywise.data.parquet.shard import MANIFEST, OpenedShard, ShardFile, query_data
from querywise.data.queries import read_queries
from querywise.data.rows import join_known
from querywise.data.survey import Survey
from querywise.display.words import counted
from querywise.errors import DataError
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.cache import cached
from querywise.runtime.files import SEAL, PathLike, checksum_of, is_sealed, read_stored_text, recover_folder
from querywise.runtime.progress import doing
from querywise.runtime.threads import in_threads
from querywise.runtime.workers import workers

FORMAT, VERSION = "querywise shards", 3  # 2 came with checksums of side files, 3 with judgements


@dataclass(frozen=True, eq=False)
class Shards:
    """A judged set on disk, in files of whole queries; `len` is the number of queries in all of them.

    `open_shards` opens one, `querywise convert` and `write_shards` write one. RankSVM, Single and
    KnnOffline1 and KnnOffline2 of it are fitted shard by shard; others load it as a whole.

    folder: where the files are.
    files: the shards, in order.
    feature_count: how many features a document has.
    feature_names: their names, or None.
    judged: the checksum of all that was judged; None where that is not known.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import Shards, make_judged
    >>> from querywise.data.parquet.writing import write_shards
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shards = write_shards([make_judged(20, 5, 3)], Path(folder) / "train.parquet", rows=40)
    ...     print(isinstance(shards, Shards), len(shards), shards.rows, len(shards.files))
    True 20 100 3
    """

    folder: Path
    files: tuple[ShardFile, ...]
    feature_count: int
    feature_names: tuple[str, ...] | None
    judged: str | None = None  # the checksum of the judgements, where all that was judged is known

    def __len__(self) -> int:
        return sum(file.queries for file in self.files)

    def __repr__(self) -> str:
        queries, documents = counted(len(self), "query", "queries"), counted(self.rows, "document")
        files, features = counted(len(self.files), "file"), counted(self.feature_count, "feature")
        return f"Shards({str(self.folder)!r}: {queries}, {documents}, {features}, {files})"

    @property
    def rows(self) -> int:
        """How many documents there are in all."""
        return sum(file.rows for file in self.files)

    @property
    def known(self) -> str:
        """A checksum of the query data."""
        path = query_data(self.folder, self.files[0].known)
        return checksum_of(path) if path is not None else ""

    @cached_property
    def surveyed(self) -> list[Survey]:
        """The survey of every shard, which training needs first; all are read for it, once."""
        found: list[Survey] = workers().each(_survey, self.files, label="Looking through the shards")
        return found

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The id of every query."""
        return tuple(each for part in self.surveyed for each in part.query_ids)

    @property
    def pairs(self) -> Ints:
        """How many preference pairs each query has."""
        return np.concatenate([part.pairs for part in self.surveyed])

    @property
    def query_weights(self) -> None:
        """How much each query counts in training: the same."""
        return

    @property
    def document_weights(self) -> None:
        """How much each document counts in training: the same."""
        return

    @property
    def gains(self) -> None:
        """What each label is worth: labels are grades."""
        return

    @property
    def in_memory(self) -> bool:
        """Whether all of it is in memory already: it is on disk."""
        return False

    def load(self) -> Judged:
        """All of it in memory, as `whole` gives it; refused where a budget of memory does not allow it."""
        require_room_for_all(self.folder, self.rows, self.feature_count)
        return cached("whole", None, self, self.whole)

    def parts(self) -> list[ShardFile]:
        """What workers are given: the files; refused where a budget of memory is too small for one of them."""
        require_room_for_a_shard(self.folder, max(file.rows for file in self.files), self.feature_count)
        return list(self.files)

    def surveys(self) -> list[Survey]:
        """The survey of every part, which training needs first."""
        return self.surveyed

    def by_query(self, work: Callable[[Candidates], Floats]) -> Floats:
        """The result of `work` for the candidates of every shard, a row per query."""
        return np.concatenate(workers().each(_of_candidates, self.parts(), shared=(work,)))

    def has_texts(self) -> bool:
        """Whether queries have a text, by the first shard."""
        return self.files[0].load().has_texts()

    def fingerprint(self) -> list[str]:
        """The identity of the training set: a checksum of every file and of the query data."""
        return [*(file.checksum for file in self.files), self.known, *([] if self.judged is None else [self.judged])]

    def grades(self) -> Grades | None:
        """All that was judged; None where that is not known."""
        return None if self.judged is None else read_grades(self.folder, self.judged)

    def pieces(self) -> list[tuple[Path, Callable[[], Judged]]]:
        """Every file with a way to read it and all that was judged of its queries; the last has queries without any."""
        grades = self.grades()
        if grades is None:
            return [(file.path, file.load) for file in self.files]
        known, left = grades, set(grades)

        def piece(file: ShardFile) -> Judged:
            part = file.load()
            left.difference_update(part.query_ids)
            others = tuple(query for query in known if query in left) if file is self.files[-1] else ()
            return part.with_judgements(of_queries(known, (*part.query_ids, *others)))

        return [(file.path, partial(piece, file)) for file in self.files]

    def whole(self) -> Judged:
        """All shards in memory as one judged set, in order; needs little more memory than the set itself."""
        for file in self.files:
            file.require_plausible()
        features, labels = np.empty((self.rows, self.feature_count)), np.empty(self.rows, np.int64)
        ends = np.cumsum([file.rows for file in self.files]).tolist()

        def read(place: tuple[ShardFile, int]) -> Judged:
            file, end = place
            return OpenedShard(file).fill(features[end - file.rows : end], labels[end - file.rows : end])

        with doing("Reading"):
            judged = put_together(features, labels, in_threads(read, list(zip(self.files, ends, strict=True))))
        grades = self.grades()
        if grades is not None:
            judged = about(self.folder / JUDGEMENTS, lambda: judged.with_judgements(grades))
        known = query_data(self.folder, self.files[0].known)
        return judged if known is None else about(known, lambda: judged.with_queries(read_queries(known)))


def _survey(file: ShardFile) -> Survey:
    return survey_of(file.load())


def _of_candidates(file: ShardFile, work: Callable[[Candidates], Floats]) -> Floats:
    return work(file.load().candidates)


def is_sharded(path: Path) -> bool:
    """Whether a path is a folder of shards."""
    return (path / MANIFEST).is_file()


def open_shards(folder: PathLike) -> Shards:
    """A set of shards, its manifest read and none of its files.

    folder: one that `querywise convert` or `write_shards` wrote.

    Returns: Shards, which `fit` takes as it takes a Judged set; `load()` reads all of it into memory.

    Refused: with DataError, a folder without a manifest, one that is damaged, and one of a newer version.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import RankSVM, make_judged, open_shards
    >>> from querywise.data.parquet.writing import write_shards
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_shards([make_judged(20, 5, 3)], Path(folder) / "train.parquet", rows=40)
    ...     print(RankSVM().fit(open_shards(Path(folder) / "train.parquet")).weights_.shape)
    (3,)
    """
    root = Path(folder).absolute()
    path = root / MANIFEST
    recover_folder(root)
    if not path.is_file():
        what = f"there is no {MANIFEST} in it" if root.is_dir() else "there is no such folder"
        raise DataError(f"{folder}: not a set of shards: {what}. `querywise convert` makes one.")
    try:
        said = json.loads(read_stored_text(path))
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']!r}, not {FORMAT!r}")
        if said["version"] > VERSION:
            raise DataError(
                f"{path}: these shards are of version {said['version']}, and this querywise reads versions up to "
                f"{VERSION}. Install a newer querywise, or convert the data anew."
            )
        shards = _from_manifest(root, said)
        if (said["version"] > 1 or SEAL in said) and not is_sealed(said):  # version 1 is what other programs may write
            raise ValueError("it does not say what was written")
        return shards
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"it says nothing of {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: the manifest is damaged: {why}. Convert the data anew.") from None


def put_together(features: Floats, labels: Ints, parts: Sequence[Judged]) -> Judged:
    """Parts whose features and labels are in one array already, put together as `concatenate` does."""
    each = [part.candidates for part in parts]
    sizes = np.concatenate([part.sizes for part in each])
    masks = [np.ones(len(part.labels), np.bool_) if part.judged is None else part.judged for part in parts]
    candidates = Candidates(
        features=features,
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        query_ids=tuple(query_id for part in each for query_id in part.query_ids),
        document_ids=join_known([part.document_ids for part in each]),
        comments=join_known([part.comments for part in each]),
        feature_names=each[0].feature_names,
    )
    return Judged(candidates, labels, None if all(part.judged is None for part in parts) else np.concatenate(masks))


def _from_manifest(root: Path, said: Any) -> Shards:
    names = None if said["features"] is None else tuple(said["features"])
    count = _count(said["feature_count"], "feature_count")
    if names is not None and (len(names) != count or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"it names {len(names)} features and says there are {count}")
    known = said["queries_sha256"] if said["version"] > 1 else None
    judged = said["judgements_sha256"] if said["version"] > 2 else None
    for name, checksum in (("queries_sha256", known), ("judgements_sha256", judged)):
        if not isinstance(checksum, str | None):
            raise ValueError(f"{name} is {checksum!r}")
    files: list[ShardFile] = []
    first = 0
    for each in said["shards"]:
        name, checksum = each["file"], each["sha256"]
        if not isinstance(name, str) or not isinstance(checksum, str) or not is_part(name):
            raise ValueError(f"{name!r} is not a shard of it")
        files.append(
            ShardFile(
                root,
                name,
                _count(each["rows"], "rows"),
                _count(each["queries"], "queries"),
                checksum,
                count,
                names,
                first,
                known,
            )
        )
        first += files[-1].queries
    shards = Shards(root, tuple(files), count, names, judged)
    if not files or (said["rows"], said["queries"]) != (shards.rows, len(shards)):
        raise ValueError(
            f"it says {said['rows']} rows of {said['queries']} queries; its shards have {shards.rows} of {len(shards)}"
        )
    if len({file.name for file in files}) != len(files):
        raise ValueError("it lists a shard twice")
    return shards


def _count(value: Any, what: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} is {value!r}")
    return value
