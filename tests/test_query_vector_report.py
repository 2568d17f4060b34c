"""A report says whether teaching the query vectors helps, by how much, for which queries, and what was chosen."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.folds import make_folds
from querywise.evaluation.compare import compare
from querywise.evaluation.findings import Findings, as_json, findings, with_curves
from querywise.evaluation.learning_curves import curves_up_to, training_queries
from querywise.evaluation.significance import find_test
from querywise.methods import METHODS
from querywise.report.sections import vectors_tables
from querywise.report.writing import write_report
from querywise.retrieval.adapted_vectors import Kind
from querywise.retrieval.adapting import Adaptation, plain_fold
from querywise.retrieval.features import judged_candidates
from tests.support.adapting import made


def _compared(kind: Kind, *, plain: bool = False) -> Findings:
    collection, index = made()
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    folds = make_folds(judged).learning(Adaptation(collection, index, kind, top=10, vector_top=10).fold)
    rankers = {name: METHODS[name].build() for name in ("vectors", "vectors-adapted")}
    compared = compare(rankers, folds, measures="ndcg@10")
    same = compare(rankers, folds.learning(plain_fold), measures="ndcg@10") if plain else None
    return findings(compared, "ndcg@10", plain=same)


@pytest.fixture(scope="module")
def helped() -> Findings:
    return _compared("by-query", plain=True)


def test_it_says_that_teaching_helps_and_for_which_queries(helped: Findings) -> None:
    assert helped.vectors is not None
    verdict, distance, folds, methods = helped.vectors.said
    plain, adapted = (float(each["ndcg@10"].mean()) for each in helped.vectors.lists)
    assert verdict.startswith(
        f"Teaching the query vectors helps: ranked by vectors alone, ndcg@10 {plain:.4f} → {adapted:.4f}"
    )
    assert "recall@" in verdict
    assert "160 test queries" in verdict
    assert distance.startswith("The 40 queries nearest to a training query (cosine ")
    assert folds == "Queries were moved in every fold."
    assert methods.endswith("significantly better with adapted vectors: vectors-adapted; worse: none.")
    rows = {name: float(table["ndcg@10"].mean()) for name, table in helped.compared.evaluations.items()}
    assert rows == {"vectors": plain, "vectors-adapted": adapted}


def test_every_number_can_be_computed_again(helped: Findings) -> None:
    gains = helped.vectors
    assert gains is not None
    test = find_test("t")(gains.lists.adapted["ndcg@10"], gains.lists.plain["ndcg@10"])
    told: Any = gains.as_json()
    assert told["lists"]["ndcg@10"]["difference"] == test.difference
    assert as_json(helped)["query_vectors"] == gains.as_json()
    assert sum(group.queries for group in gains.groups) == len(gains.nearest) == 160
    whole = sum(group.queries * group.gain.difference for group in gains.groups) / 160
    assert whole == pytest.approx(test.difference)
    assert list(vectors_tables(gains)) == [
        "query-vectors",
        "query-vectors-by-cosine",
        "query-vectors-by-fold",
        "query-vectors-by-method",
    ]
    mean, against = gains.by_method["vectors-adapted"]
    assert mean == pytest.approx(float(gains.lists.plain["ndcg@10"].mean()))
    assert against.found.difference == pytest.approx(test.difference)


def test_the_nearest_training_query_is_of_the_fold_itself(helped: Findings) -> None:
    collection, index = made()
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    fold = make_folds(judged)[0]
    own, known = (
        np.asarray(part.candidates.queries and part.candidates.queries.vectors) for part in (fold.test, fold.train)
    )
    assert helped.vectors is not None
    assert np.allclose(helped.vectors.nearest[: len(own)], (own @ known.T).max(axis=1))


def test_it_says_why_vectors_are_left_alone(tmp_path: Path) -> None:
    found = _compared("auto")
    assert found.vectors is not None
    assert found.vectors.said == [
        "Teaching the query vectors was not tried: it takes 100 judged queries to learn from, and each fold has 96. "
        "They stay as they are."
    ]
    page = write_report(found, tmp_path / "report", title="t").read_text()
    assert found.vectors.said[0] in page
    assert not (tmp_path / "report" / "figures" / "vectors-gain.svg").exists()


def test_the_report_has_the_section_in_every_form(tmp_path: Path, helped: Findings) -> None:
    assert helped.vectors is not None
    page = write_report(helped, tmp_path, title="t").read_text()
    written = (tmp_path / "report.md").read_text()
    for form in (page, written):
        assert helped.vectors.said[0].split(":")[0] in form
        assert "Query vectors" in form
    assert 'href="#vectors"' in page
    assert "figures/vectors-gain.svg" in written
    rows = list(csv.reader(io.StringIO((tmp_path / "query-vectors-by-fold.csv").read_text())))
    assert len(rows) == 6
    assert all("gamma" in row[2] or "linear map" in row[2] for row in rows[1:])


@pytest.mark.slow
def test_curves_have_both_lists_at_every_size(helped: Findings) -> None:
    collection, index = made()
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    folds = make_folds(judged).learning(Adaptation(collection, index, "by-query", top=10, vector_top=10).fold)
    learning = {name: METHODS[name].build() for name in ("vectors", "vectors-adapted")}
    curves = curves_up_to(helped.compared, learning, folds, training_queries(folds))
    found = with_curves(helped, curves).vectors
    assert found is not None
    assert tuple(found.by_size) == curves.sizes
    adapted = [float(each.adapted["ndcg@10"].mean()) for each in found.by_size.values()]
    assert adapted[0] < adapted[-1]
    assert len({float(each.plain["ndcg@10"].mean()) for each in found.by_size.values()}) == 1
    assert "query-vectors-by-size" in vectors_tables(found)


def test_without_adaptation_nothing_is_said() -> None:
    collection, index = made()
    judged = judged_candidates(collection, index, top=10, vector_top=10)[0]
    found = findings(
        compare({"vectors": METHODS["vectors"].build()}, make_folds(judged), measures="ndcg@10"), "ndcg@10"
    )
    assert found.vectors is None
    assert "query_vectors" not in as_json(found)
