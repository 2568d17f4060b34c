"""What an object of every class holds: its values, and what each must be. Folders are held to it when they are loaded.

A class has the entries of the classes it extends and its own. Names that end in an underscore are learned; the others
are arguments of the constructor, which are held to its signature too (`arguments`). Sizes are those of `checks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from querywise.storage.arguments import (
    GROUPING,
    LEARNER,
    MODELS,
    NEIGHBORHOOD,
    RANKER,
    REGRESSOR,
    VIEW,
    argument_checks,
)
from querywise.storage.checks import (
    Absent,
    AnyOf,
    Check,
    Number,
    Optional,
    Part,
    Role,
    Several,
    Size,
    Sparse,
    Starts,
    Table,
    Text,
    Whole,
)
from querywise.storage.together import TOGETHER, Together

_MOST_FEATURES = 100_000
_MOST_THREADS = 4_096
_LARGEST = 2**31 - 1  # what LightGBM takes


def _floats(*shape: Size, least: float = -np.inf, above: float = -np.inf) -> Table:
    return Table(np.float64, shape, least, above)


def _ints(*shape: Size, least: float = 0, below: Size | None = None) -> Table:
    return Table(np.int64, shape, least=least, below=below)


def _bools(*shape: Size) -> Table:
    return Table(np.bool_, shape)


def _part(name: str, **sizes: Size) -> Part:
    return Part(Role.of(name, name), sizes)


_COUNT = Whole(1, _LARGEST)
_ANY = Number(finite=False)  # told, and never computed with
_POSITIVE = Number(above=0.0)
_SHARE = Number(least=0.0, most=1.0)
_SCALING: dict[str, Check] = {"scaling_": _part("Scaling", columns="coordinates")}
_REFERENCE = AnyOf((Whole(below="features"), Part(RANKER)), "the number of a feature, or a fitted ranker")
_FITTED: dict[str, Check] = {
    "feature_count_": Whole(0, _MOST_FEATURES, "features"),
    "feature_names_": Optional(Several(Text(), "features")),
}
_GROWTH: dict[str, Check] = {
    **dict.fromkeys(("trees", "min_documents", "patience"), _COUNT),
    "leaves": Whole(2, _LARGEST),
    "learning_rate": Number(above=0.0, most=1.0),
    "threads": Optional(Whole(1, _MOST_THREADS)),
    "seed": Whole(0, _LARGEST),
}

_VALUES: dict[str, Mapping[str, Check]] = {
    # Rankers that are one model.
    "WeightedSum": {**_FITTED, "weights_": _floats("features")},
    "RankSVM": {
        "l2": _POSITIVE,
        "prior_l2": Optional(Number(least=0.0)),
        "tolerance": Optional(Number(above=0.0, most=1.0)),
        "objective_": _ANY,
        "gap_": _ANY,
    },
    "ListNet": {"l2": _POSITIVE, "objective_": _ANY, "gap_": _ANY},
    "AdaRank": {
        "rounds": _COUNT,
        "patience": _COUNT,
        "round_count_": Whole(0, size="rounds"),
        "columns_": _ints("rounds", below="features"),
        "steps_": _floats("rounds"),
    },
    "RankBoost": {
        **_FITTED,
        "rounds": _COUNT,
        "patience": _COUNT,
        "round_count_": Whole(0, size="rounds"),
        "columns_": _ints("rounds", below="features"),
        "thresholds_": _floats("rounds"),
        "stump_weights_": _floats("rounds"),
        "losses_": _floats("rounds"),
    },
    "MultipleHyperplanes": {
        **_FITTED,
        "l2": _POSITIVE,
        "grades_": _ints("hyperplanes", 2),
        "hyperplanes_": _floats("hyperplanes", "features"),
    },
    "LambdaMART": {
        **_FITTED,
        **_GROWTH,
        "stop_at": _COUNT,
        "bag": Whole(1, _LARGEST, "forests"),
        "base": Optional(_part("LambdaMART")),
        "tree_count_": Whole(0, _LARGEST),
        "models_": Several(Text(), "forests"),
    },
    "TreeRegression": {**_GROWTH, "model_": Text(), "tree_count_": Absent(Whole(0, _LARGEST))},
    "KernelRidge": {
        **dict.fromkeys(("l2", "width"), Number(above=1e-150, most=1e150)),
        "scaling_": _part("Scaling", columns="features"),
        "points_": Absent(_floats("points", "features")),
        "coefficients_": _floats("terms"),
        "squared_norm_": _ANY,
        "whitening_": Absent(_floats("points", "directions")),
    },
    "ATVT": {
        **_FITTED,
        "regressor_": Part(REGRESSOR),
        "query_ids_": Several(Text(), "queries"),
        "scale_": _floats("queries"),
        "shift_": _floats("queries"),
        "trace_": Several(_ANY, "steps"),
    },
    "OneFeature": {**_FITTED, "column_": Whole(below="features")},
    "_Vote": _FITTED,
    "ReciprocalRank": {"k": Number(least=0.0)},
    "SER": {
        **_FITTED,
        "cost": _POSITIVE,
        "rows_": _floats("rows", "features"),
        "weights_": _floats("features"),
        "prices_": _floats("rows"),
        "free_": _bools("features"),
        "side_": _ints("rows", below=3),
        "residual_": _ANY,
    },
    "SSER": {
        "gamma": Number(least=0.0),
        "neighbours": Whole(1),
        "start_points_": _floats("starts", "features"),
        "start_free_": _bools("starts", "features"),
        "start_side_": Table(np.int8, ("starts", "rows"), least=0, below=3),
    },
    # Rankers around others.
    "Single": {**_FITTED, "model_": Part(RANKER)},
    "QueryNormalised": {**_FITTED, "ranker_": Part(RANKER)},
    "MissingValues": {
        **_FITTED,
        "means_": _floats("features"),
        "marked_": _ints("marks", below="features"),
        "ranker_": Part(RANKER, {"features": "columns"}),
    },
    "QueryContext": {
        **_FITTED,
        "view_": Optional(Part(VIEW)),
        "context_names_": Several(Text(), "columns"),
        "learner_": Part(RANKER, {"features": "columns"}),
    },
    "Blend": {**_FITTED, "rankers_": Several(Part(RANKER), "rankers"), "weights_": _floats("rankers")},
    "NearbyBlend": {
        **_FITTED,
        "floor": _SHARE,
        "blend_": _part("Blend", rankers="rankers"),
        "usual_": _floats("rankers"),
        "views_": Several(Part(VIEW), "views"),
        "nearest_": Optional(_part("Nearest", queries="queries", coordinates="coordinates")),
        "scaling_": Absent(_SCALING["scaling_"]),
        "values_": Absent(_floats("queries", "rankers")),
    },
    "KnnOnline": {
        **_FITTED,
        "prepared_": Part(Role.of("prepared learner", "PreparedRankSVM", "PreparedRows"), {"queries": "queries"}),
        "locality_": _part("Locality", queries="queries"),
    },
    "KnnOffline2": {**_FITTED, "offline_": _part("OfflineModels")},
    "OfflineModels": {
        "locality": _part("Locality", queries="queries", coordinates="coordinates"),
        "anchors_": _floats("models", "coordinates"),
        "members_": Sparse("models", "queries"),
        "usable_": _bools("models"),
        "models_": Part(MODELS, {"models": "models"}),
        "everyone_": Part(RANKER),
        "gradients_": Absent(Optional(_floats("queries", "features"))),
    },
    "QueryClasses": {
        **_FITTED,
        "everyone_": Part(RANKER),
        "view_": Part(VIEW, {"coordinates": "coordinates"}),
        "classes_": Several(Text(), "classes"),
        "slopes_": _floats("margins", "coordinates"),
        "intercepts_": _floats("margins"),
        "f1_": _ANY,
        "usable_": _bools("classes"),
        "models_": Part(MODELS, {"models": "classes"}),
    },
    "_Grouped": {**_FITTED, "groups_": _part("GroupModels", models="models")},
    "Transform": {"floor": _SHARE},
    "SelectRanker": {
        "floor": _SHARE,
        "divergence_": _part("Divergence", coordinates="models"),
        "similar_": _part("SimilarQueries", models="models"),
    },
    "GroupModels": {
        "everyone_": Part(RANKER),
        "view_": Part(VIEW, {"coordinates": "coordinates"}),
        "grouping_": Part(GROUPING, {"coordinates": "coordinates", "groups": "models"}),
        "teachers_": _floats("models", least=0.0),
        "models_": Part(MODELS, {"models": "models"}),
    },
    # Weights of first-stage runs.
    "Fusion": {**_FITTED, "weights_": _floats("runs", least=0.0)},
    "OnRuns": {**_FITTED, "ranker_": Part(RANKER, {"features": "runs"})},
    "WeightsByQuery": {
        "way_": Optional(Part(Role.of("way", "NeighbourWeights", "SignalWeights"), {"runs": "runs"})),
        "shrinkage_": _SHARE,
        "tried_": Several(Text(), "tried"),
        "gains_": _floats("tried", 2),
        "taken_": Whole(-1),
    },
    "NeighbourWeights": {
        "kappa": Number(least=0.0, finite=False),
        "locality_": _part("Locality", queries="queries"),
        "options_": _floats("options", "runs", least=0.0),
        "table_": _floats("queries", "options"),
        "common_": _floats("runs", least=0.0),
    },
    "SignalWeights": {
        "l2": _POSITIVE,
        "signals_l2": Number(above=0.0, finite=False),
        "locality_": _part("Locality", coordinates="signals"),
        "common_": _floats("runs", least=0.0),
        "slopes_": _floats("runs", "signals"),
    },
    "Confidence": {"run_": Whole(below="runs"), "levels_": _floats("queries")},
    "ForestWeights": {
        "trees": Whole(1, _LARGEST, "trees"),
        "view_": _part("RunSignals", coordinates="signals"),
        "options_": _floats("options", "runs", least=0.0),
        "columns_": _ints("nodes", below="signals"),
        "thresholds_": _floats("nodes"),
        "low_": _ints("nodes", below="nodes"),
        "high_": _ints("nodes", below="nodes"),
        "roots_": _ints("trees", below="nodes"),
        "values_": _floats("nodes", "options"),
    },
    "RunSignals": {
        "feature_names_": Optional(Several(Text(), "features")),
        "names_": Several(Text(), "coordinates"),
        **_SCALING,
    },
    # Models, and learners of models.
    "LinearModels": {"weights": _floats("models", "features")},
    "FittedModels": {"rankers": Several(Part(RANKER), "models")},
    "PreparedRows": {
        "everyone_": Part(LEARNER),
        "features_": _floats("rows", "features"),
        "labels_": _ints("rows"),
        "query_ids_": Several(Text(), "queries"),
        "starts_": Starts("queries", "rows"),
        "gains_": Absent(_floats("levels", least=0.0)),
        "query_weights_": Absent(_floats("queries", above=0.0)),
        "document_weights_": Absent(_floats("rows", above=0.0)),
    },
    "PreparedRankSVM": {
        "everyone_": _part("RankSVM"),
        "spread_": _floats("features", above=0.0),
        "centre_": _floats("features"),
        "pairs_": _ints("queries"),
        "query_weights_": Absent(_floats("queries", above=0.0)),
        "gradients_": Absent(_floats("queries", "features")),
        "curvatures_": Absent(Table(np.float32, ("queries", "triangle"))),
        "features_": Optional(_floats("rows", "features")),
        "levels_": Optional(_ints("rows")),
        "starts_": _ints("places"),
    },
    # Queries as points, and who is near.
    "Scaling": {"centre": _floats("columns"), "spread": _floats("columns", above=0.0)},
    "TopMean": {"top": Whole(1), "reference_": _REFERENCE, "scaling_": _part("Scaling", columns="features")},
    "TwoModels": {
        "top": Whole(1),
        "models_": Several(_REFERENCE, 2),
        "scaling_": _part("Scaling", columns="coordinates"),
    },
    "Divergence": {
        "models": Optional(Part(MODELS, {"models": "coordinates"})),
        **_SCALING,
        "reference_": _REFERENCE,
    },
    "Columns": {"names_": Several(Text(), "coordinates"), **_SCALING},
    "VectorView": {"centre_": _floats("coordinates")},
    "SignalView": _SCALING,
    "SideBySide": {"views_": Several(Part(VIEW), "views"), "scales_": _floats("views")},
    "TextView": {"spaces_": Several(_part("NGrams"), "spaces"), "scaling_": _part("Scaling", columns=4)},
    "NGrams": {
        "kind": Text(("words", "characters")),
        "vocabulary_": Text(),
        "rarity_": _floats("grams"),
        "directions_": Table(np.float32, ("grams", "coordinates")),
    },
    "GradientView": {
        "view_": Part(VIEW, {"coordinates": "inside"}),
        "centre_": _floats("inside"),
        "projection_": _floats("inside", "coordinates"),
    },
    "LearnedMetric": {"view_": Part(VIEW, {"coordinates": "coordinates"}), "stretch_": _floats("coordinates")},
    "Locality": {
        "back_off": Optional(Number(above=0.0, most=1.0)),
        "view_": Part(VIEW, {"coordinates": "coordinates"}),
        "points_": _floats("queries", "coordinates"),
        "neighborhood_": Part(NEIGHBORHOOD, {"queries": "queries", "coordinates": "coordinates"}),
        "pairs_": _ints("queries"),
        "query_weights_": Absent(_floats("queries", above=0.0)),
        "query_ids_": Several(Text(), "queries"),
        "limit_": Number(least=0.0, finite=False),
    },
    "Everyone": {"count_": Whole(1, size="queries")},
    "Nearest": {"points_": _floats("queries", "coordinates"), "count_": Whole(1, "queries")},
    "Radius": {"points_": _floats("queries", "coordinates")},
    "Clusters": {"centres_": _floats("groups", "coordinates"), "members_": Sparse("groups", "queries")},
    "RelevantClusters": _SCALING,
    "SimilarQueries": {
        "k": _COUNT,
        "values_": _floats("entries"),
        "sums_": _floats("entries+1"),
        "starts_": Starts("models", "entries"),
    },
}


@dataclass(frozen=True)
class Contents:
    """What objects of a class hold: arguments and learned values by name, and what they must be all together."""

    arguments: Mapping[str, Sequence[Check]]
    learned: Mapping[str, Check]
    together: Sequence[Together]


@cache
def contents_of(kind: type) -> Contents:
    """What objects of a class hold."""
    lineage = [each.__name__ for each in reversed(kind.__mro__)]
    values = {name: check for each in lineage for name, check in _VALUES.get(each, {}).items()}
    signature = argument_checks(kind)
    arguments = {name: [signature[name], *([values[name]] if name in values else [])] for name in signature}
    learned = {name: check for name, check in values.items() if name not in signature}
    return Contents(arguments, learned, [TOGETHER[each] for each in lineage if each in TOGETHER])
