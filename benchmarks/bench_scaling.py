"""Whether training time grows like the data."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.results import Result
from benchmarks.timing import best_seconds
from querywise import RankSVM, make_judged

_MOST = 1.3


def measure() -> Iterator[Result]:
    """Scaling: RankSVM.fit, time per query.

    35 documents × 46 features per query. The ratio is to the time per query at 1,000 queries.
    """
    RankSVM(scale="none").fit(make_judged(1_000, 35, 46))
    first = _microseconds_per_query(1_000)
    yield Result("scaling", "1,000 queries", first, None, "µs", None, "", None)
    for queries in (2_000, 5_000, 10_000, 20_000):
        each = _microseconds_per_query(queries)
        ratio = each / first
        yield Result("scaling", f"{queries:,} queries", each, None, "µs", ratio, f"≤ {_MOST:g}×", ratio <= _MOST)


def _microseconds_per_query(queries: int) -> float:
    data = make_judged(queries, 35, 46)
    # Short fits are disturbed more easily, and the shortest is what all others are measured by: repeat them more.
    times = max(60_000 // queries, 3)
    return 1e6 * best_seconds(lambda: RankSVM(scale="none").fit(data), times=times) / queries
