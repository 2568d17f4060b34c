"""Parameters by name, copies and reprs: what every estimator has, whether it learns, places, groups or ranks."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import querywise
from querywise.contracts.asking import AnyRanker
from querywise.contracts.estimators import Estimator
from querywise.contracts.protocols import Ranker
from querywise.data.judged import Judged
from querywise.data.synthetic import make_judged
from querywise.display.tables import table
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART, TreeRegression
from querywise.locality.neighborhoods import Everyone, Nearest, Radius
from querywise.locality.views.columns import SideBySide
from querywise.locality.views.divergence import Divergence
from querywise.locality.views.learned import GradientView
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean
from querywise.methods import METHODS
from querywise.rankers.atvt import ATVT
from querywise.rankers.blend import Blend
from querywise.rankers.knn import KnnOnline
from querywise.rankers.single import OneFeature, Single
from querywise.runtime.parameters import parameter_names, parameters_of, unfitted
from tests.support.rankers import RANKERS

# What constructors need where they have no default.
NEEDED: dict[str, Any] = {
    "learner": RankSVM(l2=0.1),
    "regressor": TreeRegression(20),
    "rankers": [RankSVM(), OneFeature(1)],
    "ranker": Single(RankSVM(l2=3.0)),
    "blend": Blend([RankSVM(), OneFeature(0)]),
    "views": (TopMean(0), TextView(3)),
    "view": TopMean(),
    "radius": 1.5,
    "k": 0.3,
    "kappa": 0.5,
    "back_off": None,
    "l2": 0.1,
    "signals_l2": 0.2,
}


def every_class(root: type = Estimator) -> Iterator[type]:
    """All estimators of the library."""
    importlib.import_module("querywise.retrieval.adapted_vectors")
    for room in ("learners", "locality", "rankers"):
        package = importlib.import_module(f"querywise.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"querywise.{room}."):
            importlib.import_module(module.name)
    subclasses: list[type] = root.__subclasses__()
    for each in subclasses:
        if each.__module__.startswith("querywise."):
            yield each
        yield from every_class(each)


CLASSES = {each.__name__: each for each in every_class() if each.__name__ not in ("AnyRanker", "WeightedSum", "Fusion")}
_COMPARED_WITH = "querywise.learners.peers"  # neither saved nor explained; see test_peers.py
PUBLIC = {
    name: each
    for name, each in CLASSES.items()
    if not name.startswith("_") and not each.__module__.startswith(_COMPARED_WITH)
}


def made(kind: type) -> Any:
    """One of a class, from its defaults and what it needs beside them."""
    needed = [name for name, each in inspect.signature(kind).parameters.items() if each.default is each.empty]
    return kind(**{name: NEEDED[name] for name in needed})


SAMPLES: dict[str, Any] = (
    {name: made(kind) for name, kind in PUBLIC.items()}
    | {f"a ranker: {name}": build() for name, build in RANKERS.items()}
    | {f"a method: {name}": method.build() for name, method in METHODS.items()}
)
sample = pytest.mark.parametrize("thing", SAMPLES.values(), ids=SAMPLES)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, estimators by class and parameters."""
    if isinstance(one, Estimator):
        return type(one) is type(other) and same(one.get_params(), other.get_params())
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    return bool(np.all(one == other)) and type(one) is type(other)


def test_everything_at_the_top_that_can_be_fitted_is_an_estimator() -> None:
    homes = querywise._HOMES  # type: ignore[attr-defined]
    found = {name: getattr(importlib.import_module(home), name) for name, home in homes.items()}
    fittable = {name for name, each in found.items() if isinstance(each, type) and hasattr(each, "fit")}
    assert len(fittable) > 12
    assert fittable <= set(PUBLIC)
    assert {type(each).__name__ for each in SAMPLES.values() if hasattr(each, "answer")} == {
        name for name, kind in PUBLIC.items() if issubclass(kind, AnyRanker)
    }


@sample
def test_parameters_are_got_and_set_by_name(thing: Any) -> None:
    own = thing.get_params(deep=False)
    assert list(own) == parameter_names(type(thing))
    assert all(own[name] is getattr(thing, name) for name in own)
    again = type(thing)(**own)
    deep = thing.get_params()
    assert same(again, thing)
    assert again.set_params(**deep) is again
    assert same(again, thing)


