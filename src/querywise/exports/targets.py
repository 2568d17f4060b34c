"""The targets of exports by name."""

from __future__ import annotations

from querywise.errors import DataError
from querywise.exports import elasticsearch, elasticsearch_native, fusion, solr, vespa
from querywise.exports.target import Target

TARGETS: dict[str, Target] = {
    "opensearch": elasticsearch.OPENSEARCH,
    "elasticsearch": elasticsearch.TARGET,
    "elasticsearch-native": elasticsearch_native.TARGET,
    "solr": solr.TARGET,
    "opensearch-hybrid": fusion.OPENSEARCH,
    "elasticsearch-retriever": fusion.ELASTICSEARCH,
    "vespa": vespa.TARGET,
    "postgres": fusion.POSTGRES,
}
RUN_MODELS = tuple(name for name, target in TARGETS.items() if target.models is not None)
FUSE_RUNS = tuple(name for name, target in TARGETS.items() if target.request is not None)


def find_target(name: str) -> Target:
    """Return the target of that name."""
    if name not in TARGETS:
        raise DataError(
            f"Unknown engine {name!r}. Known: {', '.join(RUN_MODELS)}; for weights of runs {', '.join(FUSE_RUNS)}."
        )
    return TARGETS[name]
