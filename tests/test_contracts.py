"""Every class against its contract, which the type checker proves; and what it says of misuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.contracts.answers import Opaque
from querywise.contracts.protocols import (
    Fittable,
    FollowsRanker,
    Grouping,
    Learner,
    LocalLearner,
    LooksAt,
    Model,
    Models,
    Neighborhood,
    PlacesDocuments,
    Prepared,
    Preparing,
    QueryView,
    Ranker,
    Regressor,
    TeachesLocally,
    Transparent,
    Watching,
)
from querywise.data.judged import Judged
from querywise.data.parquet.shards import Shards
from querywise.data.synthetic import make_judged
from querywise.data.training import Training
from querywise.errors import DataError
from querywise.learners.classic.adarank import AdaRank
from querywise.learners.classic.hyperplanes import MultipleHyperplanes
from querywise.learners.classic.listnet import ListNet
from querywise.learners.classic.rankboost import RankBoost
from querywise.learners.linear import LinearModel, LinearModels
from querywise.learners.local_models import FittedModels, PreparedRows
from querywise.learners.ranksvm.local_models import PreparedRankSVM
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.regression import KernelRidge
from querywise.learners.trees.boosting import LambdaMART, TreeRegression
from querywise.learners.trees.context import QueryContext
from querywise.locality.groupings import Clusters, RelevantClusters
from querywise.locality.neighborhoods import Everyone, Nearest, Radius
from querywise.locality.views.columns import Columns, SideBySide
from querywise.locality.views.divergence import Divergence
from querywise.locality.views.learned import GradientView, LearnedMetric
from querywise.locality.views.text import TextView
from querywise.locality.views.topmean import TopMean, TwoModels
from querywise.rankers.atvt import ATVT
from querywise.rankers.blend import Blend, Common, NearbyBlend
from querywise.rankers.clusters import Naive, QueryClasses, SelectRanker, Transform
from querywise.rankers.ensemble.ensemble import SER, SSER
from querywise.rankers.knn import KnnOffline1, KnnOffline2, KnnOnline
from querywise.rankers.single import GivenScores, OneFeature, Single
from querywise.rankers.weights.fusion import Borda, CombMNZ, CombSUM, ReciprocalRank
from querywise.rankers.wrappers import QueryNormalised
from tests.worlds import inside

SVM = RankSVM()
BLEND = Blend([SVM])
DATA = make_judged(12, 6, 3)

# Assignments are what mypy checks; the tests below look at what can be seen at run time.
LEARNERS: Sequence[Learner] = (
    SVM, LambdaMART(), ListNet(), AdaRank(), RankBoost(), MultipleHyperplanes(), QueryContext(SVM),
)  # fmt: skip
RANKERS: Sequence[Ranker] = (
    *LEARNERS, Single(SVM), OneFeature(), KnnOnline(SVM), KnnOffline1(SVM), KnnOffline2(SVM), QueryClasses(SVM),
    Naive(SVM), SelectRanker(SVM), Transform(SVM), ATVT(KernelRidge()), SER(), SSER(), BLEND, NearbyBlend(BLEND),
    QueryNormalised(SVM), CombSUM(), CombMNZ(), ReciprocalRank(), Borda(),
    GivenScores(DATA.candidates, np.zeros(len(DATA.labels))),
)  # fmt: skip
COMPARABLE: Sequence[Fittable] = RANKERS
LOCAL_LEARNERS: Sequence[LocalLearner] = (SVM,)
PREPARING: Sequence[Preparing] = LOCAL_LEARNERS
TEACHING_LOCALLY: Sequence[TeachesLocally] = (LambdaMART(), AdaRank(), RankBoost(), QueryContext(SVM))
PREPARED: Sequence[Prepared] = (PreparedRankSVM(SVM), PreparedRows(LambdaMART()))
MODELS: Sequence[Model] = (
    SVM, LambdaMART(), ListNet(), AdaRank(), RankBoost(), MultipleHyperplanes(), QueryContext(SVM), OneFeature(),
    CombSUM(), CombMNZ(), ReciprocalRank(), Borda(), ATVT(KernelRidge()), LinearModel(np.zeros(3)), Opaque(SVM),
    Common(BLEND),
)  # fmt: skip
SEVERAL: Sequence[Models] = (LinearModels(np.zeros((2, 3))), FittedModels([SVM]))
VIEWS: Sequence[QueryView] = (
    TopMean(), TextView(), Columns(), SideBySide([TextView()]), TwoModels(), Divergence(), GradientView(),
    LearnedMetric(),
)  # fmt: skip
FOLLOWING: Sequence[FollowsRanker] = (
    TopMean(), SideBySide([TextView()]), TwoModels(), Divergence(), GradientView(), LearnedMetric(),
)  # fmt: skip
LOOKING: Sequence[LooksAt] = (TextView(), Columns(), SideBySide([TextView()]), GradientView(), LearnedMetric())
PLACING: Sequence[PlacesDocuments] = (TopMean(), TwoModels())
NEIGHBORHOODS: Sequence[Neighborhood] = (Everyone(), Nearest(), Radius(1.0))
GROUPINGS: Sequence[Grouping] = (Clusters(), RelevantClusters())
REGRESSORS: Sequence[Regressor] = (TreeRegression(), KernelRidge())
TRANSPARENT: Sequence[Transparent] = (TreeRegression(),)
WATCHING: Sequence[Watching] = (TreeRegression(),)
TRAINING: Sequence[Training] = (DATA, Shards(Path(), (), 3, None))


@pytest.mark.parametrize(
    ("found", "contract"),
    [
        *((each, Preparing) for each in PREPARING),
        *((each, TeachesLocally) for each in TEACHING_LOCALLY),
        *((each, FollowsRanker) for each in FOLLOWING),
        *((each, PlacesDocuments) for each in PLACING),
        *((each, Transparent) for each in TRANSPARENT),
        *((each, Watching) for each in WATCHING),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
def test_what_is_looked_for_at_run_time_is_found(found: object, contract: type) -> None:
    assert isinstance(found, contract)


def test_what_a_learner_cannot_do_is_not_found() -> None:
    assert not isinstance(LambdaMART(), Preparing)
    assert not isinstance(TextView(), FollowsRanker | PlacesDocuments)
    assert not isinstance(KernelRidge(), Transparent | Watching)


def checked(tmp_path: Path, lines: str) -> str:
    """What mypy says of a snippet."""
    snippet = tmp_path / "snippet.py"
    imports = "from querywise import KnnOnline, RankSVM, load\nfrom querywise.locality.views.topmean import TopMean"
    snippet.write_text(f"{imports}\n{lines}\n")
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(root / ".mypy_cache"), str(snippet)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=root).stdout


@pytest.mark.slow
def test_what_breaks_a_contract_is_a_type_error(tmp_path: Path) -> None:
    assert "Success" in checked(tmp_path, 'KnnOnline(RankSVM(), view=TopMean(0))\nload("m").answer')
    said = checked(tmp_path, 'KnnOnline(3, view="nonsense")\nload("m").nonsense')
    assert 'Argument 1 to "KnnOnline" has incompatible type "int"; expected "Learner"' in said
    assert 'Argument "view" to "KnnOnline" has incompatible type "str"; expected "QueryView | None"' in said
    assert '"Ranker" has no attribute "nonsense"' in said


# ---- misuse at run time


@pytest.mark.parametrize("asked", ["predict", "answer"])
@pytest.mark.parametrize("build", [RankSVM, lambda: KnnOnline(RankSVM(), k=3), lambda: Blend([RankSVM()])])
def test_arrays_are_refused_with_what_to_give(build: Any, asked: str) -> None:
    ranker = build().fit(DATA)
    words = r"takes Candidates, a Judged set or a table; found a numpy array of shape \(\d+, \d+\)\. .*from_arrays\(X"
    with pytest.raises(DataError, match=words):
        getattr(ranker, asked)(DATA.candidates.features)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: KnnOnline(RankSVM(), view=inside("top-mean")), r"'top-mean' cannot be fitted; .* such as RankSVM\(\)"),
        (lambda: KnnOffline2(RankSVM(), view=inside("text")), r"'text' cannot be fitted"),
        (lambda: KnnOnline(RankSVM(), view=SideBySide([inside("text")])), r"'text' cannot be fitted"),
        (lambda: KnnOnline(inside(3)), r"3 cannot be fitted"),
        (lambda: KnnOnline(inside(RankSVM)), r"RankSVM is a class; expected an object of it: RankSVM\(…\)"),
        (lambda: KnnOnline(RankSVM(), neighborhood=inside("near")), r"'near' cannot be fitted"),
        (lambda: Naive(inside("ranksvm")), r"'ranksvm' cannot be fitted"),
        (lambda: Single(inside(None)), r"None cannot be fitted"),
        (lambda: Blend([RankSVM(), inside("lambdamart")]), r"'lambdamart' cannot be fitted"),
        (lambda: QueryNormalised(inside("single")), r"'single' cannot be fitted"),
        (lambda: QueryContext(inside("ranksvm")), r"'ranksvm' cannot be fitted"),
        (lambda: ATVT(inside("trees")), r"'trees' cannot be fitted"),
        (lambda: TopMean("no such feature"), r"There is no feature"),
    ],
)
def test_a_word_where_an_object_is_expected_is_refused(build: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        build().fit(DATA)


def test_a_judged_set_is_a_training_set_of_one_part() -> None:
    assert [part.load() for part in inside(DATA.parts())] == [DATA]
    assert isinstance(DATA, Judged)
