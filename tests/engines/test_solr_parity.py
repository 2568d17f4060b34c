"""Every exported form in a real Solr: scores within rounding, and the same order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from querywise import KnnOffline2, LambdaMART, RankSVM, TextView, build_index, judged_candidates, read_collection
from tests.engines import parity
from tests.engines.solr import Solr, scoring
from tests.worlds import REAL_DATA, needs_real_data


@pytest.fixture(scope="module")
def core(node: Solr) -> str:
    node.create("parity")
    return "parity"


@pytest.mark.parametrize("case", [case for case in parity.CASES if case.made_up], ids=lambda case: case.name)
def test_solr_scores_as_we_do(case: parity.Case, node: Solr, core: str) -> None:
    row = parity.measured(case, lambda export: scoring(node, core, export), "solr")
    assert row.documents == parity.ROWS
    assert row.share <= 1
    assert row.swapped == 0
    assert (node.models(core), node.stores(core), node.count(core)) == ([], [], 0)


@needs_real_data
def test_on_cranfields_raw_features_solr_ranks_as_we_do(node: Solr, core: str) -> None:
    collection = read_collection(REAL_DATA / "cranfield")
    data, _ = judged_candidates(collection, build_index(collection.documents()), top=40)
    numbered = tuple(f"f{place}" for place in range(data.feature_count))  # by their names they would be refused
    data = replace(data, candidates=replace(data.candidates, feature_names=numbered))
    for build in (lambda: KnnOffline2(RankSVM(), k=0.3, models=6, view=TextView(20)), lambda: LambdaMART(30)):
        case = parity.Case("cranfield", build, lambda: data, made_up=False)
        row = parity.measured(case, lambda export: scoring(node, core, export), "solr")
        assert row.documents == parity.ROWS
        assert row.share <= 1
        assert row.swapped == 0
