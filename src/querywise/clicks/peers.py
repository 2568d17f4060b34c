"""LightGBM and XGBoost trained on clicks as their users would: a group per page, and their own position bias option."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from querywise.clicks.impressions import Impressions
from querywise.evaluation.foreign import System
from querywise.learners.trees.growth import lightgbm
from querywise.runtime.arrays import Floats, Ints
from querywise.runtime.packages import Package

XGBOOST = Package("xgboost", "pip install 'querywise[peers]'")


class Trees(NamedTuple):
    """The settings of the trees: their number, leaves, fewest rows per leaf, and learning rate."""

    trees: int = 100
    leaves: int = 15
    rows: int = 20
    rate: float = 0.1
    threads: int = 1


class Pages(NamedTuple):
    """Pages with a click, in the form that these libraries accept: a row per document, and the size of each page."""

    features: Floats
    clicked: Ints
    position: Ints
    sizes: Ints


def pages_with_a_click(features: Floats, log: Impressions, rows: Ints) -> Pages:
    """Return the pages of a log; `rows` has the feature row of every document shown, −1 for those to leave out."""
    known = rows >= 0
    page = log.page_of_row
    told = np.bincount(page[known & log.clicked], minlength=len(log)) > 0
    kept = np.flatnonzero(known & told[page])
    sizes = np.bincount(page[kept], minlength=len(log))
    clicked, position = log.clicked[kept].astype(np.int64), log.position[kept].astype(np.int64) - 1
    return Pages(features[rows[kept]], clicked, position, sizes[sizes > 0])


def lightgbm_by_position(pages: Pages, how: Trees) -> System:
    """Train LightGBM's lambdarank with the position of every row."""
    data = lightgbm().Dataset(
        pages.features, pages.clicked, group=pages.sizes, position=pages.position, params={"verbosity": -1}
    )
    settings = {
        "objective": "lambdarank",
        "lambdarank_position_bias_regularization": 1.0,
        "num_leaves": how.leaves,
        "min_data_in_leaf": how.rows,
        "learning_rate": how.rate,
        "num_threads": how.threads,
        "verbosity": -1,
    }
    grown: System = lightgbm().train(settings, data, how.trees)
    return grown


def xgboost_unbiased(pages: Pages, how: Trees) -> System:
    """Train XGBoost's rank:ndcg with lambdarank_unbiased, which takes the order of a group's rows as positions."""
    xgboost = XGBOOST.load("A comparison with XGBoost")
    query = np.repeat(np.arange(len(pages.sizes)), pages.sizes)
    data = xgboost.DMatrix(pages.features, label=pages.clicked, qid=query)
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 10,
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": how.leaves,
        "eta": how.rate,
        "tree_method": "hist",
        "nthread": how.threads,
        "verbosity": 0,
    }
    grown: System = xgboost.train(settings, data, how.trees)
    return grown