@sample
def test_a_clone_is_equal_and_shares_no_part(thing: Any) -> None:
    twin = clone(thing)
    assert type(twin) is type(thing)
    assert twin is not thing
    assert same(twin, thing)
    parts = {id(each) for each in thing.get_params().values() if isinstance(each, Estimator)}
    assert not parts & {id(each) for each in twin.get_params().values() if isinstance(each, Estimator)}


@sample
def test_its_repr_makes_an_equal_one(thing: Any) -> None:
    text = repr(thing)
    assert "object at 0x" not in text
    assert "…" not in text
    assert all(len(line) <= 120 for line in text.split("\n"))
    assert same(eval(text, dict(PUBLIC)), thing)


@sample
def test_parameters_of_parts_are_set_without_touching_the_original(thing: Any) -> None:
    before, other = repr(thing), RankSVM(l2=42.0)
    for name in thing.get_params():
        assert clone(thing).set_params(**{name: other}).get_params()[name] is other
    assert repr(thing) == before


def test_reprs_are_what_one_would_write() -> None:
    assert repr(KnnOnline(RankSVM(l2=0.1), k=0.3)) == "KnnOnline(RankSVM(l2=0.1), k=0.3)"
    assert repr(KnnOnline(RankSVM(), neighborhood=Radius(1.5))) == "KnnOnline(RankSVM(), neighborhood=Radius(1.5))"
    assert repr(RankSVM(l2=np.float64(0.1))) == "RankSVM(l2=0.1)"
    assert repr(SideBySide((TopMean(),))) == "SideBySide((TopMean(),))"
    assert repr(RankSVM()) == "RankSVM()"


def cells(page: str) -> list[tuple[str, str]]:
    """The first table of a page, a pair per row."""
    table = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return re.findall(r"<tr[^>]*><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td></tr>", table)


def test_in_a_notebook_it_is_a_table_of_its_parts_and_of_what_was_set() -> None:
    ranker: Any = Blend([KnnOnline(RankSVM(l2=0.1)), LambdaMART(50)], scores="rank")
    page = ranker._repr_html_()
    assert cells(page) == [
        ("rankers", "2 parts"),
        ("rankers__0", "KnnOnline"),
        ("rankers__0__learner", "RankSVM"),
        ("rankers__0__learner__l2", "0.1"),
        ("rankers__1", "LambdaMART"),
        ("rankers__1__trees", "50"),
        ("scores", "&#x27;rank&#x27;"),
    ]
    assert "<b>Blend</b>, not fitted" in page
    assert f"All {page.count('<td') // 2 - 7} parameters" in page
    assert table(("parameter", "value"), [("l2", "0.1")], text=(0, 1)) in RankSVM(l2=0.1)._repr_html_()
    assert "fitted" in RankSVM()._repr_html_()
    assert "<script>" not in OneFeature("<script>")._repr_html_()


@sample
def test_every_table_names_what_can_be_set(thing: Any) -> None:
    page = thing._repr_html_()
    assert "object at 0x" not in page
    whole = page.partition("<details>")[2] or page
    assert {name for name, _ in cells(whole)} == set(thing.get_params())


def test_what_does_not_fit_on_a_line_has_a_line_per_argument() -> None:
    wide = LambdaMART(1000, leaves=31, learning_rate=0.01, min_documents=50)
    assert repr(Blend([wide, Single(wide)], weights="learned")) == (
        "Blend(\n"
        "    [\n"
        "        LambdaMART(trees=1000, leaves=31, learning_rate=0.01, min_documents=50),\n"
        "        Single(LambdaMART(trees=1000, leaves=31, learning_rate=0.01, min_documents=50)),\n"
        "    ],\n"
        "    weights='learned',\n"
        ")"
    )


