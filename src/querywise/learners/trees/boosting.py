"""Boosted trees by LightGBM [ke2017]_: LambdaMART [burges2010]_ on NDCG's pairwise gradients, and regression."""

from __future__ import annotations

import threading
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from querywise.contracts.answers import ALL, Rows, Terms
from querywise.contracts.asking import OneModel
from querywise.contracts.estimators import Estimator
from querywise.contracts.forms import Forest, Refusal, no_missing
from querywise.contracts.protocols import Learner
from querywise.data.judged import Candidates, Judged
from querywise.data.rows import NATIVE, ZERO, reading_for
from querywise.errors import DataError, NotFittedError
from querywise.learners.trees.forest import Grown, for_lightgbm, gains_in, read_forests, read_trees, width_of
from querywise.learners.trees.growth import (
    GROWTH,
    LARGEST,
    Grades,
    Growing,
    binned_rows,
    check_growth,
    check_visible,
    grow,
    growth,
    lightgbm,
    weights_watched,
)
from querywise.learners.weights import check_query_weights
from querywise.runtime.arrays import Floats
from querywise.runtime.cache import cached
from querywise.runtime.parameters import forget_derived, unfitted
from querywise.runtime.stored import (
    FITTED,
    Absent,
    Added,
    Known,
    Optional,
    Several,
    Text,
    Whole,
    contents,
    part,
    require,
)
from querywise.runtime.threads import checkpoint, cores

if TYPE_CHECKING:
    from lightgbm import Booster, Dataset

_SHARE_IN_A_BAG = 0.5  # of the features, for each tree of a bag
_READING = threading.Lock()  # parsing trees for Shapley values takes seconds, so it is done once for all threads
OBJECTIVES = ("lambdarank", "rank_xendcg")
_FEW_ROWS = 4
_SHAPLEY_ROWS = 64  # rows at a time, which take about a tenth of a second


def shapley_values(booster: Booster, features: Floats, threads: int | None) -> Floats:
    """Return rows × features: each feature's contribution to a row's sum of leaves, by LightGBM's own trees."""
    found = np.zeros(features.shape)
    # For a few rows one thread is enough: starting others takes longer, and they would keep the cores busy for a while.
    count = 1 if len(features) <= _FEW_ROWS else threads or 0
    for first in range(0, len(features), _SHAPLEY_ROWS):
        checkpoint()
        block = slice(first, first + _SHAPLEY_ROWS)
        told = np.asarray(booster.predict(features[block], pred_contrib=True, num_threads=count), dtype=np.float64)
        found[block] = told[:, :-1]  # the last column is the expected value, the same for every document
    return found


