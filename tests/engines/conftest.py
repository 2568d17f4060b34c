"""Tests of engines: the files of one engine are a group that runs in one process, with one server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.engines import ltr_plugin, opensearch, solr, vespa
from tests.engines.artifacts import UnavailableError

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before tests/conftest.py makes groups of all others
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what is in this folder; `test_NAME.py` and `test_NAME_more.py` share the server of NAME."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.xdist_group(f"engines-{item.path.stem.split('_')[1]}"))
    yield


def without(error: UnavailableError) -> NoReturn:
    """Skip what cannot run here. A machine that builds the project must have all that can be fetched."""
    if os.environ.get("CI") and not isinstance(error, ltr_plugin.NotToBeHadError):
        pytest.fail(str(error))
    pytest.skip(str(error))


@pytest.fixture(scope="session")
def search() -> Iterator[opensearch.OpenSearch]:
    """A running OpenSearch, with Learning to Rank where it is to be had."""
    try:
        opensearch.fetch()
    except UnavailableError as error:
        without(error)
    with opensearch.serving(ltr=ltr_plugin.is_there(opensearch.VERSION)) as server:
        yield server


@pytest.fixture(scope="session")
def learning(request: pytest.FixtureRequest) -> opensearch.OpenSearch:
    """A running OpenSearch with Learning to Rank."""
    try:
        ltr_plugin.find(opensearch.VERSION)
    except ltr_plugin.NotToBeHadError as error:
        without(error)
    server: opensearch.OpenSearch = request.getfixturevalue("search")
    return server


@pytest.fixture(scope="session")
def node() -> Iterator[solr.Solr]:
    """A running Solr without cores."""
    try:
        solr.fetch()
    except UnavailableError as error:
        without(error)
    with solr.serving() as running:
        yield running


@pytest.fixture(scope="session")
def evaluator() -> Iterator[vespa.Vespa]:
    """Vespa's evaluator."""
    try:
        vespa.fetch()
    except UnavailableError as error:
        without(error)
    with vespa.evaluating() as running:
        yield running
