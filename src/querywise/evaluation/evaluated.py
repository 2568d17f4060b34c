"""Several runs, or other scores, evaluated on the same queries."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from querywise.data.coverage import Coverage
from querywise.evaluation.differences import Differences
from querywise.evaluation.evaluate import Evaluation
from querywise.evaluation.significance import TEST_NAMES
from querywise.measures.flavours import find_flavour
from querywise.runtime.files import atomic_text
from querywise.runtime.values import JsonObject, json_text


@dataclass(frozen=True)
class Evaluated:
    """Several evaluations of the same queries, by name; the first is what the others are compared with."""

    tables: Mapping[str, Evaluation]
    coverage: Mapping[str, Coverage] = field(default_factory=dict)  # of runs: what each holds of all that was judged
    unjudged: int = 0  # queries of the runs without a judgement

    @property
    def first(self) -> Evaluation:
        """The evaluation of the first."""
        return next(iter(self.tables.values()))

    @property
    def conventions(self) -> str:
        """What was counted, in words."""
        return find_flavour(self.first.flavour).conventions

    def corrected(self, test: str) -> dict[str, dict[str, float]]:
        """The p of every measure of each but the first, against the first, by Holm for their number."""
        return Differences(self.tables, next(iter(self.tables))).corrected(test)

    def as_json(self, test: str) -> JsonObject:
        """Everything the table shows, as JSON can hold it."""
        alone: JsonObject = {"queries": len(self.first), "flavour": self.first.flavour, "mean": self.first.mean()}
        if len(self.tables) == 1 and not self.coverage:
            return alone
        corrected = self.corrected(test)
        runs: JsonObject = {
            name: {
                "mean": table.mean(),
                **({"p_holm": corrected[name]} if name in corrected else {}),
                **({"coverage": asdict(self.coverage[name])} if name in self.coverage else {}),
            }
            for name, table in self.tables.items()
        }
        content: JsonObject = {"queries": len(self.first), "flavour": self.first.flavour, "counts": self.conventions}
        content |= alone if len(self.tables) == 1 else {}
        return {**content, "unjudged": self.unjudged, "test": TEST_NAMES[test], "runs": runs}

    def write(self, path: Path) -> None:
        """Every query's values, as .json or else as .csv; of several runs with a column for the run."""
        if len(self.tables) == 1:
            (self.first.write_json if path.suffix == ".json" else self.first.write_csv)(path)
            return
        with atomic_text(path) as out:
            if path.suffix == ".json":
                runs: JsonObject = {name: each.as_json() for name, each in self.tables.items()}
                out.write(json_text({"flavour": self.first.flavour, "runs": runs}))
                return
            table = csv.writer(out, lineterminator="\n")
            table.writerow(["run", "query", *self.first.measures])
            for name, each in self.tables.items():
                for query_id, row in zip(each.query_ids, each.values.tolist(), strict=True):
                    table.writerow([name, query_id, *map(repr, row)])
