"""The export of weights of runs as a folder, and its router: a query's weights, and the request with them in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.contracts.run_weights import Lists, weights_of_query
from querywise.data.letor import PathLike
from querywise.data.query_table import QueryTable
from querywise.errors import DataError
from querywise.exports.engine import as_text
from querywise.exports.hybrids import HYBRIDS, Hybrid, filled, identifier, values_of
from querywise.exports.models import answer_to_nobody
from querywise.exports.routing import MANIFEST, one_vector, read_manifest, routing_of
from querywise.exports.writing import check_export_folder
from querywise.runtime.files import atomic_folder, read_stored_text
from querywise.runtime.values import Json
from querywise.storage import load, save

_ROUTER = '''\
"""The request to the engine for a query, with its weights: python router.py 'how can I' [vector.json [runs.json]]

vector.json: the query's vector, a list of numbers. runs.json: the runs' scores, by run and document.
"""

import json
import sys
from pathlib import Path

from querywise import DataError, HybridRouter, QuerywiseError


def read(path):
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: this cannot be read as JSON ({error}).") from None


def main():
    if not 1 < len(sys.argv) < 5:
        sys.exit(__doc__)
    try:
        vector, runs = ([read(each) for each in sys.argv[2:]] + [None, None])[:2]
        request = HybridRouter(Path(__file__).resolve().parent).request(sys.argv[1], vector=vector, runs=runs)
    except QuerywiseError as error:
        sys.stderr.write(f"{error}\\n")
        sys.exit(2)
    print(json.dumps(request, indent=1))


if __name__ == "__main__":
    main()
'''


class WrittenHybrid(NamedTuple):
    """What an export of weights holds: the runs, the weights for all queries, and what a query's own depend on."""

    engine: str
    weights: dict[str, float]
    by: tuple[str, ...]


def weighs_runs(ranker: Ranker) -> bool:
    """Whether a fitted ranker is weights of runs, which go into an engine's request."""
    return bool(answer_to_nobody(ranker).runs)


def find_hybrid(name: str) -> Hybrid:
    """An engine that fuses runs, by name."""
    if name not in HYBRIDS:
        raise DataError(
            f"This model is weights of runs, and {name!r} is no engine that fuses runs. Known: {', '.join(HYBRIDS)}."
        )
    return HYBRIDS[name]


def export_hybrid(
    ranker: Ranker, engine: str, folder: PathLike, *, name: str = "querywise", force: bool = False
) -> WrittenHybrid:
    """Write weights of runs to a folder as a request that an engine takes: its form, a router, the model, a README."""
    kind, path = find_hybrid(engine), Path(folder)
    if not weighs_runs(ranker):
        raise DataError(
            f"{kind.title} takes weights of first-stage runs, and a {type(ranker).__name__} has none. The "
            "methods weights and weights-by-query have: fit one of them, or fuse the runs by one."
        )
    check_export_folder(path, engine, force=force)
    common = {run: float(each) for run, each in zip(*_common(ranker), strict=True)}
    normalise = str(getattr(ranker, "normalise", ""))
    _check(kind, list(common), normalise)
    form = kind.write(list(common), kind.normalisations[normalise], common, name)
    routing = routing_of(answer_to_nobody(ranker))
    done = WrittenHybrid(engine, common, () if routing is None else routing.by)
    texts = {**form.texts, "router.py": _ROUTER, "README.md": _readme(kind, done, form.request, normalise)}
    manifest: dict[str, Json] = {
        "format": "querywise export",
        "format_version": 1,
        "version": version("querywise"),
        "engine": engine,
        "name": name,
        "request": form.request,
        "normalise": normalise,
        "weights": dict(common),
        "by": list(done.by),
        "checksums": {place: sha256(text.encode()).hexdigest() for place, text in texts.items()},
    }
    with atomic_folder(path) as made:
        save(ranker, made / "model")
        for place, text in {**texts, MANIFEST: as_text(manifest)}.items():
            (made / place).write_text(text, encoding="utf-8")
    return done


def _check(kind: Hybrid, runs: Sequence[str], normalise: str) -> None:
    """Refuse runs that the engine cannot tell apart or take, and a normalisation that it lacks."""
    words = [identifier(run) for run in runs]
    if len(set(words)) < len(words):
        raise DataError(f"The runs {', '.join(runs)} are alike without their signs. Give them other names.")
    if len(runs) > kind.most:
        raise DataError(f"{kind.title} fuses up to {kind.most} runs; the model weighs {len(runs)}.")
    if normalise not in kind.normalisations:
        known = ", ".join(kind.normalisations)
        raise DataError(
            f"{kind.title} has no normalisation {normalise!r}, which the model was fitted with. It has: {known}. Fit "
            "again with one of these as normalise."
        )


