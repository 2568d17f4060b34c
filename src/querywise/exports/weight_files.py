"""The export of weights of runs: a request that an engine takes, with a router that puts a query's weights into it."""

from __future__ import annotations

import numpy as np

from querywise.contracts.answers import Answer
from querywise.contracts.forms import Linear
from querywise.contracts.protocols import Ranker
from querywise.errors import DataError
from querywise.exports.joining import request_script
from querywise.exports.requests import identifier
from querywise.exports.routing import routing_of
from querywise.exports.target import Content, Written
from querywise.exports.targets import FUSE_RUNS, TARGETS


def weight_content(ranker: Ranker, answer: Answer, engine: str, name: str) -> Content:
    """What is written for weights of runs; answer: the ranker's to no queries."""
    target, normalise = TARGETS[engine], str(getattr(ranker, "normalise", ""))
    if target.request is None:
        known = ", ".join(FUSE_RUNS)
        raise DataError(f"This model is weights of runs, and {engine!r} is no engine that fuses runs. Known: {known}.")
    title = f"{target.title} ({target.request.form})"
    if not answer.runs:
        raise DataError(
            f"{title} takes weights of first-stage runs, and a {type(ranker).__name__} has none. The "
            "methods weights and weights-by-query have: fit one of them, or fuse the runs by one."
        )
    form = answer.everyone.form()
    assert isinstance(form, Linear), "models of runs are weighted sums"
    weights = dict(zip(answer.runs, np.asarray(form.weights).tolist(), strict=True))
    if len(set(map(identifier, weights))) < len(weights):
        raise DataError(f"The runs {', '.join(weights)} are alike without their signs. Give them other names.")
    if len(weights) > target.request.most:
        raise DataError(f"{title} fuses up to {target.request.most} runs; the model weighs {len(weights)}.")
    if normalise not in target.request.normalisations:
        known = ", ".join(target.request.normalisations)
        raise DataError(
            f"{title} has no normalisation {normalise!r}, which the model was fitted with. It has: {known}. Fit "
            "again with one of these as normalise."
        )
    texts = target.request.write(weights, target.request.normalisations[normalise], name)
    done = Written(engine, (), routing_of(answer), True, None, weights)
    file = next(iter(texts))
    about = f"Scores are normalised as `{normalise}`. {target.request.meaning}"
    return Content(
        done,
        {**texts, "router.py": request_script(), "README.md": _readme(title, done, file, about)},
        request={"file": file, "normalise": normalise, "weights": weights},
    )


def _readme(title: str, done: Written, request: str, about: str) -> str:
    rows = "\n".join(f"| {run} | {weight!r} |" for run, weight in done.weights.items())
    depends = (
        f"Weights are of each query its own, by its {' and '.join(done.by)}"
        if done.by
        else "All queries have the same weights"
    )
    return f"""\
# Weights of runs for {title}

`{request}` is the request, with `$text`, `$vector` and `$weight:RUN` (in SQL: parameters) for what a query brings. Fill
in what is marked EDIT_ME: the fields, or tables, that each run searches. The runs are in the order of training.

| run | weight for all queries |
|---|---|
{rows}

{depends}. `python router.py 'the words of a query' vector.json` prints the request with them in it; from Python:

```python
from querywise import Router

router = Router(".")
router.weights("the words of a query")
router.request("the words of a query", vector=[0.1, 0.2])
```

{about}
"""