@dataclass(eq=False, repr=False)
class LambdaMART(OneModel):
    """Boosted regression trees that optimize NDCG: the most common baseline.

    Any non-negative grade is allowed; the gain of a label is 2^label − 1, or its value if the data has gains.

    Args:
        trees: the maximum number of trees, from 1 up; with a validation set, training stops once its NDCG@`stop_at` has
            not risen for `patience` trees.
        leaves: the maximum number of leaves of a tree, from 2 up.
        learning_rate: the share of its step that a tree takes; above 0 and up to 1.
        min_documents: the minimum number of training documents in a leaf, from 1 up.
        patience: training stops after this many trees without a rise, from 1 up.
        stop_at: the k of NDCG@k that decides when to stop, from 1 up.
        objective: what the trees optimize, NDCG's pairwise gradients or a listwise cross entropy [bruch2021]_.
        bag: the number of forests, from 1 up, whose mean score is used, grown with seeds from `seed` on; with several,
            each tree sees a random share of the features. Each forest stops on its own.
        prior: local models start from the global one's scores.
        base: a fitted LambdaMART whose scores to start from.
        missing: "native" learns at each split to which side missing values (NaN) go, as LightGBM does; "zero" raises
            an error for NaN.
        threads: the number of threads, which the forests of a bag share; None means all cores, or one for a single
            small forest.
        seed: the same seed gives the same trees; from 0 up.

    Raises:
        DataError: A parameter out of its range, or data without preferences.

    >>> from querywise import LambdaMART, make_judged, split
    >>> train, valid, test = split(make_judged(50, 20, 4))
    >>> ranker = LambdaMART(100, patience=10).fit(train, valid=valid)
    >>> ranker.predict(test).shape, 1 <= ranker.tree_count_ <= 100
    ((200,), True)
    """

    trees: int = 500
    _: KW_ONLY
    leaves: int = 15
    learning_rate: float = 0.05
    min_documents: int = 20
    patience: int = 50
    stop_at: int = 10
    objective: Literal["lambdarank", "rank_xendcg"] = "lambdarank"
    bag: int = 1
    prior: Literal["global"] | None = None
    base: LambdaMART | None = None
    missing: Literal["zero", "native"] = "zero"
    threads: int | None = None
    seed: int = 0

    stored = contents(
        FITTED,
        GROWTH,
        stop_at=Whole(1, LARGEST),
        bag=Whole(1, LARGEST, "forests"),
        base=Optional(part(Learner)),
        tree_count_=Whole(0, LARGEST),
        models_=Several(Text(), "forests"),
        missing=Added("zero"),
    )

    def __post_init__(self) -> None:
        self._boosters: list[Booster] | None = None

    def fit(self, data: Judged, /, *, query_weights: Floats | None = None, valid: Judged | None = None) -> Self:
        """Grow trees; with `valid`, until early stopping.

        Args:
            query_weights: how much each query counts, in order, non-negative; None means the weights in `data`, or
                equal ones.
        """
        check_growth(self, "stop_at", "bag")
        if self.objective not in OBJECTIVES:
            raise DataError(f"objective={self.objective!r} is unknown. Known: {', '.join(OBJECTIVES)}.")
        if self.seed + self.bag - 1 > LARGEST:
            raise DataError(f"The seeds of LambdaMART(bag={self.bag}, seed={self.seed}) must not pass {LARGEST}.")
        missing = reading_for(self.missing_policy)
        data.require_preferences(missing=missing)
        candidates = data.candidates
        if valid is not None:
            valid.candidates.require_features(candidates.features.shape[1], candidates.feature_names, missing=missing)
        weights = check_query_weights(query_weights, data, documents=True)
        if not weights.any():
            raise DataError("All query weights are 0, so there is no query to learn from.")
        check_visible(candidates.features)
        grades = Grades.of(data, valid, self.objective)
        training, checked = self._binned(data, weights, valid, grades, whole=query_weights is None)
        at_once = min(self.bag, self.threads or cores())
        parameters = [self._parameters(grades, each, candidates.features.shape, at_once) for each in range(self.bag)]
        try:
            grown = grow([partial(self._forest, each, training, checked) for each in parameters], at_once)
        except lightgbm().basic.LightGBMError as error:
            raise DataError(f"LightGBM raised an error: {error}") from None
        self.tree_count_ = round(sum(count for count, _ in grown) / self.bag)
        self.models_ = tuple(model for _, model in grown)
        self._boosters = None
        forget_derived(self)
        return self

    def _check_stored(self, known: Known) -> None:
        """Check that the trees can be read and that there are as many as `tree_count_` says."""
        trees = self.grown.tree_count
        require(self.tree_count_ <= trees, f"LambdaMART.tree_count_ is {self.tree_count_}; there are {trees} trees")

    @property
    def missing_policy(self) -> str:
        """How missing values are handled."""
        if self.missing not in (ZERO, NATIVE):
            raise DataError(f"LambdaMART(missing={self.missing!r}) is unknown. Known: {ZERO}, {NATIVE}.")
        return self.missing

    def local(self, everyone: Learner, /) -> LambdaMART:
        """Return the learner of local models: as many trees as `everyone` has, added to it if it is the prior."""
        assert isinstance(everyone, LambdaMART), "the global model of this learner"
        few = unfitted(self)
        few.trees = max(everyone.tree_count_, 1)
        few.base = everyone if self.prior == "global" else None
        few.threads = 1
        return few

    def _predict(self, seen: Candidates, /) -> Floats:
        """Return the sum of the leaves that a document falls into, averaged over the bag."""
        scores = self.grown.scores(seen.features)
        return scores if self.base is None else scores + self.base.predict(seen)

    @cached_property
    def grown(self) -> Grown:
        """The forests, read from their texts. Raises ModelFileError if a text is invalid."""
        return read_forests(self.models_, self.feature_count_)

    def terms(self, seen: Candidates, rows: Rows = ALL, /) -> Terms:
        """Return LightGBM's Shapley values of `rows` of `seen`, each of which takes as long as a thousand scores."""
        features = seen.features[rows]
        own = np.zeros(features.shape)
        for booster in self._loaded():
            own += shapley_values(booster, features, self.threads)
        own /= self.bag
        return Terms.of(seen, rows, own if self.base is None else own + self.base.terms(seen, rows).parts)

    def form(self) -> Forest | Refusal:
        """Return all trees, with leaves divided by the size of the bag, so that they sum to the mean of forests."""
        below = Forest(()) if self.base is None else self.base.form()
        trees = [tree for model in self.models_ for tree in read_trees(model, self.feature_count_)]
        if isinstance(below, Refusal) or any(tree.learned_missing for tree in trees):
            return no_missing(type(self), "its trees have learned where missing values go")
        return Forest((*below.trees, *(tree.root(self.bag) for tree in trees)))

    def gains(self) -> Floats:
        """Return each feature's total split gain in training, including that of `base`."""
        own = gains_in(self.models_, self.feature_count_)
        return own if self.base is None else own + self.base.gains()

    def _loaded(self) -> list[Booster]:
        """Return LightGBM's own trees, read from their text on first use."""
        with _READING:
            if self._boosters is None:
                width = self.feature_count_
                self._boosters = [lightgbm().Booster(model_str=for_lightgbm(model, width)) for model in self.models_]
            return self._boosters

    def _binned(
        self, data: Judged, weights: Floats, valid: Judged | None, grades: Grades, *, whole: bool
    ) -> tuple[Dataset, Dataset | None]:
        """Return training and validation data sorted into bins, once for all settings of a grid that share them."""

        def made() -> tuple[Dataset, Dataset | None]:
            training = binned_rows(data, weights, grades, self.seed, self.base).construct()
            if valid is None:
                return training, None
            watched = weights_watched(valid, self.stop_at)
            return training, binned_rows(valid, watched, grades, self.seed, self.base, training).construct()

        if not whole or self.base is not None:
            return made()
        valued = None if data.gains is None else self.objective  # values are converted depending on the objective
        return cached("bins", (self.seed, self.stop_at, valued, valid), data, made)

    def _forest(self, parameters: dict[str, Any], training: Dataset, checked: Dataset | None) -> Growing:
        """Return a forest of the bag before its first tree."""
        booster = lightgbm().Booster(parameters, training)
        if checked is not None:
            booster.add_valid(checked, "validation")
        return Growing(booster, self.trees, None if checked is None else self.patience)

    def _parameters(self, grades: Grades, number: int, shape: tuple[int, ...], at_once: int) -> dict[str, Any]:
        """Return the parameters of one forest of the bag.

        Seeds are set one by one, since all forests share that of the bins.
        """
        seeds = dict.fromkeys(("feature_fraction_seed", "objective_seed"), self.seed + number)
        return {
            "objective": self.objective,
            "metric": "ndcg",
            "eval_at": [self.stop_at],
            "label_gain": grades.gains.tolist(),
            "num_iterations": self.trees,
            **growth(self, shape, at_once),
            **({"feature_fraction": _SHARE_IN_A_BAG, **seeds} if self.bag > 1 else {}),
        }


