"""Selection inside compiled code, against numpy's sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from querywise.runtime.compiled import smallest


@settings(deadline=None)
@given(st.lists(st.one_of(st.floats(allow_nan=False), st.integers(0, 3).map(float)), min_size=1), st.data())
def test_the_kth_smallest_is_that_of_sorting(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    given_values = np.array(values)
    assert smallest(given_values, k) == np.sort(given_values)[k - 1]
    assert given_values.tobytes() == np.array(values).tobytes(), "the values stay as they are"


def test_selection_ends_where_values_are_not_numbers() -> None:
    for values in ([np.nan] * 5, [1.0, np.nan, 0.0, np.nan, 2.0], [np.inf, -np.inf, np.nan]):
        smallest(np.array(values), 2)
