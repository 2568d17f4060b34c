"""Stored files with a hostile value in one place or several, read and used in a process that notes whatever acts.

A case is one example of a format (tests/hostile_formats.py) with changes: a value, a name or a word in it is another
one, an array has another type, a file is cut short or is a pipe. Checksums are made to fit again. The outcome is
`refused` (by one printable line) or `used` (with finite numbers); anything else tells what went wrong.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from querywise.errors import QuerywiseError
from tests.crafting import Changing
from tests.patience import LOOK, Watched, within

LONGEST = 5.0  # seconds of work for one case
WAITING = 10.0  # seconds in which it waits for something else than a core
MOST_MEMORY = 1_000_000_000  # bytes that the cases may add together
LONGEST_LINE = 3_000  # characters of a message
_GIVEN_UP = 30.0, 30.0  # of work and of waiting, until a process that cannot be interrupted is ended
_WALKED = 300.0, 300.0  # the same for an example that is made, and compiled, and its changes
SEEDS = 6  # of changes by chance
MARK = "@@hostile@@"
_PARTS = 4  # items of a list, lines of a text and words of a line that are changed
_PORT = "PORT"  # in a value: the port of a socket that nobody may connect to
_OUTSIDE = "OUTSIDE"  # a folder beside that of the case, with a file and a pipe

TEXTS = {
    "empty": "",
    "a way out": "../../outside/secret",
    "a file outside": f"{_OUTSIDE}/secret",
    "a pipe": f"{_OUTSIDE}/pipe",
    "a device": "/dev/zero",
    "a password file": "/etc/passwd",
    "the folder": ".",
    "the folder above": "..",
    "its own manifest": "manifest.json",
    "an address": f"http://127.0.0.1:{_PORT}/v1/embeddings#m",
    "a file's address": f"file://{_OUTSIDE}/secret",
    "a share": f"\\\\127.0.0.1@{_PORT}\\share",
    "a static embedder": f"static:{_OUTSIDE}",
    "a sentence embedder": f"sentence-transformers:{_OUTSIDE}",
    "a command": f"; touch {_OUTSIDE}/made #",
    "a command in a command": f"$(touch {_OUTSIDE}/made)`touch {_OUTSIDE}/made`",
    "a function": "os.system",
    "a function of ours": "querywise.storage.save",
    "a module": "antigravity",
    "a class": "antigravity:Class",
    "a format": "{0.__class__}%s%n${HOME}",
    "an attribute": "__class__",
    "markup": "<script>alert(1)</script>",
    "terminal": "\x1b]0;owned\x07\x1b[2J",
    "lines": "a\r\nerror: all is well",
    "nul": "a\0b",
    "backwards": "\u202etxt.exe",
    "half a character": "\ud800",
    "long": "x" * 100_000,
    "nan": "nan",
    "number": "1e999",
}
_RAW = {
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "minus one": "-1",
    "one": "1",
    "real": "1.5",
    "large": "1e308",
    "too large": "1e999",
    "NaN": "NaN",
    "-Infinity": "-Infinity",
    "2**31": str(2**31),
    "2**53": str(2**53),
    "2**63": str(2**63),
    "-2**63": str(-(2**63)),
    "10**400": str(10**400),
    "many digits": "9" * 5_000,
    "list": "[]",
    "object": "{}",
    "list of lists": "[[]]",
    "list of texts": '["a", "b"]',
    "list of nulls": "[null, null]",
    "numbers": "[1, 2, 3]",
    "object of objects": '{"a": {"b": {}}}',
    "a stored class": '{"$class": "os.system", "number": 0, "parameters": {}, "learned": {}}',
    "a stored array": '{"$array": "../../outside/secret"}',
    "deep list": "[" * 100_000 + "]" * 100_000,
    "deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "rather deep list": "[" * 700 + "]" * 700,  # which Python's decoder reads
    "rather deep object": '{"a":' * 700 + "1" + "}" * 700,
    "long list": "[" + "0," * 99_999 + "0]",
}
VALUES = {**{name: json.dumps(text) for name, text in TEXTS.items()}, **_RAW}  # by name, as JSON
_HEADS = (  # of .npy files: what is written for a field of the header
    *("'|O'", "'<U9'", "'|V8'", "'<f16'", "'<M8[ns]'", "[('a', '<f8')]", "__import__('os').getcwd()", "'x'", "b''"),
    *("(-1,)", "(2**62,)", "(4611686018427387904,)", "(4611686018427387904, 4611686018427387904)", "('a',)", "(0,)"),
    "(True, 2)",
    *("True", "None", "5", "()", "(1.5,)", "(((1,),),)", "(" * 300 + ")" * 300, "[]", "{}", "'" + "x" * 60_000 + "'"),
)
_COLUMNS: dict[str, Callable[[Any, Any], Any]] = {  # of Parquet files: what becomes of a column
    "nulls": lambda pa, column: pa.nulls(len(column), column.type),
    "nothing": lambda pa, column: pa.nulls(len(column)),
    "texts": lambda pa, column: pa.array(["../../outside/secret"] * len(column)),
    "terminal": lambda pa, column: pa.array([TEXTS["terminal"]] * len(column)),
    "lines": lambda pa, column: pa.array([TEXTS["lines"]] * len(column)),
    "empty": lambda pa, column: pa.array([""] * len(column)),
    "bytes": lambda pa, column: pa.array([b"\xff\0"] * len(column)),
    "nan": lambda pa, column: pa.array([float("nan")] * len(column)),
    "inf": lambda pa, column: pa.array([float("inf")] * len(column)),
    "large": lambda pa, column: pa.array([1e308] * len(column)),
    "minus one": lambda pa, column: pa.array([-1] * len(column)),
    "2**62": lambda pa, column: pa.array([2**62] * len(column)),
    "true": lambda pa, column: pa.array([True] * len(column)),
    "lists": lambda pa, column: pa.array([[1.0]] * len(column)),
    "objects": lambda pa, column: pa.array([{"a": 1}] * len(column)),
    "dictionary": lambda pa, column: column.combine_chunks().dictionary_encode(),
}
_FILES = ("empty", "half", "one byte less", "one byte more", "gone", "a folder")
_ODD = ("a pipe", "a device")
_OWN = ("a link out", "a terabyte")
LINES = (".jsonl", ".ndjson")
MANIFESTS = (".json", *LINES, ".safetensors")


class Change(NamedTuple):
    """What is done to one file of a format: how, where in it, and the name of the value that is put there."""

    member: str
    how: str
    place: tuple[Any, ...] = ()
    value: str = ""


class Format(NamedTuple):
    """What querywise reads back.

    make: writes an example into a folder that is there. use: reads it as a user would, and uses it; numbers that are
    not finite are an AssertionError. sign: makes checksums fit, once a file has changed. readers: the modules of
    src/querywise that decode it. linked: whether its files may be links to others, as users' own data may. named: those
    that a user names, which may be links in any case.
    """

    name: str
    make: Callable[[Path], object]
    use: Callable[[Path], object]
    sign: Callable[[Path, str], object]
    readers: tuple[str, ...]
    linked: bool = False
    named: tuple[str, ...] = ()


# Documents: what a file holds as values with names and places


class _Document:
    """A file as JSON that can be changed: all of a .json, the lines of a .jsonl, the header of a .safetensors file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        content = path.read_bytes()
        self._rest = b""
        if path.suffix == ".safetensors":
            length = struct.unpack("<Q", content[:8])[0]
            content, self._rest = content[8 : 8 + length], content[8 + length :]
        lines = content.decode().splitlines() if path.suffix in LINES else [content.decode()]
        self.parts: list[Any] = [json.loads(line) for line in lines]

    def write(self, parts: Sequence[str]) -> None:
        text = "".join(f"{part}\n" for part in parts).encode("utf-8", "surrogatepass")
        head = struct.pack("<Q", len(text)) if self._path.suffix == ".safetensors" else b""
        self._path.write_bytes(head + text + self._rest)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in JSON; of a long list to the first items and the last."""
    yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places_in(each, (*path, key))
    elif isinstance(value, list):
        for place in range(len(value)):
            if place < _PARTS - 1 or place == len(value) - 1:
                yield from places_in(value[place], (*path, place))


def _holder(root: list[Any], place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        root = root[key]
    return root


def _words(text: str) -> Iterator[tuple[int, int]]:
    """The places of the words in the first lines of a text, and in its last."""
    found = list(re.finditer(r"[^\s,:=#]+", text))
    lines = text.split("\n")
    ends = list(itertools.accumulate(len(line) + 1 for line in lines))
    for number, end in enumerate(ends):
        if number < _PARTS or number >= len(ends) - 2:
            own = [each.span() for each in found if end - len(lines[number]) - 1 <= each.start() < end]
            yield from own[:_PARTS] if len(own) > 2 * _PARTS else own


def walk(folder: Path, linked: bool, named: Sequence[str] = ()) -> Iterator[list[Change]]:
    """Every change to an example: for each place in each file the values that it may get."""
    members = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for member in members:
        path = folder / member
        streamed = linked and path.suffix == ".txt"  # what a user names, as he may name /dev/stdin
        odd = (*(() if streamed else _ODD), *(() if linked or member in named else _OWN))
        yield [Change(member, "file", (), how) for how in (*_FILES, *odd)]
        yield [Change(member, "byte", (seed,)) for seed in range(SEEDS)]
        others = [Change(member, "other", (), other) for other in members if other != member]
        if others:
            yield others[:SEEDS]
        if path.suffix in MANIFESTS:
            yield from _in_document(path, member)
        elif path.suffix == ".npy":
            head = _npy_header(path)
            yield from ([Change(member, "header", (key,), value) for value in _HEADS] for key in head)
            yield [Change(member, "array", (seed,)) for seed in range(4 * SEEDS)]
        elif path.suffix == ".parquet":
            yield from _in_table(path, member)
        elif path.suffix not in (".py", ".md", ".key"):
            for place in _words(path.read_text()):
                yield [Change(member, "word", place, name) for name in TEXTS]
        if path.suffix == ".safetensors":
            yield [Change(member, "array", (seed,)) for seed in range(4 * SEEDS)]


def _in_document(path: Path, member: str) -> Iterator[list[Change]]:
    document = _Document(path)
    for place in places_in(document.parts):
        if not place:
            continue
        yield [Change(member, "value", place, name) for name in VALUES]
        if len(place) > 1:
            yield [Change(member, "gone", place), Change(member, "twice", place)]
        if len(place) > 1 and isinstance(place[-1], str):
            yield [Change(member, "name", place, name) for name in TEXTS]


def _in_table(path: Path, member: str) -> Iterator[list[Change]]:
    from pyarrow import parquet

    for column in parquet.read_schema(path).names:
        yield [Change(member, "column", (column,), what) for what in _COLUMNS]
        yield [Change(member, "column name", (column,), name) for name in TEXTS if name != "half a character"]
        yield [Change(member, "column gone", (column,)), Change(member, "column twice", (column,))]
    yield [Change(member, "rows", (), "none"), Change(member, "rows", (), "twice"), Change(member, "rows", (), "half")]


def _npy_header(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    length = struct.unpack("<H", content[8:10])[0]
    found: dict[str, Any] = ast.literal_eval(content[10 : 10 + length].decode())
    return found


# Changes made


def apply(folder: Path, change: Change, arena: Arena) -> None:
    """Make a change in a folder."""
    path = folder / change.member
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 10**8:
        return  # another change was here before
    made = {
        "file": lambda: _as_file(path, change.value, arena),
        "byte": lambda: _with_bytes(path, change.place[0]),
        "other": lambda: _as_other(path, folder / change.value),
        "header": lambda: _with_header(path, change.place[0], change.value),
        "array": lambda: _with_array(path, change.place[0]),
        "word": lambda: _with_word(path, change, arena),
    }
    if change.how in made:
        made[change.how]()
    elif change.how.startswith(("column", "rows")):
        _with_table(path, change, arena)
    else:
        _with_document(path, change, arena)


def _as_file(path: Path, how: str, arena: Arena) -> None:
    content = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a pipe":
        os.mkfifo(path)
    elif how in ("a device", "a link out"):
        path.symlink_to("/dev/zero" if how == "a device" else arena.outside / "secret")
    elif how != "gone":
        end = {"empty": 0, "half": len(content) // 2, "one byte less": max(len(content) - 1, 0)}
        path.write_bytes(content[: end.get(how, len(content))] + (b"\0" if how == "one byte more" else b""))
        if how == "a terabyte":
            os.truncate(path, 2**40)  # which takes no room on the disk


def _with_bytes(path: Path, seed: int) -> None:
    chance, content = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 3)) if content else 0):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(bytes(content))


def _as_other(path: Path, other: Path) -> None:
    if other.is_file():
        path.write_bytes(other.read_bytes())


def _with_header(path: Path, key: str, value: str) -> None:
    content = path.read_bytes()
    length = struct.unpack("<H", content[8:10])[0]
    with contextlib.suppress(ValueError, SyntaxError):
        head = {**_npy_header(path), key: MARK}
        text = repr(head).replace(repr(MARK), value).encode()
        path.write_bytes(content[:8] + struct.pack("<H", len(text)) + text + content[10 + length :])


def _with_array(path: Path, seed: int) -> None:
    """An array of a .npy or .safetensors file with other numbers, another type or another shape."""
    chance = random.Random(seed)
    if path.suffix == ".npy":
        arrays = {"array": np.load(path)}
    else:
        from safetensors.numpy import load_file

        arrays = load_file(path)
    if not arrays:
        return
    key = chance.choice(sorted(arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays[key] = np.ascontiguousarray(Changing(chance, None, arrays)._array(arrays[key], key))
    if path.suffix == ".npy":
        np.save(path, arrays[key], allow_pickle=False)
    else:
        from safetensors.numpy import save_file

        save_file(arrays, path)


def _with_word(path: Path, change: Change, arena: Arena) -> None:
    text, (first, last) = path.read_text(errors="surrogateescape"), change.place
    new = arena.filled(TEXTS[change.value])
    path.write_bytes((text[:first] + new + text[last:]).encode("utf-8", "surrogatepass"))


def _with_table(path: Path, change: Change, arena: Arena) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    if change.how == "rows":
        made = {"none": table.slice(0, 0), "twice": pa.concat_tables([table, table]), "half": table.slice(1)}
        table = made[change.value]
    elif change.place[0] in table.column_names:
        place = table.column_names.index(change.place[0])
        name, column = table.column_names[place], table.column(place)
        if change.how == "column":
            table = table.set_column(place, name, _COLUMNS[change.value](pa, column))
        elif change.how == "column name":
            table = table.set_column(place, arena.filled(TEXTS[change.value]), column)
        elif change.how == "column gone":
            table = table.remove_column(place)
        else:
            table = table.append_column(name, column)
    parquet.write_table(table, path)


def _with_document(path: Path, change: Change, arena: Arena) -> None:
    with contextlib.suppress(KeyError, IndexError, TypeError, ValueError, RecursionError):  # if another came before
        document = _Document(path)
        holder, key = _holder(document.parts, change.place), change.place[-1]
        raw = arena.filled(VALUES.get(change.value, "null"))
        if change.how == "value":
            holder[key] = MARK
        elif change.how == "gone":
            del holder[key]
        elif change.how == "twice" and isinstance(holder, list):
            holder.append(holder[key])
        elif change.how == "twice":
            holder[f"{key}{MARK}"] = holder[key]  # the same name once more
            raw = json.dumps(key)
        else:
            new = arena.filled(TEXTS[change.value])
            items = [(new if name == key else name, value) for name, value in holder.items()]
            holder.clear()
            holder.update(items)
        texts = [json.dumps(part) for part in document.parts]
        texts = [text.replace(f'"{MARK}"', raw).replace(MARK, "") for text in texts]
        document.write(texts)


# Where it is tried


class Arena:
    """Where cases are tried: their folders, what lies outside, a socket that listens, and what was noted."""

    def __init__(self, root: Path) -> None:
        self.root, self.outside = root, root / "cases" / "outside"
        self.outside.mkdir(parents=True)
        (self.outside / "secret").write_text("querywise secret\n")
        os.mkfifo(self.outside / "pipe")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        self._examples: dict[str, Path] = {}
        self._number = itertools.count()
        self._watched: Path | None = None
        self._acts: list[str] = []
        self.last = ""  # what was said last
        self._known = tuple(
            os.path.realpath(each)
            for each in (sys.prefix, sys.base_prefix, Path(__file__).parent.parent / "src", *_LIBRARIES)
        ) + tuple(os.path.realpath(Path(module).parent.parent) for module in (np.__file__, __file__))
        sys.addaudithook(self._hook)

    def filled(self, text: str) -> str:
        return text.replace(_OUTSIDE, str(self.outside)).replace(_PORT, str(self.port))

    def example(self, kind: Format) -> Path:
        """The example of a format, made once, which is used as it is to begin with."""
        if kind.name not in self._examples:
            made = self.root / "examples" / kind.name
            made.mkdir(parents=True)
            kind.make(made)
            self._examples[kind.name] = made
            shutil.copytree(made, self.root / "first" / kind.name)
            kind.use(self.root / "first" / kind.name)  # which may import and compile
            found = self.tried(kind, [])
            assert found == "used", f"{found} {self.last}"
        return self._examples[kind.name]

    def tried(self, kind: Format, changes: Sequence[Change]) -> str:
        """What comes of a case."""
        around = self.root / "cases" / str(next(self._number))
        folder = around / "folder"
        shutil.copytree(self._examples[kind.name], folder)
        for number, change in enumerate(changes):
            with contextlib.suppress(*([Exception] if number else [])):  # of a file that an earlier change has broken
                apply(folder, change, self)
            with contextlib.suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
                kind.sign(folder, change.member)  # where it can be signed
        try:
            return self._used(kind, around, folder)
        except TimeoutError as error:  # it came while another error was looked at
            return f"raised {error}"
        finally:
            self._watched = None
            shutil.rmtree(around, ignore_errors=True)

    def _used(self, kind: Format, around: Path, folder: Path) -> str:
        self._acts.clear()
        self._watched = around
        try:
            with within(LONGEST, WAITING):
                kind.use(folder)
            found = "used"
        except QuerywiseError as error:
            said = str(error).replace(str(folder), "")
            fits = said.isprintable() and len(said) <= LONGEST_LINE
            self.last = said
            found = "refused" if fits else f"a message that is not one line: {said!r:.300} ({len(said)} characters)"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = f"raised {error!r:.300} in {Path(where.filename).name}:{where.lineno}"
        finally:
            self._watched = None
        with contextlib.suppress(BlockingIOError):
            self._listening.accept()[0].close()
            self._acts.append("a connection")
        if (self.outside / "made").exists():
            (self.outside / "made").unlink()
            self._acts.append("a command")
        self._acts += [f"import of {name}" for name in _MODULES if sys.modules.pop(name, None) is not None]
        return f"acted: {self._acts[:3]}" if self._acts else found

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notes what acts, as the interpreter tells it: connections, processes, imports, files elsewhere."""
        if self._watched is None:
            return
        if event == "pickle.find_class" and _is_by_numba():
            return  # compiled code that was kept
        if event.startswith(_ACTING):
            self._acts.append(f"{event} {arguments!r:.100}")
        elif event in _READING:
            writes = event == "open" and (set(str(arguments[1])) & set("wax+") or (arguments[2] or 0) & _WRITING)
            if not self._allows(arguments[0], bool(writes)):
                self._acts.append(f"{event} {arguments!r:.200}")
        elif event.startswith(_CHANGING) and not all(
            self._allows(os.path.join(_folder_of(arguments), os.fsdecode(each)), True)
            for each in arguments
            if isinstance(each, str | bytes | Path)
        ):
            self._acts.append(f"{event} {arguments!r:.200}")

    def _allows(self, path: Any, writes: bool) -> bool:
        """Whether a path may be opened: in the folder and for locks beside it, and what libraries are made of."""
        if path is None or isinstance(path, int):
            return True
        name = os.fsdecode(path)
        real = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))  # a link may be removed
        real = real if writes else os.path.realpath(name)
        cases = str(self.outside.parent)  # a thread of the case before may not be done
        if real.startswith(cases) and not real.startswith(str(self.outside)):
            return True
        return real.startswith(self._known) and (not writes or "__pycache__" in real)