class HybridRouter:
    """The client's side of an export of weights: the weights of a query, and the engine's request with them in it.

    folder: an export of weights of runs, as `querywise export` and `export_hybrid` write it.

    `weights` and `request` take what is known of a query:

    text: its text.
    vector: its vector, from the embedding model of the documents.
    runs: the runs' scores, by run and document, needed where weights depend on them; without them such a query has the
    weights for all.

    Refused: with DataError, a folder that is no such export, scores that are not finite, and a request without what its
    form needs.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from querywise import HybridRouter
    >>> from querywise.data.judged import judged_by
    >>> from querywise.data.runs import Run, tabulate_runs
    >>> from querywise.exports.hybrid_folder import export_hybrid
    >>> from querywise.rankers.weights.fusion import Weights
    >>> bm25, vectors = Run("bm25", {"q": {"D1": 9.0, "D2": 5.0}}), Run("vectors", {"q": {"D2": 0.9, "D1": 0.1}})
    >>> ranker = Weights().fit(judged_by(tabulate_runs([bm25, vectors]), {"q": {"D1": 1}}))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = export_hybrid(ranker, "opensearch-hybrid", Path(folder) / "export")
    ...     print(sorted(HybridRouter(Path(folder) / "export").weights("jaguar speed")))
    ['bm25', 'vectors']
    """

    def __init__(self, folder: PathLike) -> None:
        self._folder = Path(folder)
        self.manifest: Mapping[str, Json] = read_manifest(self._folder)
        engine, request = self.manifest.get("engine"), self.manifest.get("request")
        if engine not in tuple(HYBRIDS) or not isinstance(request, str) or Path(request).name != request:
            raise DataError(f"{folder}: this is not an export of weights of runs.")
        self._request = self._folder / request
        self.ranker = load(self._folder / "model")

    def weights(
        self, text: str | None = None, *, vector: Sequence[float] | None = None, runs: Lists | None = None
    ) -> dict[str, float]:
        """The weight of each run for a query, by name, by its `text`, `vector` and `runs`; they add up to 1."""
        texts = None if text is None else (text,)
        given = text is not None or vector is not None
        table = QueryTable(("query",), texts=texts, vectors=one_vector(vector)) if given else None
        return weights_of_query(self.ranker, table, None if runs is None else _scores(runs))

    def request(
        self, text: str | None = None, *, vector: Sequence[float] | None = None, runs: Lists | None = None
    ) -> Json:
        """The request for a query, by its `text`, `vector` and `runs`; of SQL {"sql": …, "parameters": …}."""
        weights = self.weights(text, vector=vector, runs=runs)
        form = read_stored_text(self._request)
        if self._request.suffix == ".sql":
            given: dict[str, Json] = {"text": text} if text is not None else {}
            if vector is not None:
                given["vector"] = json.dumps([float(each) for each in vector])
            lacking = next((each for each in ("text", "vector") if f"%({each})s" in form and each not in given), None)
            if lacking is not None:
                raise DataError(f"The query has the parameter {lacking!r}, and was given without it.")
            return {
                "sql": form,
                "parameters": {**given, **{f"weight_{identifier(run)}": each for run, each in weights.items()}},
            }
        try:
            content: Json = json.loads(form)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self._request}: this is not JSON ({error}).") from None
        return filled(content, values_of(text, vector, weights))


def _scores(runs: Lists) -> dict[str, dict[str, float]]:
    """The scores of runs; anything but finite numbers by run and document is an error."""
    try:
        found = {str(run): {str(each): float(score) for each, score in own.items()} for run, own in runs.items()}
    except (AttributeError, TypeError, ValueError):
        found = {"": {"": math.nan}}
    if not all(math.isfinite(score) for own in found.values() for score in own.values()):
        raise DataError(
            "The runs' scores must be finite numbers by run and document, as in {'bm25': {'D1': 12.5}}; found "
            f"{runs!r:.80}."
        )
    return found


def _common(ranker: Ranker) -> tuple[tuple[str, ...], list[float]]:
    answer = answer_to_nobody(ranker)
    form = answer.everyone.form()
    assert isinstance(form, Linear), "models of runs are weighted sums"
    return answer.runs, np.asarray(form.weights).tolist()


def _readme(kind: Hybrid, done: WrittenHybrid, request: str, normalise: str) -> str:
    rows = "\n".join(f"| {run} | {weight!r} |" for run, weight in done.weights.items())
    depends = (
        f"Weights are of each query its own, by its {' and '.join(done.by)}"
        if done.by
        else "All queries have the same weights"
    )
    return f"""\
# Weights of runs for {kind.title}

`{request}` is the request, with `$text`, `$vector` and `$weight:RUN` (in SQL: parameters) for what a query brings. Fill
in what is marked EDIT_ME: the fields, or tables, that each run searches. The runs are in the order of training.

| run | weight for all queries |
|---|---|
{rows}

{depends}. `python router.py 'the words of a query' vector.json` prints the request with them in it; from Python:

```python
from querywise import HybridRouter

router = HybridRouter(".")
router.weights("the words of a query")
router.request("the words of a query", vector=[0.1, 0.2])
```

Scores are normalised as `{normalise}`. {kind.meaning}
"""
