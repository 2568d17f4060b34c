"""What is alike in two judged sets."""

from __future__ import annotations

from querywise.data.judged import Judged


def same(one: Judged, other: Judged) -> None:
    """Two sets are the same to the last bit."""
    a, b = one.candidates, other.candidates
    assert a.features.tobytes() == b.features.tobytes()
    assert a.features.shape == b.features.shape
    assert a.features.flags.c_contiguous
    assert a.starts.tolist() == b.starts.tolist()
    assert (a.query_ids, a.document_ids, a.comments) == (b.query_ids, b.document_ids, b.comments)
    assert a.feature_names == b.feature_names
    assert one.labels.tolist() == other.labels.tolist()
    assert (one.judged is None) == (other.judged is None)
    if one.judged is not None and other.judged is not None:
        assert one.judged.tolist() == other.judged.tolist()
    assert (a.queries is None) == (b.queries is None)
    if a.queries is not None and b.queries is not None:
        assert (a.queries.ids, a.queries.texts, a.queries.classes) == (
            b.queries.ids,
            b.queries.texts,
            b.queries.classes,
        )
        assert a.queries.column_names == b.queries.column_names
        assert (a.queries.columns is None) == (b.queries.columns is None)
        if a.queries.columns is not None and b.queries.columns is not None:
            assert a.queries.columns.tolist() == b.queries.columns.tolist()
