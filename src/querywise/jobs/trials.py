"""Trials of packages in other processes: one that is broken, crashes or hangs is a result like any other.

Only Python's own library is imported before a trial begins.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

_SECONDS = 120  # for all packages of one process; compiling takes some of it on a slow machine
_LONGEST = 300  # characters of an error that are shown
_FILES_ALONE = ("wordllama",)  # packages whose files are read and whose code is not run
_CODE = "import sys; sys.path[:] = {path!r}; from querywise.jobs.trials import answer; answer({modules!r})"


class Outcome(NamedTuple):
    """The outcome of a trial: the error in one line, empty if there was none, and other details."""

    error: str
    detail: str


def tried(modules: Sequence[str]) -> dict[str, Outcome]:
    """Import and try every package, one after the other; if one ends the process, continue in a new one."""
    found: dict[str, Outcome] = {}
    while left := [module for module in modules if module not in found]:
        answered, ending = _asked(left)
        found |= answered
        if len(answered) < len(left):
            found[left[len(answered)]] = Outcome(ending, "")
    return found


def answer(modules: Sequence[str]) -> None:
    """Try the packages and print one outcome per line, discarding what they print themselves."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for module in modules:
        answers.write(json.dumps(_outcome(module)) + "\n")
        answers.flush()
    os._exit(0)  # a package's exit handlers are not part of the trial


def _asked(modules: Sequence[str]) -> tuple[dict[str, Outcome], str]:
    """Return the outcomes from a new process, and how it ended."""
    code = _CODE.format(path=[os.path.abspath(each) for each in sys.path], modules=list(modules))
    surroundings = {"OMP_WAIT_POLICY": "passive", **os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, env=surroundings
        )
        said, ending = done.stdout, _ending(done.returncode)
    except subprocess.TimeoutExpired as late:
        said, ending = late.stdout or b"", f"gave no answer within {_SECONDS} seconds"
    except OSError as error:
        said, ending = b"", f"no process could be started: {error.strerror}"
    lines = said.decode(errors="replace").splitlines()
    return {module: Outcome(*json.loads(line)) for module, line in zip(modules, lines, strict=False)}, ending


def _ending(code: int) -> str:
    return f"ended its process with signal {-code}" if code < 0 else f"ended its process with code {code}"


def _outcome(module: str) -> Outcome:
    try:
        if module not in _FILES_ALONE:
            import_module(module)
        return Outcome("", TRIALS[module]() or "" if module in TRIALS else "")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a broken package raises anything
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        return Outcome(said[:_LONGEST], "")


def _must(right: bool) -> None:
    if not right:
        raise ValueError("a wrong result")


def _numpy() -> None:
    import numpy as np

    _must(float((np.eye(3) @ np.arange(3.0)).sum()) == 3)


def _scipy() -> None:
    linalg = import_module("scipy.linalg")
    _must(abs(float(linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 4.0]).sum()) - 2) < 1e-9)


def _sklearn() -> None:
    found = import_module("sklearn.cluster").KMeans(2, n_init=1, random_state=0).fit_predict([[0.0], [0.1], [9.0]])
    _must(found[0] == found[1] != found[2])


def _numba() -> str:
    """Run one of querywise's kernels, compiled or loaded; return the folder where it is stored."""
    import numpy as np

    from querywise.rankers.ensemble.active_sets import scalar_product
    from querywise.runtime.compiled import kept_in

    _must(scalar_product(np.ones(2), np.ones(2), 0, 2) == 2)
    return kept_in(scalar_product) or ""


def _lightgbm() -> None:
    import numpy as np

    from querywise.learners.trees.growth import lightgbm

    library, rows = lightgbm(), np.arange(3.0)[:, None]
    settings = {
        "objective": "regression",
        "min_data_in_leaf": 1,
        "min_data_in_bin": 1,
        "verbosity": -1,
        "num_threads": 1,
    }
    trees = library.train(settings, library.Dataset(rows, np.arange(3.0)), 1)
    _must(len(trees.predict(rows)) == 3)


def _matplotlib() -> None:
    drawn = io.BytesIO()
    import_module("matplotlib.figure").Figure().savefig(drawn, format="svg")
    _must(drawn.tell() > 0)


def _stemmer() -> None:
    _must(import_module("Stemmer").Stemmer("english").stemWord("cats") == "cat")


def _safetensors() -> None:
    import numpy as np

    library = import_module("safetensors.numpy")
    _must(library.load(library.save({"a": np.arange(3.0)}))["a"][2] == 2)


def _wordllama() -> None:
    from querywise.retrieval.embedders.static import StaticEmbedder

    StaticEmbedder.from_folder(None)


def _fastapi() -> None:
    from querywise.service.routes import api_description

    api_description()


def _pyarrow() -> None:
    parquet, arrow, written = import_module("pyarrow.parquet"), import_module("pyarrow"), io.BytesIO()
    parquet.write_table(arrow.table({"a": [1, 2]}), written)
    _must(parquet.read_table(io.BytesIO(written.getvalue())).num_rows == 2)


def _usearch() -> None:
    import numpy as np

    graph = import_module("usearch.index").Index(ndim=2, metric="cos")
    graph.add(np.arange(2, dtype=np.uint64), np.eye(2, dtype=np.float32))
    _must(int(graph.search(np.array([0, 1], np.float32), 1).keys[0]) == 1)


def _faiss() -> None:
    import numpy as np

    flat = import_module("faiss").IndexFlatIP(2)
    flat.add(np.eye(2, dtype=np.float32))
    _must(int(flat.search(np.array([[0, 1]], np.float32), 1)[1][0, 0]) == 1)


def _xgboost() -> None:
    library = import_module("xgboost")
    rows = library.DMatrix([[0.0], [1.0], [2.0]], label=[0.0, 1.0, 2.0])
    _must(len(library.train({"nthread": 1, "verbosity": 0}, rows, 1).predict(rows)) == 3)


def _catboost() -> None:
    model = import_module("catboost").CatBoostRegressor(1, verbose=False, allow_writing_files=False, thread_count=1)
    _must(len(model.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]).predict([[0.0]])) == 1)


# The trial of a package after its import, which returns a detail or None. For other packages, importing is the trial.
TRIALS: dict[str, Callable[[], str | None]] = {
    "Stemmer": _stemmer,
    "catboost": _catboost,
    "faiss": _faiss,
    "fastapi": _fastapi,
    "lightgbm": _lightgbm,
    "matplotlib": _matplotlib,
    "numba": _numba,
    "numpy": _numpy,
    "pyarrow": _pyarrow,
    "safetensors": _safetensors,
    "scipy": _scipy,
    "sklearn": _sklearn,
    "usearch": _usearch,
    "wordllama": _wordllama,
    "xgboost": _xgboost,
}
