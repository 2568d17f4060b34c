"""What trec_eval says of a run: asked through pytrec-eval-terrier, which is trec_eval itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from querywise.data.judgements import Grades, read_grades
from querywise.data.run_columns import Run
from querywise.data.runs import read_run

# ours → trec_eval's name
SHARED = {
    "map": "map",
    "mrr": "recip_rank",
    "ndcg": "ndcg",
    "r_precision": "Rprec",
    "bpref": "bpref",
    **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 5, 10, 100)},
    **{f"p@{k}": f"P_{k}" for k in (1, 5, 10, 100)},
    **{f"recall@{k}": f"recall_{k}" for k in (5, 10, 100, 1000)},
    **{f"success@{k}": f"success_{k}" for k in (1, 5, 10)},
}
_ASKED = {
    "map", "recip_rank", "ndcg", "Rprec", "bpref", "ndcg_cut.1,5,10,100", "P.1,5,10,100", "recall.5,10,100,1000",
    "success.1,5,10",
}  # fmt: skip
GOLDEN = Path(__file__).parent / "golden" / "trec_eval"


def asked(run: Run, grades: Grades) -> dict[str, dict[str, float]]:
    """Every shared measure of every judged query, by our names; a query that is not in the run counts 0."""
    import pytrec_eval

    qrels = {query: dict(own) for query, own in grades.items()}
    found: Mapping[str, Mapping[str, float]] = pytrec_eval.RelevanceEvaluator(qrels, _ASKED).evaluate(
        {query: dict(own) for query, own in run.scores.items() if own}
    )
    return {
        query: {ours: found[query][theirs] if query in found else 0.0 for ours, theirs in SHARED.items()}
        for query in grades
    }


def write_golden(queries: int = 40) -> None:
    """Make the golden files: judgements with grades from -2 to 3, and a run with ties, gaps and unjudged documents."""
    random = np.random.default_rng(7)
    qrels, lines = [], []
    for query in range(queries):
        judged = random.choice(60, size=random.integers(1, 25), replace=False)
        qrels += [f"q{query} 0 D{document} {random.choice([-2, -1, 0, 0, 0, 1, 1, 2, 3])}" for document in judged]
        if query % 9 == 4:
            continue  # this one is not in the run
        for rank, document in enumerate(random.choice(80, size=random.integers(1, 50), replace=False)):
            close = 16777216.0 + float(random.integers(0, 3))  # some of these are tied in 32 bits
            score = float(random.choice(np.array([round(random.normal(), 1), close, random.normal()])))
            lines.append(f"q{query} Q0 D{document} {rank} {score!r} golden")
    lines.append("q999 Q0 D1 1 3.0 golden")  # nobody judged this query
    (GOLDEN / "judged.qrels").write_text("\n".join(qrels) + "\n")
    (GOLDEN / "golden.trec").write_text("\n".join(lines) + "\n")
    values = asked(read_run(GOLDEN / "golden.trec"), read_grades(GOLDEN / "judged.qrels"))
    (GOLDEN / "expected.json").write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    write_golden()