def test_a_parameter_that_cannot_be_written_is_named_by_its_class() -> None:
    class Own:
        pass

    thing: Any = Own()
    assert repr(KnnOnline(RankSVM(), view=thing)) == "KnnOnline(RankSVM(), view=Own(…))"
    assert repr(ATVT(TreeRegression(), values=[0.1] * 1000)).count("\n") > 3
    assert repr(TextView(thing)) == "TextView(dimensions=Own(…))"
    models: Any = np.arange(10_000)
    assert len(repr(Divergence(models=models))) < 300


def test_names_are_nested_through_parts_and_lists() -> None:
    ranker = Blend([KnnOnline(RankSVM()), RankSVM()])
    ranker.set_params(rankers__0__learner__l2=0.5, rankers__1__l2=2.0, weights="learned", rankers__0__k=3)
    assert repr(ranker) == "Blend([KnnOnline(RankSVM(l2=0.5), k=3), RankSVM(l2=2.0)], weights='learned')"
    assert ranker.get_params()["rankers__0__learner__l2"] == 0.5


def test_one_of_a_list_can_be_another() -> None:
    members: list[Ranker] = [RankSVM(), KnnOnline(RankSVM())]
    ranker = Blend(members).set_params(rankers__1__l2=0.5, rankers__1=RankSVM())
    assert repr(ranker) == "Blend([RankSVM(), RankSVM(l2=0.5)])"
    assert repr(members[1]) == "KnnOnline(RankSVM())"


def test_a_part_is_set_before_what_is_inside_of_it() -> None:
    ranker = KnnOnline(RankSVM()).set_params(learner__trees=7, learner=LambdaMART(), view__top=3, view=TopMean())
    assert repr(ranker) == "KnnOnline(LambdaMART(trees=7), view=TopMean(top=3))"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"kk": 1},
            r"KnnOnline has no parameter 'kk'\. It has: learner, k, view, neighborhood, back_off\. .*k\?",
        ),
        ({"lerner__l2": 1}, r"KnnOnline has no parameter 'lerner'\. .* Did you mean learner\?"),
        ({"learner__l3": 1}, r"RankSVM has no parameter 'l3'\. It has: l2, loss, .* Did you mean l2\?"),
        ({"view__top": 1}, r"KnnOnline has no parameter 'view__top': view is None\. Set view first"),
        ({"k__more": 1}, r"no parameter 'k__more': k is 0\.2\. Set k first"),
        ({"nonsense": 1}, r"back_off\.$"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        KnnOnline(RankSVM()).set_params(**given)


def test_the_number_of_a_part_in_a_list_is_checked() -> None:
    with pytest.raises(DataError, match=r"rankers is a list of 2\. Name one of rankers__0__…, rankers__1__…"):
        Blend([RankSVM(), RankSVM()]).set_params(rankers__2__l2=1.0)
    with pytest.raises(DataError, match=r"Everyone has no parameter 'k'\. It has: none"):
        Everyone().set_params(k=1)


@pytest.fixture(scope="module")
def data() -> Judged:
    return make_judged(12, 6, 3, seed=1)


def test_a_fitted_ranker_prints_as_what_it_is_and_its_clone_is_not_fitted(data: Judged) -> None:
    ranker = KnnOnline(RankSVM(l2=0.1), k=3).fit(data)
    assert repr(ranker) == "KnnOnline(RankSVM(l2=0.1), k=3)"
    assert not hasattr(clone(ranker), "feature_count_")
    assert repr(unfitted(ranker)) == repr(ranker)


def test_a_reference_given_fitted_stays_fitted_in_a_clone(data: Judged) -> None:
    reference = RankSVM(l2=7.0).fit(data)
    ranker = KnnOnline(RankSVM(), k=3, view=GradientView(TopMean(reference)), neighborhood=Nearest(3))
    twin = clone(ranker).set_params(view__view__reference__l2=5.0)
    inside = twin.get_params()["view__view__reference"]
    assert inside.weights_ is reference.weights_
    assert (inside.l2, reference.l2) == (5.0, 7.0)
    assert np.array_equal(twin.fit(data).predict(data), ranker.fit(data).predict(data))


def test_the_parameters_are_the_arguments_of_the_constructor() -> None:
    for thing in SAMPLES.values():
        assert thing.get_params(deep=False) == parameters_of(thing)
