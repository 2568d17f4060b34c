"""Rows of a reproduction: methods as a paper has them, parameters chosen on validation data, each beside its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from querywise.data.judged import Judged
from querywise.evaluation.compared import Compared
from querywise.evaluation.significance import paired_t_test
from querywise.evaluation.trained import Fit
from querywise.evaluation.tuning import tuned_fit
from querywise.methods import METHODS
from querywise.report.tables import Column, Table
from querywise.runtime.values import Grid, Settings

FLAVOUR = "letor4"
NO_BACK_OFF: Settings = {"back_off": None}  # the papers' algorithms answer every query by its neighbours, however far


def usual_flavour(data: Judged) -> str:
    """That of LETOR's own figures for feature files, the usual one for text collections."""
    table = data.candidates.queries
    return FLAVOUR if table is None or table.texts is None else "standard"


def fitting(method: str, fixed: Settings, grid: Grid | None = None) -> Fit:
    """A method with some settings fixed, the others of its grid, or of another, chosen by MAP on validation data."""
    known = METHODS[method]
    tried = known.grid if grid is None else grid
    return tuned_fit(known.build, tried, fixed=fixed, flavour=FLAVOUR)


def p_of(compared: Compared, name: str, rival: str, measure: str) -> float:
    """The paired t-test of two methods."""
    return paired_t_test(compared.evaluations[name][measure], compared.evaluations[rival][measure]).p


def gain_of(compared: Compared, name: str, rival: str, measure: str) -> float:
    """The difference of two methods' averages."""
    return compared.evaluations[name].mean()[measure] - compared.evaluations[rival].mean()[measure]


def tests_of(
    compared: Compared, names: Sequence[str], rivals: Sequence[str], measures: Sequence[str]
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Row → rival → measure: the difference of the averages and its p, of every test that a table prints."""
    return {
        name: {
            rival: {
                each: {"difference": gain_of(compared, name, rival, each), "p": p_of(compared, name, rival, each)}
                for each in measures
            }
            for rival in rivals
            if rival != name
        }
        for name in names
    }


def rows_table(
    compared: Compared,
    shown: Mapping[str, str],
    rivals: Sequence[str],
    tested: Mapping[str, str],
    names: Sequence[str] | None = None,
) -> Table:
    """The averages of every method, or of those named, and paired t-tests against some rivals.

    Both mappings: measure → heading.
    """
    columns = [Column("method"), *(Column(each, "value") for each in shown.values())]
    columns += [Column(f"p ({what}, {name})", "p") for name in rivals for what in tested.values()]
    rows = []
    for name in compared.names if names is None else names:
        means = compared.evaluations[name].mean()
        ps = [None if name == rival else p_of(compared, name, rival, each) for rival in rivals for each in tested]
        rows.append((name, *(means[measure] for measure in shown), *ps))
    caption = (
        f"{len(compared.judged)} test queries, flavour {FLAVOUR}; p: paired t-test against {' and '.join(rivals)}."
    )
    return Table(tuple(columns), tuple(rows), " ".join([caption, *compared.counted()]))
