"""Whether correcting clicks for position bias matters: methods evaluated by later clicks and by people."""

from __future__ import annotations

from dataclasses import dataclass

from querywise.data.judged import Judged
from querywise.display.words import counted, p_in_words
from querywise.evaluation.compare import Compared
from querywise.evaluation.differences import Differences
from querywise.evaluation.evaluate import evaluate
from querywise.evaluation.significance import SIGNIFICANT, TEST_NAMES, bootstrap_interval
from querywise.runtime.arrays import Ints
from querywise.runtime.values import JsonObject


@dataclass(frozen=True, eq=False)
class Debiasing:
    """A method trained on debiased clicks against the same method on raw clicks.

    Attributes:
        model: The click model that judges the later clicks.
        reason: Why the log cannot be debiased, if so.
        debiased, naive: The method's two names; empty if the log cannot be debiased.
        clicks: All methods by clicks on later pages.
        people: All methods by human grades; None without any.

    """

    model: str
    reason: str
    debiased: str
    naive: str
    measure: str
    test: str
    clicks: Differences
    people: Differences | None

    @property
    def said(self) -> list[str]:
        """Whether debiasing matters by clicks and, if known, by people, in sentences."""
        judge = f"Methods learned from the earlier pages of the log, and clicks on the last fifth judge ({self.model})."
        if not self.naive:
            return [f"Nothing is debiased here. {self.reason}", judge]
        told = [f"Debiasing {self._found(self.clicks, 'later clicks')}.", judge]
        return told if self.people is None else [*told, f"People: it {self._found(self.people, 'grades of people')}."]

    def _found(self, every: Differences, judges: str) -> str:
        test = every.tested(self.measure, self.test)[self.debiased]
        ours, theirs = (every.evaluations[name][self.measure] for name in (self.debiased, self.naive))
        low, high = bootstrap_interval(ours, theirs)
        sure = test.p_holm < SIGNIFICANT
        how = ("matters" if test.found.difference > 0 else "hurts") if sure else "makes no significant difference"
        others = len(every.evaluations) - 1
        return (
            f"{how} by {judges} on {counted(len(ours), 'query', 'queries')}: {self.measure} of {self.debiased} is "
            f"{ours.mean():.4f} against {theirs.mean():.4f} of {self.naive} ({test.found.difference:+.4f}, 95 % "
            f"interval {low:+.4f} to {high:+.4f}; {p_in_words(test.p_holm)}, {TEST_NAMES[self.test]}, Holm's "
            f"correction for {counted(others, 'method')})"
        )

    def as_json(self) -> JsonObject:
        """Return everything as JSON."""
        judges = {"later clicks": self.clicks} | ({} if self.people is None else {"people": self.people})
        means: JsonObject = {
            judge: {name: dict(each.mean()) for name, each in found.evaluations.items()}
            for judge, found in judges.items()
        }
        return {"model": self.model, "debiased": self.debiased, "naive": self.naive, "said": self.said, "means": means}


def debiasing(
    compared: Compared,
    people: tuple[Judged, Ints],
    measure: str,
    *,
    model: str,
    reason: str,
    names: tuple[str, str],
    test: str,
) -> Debiasing:
    """Evaluate every method of a comparison by people too; `people` holds the queries they judged and their rows."""
    judged, rows = people
    by_people = None
    if len(judged):
        values = {
            name: evaluate(scores[rows], judged, measures=compared.measures, flavour=compared.flavour, order="grouped")
            for name, scores in compared.scores.items()
        }
        by_people = Differences(values, names[1] or compared.baseline)
    clicks = Differences(compared.evaluations, names[1] or compared.baseline)
    return Debiasing(model, reason, *names, measure, test, clicks, by_people)
