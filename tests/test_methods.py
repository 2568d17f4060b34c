"""Methods by name: what can be set is what the constructors say, and what cannot be is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin, get_type_hints

import pytest

import querywise
from querywise.data.letor import write_letor
from querywise.data.synthetic import make_judged
from querywise.errors import DataError
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.regression import KernelRidge
from querywise.learners.trees.boosting import LambdaMART, TreeRegression
from querywise.learners.trees.context import QueryContext
from querywise.locality.neighborhoods import Nearest, Radius
from querywise.locality.views.topmean import TopMean, TwoModels
from querywise.methods import METHODS, Setting, current_name, described, find_method, parse_settings, typed
from querywise.methods.method import imported, make, settings_of
from querywise.methods.parts import VIEWS
from querywise.rankers.blend import Blend
from querywise.rankers.single import OneFeature
from querywise.rankers.wrappers import QueryNormalised
from querywise.retrieval.scores import BM25
from querywise.runtime.parameters import parameters_of
from querywise.storage import read_manifest
from tests import commands
from tests.worlds import inside

if TYPE_CHECKING:
    from querywise.data.folds import Folds


def read(method: str, *texts: str) -> dict[str, Any]:
    return parse_settings(find_method(method), texts, flag="--set ")


def built(method: str, **settings: Any) -> Any:
    return find_method(method).build(**settings)


# The schema


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_setting_has_a_type_and_a_help_and_choices_where_the_constructor_has_them(method: Any) -> None:
    for name, setting in method.settings.items():
        assert setting.name == name
        assert setting.type, name
        assert len(setting.help) > 10, name
        assert setting.help.endswith("."), name
        setting.checked(setting.default)
    made: Any = imported(method.home)
    hints = get_type_hints(vars(made)["__init__"]) if "__init__" in vars(made) else {}
    for parameter in method.takes:
        if get_origin(hints.get(parameter)) is Literal:
            assert method.settings[parameter].choices == hints[parameter].__args__


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_default_is_the_constructors(method: Any) -> None:
    parameters = inspect.signature(imported(method.home)).parameters
    assert {name: method.settings[name].default for name in method.takes} == {
        name: parameters[name].default for name in method.takes
    }


def test_parts_have_the_defaults_of_their_classes_unless_a_method_says_another() -> None:
    def differing(method: str, part: Any) -> dict[str, Any]:
        own = {name: each.default for name, each in inspect.signature(part).parameters.items()}
        return {
            name: each.default
            for name, each in METHODS[method].settings.items()
            if name in own and each.default != own[name]
        }

    assert differing("single", RankSVM) == differing("knn-online", TopMean) == differing("atvt", KernelRidge) == {}
    assert differing("knn-online", RankSVM) == {"prior_l2": 0.0}, "none, for people"
    assert differing("knn-online", Nearest) == {"k": 0.2}, "the ranker's own"
    assert differing("naive", TopMean) == differing("select-ranker", TopMean) == {"top": 10}
    assert differing("blend", LambdaMART) == {"bag": 5}
    assert differing("blend", RankSVM) == {"l2": 0.1, "prior_l2": 5.0}
    assert METHODS["naive"].settings["view"].default is METHODS["weights-by-query"].settings["view"].default is None


def test_a_method_has_the_name_of_its_function_and_the_first_line_of_its_docstring() -> None:
    method = METHODS["mhr-bc"]
    assert method.factory.__name__ == "mhr_bc"
    assert method.description == "a ranking SVM per pair of grades, combined by Borda count"
    assert METHODS["bm25"].description.startswith("no learning: one feature as the score, BM25 or")


def test_the_class_a_method_gives_is_known_without_building_it() -> None:
    for method in METHODS.values():
        assert type(method.build()) is imported(method.home)


class Shaped:
    """A class with every kind of parameter.

    Args:
        share: a number, said
            over two lines.
        kind, other: one of a few [joachims2002]_.

    names: not any more. Prose that goes on.
    """

    def __init__(
        self,
        made: Any,
        share: float = 0.5,
        kind: Literal["a", "b"] | None = "a",
        other: Any = None,
        names: Any = (),
        on: bool = False,
        kept: int | str | Folds | None = None,
    ) -> None:
        self.given = (share, on)


def telling(word: str = "a") -> str:
    """A word.

    Args:
        word: what to tell.
    """
    return word


class Extended(Shaped):
    """Another one.

    Args:
        share: another number.
    """


def shapes(
    shaped: Annotated[type[Shaped], "tests.test_methods:Shaped", "share", "on", {"on": True}],
    told: Annotated[str, telling, {"word": "b"}],
    more: int = 3,
) -> tuple[Shaped, str, int]:
    """Something made of others.

    Args:
        more: a number.
    """
    return shaped(made=None), told, more


def test_a_function_has_the_settings_of_what_its_parameters_stand_for() -> None:
    found = settings_of(shapes)
    assert {name: each.default for name, each in found.items()} == {"share": 0.5, "on": True, "word": "b", "more": 3}
    assert [each.help for each in found.values()] == [
        "a number, said over two lines.",
        "",
        "what to tell.",
        "a number.",
    ]
    shaped, told, more = make(shapes, {"share": 0.1, "on": False, "word": "c", "more": 4})
    assert (shaped.given, told, more) == ((0.1, False), "c", 4)
    assert [*settings_of(shapes, "more", "on")] == ["more", "on"]


def test_help_is_what_the_docstring_says_of_its_arguments() -> None:
    found = settings_of(Shaped)
    assert found["share"].help == "a number, said over two lines."
    assert found["kind"].help == found["other"].help == "one of a few."
    assert found["on"].help == ""
    assert "made" not in found, "what has no default is no setting"
    more = settings_of(Extended)
    assert (more["share"].help, more["kind"].help) == ("another number.", "one of a few.")


def test_types_are_told_in_words() -> None:
    found = settings_of(Shaped)
    assert {name: each.type for name, each in found.items()} == {
        "share": "number",
        "kind": "name or none",
        "other": "whole number, name or none",
        "names": "whole number or name",
        "on": "true or false",
        "kept": "whole number, name or none",
    }
    anything: Any = object()
    assert found["kept"].checked(anything) is anything, "in Python it may be what only a type checker can name"
    assert found["kind"].choices == ("a", "b")
    assert found["kind"].expected == "a, b or none"
    assert [typed(each) for each in (None, True, 0.2, "a")] == ["none", "true", "0.2", "a"]


# What is typed


def test_false_is_false_and_not_a_text_that_counts_as_true() -> None:
    assert built("query-classes", **read("query-classes", "known=False")).known is False
    assert built("query-classes", **read("query-classes", "known=true")).known is True


@pytest.mark.parametrize(
    ("method", "text", "value"),
    [
        ("query-classes", "known=TRUE", True),
        ("adarank", "repeat=false", False),
        ("knn-online", "k=1", 1),
        ("knn-online", "k=1.0", 1.0),
        ("knn-online", "radius=none", None),
        ("knn-online", "radius=Null", None),
        ("knn-online", "radius=1e-3", 0.001),
        ("knn-online", "reference=3", 3),
        ("knn-online", "reference=true", "true"),
        ("knn-online", "reference=clicks", "clicks"),
        ("knn-online", "view=text", "text"),
        ("naive", "view=none", None),
        ("ranksvm", "scale=none", "none"),
        ("ranksvm", 'loss="hinge"', "hinge"),
        ("atvt", "scale_penalty=Infinity", float("inf")),
        ("blend", "context=none", "none"),
        ("blend", "context=z+rank", "z+rank"),
        ("adarank", "measure=ndcg@5", "ndcg@5"),
    ],
)
def test_a_setting_is_read_as_its_kind(method: str, text: str, value: Any) -> None:
    found = read(method, text)[text.partition("=")[0]]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("method", "text", "expected"),
    [
        ("ranksvm", "loss=square", "squared_hinge or hinge"),
        ("ranksvm", "loss=none", "squared_hinge or hinge"),
        ("knn-online", "search=tree", "brute, kd_tree or ball_tree"),
        ("query-classes", "known=yes", "true or false"),
        ("query-classes", "known=1", "true or false"),
        ("query-classes", "known=none", "true or false"),
        ("knn-online", "k=none", "a number"),
        ("knn-online", "k=true", "a number"),
        ("knn-online", "k=[1]", "a number"),
        ("knn-online", "radius=far", "a number or none"),
        ("knn-online", "reference=0.5", "a whole number, a name or none"),
        ("knn-online", "top=5.0", "a whole number"),
        ("knn-online", "base=trees", "ranksvm or lambdamart"),
        ("knn-online", "normalise=all", "none or query"),
        ("sser", "norm=", "a number or none"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_expected(method: str, text: str, expected: str) -> None:
    with pytest.raises(DataError) as refused:
        read(method, text)
    assert str(refused.value) == f"--set {text}: expected {expected}."


@pytest.mark.parametrize(
    ("method", "setting", "words"),
    [
        ("ranksvm", {"loss": "square"}, "loss=square: expected squared_hinge or hinge."),
        ("ranksvm", {"l2": "0.3"}, "l2=0.3: expected a number."),
        ("ranksvm", {"l2": True}, "l2=true: expected a number."),
        ("ranksvm", {"l2": None}, "l2=none: expected a number."),
        ("lambdamart", {"leaves": 1.5}, "leaves=1.5: expected a whole number."),
        ("query-classes", {"known": "False"}, "known=False: expected true or false."),
        ("query-classes", {"known": 1}, "known=1: expected true or false."),
        ("knn-online", {"models": 3}, "'models' is not a setting of knn-online. Known: l2, loss, "),
    ],
)
def test_values_given_in_python_are_refused_in_the_same_words(method: str, setting: Any, words: str) -> None:
    with pytest.raises(DataError) as refused:
        find_method(method).build(**setting)
    assert str(refused.value).startswith(words)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy as np

    made = built("lambdamart", trees=np.int64(7), learning_rate=np.float32(0.25))
    assert (made.trees, made.learning_rate) == (7, 0.25)


def test_a_view_that_nobody_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"Unknown view 'words'\. Known: top-mean, text, columns, two-models, diverg"):
        built("knn-online", view="words")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("knn", "knn-online or knn-offline-1 or knn-offline-2"), ("lambdamrt", "lambdamart"), ("zzz", None)],
)
def test_an_unknown_method_is_refused_with_near_ones(name: str, meant: str | None) -> None:
    with pytest.raises(DataError) as refused:
        find_method(name)
    assert str(refused.value).startswith(f"Unknown method {name!r}. Known: bm25, vectors, vectors-adapted, ranksvm, ")
    assert str(refused.value).endswith("." if meant is None else f"Did you mean {meant}?")


# What is built


def test_one_setting_reaches_every_part_that_has_it() -> None:
    made = built("naive", top=7, view="top-mean+two-models", reference=2)
    assert (made.top, [each.top for each in made.view.views]) == (7, [7, 7])
    local = built("knn-online", k=9, metric="cosine")
    assert (local.k, local.neighborhood.k, local.neighborhood.metric) == (9, 9, "cosine")
    plain = built("knn-online", metric="cosine")
    assert plain.neighborhood.k == plain.k == 0.2, "the ranker's own default, not that of Nearest"
    chosen = built("select-ranker", reference="age", view="divergence")
    assert chosen.reference == chosen.view.reference == "age"


def test_a_radius_takes_the_place_of_the_nearest() -> None:
    made = built("knn-offline-2", radius=0.5, metric="cosine", models=3)
    assert isinstance(made.neighborhood, Radius)
    assert (made.neighborhood.radius, made.neighborhood.metric, made.models) == (0.5, "cosine", 3)
    assert isinstance(built("knn-offline-2").neighborhood, Nearest)


def test_base_chooses_the_learner_and_prior_l2_holds_it_to_the_global_model() -> None:
    held = built("knn-online", prior_l2=0.5, tolerance=None).learner
    assert (held.prior, held.prior_l2, held.tolerance) == ("global", 0.5, None)
    free = built("knn-online").learner
    assert (free.prior, free.prior_l2) == (None, None)
    trees = built("knn-online", base="lambdamart", prior_l2=0.5).learner
    assert isinstance(trees, LambdaMART)
    assert parameters_of(trees) == {**parameters_of(LambdaMART()), "prior": "global"}
    kernel = built("atvt", base="kernel", l2=0.3, seed=4).regressor
    assert (type(kernel), kernel.l2, kernel.seed) == (KernelRidge, 0.3, 4)
    grown = built("regression", leaves=7)
    assert (type(grown.regressor), grown.regressor.leaves, grown.rounds) == (TreeRegression, 7, 0)


def test_bm25_is_a_feature_by_name_until_another_is_asked_for() -> None:
    features = [built("bm25", **each).feature for each in ({}, {"reference": 3})]
    assert features == [BM25, 3]


def test_views_go_by_the_reference_and_the_number_of_documents() -> None:
    for name in VIEWS:
        assert built("query-classes", view=name).view is not None
    best = built("query-classes", view="two-models", top=7).view
    assert isinstance(best, TwoModels)
    assert isinstance(best.first, OneFeature)
    assert (best.second, best.top) == (None, 7)
    inside = built("query-classes", view="learned", reference=1).view.view
    assert isinstance(inside, TopMean)
    assert (inside.reference, inside.top) == (1, 50)
    assert built("naive").view is None


def test_a_ranker_can_be_normalised_by_query() -> None:
    assert isinstance(built("ranksvm", normalise="query"), QueryNormalised)
    assert "normalise" not in find_method("ser").settings


def test_names_joined_by_plus_become_a_list() -> None:
    for text, columns in (("z+rank", ["z", "rank"]), ("none", [])):
        made = built("blend", context=text)
        assert all(list(each.columns) == columns for each in made.rankers if isinstance(each, QueryContext))


# Who reads it


def test_the_settings_of_a_fitted_method_come_with_the_values_in_force() -> None:
    found = {each["name"]: each for each in described("knn-online", {"k": 7, "gone": 1})}
    assert (found["k"]["value"], found["k"]["default"]) == (7, 0.2)
    assert found["loss"]["value"] == "squared_hinge"
    assert found["loss"]["choices"] == ["squared_hinge", "hinge"]
    assert set(found["l2"]) == {"name", "type", "default", "choices", "help", "value"}
    assert described("a method of another version", {"k": 7}) == []
    json.dumps([described(name, {}) for name in METHODS])


def run(*words: str) -> commands.Done:
    return commands.run(None, *words)


def test_the_command_line_shows_the_settings_of_a_method() -> None:
    text = run("methods", "atvt").stdout
    assert text.startswith("atvt: one regression, learned as if queries differed in level and scale")
    for words in ("scale_penalty", "100.0", "weighted, running", "whole number", "how strongly scales"):
        assert words in text
    assert "Tried on validation data: learning_rate 0.03, 0.1; scale_penalty 1.0, 10.0, 100.0" in text
    assert "Tried on validation data with base=kernel: l2 0.1" in text
    content = json.loads(run("methods", "sser", "--json").stdout)
    assert content["name"] == "sser"
    assert content["grid"]["norm"] == [None, 10.0]
    settings = {each["name"]: each for each in content["settings"]}
    assert settings["norm"]["type"] == "number or none"
    assert settings["norm"]["default"] is None
    refused = run("methods", "lambdamrt")
    assert refused.returncode == 2
    assert "Did you mean lambdamart?" in refused.stderr


# A name that has changed


def test_the_recommended_ranker_is_the_blend_and_found_by_its_old_name_too() -> None:
    assert find_method("querywise") is METHODS["blend"]
    assert "querywise" not in METHODS
    assert current_name("querywise") == "blend"
    assert current_name("single") == "single"
    ranker: Any = querywise.recommended(bag=2)
    assert isinstance(ranker, Blend)
    assert [inside(each).learner.bag for each in ranker.rankers[:2]] == [2, 2]
    assert described("querywise", {}) == described("blend", {})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.txt"
    write_letor(path, make_judged(20, 6, 3))
    return path


SENTENCE = "The method querywise is called blend now; the old name goes on working.\n"
QUICK = ("--set", "trees=3", "--set", "bag=1")


@pytest.mark.slow
def test_a_model_fitted_by_the_old_name_has_the_new_one(data: Path, tmp_path: Path) -> None:
    words = ("fit", str(data), *QUICK, "--out", str(tmp_path / "model"))
    done = run(*words, "--method", "querywise")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(SENTENCE) == 1
    assert "blend trained on 20 queries" in done.stdout
    assert read_manifest(tmp_path / "model").notes["method"] == "blend"
    assert SENTENCE not in run(*words, "--method", "blend").stderr
    assert run(*words, "--method", "querywise", "--quiet").stderr == ""
    assert SENTENCE in run("methods", "querywise").stderr


@pytest.mark.slow
def test_a_comparison_by_the_old_name_has_the_new_one(data: Path, tmp_path: Path) -> None:
    words = ("--methods", "querywise,single", "--baseline", "querywise", "--bag", "1", "--k", "5", "--measures", "map")
    done = run("compare", str(data), *words, "--json", "--out", str(tmp_path / "report"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(SENTENCE) == 1
    content = json.loads(done.stdout)
    assert list(content["methods"]) == ["blend", "single"]
    assert content["baseline"] == "blend"
    assert not list((tmp_path / "report" / "runs").glob("*querywise*"))


def test_runs_are_fused_by_the_old_name_too(tmp_path: Path) -> None:
    refused = run("fuse", "a.trec", "b.trec", "--out", str(tmp_path / "fused"), "--method", "querywise")
    assert SENTENCE in refused.stderr
    assert "--method blend learns from judgments" in refused.stderr


def test_a_setting_has_one_name() -> None:
    with pytest.raises(DataError, match="'l2=1' is not a setting of ranksvm"):
        find_method("ranksvm").checked({"l2=1": 3})
    assert Setting("k", (int,), 3, (), "so many.").expected == "a whole number"
