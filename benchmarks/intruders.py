"""Attacks by files and requests that somebody made up: `python -m benchmarks.intruders CLASS` runs one class of them.

Each class runs in a process of its own, since a crash is one of the things that may not happen. A case fails that ends
in anything but an answer or one of our errors, that gives numbers which are not finite, or that does not end.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster_intruder import clusters
from benchmarks.results import Result, alone
from querywise import QuerywiseError, RankSVM, Single, save
from querywise.data.collections import Document
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.writing import write_shards
from querywise.data.query_table import QueryTable
from querywise.data.synthetic import make_judged
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.retrieval.approximate import Graph
from querywise.retrieval.embedders.remote import KeptVectors
from querywise.retrieval.embedding import query_embedders, query_vector, with_embedded
from querywise.retrieval.features import candidates_for
from querywise.retrieval.index import Index, build_index, load_index, save_index
from querywise.retrieval.indexed_vectors import with_usearch
from querywise.retrieval.reading import read_judged
from querywise.retrieval.vector_search import VectorIndex
from querywise.runtime.files import checksum_of, crc32_of, sealed
from tests.patience import LOOK, Watched
from tests.serving import Serving, serving
from tests.support.embedders import NAMED
from tests.support.runs import planted

Case = Callable[[], object]
_SECONDS = 60.0, 60.0  # of work and of waiting, for one class
_SLOW = 1.5  # seconds that a health check may take meanwhile
_NUMBERS = (0, 1, -1, 255, 2**31 - 1, -(2**31), 2**62, 1e308, -1e308, float("nan"), float("inf"))
_TYPES = ("f8", "f2", "i1", "u8", "bool", "c16", "S3", "U2", "M8[s]", ">i4", ">f8")


def measure_intruders() -> Iterator[Result]:
    """Files and requests that somebody made up; ours are the cases that crashed, hung, or gave anything odd."""
    for name, what in {
        "graphs": "usearch graphs, mutated, cut or of other vectors",
        "indexes": "arrays of an index, mutated and signed again",
        "caches": "kept vectors, poisoned",
        "embedders": "embedders that an index alone names",
        "shards": "shards, swapped, repeated or of other columns",
        "parquet": "Parquet logs of odd types",
        "weights": "bodies for /v1/weights and /v1/differences",
        "readers": "clients that do not read large answers",
        "clusters": "clients of a cluster without its token",
    }.items():
        tried, failed = _attempt(name)
        yield alone("faults", f"{what}: failed, of {tried}", ours=float(failed), unit="", below=1)


def _attempt(name: str) -> tuple[int, int]:
    """How many cases of a class were tried, and how many failed; one that crashed or hung is the last."""
    command = [sys.executable, "-m", "benchmarks.intruders", name]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, start_new_session=True)
        watched = Watched(process.pid)
        while process.poll() is None:
            if any(spent >= most for spent, most in zip(watched.spent(), _SECONDS, strict=True)):
                print(f"{name}: given up after {watched.spent()} seconds of work and of waiting", file=sys.stderr)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(LOOK)
        out.seek(0)
        said, ended = out.read(), process.returncode == 0
    lines = [line for line in said.splitlines() if line.startswith(("case ", "failed "))]
    failures = [line for line in lines if line.startswith("failed ")]
    print(*failures[:5], sep="\n", end="\n" if failures else "", file=sys.stderr)
    return sum(line.startswith("case ") for line in lines), len(failures) + (not ended)


def _graphs(folder: Path) -> Iterator[Case]:
    exact, other = _vectors(300, 8, 0), [_vectors(300, 8, 1), _vectors(299, 8, 0), _vectors(300, 16, 0)]
    content, others = _content(exact), [_content(each) for each in other]
    asked, begin = np.random.default_rng(5).normal(size=(3, 8)), 8 + 300 * 16

    def use(changed: Any) -> None:
        graph = Graph.checked(changed, exact.of, exact.lengths, 8)
        for found in replace(exact, graph=graph).search(asked, top=50):
            assert set(found.documents.tolist()) <= set(range(300))

    for number in range(600):
        chance, changed = random.Random(number), content.copy()
        first, last = chance.choice(
            [(0, begin), (begin, begin + 64), (begin + 64, begin + 704), (begin + 704, len(content))]
        )
        for _ in range(chance.randint(1, 4)):
            width = chance.choice((1, 2, 4, 8))
            place = chance.randrange(first, last - width)
            value = chance.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, chance.getrandbits(64))) % 256**width
            changed[place : place + width] = np.frombuffer(value.to_bytes(width, "little"), np.uint8)
        yield partial(use, changed)
        if number % 3 == 0:
            end = chance.randrange(len(content))
            yield partial(use, content[:end])
            another = chance.choice(others)
            yield partial(use, np.concatenate([content[:end], another[end:]]))


def _vectors(count: int, dimension: int, seed: int) -> VectorIndex:
    values = np.random.default_rng(seed).normal(size=(count, dimension))
    return VectorIndex(values, np.linalg.norm(values, axis=1))


def _content(vectors: VectorIndex) -> Any:
    graph = vectors.with_graph().graph
    assert graph is not None
    return graph.content


def _indexed() -> Index:
    chance, words = random.Random(1), [f"word{number}" for number in range(60)]
    documents = [
        Document(f"d{number}", " ".join(chance.choices(words, k=3)), " ".join(chance.choices(words, k=30)), {"c": 1.0})
        for number in range(150)
    ]
    return with_embedded(build_index(documents), documents, "lsa")


def _indexes(folder: Path) -> Iterator[Case]:
    save_index(with_usearch(_indexed()), folder / "index")

    def use(case: Path) -> None:
        index = load_index(case)
        vector = query_vector(index, "word3 word7")
        table = QueryTable(("q",), texts=("word3 word7",), vectors=vector[None])
        assert np.isfinite(candidates_for(index, table, top=30, vector_top=30).features).all()

    names = sorted(path.name for path in (folder / "index").glob("*.npy"))
    for number in range(300):
        chance, case = random.Random(number), folder / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(folder / "index", case)
        path = case / chance.choice(names)
        np.save(path, _changed(np.load(path), chance))
        manifest = json.loads((case / "manifest.json").read_text())
        del manifest["sha256"]
        for name in manifest["bytes"]:
            file = case / f"{name}.npy"
            manifest["bytes"][name], manifest["crc32"][name] = file.stat().st_size, crc32_of(file)
        (case / "manifest.json").write_text(json.dumps(sealed(manifest)))
        yield partial(use, case)


def _changed(array: Any, chance: random.Random) -> Any:
    how = chance.randrange(6)
    if how == 0:
        with np.errstate(all="ignore"):
            return array.astype(chance.choice(_TYPES))
    if how == 1:
        return chance.choice([array[None], array[:0], np.ones(()), np.asfortranarray(array)])
    if how == 2:
        return np.concatenate([array, array[: chance.randrange(len(array) + 1)]])
    if how == 3:
        return array[: chance.randrange(len(array) + 1)]
    changed = array.copy()
    with np.errstate(all="ignore"):
        for _ in range(3):
            value = np.array(chance.choice(_NUMBERS)).astype(array.dtype)
            changed.reshape(-1)[chance.randrange(array.size)] = value
    return changed


def _caches(folder: Path) -> Iterator[Case]:
    def use(case: Path) -> None:
        kept = KeptVectors(case, "model")
        assert all(np.isfinite(each).all() for each in kept.found(["one", "two"]).values())

    for number in range(200):
        chance, case = random.Random(number), folder / str(number)
        KeptVectors(case, "model").add(["one", "two"], np.ones((2, 4), np.float32))
        [path] = case.rglob("*.npy")
        rows = np.load(path)
        how = number % 8
        if how < 4:
            path.unlink()
            np.save(folder / "new.npy", _changed(rows, chance))
            path = path.with_name(f"{checksum_of(folder / 'new.npy')[:32]}.npy")
            (folder / "new.npy").rename(path)
        elif how == 4:
            path.write_bytes(path.read_bytes()[: chance.randrange(200)])
        elif how == 5:
            os.mkfifo(path.with_name("0.npy"))
        elif how == 6:
            path.with_name("0.npy").symlink_to(chance.choice(["/dev/zero", "/etc/passwd", "0.npy", "/nowhere"]))
        else:
            path.parent.chmod(chance.choice([0o777, 0o1777]))
        yield partial(use, case)


def _embedders(_: Path) -> Iterator[Case]:
    made = _indexed()
    known: Any = made.notes["embedder"]

    def use(name: Any) -> None:
        try:
            query_embedders(replace(made, notes={**made.notes, "embedder": {**known, "name": name}}))
        except QuerywiseError:
            return
        raise AssertionError(f"{name!r} was used")

    for allowed in ("", "http://localhost:9", "static:/models,lsa"):
        os.environ["QUERYWISE_EMBEDDINGS_ALLOW"] = allowed
        odd: list[Any] = ["", "lsa\0", "x" * 100_000, None, 5, [], {}, True]
        for name in [*NAMED, *odd]:
            yield partial(use, name)


def _shards(folder: Path) -> Iterator[Case]:
    def use(case: Path) -> None:
        shards = open_shards(case)
        found = Single(RankSVM()).fit(shards).predict(shards.whole().candidates)
        assert np.isfinite(found).all()

    for turn, width in enumerate((3, 4)):
        write_shards([make_judged(60, 8, width, seed=turn)], folder / str(turn), rows=100)
    for number in range(300):
        chance, case = random.Random(number), folder / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(folder / "0", case)
        one, two = chance.sample(sorted(case.glob("*.parquet")), 2)
        how = number % 6
        if how == 0:
            shutil.copy(one, two)
        elif how == 1:
            shutil.move(one, case / "x")
            shutil.move(two, one)
            shutil.move(case / "x", two)
        elif how == 2:
            shutil.copy(folder / "1" / one.name, one)
        elif how == 3:
            one.unlink()
        elif how == 4:
            _change_table(one, chance)
        else:
            _change_footer(one, chance)
        if how != 3 and chance.random() < 0.7:
            _sign_shards(case, repeat=chance.random() < 0.2)
        yield partial(use, case)


def _change_table(path: Path, chance: random.Random) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    name, count = chance.choice(table.column_names), len(table)
    columns = [
        pa.array([None] * count, pa.int64()),
        pa.array([[1.0]] * count),
        pa.array([b"\xff"] * count),
        pa.array(["9"] * count, pa.large_string()),
        pa.array(["nan"] * count),
        pa.array([1] * count, pa.decimal128(30, 2)),
        pa.array([1e300] * count),
    ]
    changed = [table.set_column(table.column_names.index(name), name, each) for each in columns]
    changed += [table.slice(0, chance.randrange(count)), table.select(table.column_names[::-1])]
    pq.write_table(chance.choice(changed), path)


def _change_footer(path: Path, chance: random.Random) -> None:
    """A few bytes of what a Parquet file says of itself, at its end."""
    changed = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 5)):
        changed[chance.randrange(len(changed) - 800, len(changed))] = chance.randrange(256)
    path.write_bytes(bytes(changed))


def _sign_shards(folder: Path, *, repeat: bool) -> None:
    path = folder / "shards.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    for shard in manifest["shards"]:
        shard["sha256"] = checksum_of(folder / shard["file"])
    manifest["shards"] += manifest["shards"][: 1 if repeat else 0]
    path.write_text(json.dumps(sealed(manifest)))


def _parquet(folder: Path) -> Iterator[Case]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 40
    odd: dict[str, Any] = {
        "list": pa.array([[1.0]] * count),
        "struct": pa.array([{"a": 1}] * count),
        "map": pa.array([[("a", 1)]] * count, pa.map_(pa.string(), pa.int64())),
        "null": pa.nulls(count),
        "dictionary": pa.array(["1", "2"] * (count // 2)).dictionary_encode(),
        "view": pa.array(["x"] * count, pa.string_view()),
        "binary": pa.array([b"\xff\x00"] * count),
        "large": pa.array(["1"] * count, pa.large_string()),
        "decimal": pa.array([1] * count, pa.decimal256(60, 3)),
        "half": pa.array(np.ones(count, np.float16)),
        "huge": pa.array([2**63] * count, pa.uint64()),
        "time": pa.array([1] * count, pa.timestamp("ns")),
        "duration": pa.array([1] * count, pa.duration("s")),
        "bool": pa.array([True] * count),
        "nan": pa.array([float("nan")] * count),
        "infinite": pa.array([float("inf")] * count),
        "fixed": pa.array([b"ab"] * count, pa.binary(2)),
        "vectors": pa.array([[1.0, 2.0]] * count, pa.list_(pa.float32(), 2)),
    }
    usual = {"qid": [f"q{row // 10}" for row in range(count)], "label": [row % 3 for row in range(count)]}
    usual |= {"docid": [f"d{row}" for row in range(count)], "f1": [row / 7 for row in range(count)]}
    for name in usual:
        for kind, column in odd.items():
            path = folder / f"{name}-{kind}.parquet"
            pq.write_table(pa.table({**usual, name: column}), path)
            yield partial(read_judged, path)
    for number in range(100):
        damaged = folder / f"{number}.parquet"
        shutil.copy(path, damaged)
        _change_footer(damaged, random.Random(number))
        yield partial(read_judged, damaged)


def _weights(folder: Path) -> Iterator[Case]:
    save(WeightsByQuery(way="neighbours", kappa=0.0).fit(planted(120)), folder / "model")
    query, names = {"id": "q"}, ("words", "vectors")
    many = {name: {f"d{row}": float(row) for row in range(9_000)} for name in names}
    odd: list[Any] = [None, {}, [], 5, {"x\0\r\n": {"d": 1}}, {"words": {"\x1b": 1}}]
    bodies: list[Any] = [
        *(b"", b"\xff\xfe", b"[]", b"[" * 100_000, b'{"query":{"id":"q"},"runs":{"words":{"d":1e999}}}'),
        *(b'{"query":{"id":"q"},"runs":{"words":{"d":NaN}}}', b'{"query":{"id":"q","text":"\\ud800"},"runs":{}}'),
        *({"query": query, "runs": value} for value in odd),
        *(
            {"query": query, "runs": {name: {"d": value, "e": -1} for name in names}}
            for value in (1.7e308, 5e-324, 0, True, "1")
        ),
        *({"query": query, "runs": {f"r{row}": {} for row in range(size)}} for size in (1_000, 50_000, 1_000_000)),
        *({"query": {"id": "q", key: "x " * 400_000}, "runs": many} for key in ("text", "class", "id")),
        *({"query": {"id": "q", "vector": value}, "runs": many} for value in ([], [1.0] * 100_000, [[1.0]], "x")),
        {"query": {"id": "q", "columns": {f"c{row}": 1.0 for row in range(50_000)}}, "runs": many},
        {"query": query, "runs": {"words": {f"d{row}": 1.0 for row in range(20_001)}}},
    ]
    with serving(folder / "model") as server:

        def use(content: bytes) -> None:
            answer = server.post("/v1/weights", content, **{"content-type": "application/json"})
            assert answer.status_code in (200, 400, 413, 422, 503), answer.status_code
            assert len(answer.text) < 2_000
            assert answer.text.isprintable(), "control characters"
            assert answer.status_code != 200 or abs(sum(answer.json().values()) - 1) < 1e-9

        def at_once(contents: list[bytes]) -> None:
            some = [threading.Thread(target=use, args=[content]) for content in contents * 3]
            for each in some:
                each.start()
            while any(each.is_alive() for each in some):
                _require_health(server)

        def differences(words: str) -> None:
            assert server.get(f"/v1/differences{words}").status_code == 200

        contents = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        for content in contents:
            yield partial(use, content)
        yield lambda: at_once([content for content in contents if len(content) > 100_000])
        for query_string in ("", "?top=nan", "?x=%00%1b", "?" + "a=b&" * 3_000):
            yield partial(differences, query_string)


def _readers(folder: Path) -> Iterator[Case]:
    import socket

    save(Single(RankSVM()).fit(make_judged(20, 6, 3)), folder / "model")
    documents = [{"id": "x" * 500 + str(row), "features": [0.1, 0.2, 0.3]} for row in range(20_000)]
    body = json.dumps({"query": {"id": "q"}, "documents": documents}).encode()
    with serving(folder / "model") as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        head = f"POST /v1/rank HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        asked = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        lines: list[socket.socket] = []
        before = _megabytes(server.process.pid)

        def another() -> None:
            lines.append(socket.create_connection((host, int(port)), timeout=30))
            with contextlib.suppress(ConnectionError):  # cut off, for holding most
                lines[-1].sendall(asked)
            _require_health(server)
            assert _megabytes(server.process.pid) < before + 800

        for _ in range(80):
            yield another
        for line in lines:
            line.close()


def _require_health(server: Serving) -> None:
    begun = time.monotonic()
    line = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
    line.request("GET", "/healthz")
    assert line.getresponse().status == 200
    line.close()
    assert time.monotonic() - begun < _SLOW, f"a health check waited {time.monotonic() - begun:.1f} s"


def _megabytes(process: int) -> float:
    words = Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()
    return int(words[0]) / 1e3


_CLASSES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "graphs": _graphs,
    "indexes": _indexes,
    "caches": _caches,
    "embedders": _embedders,
    "shards": _shards,
    "parquet": _parquet,
    "weights": _weights,
    "readers": _readers,
    "clusters": clusters,
}


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        for number, case in enumerate(_CLASSES[sys.argv[1]](Path(place))):
            print(f"case {number}", flush=True)
            try:
                case()
            except QuerywiseError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not what should have come
                print(f"failed {sys.argv[1]} {number}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)


if __name__ == "__main__":
    main()