_LIBRARIES = ("/proc", "/sys/", "/dev/null", "/dev/urandom", "/usr/share/zoneinfo", "/usr/lib", "/lib")
_ACTING = (
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "urllib.", "http."),
    *("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "os.startfile", "pty.spawn"),
    *("webbrowser.", "ftplib.", "smtplib.", "pickle.find_class", "cpython.run"),
)
_MODULES = ("antigravity", "this")
_READING = ("open", "os.listdir", "os.scandir")
_CHANGING = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.ch",
    "shutil.",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _is_by_numba() -> bool:
    frame = sys._getframe(2)
    while frame is not None and "/numba/" not in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _folder_of(arguments: tuple[Any, ...]) -> str:
    """The folder that a change names by an open file, or this one."""
    number = arguments[-1]
    return os.readlink(f"/proc/self/fd/{number}") if type(number) is int and number >= 0 else os.getcwd()


def _serve(connection: Connection) -> None:
    """Try the cases that come, in a process of its own, until it is told to stop."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    from tests.hostile_formats import ACTING, FORMATS

    kinds = {kind.name: kind for kind in (*FORMATS, ACTING)}
    with tempfile.TemporaryDirectory() as place:
        arena = Arena(Path(place).resolve())
        limited = 0
        while (asked := connection.recv()) is not None:
            name, changes = asked
            if changes is None:
                connection.send(_walked(arena, kinds[name]))
                limited = 0
                continue
            if not limited:
                limited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + MOST_MEMORY
                size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MOST_MEMORY, resource.RLIM_INFINITY))
            arena.example(kinds[name])
            found = arena.tried(kinds[name], changes)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > limited:
                found, limited = f"took more than {MOST_MEMORY} bytes ({found})", 2**60
            connection.send(found)


def _walked(arena: Arena, kind: Format) -> list[list[Change]] | str:
    """The changes to the example of a format, or what is wrong with the example."""
    try:
        return [*walk(arena.example(kind), kind.linked, kind.named)]
    except Exception as error:  # noqa: BLE001 - whatever it is, the test tells it
        return f"{type(error).__name__}: {error}"


class Trying:
    """A process that tries cases; it is started again when a case has ended it."""

    def __init__(self) -> None:
        self._process: Any = None
        self.walked = cache(self._walked)

    def _ask(self, name: str, changes: Sequence[Change] | None) -> Any:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        self._connection.send((name, changes))
        watched, most = Watched(self._process.pid), _WALKED if changes is None else _GIVEN_UP
        while not self._connection.poll(LOOK):
            if any(spent >= limit for spent, limit in zip(watched.spent(), most, strict=True)):
                self.close(kill=True)
                return "ended: it could not be interrupted"
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.close(kill=True)
            return f"ended: the process, with {code}"

    def tried(self, name: str, changes: Sequence[Change]) -> str:
        """What came of a case."""
        found: str = self._ask(name, changes)
        return found

    def _walked(self, name: str) -> list[list[Change]]:
        found: list[list[Change]] | str = self._ask(name, None)
        assert not isinstance(found, str), f"the example of {name} cannot be used: {found}"
        return found

    def broken(self, name: str, each: int | None = None, most: int | None = None) -> tuple[dict[str, str], int]:
        """What was neither refused nor used, by case, and how many cases there were.

        each: of every place try so many values, in turn other ones; None: all. most: so many cases, evenly chosen.
        """
        chosen = []
        for number, values in enumerate(self.walked(name)):
            step = 1 if each is None else max(len(values) // each, 1)
            chosen += values[number % step :: step]
        if most is not None:
            chosen = chosen[:: max(len(chosen) // most, 1)]
        outcomes = [(change, self.tried(name, [change])) for change in chosen]
        wrong = [(change, found) for change, found in outcomes if found not in ("refused", "used")]
        return {f"{change!r:.200}": found for change, found in wrong}, len(chosen)

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._connection.send(None)
            self._process.join()
            self._connection.close()
            self._process = None


@contextlib.contextmanager
def trying() -> Iterator[Trying]:
    """A process that tries cases, while the block runs."""
    made = Trying()
    try:
        yield made
    finally:
        made.close()
