"""Model folders crafted by chance and signed again, tried in a process of its own: `python -m tests.crafting`.

A case is a golden model with one to three changes to its manifest or its arrays. It is decoded, ranks a few queries and
explains one. The outcome of every case is printed: a line with its number before it is tried, one with what came of it
after.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import math
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as pack

from querywise.contracts.protocols import Ranker
from querywise.data.judged import Candidates
from querywise.errors import QuerywiseError
from querywise.explanations.explain import explain, why
from querywise.measures.order import check_scores
from querywise.runtime.arrays import Arrays
from querywise.runtime.files import digest_of
from querywise.runtime.values import Json
from querywise.storage import load_ranker, read_manifest, version_of
from querywise.storage.models import decoded, read_arrays, read_body
from tests.golden.make import HERE
from tests.golden.worlds import asked
from tests.stored_classes import STORED
from tests.worlds import as_runs

GOLDEN = tuple(sorted(path.name for path in HERE.iterdir() if path.is_dir() and not path.name.startswith("routed")))
FOLDERS = 50  # one case in so many is written to a real folder
LONGEST = 20.0  # seconds for one case
MOST_MEMORY = 1_000_000_000  # bytes that the cases may add together
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    33,
    256,
    1.5,
    -0.5,
    0.0,
    1e30,
    1e308,
    -1e308,
    5e-324,
    2**31,
    2**53,
    2**63,
    -(2**63),
    10**30,
)
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "bm25",
    "global",
    "hinge",
    "cosine",
    "\0",
    "..",
    [],
    {},
    [[]],
    {"$tuple": []},
)
FLOATS = ("nan", "inf", "-inf", "x", "1e999", 5)
NAMES = ("learner", "view_", "weights_", "feature_count_", "number", "parameters", "learned", "$class", "_search")


def ranker_in(value: Json, arrays: Arrays, name: str) -> Ranker:
    """The ranker of a manifest; golden folders hold no adapters."""
    found: Any = decoded(value, arrays, HERE / name)
    ranker: Ranker = found
    return ranker


class Corpus:
    """Golden models as they are stored, all or some, and the queries that they are asked."""

    def __init__(self, *names: str) -> None:
        self.names = names or GOLDEN
        bodies = {name: read_body(HERE / name) for name in self.names}
        self.bodies = {name: json.dumps(body) for name, body in bodies.items()}
        self.arrays = {name: read_arrays(HERE / name, body["arrays"]) for name, body in bodies.items()}
        some = [asked().candidates, as_runs(asked()).candidates]
        some = [every.select(np.array([0, 4, len(every) - 3])) for every in some]
        self.asked = {name: some["run.a.score" in body] for name, body in self.bodies.items()}

    def whole(self, name: str) -> Ranker:
        """A golden model as it is."""
        return ranker_in(json.loads(self.bodies[name])["ranker"], self.arrays[name], name)

    def case(self, number: int, scratch: Path) -> tuple[str, Callable[[], Ranker]]:
        """The name of the golden model of a case, and how what was made of it is loaded: some from a real folder."""
        chance = random.Random(number)
        name = chance.choice(self.names)
        body, arrays = json.loads(self.bodies[name]), dict(self.arrays[name])
        in_folder = number % FOLDERS == 0
        changing = Changing(chance, body if in_folder else body["ranker"], arrays)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            changing.change()
        found = changing.holder[0]
        if not in_folder:
            return name, lambda: ranker_in(found, arrays, name)
        folder = scratch / str(number)
        write(folder, found, arrays, chance.random() < 0.9)
        return name, lambda: _loaded(folder)


def write(folder: Path, body: Any, arrays: Arrays, named: bool = True) -> None:
    """A model folder with right checksums; `named`: the manifest names its arrays file."""
    folder.mkdir()
    content = pack({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    (folder / "arrays").write_bytes(content)
    if isinstance(body, dict):
        if named:
            body["arrays"] = {"file": "arrays", "sha256": digest}
        body = {**body, "sha256": digest_of(body)}
    (folder / "manifest.json").write_text(json.dumps(body))


def _loaded(folder: Path) -> Ranker:
    read_manifest(folder)
    version_of(folder)
    return load_ranker(folder)


class Changing:
    """A model that is changed step by step."""

    def __init__(self, chance: random.Random, value: Any, arrays: Arrays) -> None:
        self.chance, self.holder, self.arrays = chance, [value], arrays

    def change(self) -> None:
        """One change, of the arrays or of the manifest."""
        if self.arrays and self.chance.random() < 0.5:
            key = self.chance.choice(sorted(self.arrays))
            self.arrays[key] = self._array(self.arrays[key], key)
        else:
            self._node()

    def _places(self) -> list[tuple[Any, Any]]:
        """Every place in the manifest at which a value stands."""
        found: list[tuple[Any, Any]] = []
        waiting: list[Any] = [self.holder]
        while waiting:
            holder = waiting.pop()
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            found.append((holder, keys))
            waiting += [holder[key] for key in keys if isinstance(holder[key], (dict, list))]
        return [each for each in found if each[1]]

    def _place(self) -> tuple[Any, Any]:
        holder, keys = self.chance.choice(self._places())
        return holder, self.chance.choice(keys)

    def _node(self) -> None:
        chance = self.chance
        holder, key = self._place()
        kind = chance.randrange(9)
        if kind < 4:
            holder[key] = self._value()
        elif kind == 4 and holder is not self.holder:
            del holder[key]
        elif kind == 5:
            other, place = self._place()
            holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 6:
            other, place = self._place()
            holder[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(holder[key]))
        elif kind == 7:
            objects = [each for each, _ in self._places() if isinstance(each, dict) and "$class" in each]
            (chance.choice(objects) if objects else {})["$class"] = chance.choice(sorted(STORED))
        elif isinstance(holder, dict):
            holder[chance.choice((*NAMES, *holder))] = self._value()
        else:
            holder.append(self._value())

    def _value(self) -> Any:
        chance, keys = self.chance, (*sorted(self.arrays), "nowhere", 5)
        made: tuple[Callable[[], Any], ...] = (
            lambda: chance.choice(NUMBERS),
            lambda: chance.choice((chance.randrange(1, 60), chance.random(), chance.expovariate(0.1))),
            lambda: chance.choice(ODD),
            lambda: {"$float": chance.choice(FLOATS)},
            lambda: {"$same": chance.choice((-1, 0, 1, 2, 3, 99, "x", 1.0, [0]))},
            lambda: {chance.choice(("$array", "$text")): chance.choice(keys)},
            lambda: {
                chance.choice(("$tuple", "$list", "$csr")): chance.choice((5, "ab", None, [chance.choice(NUMBERS)]))
            },
        )
        return chance.choice(made)()

    def _array(self, array: Any, key: str) -> Any:
        """An array with one change; of a text, one number or byte of it."""
        if array.dtype == np.uint8 and array.ndim == 1 and self.chance.random() < 0.9:
            return np.frombuffer(self._text(array.tobytes()), np.uint8)
        chance, size, many = self.chance, array.size, len(array) if array.ndim else 1
        kind = chance.randrange(12)
        if kind > 9 and size and array.dtype != np.bool_:
            return self._shifted(array)
        if kind < 4 and size:
            changed = array.astype(np.float64) if chance.random() < 0.2 else array.copy()
            for _ in range(chance.choice((1, 1, 3))):
                with np.errstate(all="ignore"):
                    value = chance.choice((*NUMBERS, np.nan, np.inf, -np.inf, many, many + 1, size))
                    changed.reshape(-1)[chance.randrange(size)] = _fitting(value, changed.dtype)
            return changed
        if kind == 4:
            types = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.uint64, np.bool_)
            with np.errstate(all="ignore"):
                return array.astype(chance.choice(types))
        if kind == 5:
            return chance.choice(
                (array.reshape(-1), array.T.copy(), array[None], array[..., None], array.reshape(-1)[:1])
            )
        if kind == 6:
            return array[: chance.choice((0, 1, many - 1))] if array.ndim else array.reshape(1)
        if kind == 7:
            return np.concatenate([array, array]) if array.ndim else np.zeros(0)
        if kind == 8:
            return np.zeros(chance.choice(((), (0,), (1, 1), (0, 4), (4, 0), (3,), (32, 4), (1, 1, 1))), array.dtype)
        return self.arrays[chance.choice(sorted(self.arrays))]

    def _shifted(self, array: Any) -> Any:
        """The same numbers in another order, or all of them larger, smaller or of the other sign."""
        if array.ndim and self.chance.random() < 0.3:
            return np.random.default_rng(self.chance.randrange(99)).permuted(array)
        with np.errstate(all="ignore"):
            return (array * self.chance.choice((-1.0, 2.0, 1e-3, 1e3, 1e100, 1e-200))).astype(array.dtype)

    def _text(self, text: bytes) -> bytes:
        chance = self.chance
        numbers = list(re.finditer(rb"(?<=[ =\n])-?[\d.]+(e[-+]?\d+)?(?=[ \n])", text))
        kind = chance.randrange(8)
        if kind < 5 and numbers:
            place = chance.choice(numbers)
            new = chance.choice((*map(str, NUMBERS), "nan", "inf", "-2", "", "x", "4", "5", "1 2", "\0")).encode()
            return text[: place.start()] + new + text[place.end() :]
        lines = text.split(b"\n")
        number = chance.randrange(len(lines))
        if kind == 5:
            del lines[number]
        elif kind == 6:
            lines.insert(number, chance.choice(lines))
        else:
            return (
                text[: chance.randrange(len(text) + 1)]
                + bytes([chance.randrange(256)])
                + text[chance.randrange(len(text) + 1) :]
            )
        return b"\n".join(lines)


def _fitting(value: Any, kind: Any) -> Any:
    """A number as an array of some type can hold it."""
    if kind.kind == "b":
        return bool(value)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return int(min(max(value, limits.min), limits.max)) if math.isfinite(value) else limits.min
    return float(value)


def tried(load: Callable[[], Ranker], candidates: Candidates) -> str:
    """What came of a model: `refused` or `ranked`; any other error is raised."""
    try:
        made = load()
        check_scores(made.predict(candidates), candidates)
        check_scores(made.answer(candidates).scores(), candidates)
    except QuerywiseError:
        return "refused"
    for asking in (lambda: explain(made, candidates, "q4"), lambda: why(made, candidates, "q4", "1", "3")):
        with contextlib.suppress(QuerywiseError):
            asking()
    return "ranked"


def outcomes(corpus: Corpus, numbers: range, scratch: Path) -> Iterator[str]:
    """A line as each case begins, and one as it ends; the latter ends with where an error was raised, if one was."""
    for number in numbers:
        name, load = corpus.case(number, scratch)
        yield f"{number} begins {name}"
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        try:
            found = tried(load, corpus.asked[name])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = f"raised {error!r:.200} in {Path(where.filename).name}:{where.lineno}"
        signal.setitimer(signal.ITIMER_REAL, 0)
        yield f"{number} ends {found}"


def main(first: int, last: int, *names: str) -> None:
    """Try the cases from `first` to before `last`, of all golden models or of some."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # a case that takes too long tells where it was, and is ended
    corpus = Corpus(*names)
    for name in corpus.names:  # loads the libraries, and compiles the kernels, which may take longer than a case
        assert tried(lambda name=name: corpus.whole(name), corpus.asked[name]) == "ranked", name  # type: ignore[misc]
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 4 * MOST_MEMORY, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with tempfile.TemporaryDirectory() as scratch:
        for line in outcomes(corpus, range(first, last), Path(scratch)):
            print(line, flush=True)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > before + MOST_MEMORY:
                raise MemoryError("a case took too much memory")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
