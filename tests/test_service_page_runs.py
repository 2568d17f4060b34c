"""What the page shows of a model that weighs runs: its weights as a bar, when it backed off, and the runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from querywise.data.letor import write_letor, write_side_files
from querywise.data.query_table import QueryTable
from querywise.rankers.weights.by_query import WeightsByQuery
from querywise.storage import save
from tests.serving import Serving, serving
from tests.support.runs import planted

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Weights by the texts of queries; the last judged query has words that no training query has."""
    folder, data = tmp_path_factory.mktemp("weighed"), planted(60)
    save(WeightsByQuery(way="neighbours", kappa=0.0, shrinkage=1.0).fit(data), folder / "model")
    assert data.candidates.queries is not None
    texts = (*(data.candidates.queries.texts or ())[:-1], "zeppelin xylophone")
    data = replace(data, candidates=replace(data.candidates, queries=QueryTable(data.query_ids, texts=texts)))
    write_letor(folder / "judged.txt", data)
    write_side_files(data, folder)
    with serving(folder / "model", "--data", folder / "judged.txt") as found:
        yield found


def shares(page: Page, line: int) -> tuple[list[float], list[float]]:
    """The numbers of a line of weights, and the parts of its bar in percent."""
    row = page.locator(".weighed").nth(line)
    numbers = [float(each.get_attribute("value") or "nan") for each in row.locator("data").all()]
    return numbers, row.locator(".part").evaluate_all("(parts) => parts.map((part) => parseFloat(part.style.width))")


def test_the_weights_of_a_query_are_a_bar_above_those_for_all(page: Page, server: Serving) -> None:
    found = server.get("/v1/search", qid="q0").json()["weights"]
    assert [each["here"] for each in found] != [each["everyone"] for each in found], "else there is nothing to see"
    page.goto(f"{server.url}/?qid=q0")
    expect(page.locator(".weighed")).to_have_count(2)
    for line, which in enumerate(("here", "everyone")):
        numbers, widths = shares(page, line)
        assert numbers == [each[which] for each in found]
        assert widths == pytest.approx([100 * each for each in numbers], abs=0.01)
    expect(page.locator("#note")).to_be_hidden()


def test_a_query_that_backed_off_says_so_and_has_the_weights_for_all(page: Page, server: Serving) -> None:
    page.goto(f"{server.url}/?qid=q59")
    expect(page.locator("#note")).to_contain_text("Backed off to the model for all queries: ")
    told = server.get("/v1/search", qid="q59").json()["explanation"]["note"]
    expect(page.locator("#note")).to_contain_text(told)
    assert shares(page, 0) == shares(page, 1)


def test_each_run_and_both_can_stand_beside_the_model(page: Page, server: Serving) -> None:
    found = server.get("/v1/search", qid="q0").json()
    assert found["runs"] == ["words", "vectors", "fused"]
    page.goto(f"{server.url}/?qid=q0")
    orders = set()
    for run, title in (("words", "words"), ("vectors", "Vectors"), ("fused", "All runs fused")):
        page.get_by_label("Compare with").select_option(run)
        expect(page.locator("#theirs-title")).to_have_text(title)
        ranks = {each["ranks"][run]: each["id"] for each in found["documents"] if run in each["ranks"]}
        shown = page.locator("#theirs > li").evaluate_all("(items) => items.map((item) => item.dataset.id)")
        assert shown == [ranks[place] for place in range(1, 11)]
        orders.add(tuple(shown))
    assert len(orders) == 3


def test_judged_queries_without_an_index_are_stepped_through_too(page: Page, server: Serving) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#standing")).to_contain_text("1 of 60 queries")
    expect(page.locator("#box")).to_have_value(
        server.get("/v1/search", qid=page.url.split("qid=")[1].split("&")[0]).json()["query"]["text"]
    )
