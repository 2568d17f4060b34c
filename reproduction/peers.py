"""The blend beside the forests of other libraries: LightGBM, XGBoost and CatBoost, each tuned on the same data.

Every row has the best setting of its grid on the validation part of each fold, by MAP, stops early there, and is the
mean of five seeds.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from querywise.data.folds import Fold, Folds
from querywise.evaluation.compare import Compared, compare
from querywise.evaluation.resume import Kept
from querywise.evaluation.significance import holm, paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import TunedFit
from querywise.learners.peers import installed
from querywise.methods import find_method
from querywise.methods.table import RECOMMENDED
from querywise.report.tables import Cell, Column, Table
from querywise.runtime.files import atomic_text, make_folder
from querywise.runtime.progress import keeping, track
from querywise.runtime.values import Json, JsonObject, Settings, json_text
from reproduction.papers import NUMBERS, Sets, each_in_a_folder, usual_flavour, write_findings

SEEDS = 5
RIVALS = {"lambdamart": "lightgbm", "xgboost": "xgboost", "catboost": "catboost"}  # by method, its library
MEASURES = {"map": "MAP", "ndcg@10": "NDCG@10"}
ROWS, COSTS = "rows.json", "costs.json"
_TIMES = "training in seconds, once on the first fold; an answer in milliseconds, one query at a time"
_ASKED = 100  # queries at most whose answers are timed


@dataclass(frozen=True)
class Measured:
    """What the table of all sets needs of one: values by measure, ranker and query."""

    queries: list[str]
    values: dict[str, dict[str, list[float]]]

    @staticmethod
    def of(compared: Compared) -> Measured:
        """That of a comparison."""
        found = compared.evaluations
        return Measured(
            list(compared.judged.query_ids),
            {
                measure: {name: np.round(found[name][measure], 6).tolist() for name in compared.names}
                for measure in MEASURES
            },
        )

    def p(self, rival: str, measure: str) -> float:
        """The paired t-test of the blend against another."""
        ours, theirs = (np.array(self.values[measure][name]) for name in (RECOMMENDED, rival))
        return paired_t_test(ours, theirs).p


@dataclass(frozen=True)
class Cost:
    """Seconds of one training on the first fold with the setting chosen there, and the median milliseconds of a query.

    The queries are those of the test part, one after the other.
    """

    training: float
    answer: float

    @staticmethod
    def of(name: str, settings: Settings, fold: Fold) -> Cost:
        """That of a method."""
        queries = [fold.test.candidates.select([number]) for number in range(min(len(fold.test), _ASKED))]
        begun = time.perf_counter()
        ranker = find_method(name, peers=True).build(**settings).fit(fold.train, valid=fold.valid)
        training, taken = time.perf_counter() - begun, []
        for query in queries * 2:  # at first whatever is done once
            begun = time.perf_counter()
            ranker.predict(query)
            taken.append(1e3 * (time.perf_counter() - begun))
        return Cost(training, statistics.median(taken[len(queries) :]))


def reproduce(folds: Folds, out: Path) -> Path:
    """Write table.md, numbers.json, rows.json and costs.json into a folder; returns the table's path."""
    versions: dict[str, Json] = {name: str(installed(library).__version__) for name, library in RIVALS.items()}
    parts = list(folds)
    make_folder(out)
    flavour = usual_flavour(parts[0].train)
    kept = Kept(out / "runs", _settings())  # until all is done: it may take hours
    with keeping(partial(kept.told, len(parts))):
        compared = compare(
            _fits(flavour), parts, measures=tuple(MEASURES), flavour=flavour, baseline=RECOMMENDED, kept=kept
        )
    measured = Measured.of(compared)
    tests = {measure: {name: measured.p(name, measure) for name in RIVALS} for measure in MEASURES}
    numbers: JsonObject = {
        "comparison": compared.as_json(),
        "p": {measure: dict(each) for measure, each in tests.items()},
        "chosen": {name: compared.parameters(name) for name in compared.names},
        "seeds": SEEDS,
        "versions": versions,
    }
    costs = measure_costs(parts[0], {name: compared.parameters(name)[0] or {} for name in compared.names}, out)
    written = write_findings(out, numbers, [_table(measured, costs, tests), _remark(compared)])
    with atomic_text(out / ROWS) as file:
        file.write(json_text(asdict(measured)))
    shutil.rmtree(kept.folder)
    return written


def measure_costs(fold: Fold, chosen: Mapping[str, Settings], out: Path) -> dict[str, Cost]:
    """Train and ask each ranker with what was chosen on the first fold, and write that to costs.json.

    Times want a machine with nothing else to do; they can be measured again by themselves, by a second run after
    costs.json was removed.
    """
    names = track((*RIVALS, RECOMMENDED), "Costs")
    found = {name: Cost.of(name, chosen[name], fold) for name in names}
    with atomic_text(out / COSTS) as file:
        file.write(json_text({name: asdict(each) for name, each in found.items()}))
    return found


