"""What golden models and methods score now, as JSON: `python -m tests.golden.ask`.

In a process of its own: code that was compiled a moment ago may round the last bit otherwise than the same code read
from the cache, which is what everybody runs from the second time on.
"""

from __future__ import annotations

import json
import sys

from querywise.methods import METHODS, find_method
from querywise.storage import load
from tests.golden.make import HERE
from tests.golden.worlds import asked, training

BEFORE = ("knn-online", "knn-offline-1", "knn-offline-2", "blend")  # methods that used not to back off


def main(*removed: str) -> None:
    """Print the scores of all folders and methods but those named."""
    folders = sorted(path.name for path in HERE.iterdir() if path.is_dir() and path.name not in removed)
    models = {name: load(HERE / name) for name in folders}
    scores = {name: model.predict(asked(model).candidates).tolist() for name, model in models.items()}
    methods = {}
    for name in METHODS:
        if name not in ("bm25", "vectors", "vectors-adapted"):  # they rank by features that these do not have
            ranker = find_method(name).build(**({"back_off": None} if name in BEFORE else {}))
            queries = asked(ranker)
            methods[name] = ranker.fit(training(ranker), valid=queries).predict(queries.candidates).tolist()
    sys.stdout.write(json.dumps({"scores": scores, "methods": methods}))


if __name__ == "__main__":
    main(*sys.argv[1:])
