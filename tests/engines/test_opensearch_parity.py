"""Every exported form in a real OpenSearch: scores within rounding, and the same order."""

from __future__ import annotations

import pytest

from tests.engines import opensearch, parity


@pytest.mark.parametrize("case", [case for case in parity.CASES if case.made_up], ids=lambda case: case.name)
def test_the_plugin_scores_as_we_do(case: parity.Case, learning: opensearch.OpenSearch) -> None:
    row = parity.measured(case, lambda export: opensearch.scoring(learning, export), "opensearch")
    assert row.documents == parity.ROWS
    assert row.share <= 1
    assert row.swapped == 0
    if case.name == "200 models":
        assert row.models == 201


def test_a_pair_in_the_wrong_order_is_counted() -> None:
    import numpy as np

    ours, bound = np.array([3.0, 2.0, 1.0]), np.full(3, 0.1)
    assert parity.against(ours, bound, np.array([3.0, 2.0, 1.0])) == 0
    assert parity.against(ours, bound, np.array([2.0, 3.0, 1.0])) == 1
    assert parity.against(ours, np.full(3, 0.6), np.array([2.0, 3.0, 1.0])) == 0