def every(sets: Sets, out: Path) -> Path:
    """Each set in a folder of its own, and the table of all."""
    folders = each_in_a_folder(sets, out, reproduce, ROWS)
    for name, folder in folders.items():
        if not (folder / COSTS).exists():
            chosen = json.loads((folder / NUMBERS).read_text())["chosen"]
            first = {ranker: of_folds[0] for ranker, of_folds in chosen.items()}
            _put_in(folder, measure_costs(sets[name]()[0], first, folder))
    return together(folders, out)


def _put_in(folder: Path, costs: Mapping[str, Cost]) -> None:
    """Other costs into the table of a set."""
    numbers = json.loads((folder / NUMBERS).read_text())
    measured = Measured(**json.loads((folder / ROWS).read_text()))
    remark = (folder / "table.md").read_text().partition("\n\n")[2]
    write_findings(folder, numbers, [_table(measured, costs, numbers["p"]), remark])


def together(parts: Mapping[str, Path], out: Path) -> Path:
    """Every ranker on every set, from the folders that `reproduce` wrote, by name of the set; one correction for all.

    Writes table.md and numbers.json into a folder; returns the table's path.
    """
    sets = {name: Measured(**json.loads((folder / ROWS).read_text())) for name, folder in parts.items()}
    tested = [(name, rival, measure) for name in sets for measure in MEASURES for rival in RIVALS]
    found = [sets[name].p(rival, measure) for name, rival, measure in tested]
    corrected = dict(zip(tested, holm(found), strict=True))
    columns = [Column("data"), *_columns("p, Holm")]
    rows: list[tuple[Cell, ...]] = []
    for name, each in sets.items():
        ps = {measure: {rival: corrected[name, rival, measure] for rival in RIVALS} for measure in MEASURES}
        costs = {ranker: Cost(**cost) for ranker, cost in json.loads((parts[name] / COSTS).read_text()).items()}
        rows += [(name, *row) for row in _rows(each, costs, ps)]
    caption = (
        f"{len(sets)} sets, {sum(len(each.queries) for each in sets.values()):,} test queries; p: paired t-test of "
        f"{RECOMMENDED} against the row, with Holm's correction for all {len(tested)} tests of the table; {_TIMES}."
    )
    numbers: JsonObject = {
        "p": [
            {"set": name, "rival": rival, "measure": measure, "p": p}
            for (name, rival, measure), p in zip(tested, found, strict=True)
        ],
        "p_holm": list(corrected.values()),
    }
    make_folder(out)
    return write_findings(out, numbers, [Table(tuple(columns), tuple(rows), caption)])


def _table(measured: Measured, costs: Mapping[str, Cost], ps: Mapping[str, Mapping[str, float]]) -> Table:
    """That of one set."""
    return Table(tuple(_columns("p")), tuple(_rows(measured, costs, ps)))


def _rows(
    measured: Measured, costs: Mapping[str, Cost], ps: Mapping[str, Mapping[str, float]]
) -> list[tuple[Cell, ...]]:
    """A row for each ranker. ps: by measure and rival."""
    rows: list[tuple[Cell, ...]] = []
    for name in (*RIVALS, RECOMMENDED):
        cells: list[Cell] = [name]
        for measure in MEASURES:
            cells += [float(np.mean(measured.values[measure][name])), ps[measure].get(name)]
        rows.append((*cells, costs[name].training, costs[name].answer))
    return rows


def _settings() -> Settings:
    """What the rows are made with, by which a result that is kept is known again."""
    return {name: {"grid": repr(find_method(name, peers=True).grid), "bag": SEEDS} for name in (*RIVALS, RECOMMENDED)}


def _fits(flavour: str) -> dict[str, Fit]:
    fits: dict[str, Fit] = {}
    for name in (*RIVALS, RECOMMENDED):
        method = find_method(name, peers=True)
        more = {} if method.settings["bag"].default == SEEDS else {"bag": SEEDS}
        fits[name] = TunedFit(method.build, method.grid_on, final=more, flavour=flavour)
    return fits


def _columns(heading: str) -> list[Column]:
    columns = [Column("ranker")]
    for each in MEASURES.values():
        columns += [Column(each, "value"), Column(heading, "p")]
    return [*columns, Column("training", "time"), Column("an answer", "time")]


def _remark(compared: Compared) -> str:
    told = [
        f"{len(compared.judged)} test queries, flavour {compared.flavour}; p: paired t-test of {RECOMMENDED} against "
        f"the row; {_TIMES}; {SEEDS} seeds each.",
        *compared.counted(),
    ]
    return " ".join(told) + "\n"
