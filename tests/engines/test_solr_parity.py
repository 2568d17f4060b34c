"""Every exported form in a real Solr: scores within rounding, and the same order."""

from __future__ import annotations

import pytest

from tests.engines import parity
from tests.engines.solr import Solr, scoring


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
