"""The engines by name."""

from __future__ import annotations

from querywise.errors import DataError
from querywise.exports import elasticsearch, elasticsearch_native, solr, vespa
from querywise.exports.engine import Engine

ENGINES: dict[str, Engine] = {
    "opensearch": elasticsearch.OPENSEARCH,
    "elasticsearch": elasticsearch.ENGINE,
    "elasticsearch-native": elasticsearch_native.ENGINE,
    "solr": solr.ENGINE,
    "vespa": vespa.ENGINE,
}


def find_engine(name: str) -> Engine:
    """The engine of a name."""
    if name not in ENGINES:
        raise DataError(f"Unknown engine {name!r}. Known: {', '.join(ENGINES)}.")
    return ENGINES[name]