@dataclass(eq=False, repr=False)
class TreeRegression(Estimator):
    """Boosted regression trees on squared errors, for real targets.

    Args:
        trees: the number of trees; `fit_watching` stops once the error on other data has not fallen for `patience`
            trees, and stores in `tree_count_` how many it kept, which other fits can be given.
        leaves: the maximum number of leaves of a tree.
        learning_rate: the share of its step that a tree takes.
        min_documents: the minimum number of training documents in a leaf.
        seed: the same seed gives the same trees.

    Fitting again on the same array of features does not sort them into bins again.
    """

    trees: int = 300
    _: KW_ONLY
    leaves: int = 15
    learning_rate: float = 0.05
    min_documents: int = 20
    patience: int = 30
    threads: int | None = None
    seed: int = 0

    stored = contents(GROWTH, model_=Text(), tree_count_=Absent(Whole(0, LARGEST)))

    def __post_init__(self) -> None:
        self._booster: Booster | None = None
        self._seen: Floats | None = None
        self._dataset: Dataset | None = None

    def __getstate__(self) -> dict[str, int | float | str | Grown | None]:
        """Return the state to pickle: everything except LightGBM's own objects, which are rebuilt on demand."""
        return {**self.__dict__, "_booster": None, "_seen": None, "_dataset": None}

    def __copy__(self) -> TreeRegression:
        """Return a copy that shares the bins, so that fitting it on the same features does not sort them again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def fit(self, features: Floats, targets: Floats, weights: Floats, /, *, trees: int | None = None) -> Self:
        """Grow all trees, or `trees` of them; weights are relative, and rows of weight 0 are dropped."""
        if trees is not None and not 1 <= trees <= LARGEST:
            raise DataError(f"TreeRegression.fit(trees={trees}) must lie between 1 and {LARGEST}.")
        return self._grow(features, targets, weights, self.trees if trees is None else trees)

    def _check_stored(self, known: Known) -> None:
        """Check that the trees can be read."""
        known.tie("features", self._width, "TreeRegression.model_")
        _ = self.grown

    def fit_watching(
        self, features: Floats, targets: Floats, weights: Floats, other: Floats, other_targets: Floats, /
    ) -> Self:
        """Grow trees until the error on validation data rises."""
        return self._grow(features, targets, weights, self.trees, (other, other_targets))

    def predict(self, features: Floats, /) -> Floats:
        """Return one value per row: the sum of the leaves that it falls into."""
        if not hasattr(self, "model_"):
            raise NotFittedError(self)
        if features.shape[1] != self._width:
            raise DataError(f"The trees are for {self._width} features; found {features.shape[1]}.")
        return self.grown.scores(features)

    @cached_property
    def _width(self) -> int:
        return width_of(self.model_)

    @cached_property
    def grown(self) -> Grown:
        """The forest, read from the text. Raises ModelFileError if the text is invalid."""
        return read_forests([self.model_], self._width)

    def contributions(self, features: Floats, /) -> Floats:
        """Return documents × features: the contributions to each document's value, by LightGBM's Shapley values."""
        return shapley_values(self._loaded(), features, self.threads)

    def form(self) -> Forest:
        """Return the trees."""
        return Forest(tuple(tree.root(1) for tree in read_trees(self.model_, self._width)))

    def _loaded(self) -> Booster:
        """Return the trees, read from their text on first use."""
        with _READING:
            if self._booster is None:
                self._booster = lightgbm().Booster(model_str=for_lightgbm(self.model_, self._width))
            return self._booster

    def _grow(
        self,
        features: Floats,
        targets: Floats,
        weights: Floats,
        count: int,
        watched: tuple[Floats, Floats] | None = None,
    ) -> Self:
        library = lightgbm()
        check_growth(self)
        check_visible(features)
        parameters = {"objective": "regression", "metric": "l2", **growth(self, features.shape)}
        settings = {"verbose": -1, "seed": self.seed, "feature_pre_filter": False}
        if self._dataset is None or self._seen is not features:
            self._dataset = library.Dataset(features, label=targets, params=settings, free_raw_data=False)
            self._seen = features
        self._dataset.construct().set_label(targets)
        # Set the field directly: LightGBM's set_weight keeps the previous weights if the new ones are all 1.
        alike = np.ptp(weights) == 0
        self._dataset.set_field("weight", None if alike else (weights / weights.mean()).astype(np.float32))
        # Rows of weight 0 are dropped: the minimum number of documents in a leaf counts rows, whatever their weight.
        kept = np.flatnonzero(weights > 0)
        training = self._dataset if len(kept) == len(weights) else self._dataset.subset(kept.tolist())
        other = None if watched is None else self._dataset.create_valid(watched[0], label=watched[1], params=settings)
        try:
            booster = library.train(
                parameters,
                training,
                num_boost_round=count,
                valid_sets=None if other is None else [other],
                callbacks=None if other is None else [library.early_stopping(self.patience, verbose=False)],
            )
        except library.basic.LightGBMError as error:
            raise DataError(f"LightGBM raised an error: {error}") from None
        self.tree_count_ = count if watched is None else max(booster.best_iteration, 1)
        self.model_ = booster.model_to_string(num_iteration=self.tree_count_)
        self._booster = None
        forget_derived(self)
        return self
