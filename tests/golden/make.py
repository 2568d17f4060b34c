"""Write golden models: small folders of every kind with the scores they gave, and the scores of every method.

    python -m tests.golden.make

Made with the version that is to be compatible with, and never anew for a change that should change nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from querywise.errors import QuerywiseError
from querywise.exports.writing import export_model
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.locality.neighborhoods import Everyone
from querywise.locality.views.columns import Columns, SignalView, VectorView
from querywise.locality.views.learned import LearnedMetric
from querywise.methods import METHODS
from querywise.methods.table import RECOMMENDED
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.storage import save
from tests.golden.worlds import answers, asked, machine, training
from tests.support.rankers import RANKERS

HERE = Path(__file__).parent / "models"
ENGINES = ("elasticsearch", "vespa")


def plain_name(name: str) -> str:
    """A ranker's name as a folder's."""
    return name.lower().replace(", ", "-").replace(" ", "-")


MORE: dict[str, Callable[[], Any]] = {
    "KnnOnline, columns, everyone": lambda: KnnOnline(RankSVM(), view=Columns(), neighborhood=Everyone()),
    "KnnOnline, vector": lambda: KnnOnline(RankSVM(), k=5, view=VectorView()),
    "KnnOnline, signals": lambda: KnnOnline(RankSVM(), k=5, view=SignalView()),
    "KnnOffline2, learned metric": lambda: KnnOffline2(RankSVM(), k=5, view=LearnedMetric(Columns())),
}


def exported(ranker: Any, engine: str) -> Any:
    """What an export comes to: its models, its routing and a checksum of every file, or why there is none."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "export"
        try:
            export_model(ranker, engine, folder, data=asked(ranker))
        except QuerywiseError as error:
            return str(error)
        manifest = json.loads((folder / "export.json").read_text())
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".jsonl", ".sd", ".profile")]
        texts = {
            path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.name != "export.json" and path.parent.name != "model"
        }
        return {"models": manifest["models"], "routing": manifest["routing"], "texts": texts}


def _written(file: str) -> dict[str, Any]:
    """What was written before, on such a machine: other bits do not belong beside it."""
    path = HERE / f"{file}.json"
    if not path.is_file():
        return {}
    content = json.loads(path.read_text())
    if content["machine"] != machine():
        raise SystemExit(f"{path} was made on another machine: {content['machine']}.")
    found: dict[str, Any] = content[file]
    return found


def main() -> None:
    """Write what is not there yet."""
    scores, said, methods = (_written(file) for file in ("scores", "answers", "methods"))
    for name, build in {**RANKERS, **MORE}.items():
        ranker, folder = build(), plain_name(name)
        if folder in scores:
            continue
        ranker.fit(training(ranker))
        save(ranker, HERE / folder)
        scores[folder] = ranker.predict(asked(ranker).candidates).tolist()
        said[folder] = {**answers(ranker), **{engine: exported(ranker, engine) for engine in ENGINES}}
    for name, method in METHODS.items():
        if name not in {"bm25", "vectors", RECOMMENDED, *methods}:
            ranker = method.build()
            queries = asked(ranker)
            methods[name] = ranker.fit(training(ranker), valid=queries).predict(queries.candidates).tolist()
    for file, content in (("scores", scores), ("answers", said), ("methods", methods)):
        text = json.dumps({"machine": machine(), file: content}, separators=(",", ":"))
        (HERE / f"{file}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
