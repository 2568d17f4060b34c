"""Boosts of fields: the scores of engines written out, how boosts are learned, and what is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.data.collections import Collection, collection_of
from querywise.errors import DataError
from querywise.exports.targets import TARGETS
from querywise.jobs.boosts import EQUAL, OWN, Learning, learn, requests
from querywise.retrieval.boosts import (
    BEST,
    COMBINED,
    CROSS,
    DISMAX,
    FORMS,
    MOST,
    Boosts,
    FieldMatches,
    equal_boosts,
    kept_lengths,
    match,
    read_boosts,
)
from querywise.retrieval.reading import Retrieval, indexed_text
from tests import commands

NAMES = ("title", "body", "brand")
TEXTS = ("red apple", "apple apple pie", "the green pear of acme", "nowhere", "pie")
WORDS = ["red", "green", "apple", "pear", "pie", "plum", "acme", "best", "fresh", "the", "of"]


def made_up(count: int = 60, seed: int = 0) -> list[dict[str, Any]]:
    """Documents with a title, a body long enough that its length is kept roughly, and a brand that most lack."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        own = {"id": f"D{number}", "title": " ".join(rng.choice(WORDS, size=int(rng.integers(1, 5))))}
        own["body"] = " ".join(rng.choice(WORDS, size=int(rng.integers(5, 120))))
        if number % 6 == 0:
            own["brand"] = " ".join(rng.choice(["acme", "apple", "pie"], size=2))
        found.append(own)
    return found


def world(seed: int = 0) -> tuple[FieldMatches, list[dict[str, list[str]]], Callable[[str], list[str]]]:
    """Matches of all documents for TEXTS; the terms of every document by field; and how text becomes terms."""
    documents = made_up(seed=seed)
    collection, index = indexed_text(collection_of(documents), Retrieval())
    assert collection.fields is not None
    terms = index.tokeniser.terms
    texts = [{name: terms(each.get(name, "")) for name in NAMES} for each in documents]
    return match(index, TEXTS, [np.arange(len(index))] * len(TEXTS)), texts, terms


def kept(length: int) -> int:
    """A length after Lucene's byte: below 24 + 16 as it is; above, the four leading bits of what exceeds 24."""
    if length < 40:
        return length
    above = length - 24
    lost = above.bit_length() - 4
    return 24 + (above >> lost << lost)


def idf(documents: float, frequency: float) -> float:
    return math.log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def best(values: list[float], tie: float) -> float:
    return max(values) + tie * (sum(values) - max(values)) if values else 0.0


class Written:
    """The definitions, word by word and document by document: the specification, and slow."""

    def __init__(self, texts: list[dict[str, list[str]]]) -> None:
        self.texts = texts
        self.holders = {name: sum(bool(each[name]) for each in texts) for name in NAMES}
        self.sizes = {name: sum(len(each[name]) for each in texts) for name in NAMES}

    def frequency(self, term: str, name: str) -> int:
        return sum(term in each[name] for each in self.texts)

    def saturated(self, term: str, document: int, name: str) -> float:
        own = self.texts[document][name]
        mean = self.sizes[name] / self.holders[name]
        return own.count(term) / (own.count(term) + 1.2 * (0.25 + 0.75 * kept(len(own)) / mean))

    def plain(self, term: str, document: int, name: str) -> float:
        return idf(self.holders[name], self.frequency(term, name)) * self.saturated(term, document, name)

    def blended(self, term: str, used: list[str]) -> dict[str, int]:
        known = {name: self.frequency(term, name) for name in used}
        if len(used) == 1:
            return known
        there = [name for name in used if known[name]]
        most = min([len(self.texts), *(self.sizes[name] for name in there)])
        actual = min(most, max(known.values()))
        before, made = max(known.values()), dict.fromkeys(used, 0)
        for name in sorted(there, key=lambda each: -known[each]):
            actual += known[name] < before
            made[name] = min(actual, most, self.holders[name])
            before = known[name]
        return made

    def score(self, asked: Boosts, terms: list[str], document: int) -> float:
        used, own = asked.used, self.texts[document]
        if asked.form in (MOST, BEST):
            by_field = [
                boost * sum(self.plain(term, document, name) for term in terms if term in own[name])
                for name, boost in used.items()
            ]
            return sum(by_field) if asked.form == MOST else best(by_field, asked.tie)
        total = 0.0
        for term in terms:
            there = [name for name in used if term in own[name]]
            if not there:
                continue
            if asked.form == COMBINED:
                count = sum(used[name] * own[name].count(term) for name in used)
                holders = max(self.holders[name] for name in used)
                mean = math.floor(sum(used[name] * self.sizes[name] for name in used)) / holders
                length = kept(math.floor(sum(used[name] * kept(len(own[name])) for name in used) + 0.5))
                rarity = idf(holders, max(self.frequency(term, name) for name in used))
                total += rarity * count / (count + 1.2 * (0.25 + 0.75 * length / mean))
            elif asked.form == DISMAX:
                total += best([used[name] * self.plain(term, document, name) for name in there], asked.tie)
            else:
                known = self.blended(term, list(used))
                parts = [
                    used[name] * idf(self.holders[name], known[name]) * self.saturated(term, document, name)
                    for name in there
                ]
                total += best(parts, asked.tie)
        return total


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("form", FORMS)
def test_scores_are_those_that_the_page_defines(form: str, seed: int) -> None:
    matches, texts, terms = world(seed)
    written, tied = Written(texts), 0.3 if form in (BEST, DISMAX, CROSS) else 0.0
    for boosts in ([1, 1, 1], [7.5, 1.5, 2], [2, 0, 3], [0, 0, 1]):
        asked = Boosts(form, dict(zip(NAMES, map(float, boosts), strict=True)), tied)
        theirs = [written.score(asked, terms(text), document) for text in TEXTS for document in range(len(texts))]
        assert matches.scores(asked) == pytest.approx(theirs, abs=1e-12)
        assert (np.array(theirs) > 0).any()


def test_lengths_are_kept_as_in_the_byte_of_lucene() -> None:
    lengths = np.arange(20_000)
    assert kept_lengths(lengths.astype(np.float64)).tolist() == [kept(int(each)) for each in lengths]
    assert len(np.unique(kept_lengths(np.arange(1_000_000).astype(np.float64)))) < 256


def test_a_tie_breaker_of_one_is_the_sum_and_the_scale_of_boosts_changes_no_order() -> None:
    matches, _, _ = world()
    boosts = {"title": 3.0, "body": 1.0, "brand": 2.0}
    summed = matches.scores(Boosts(MOST, boosts))
    assert matches.scores(Boosts(BEST, boosts, 1.0)) == pytest.approx(summed)
    assert matches.scores(Boosts(DISMAX, boosts, 1.0)) == pytest.approx(summed)
    for form in FORMS:
        one = Boosts(form, boosts)
        if form == COMBINED:
            assert one.rounded == one
        else:
            assert matches.scores(one.rounded) == pytest.approx(matches.scores(one) * 10 / 3, rel=2e-3)


def test_matches_of_some_rows_are_those_rows() -> None:
    matches, _, _ = world()
    rows = np.array([5, 3, 250, 60, 61, 0])
    for form in FORMS:
        asked = equal_boosts(form, NAMES)
        assert matches.select(rows).scores(asked) == pytest.approx(matches.scores(asked)[rows])


def planted(queries: int = 40, seed: int = 1) -> Collection:
    """What is relevant has the query's word in its title; bodies have it at random, and notes where it is not."""
    rng = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(queries)]
    documents, judgments = [], []
    for number, word in enumerate(words):
        for place in range(6):
            relevant = place < 2
            others = rng.choice(words, size=4).tolist()
            body = [*rng.choice(words, size=6).tolist(), *([word] if rng.random() < 0.5 else [])]
            documents.append(
                {
                    "id": f"{number}-{place}",
                    "title": " ".join([*others, word] if relevant or rng.random() < 0.2 else others),
                    "body": " ".join(body),
                    "notes": " ".join([*others[:2], *([] if relevant else [word, word])]),
                }
            )
            judgments.append((f"q{number}", f"{number}-{place}", int(relevant)))
    return collection_of(documents, {f"q{number}": word for number, word in enumerate(words)}, judgments)


JUDGED = Retrieval(candidates="judged")


def test_boosts_learn_which_fields_tell_and_leave_out_what_misleads() -> None:
    found = learn(planted(), JUDGED, Learning(folds=3))
    assert set(found.every) == set(FORMS)
    for form, boosts in found.every.items():
        assert boosts.boosts["title"] > boosts.boosts["notes"], form
        assert found.learned[form].mean() > found.equal[form].mean() + 0.1
        assert found.tests[form, EQUAL].is_significant
        assert boosts == boosts.rounded
    assert found.every[MOST].boosts["notes"] == 0.0
    assert found.boosts in found.every.values()


def test_a_query_is_ranked_by_boosts_that_its_own_group_did_not_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    from querywise.jobs import boosts as job

    taught: list[tuple[set[str], set[str]]] = []
    whole = job._Part.learn

    def watched(part: Any, fold: Any, asked: Learning) -> Any:
        taught.append(({*fold.train.query_ids, *fold.valid.query_ids}, set(fold.test.query_ids)))
        return whole(part, fold, asked)

    monkeypatch.setattr(job._Part, "learn", watched)
    learn(planted(15), JUDGED, Learning((MOST,), folds=3))
    *folds, last = taught
    assert all(not known & tested for known, tested in folds)
    assert set.union(*(tested for _, tested in folds)) == last[0]  # the boosts that are written learn from all


def test_boosts_of_the_users_own_are_tested_against(tmp_path: Path) -> None:
    own = {"type": "best_fields", "boosts": {"notes": 3, "title": 1}, "tie_breaker": 0.5}
    (tmp_path / "own.json").write_text(json.dumps(own))
    found = learn(planted(), JUDGED, Learning((MOST, BEST), BEST, folds=3), tmp_path / "own.json")
    assert found.own is not None
    assert found.boosts.form == BEST
    assert set(found.tests) == {(form, against) for form in (MOST, BEST) for against in (EQUAL, OWN)}
    assert found.tests[MOST, OWN].found.difference == pytest.approx(found.learned[MOST].mean() - found.own.mean())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "invalid JSON"),
        ("[]", "Expected"),
        ('{"boosts": {"titel": 1}}', "no field 'titel' with words. There are: title, body"),
        ('{"boosts": {"title": -1}}', "'title' is -1; expected a number from 0 up"),
        ('{"boosts": {"title": 1e999}}', "'title' is inf; expected"),
        ('{"boosts": {"title": "3"}}', "'title' is '3'; expected"),
        ('{"boosts": {"title": 0}}', "No field has a boost above 0"),
        ('{"boosts": {}}', "No field has a boost above 0"),
        ('{"type": "phrase", "boosts": {"title": 1}}', "type of boosts is 'phrase'; expected one of most_fields"),
        ('{"type": [], "boosts": {"title": 1}}', "expected one of most_fields"),
        ('{"type": "best_fields", "boosts": {"title": 1}, "tie_breaker": 2}', "tie breaker is 2; expected"),
        ('{"type": "best_fields", "boosts": {"title": 1}, "tie_breaker": null}', "tie breaker is None; expected"),
        ('{"type": "most_fields", "boosts": {"title": 1}, "tie_breaker": 0.5}', "most_fields has no tie breaker"),
        ('{"type": "combined_fields", "boosts": {"title": 0.5}}', "combined_fields takes 1 or more"),
    ],
)
def test_boosts_that_cannot_be_are_refused_with_the_file(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(content)
    with pytest.raises(DataError, match=words) as error:
        read_boosts(file, ("title", "body"))
    assert str(file) in str(error.value)


def test_a_device_has_no_boosts() -> None:
    with pytest.raises(DataError, match="/dev/zero: not a regular file"):
        read_boosts(Path("/dev/zero"), ("title", "body"))


def test_what_is_not_known_or_cannot_be_weighed_is_refused() -> None:
    with pytest.raises(DataError, match=r"Unknown form 'phrase'\. Known: most_fields"):
        Learning(("phrase",))
    with pytest.raises(DataError, match="form='best_fields' is to be written, but is not among"):
        Learning((MOST,), BEST)
    with pytest.raises(DataError, match="Unknown measure"):
        Learning(measure="quality")
    alone = collection_of([{"id": "D1", "title": "one", "votes": 2}], {"q": "one"}, [("q", "D1", 1)])
    with pytest.raises(DataError, match="boosts weigh fields with words against each other; found 1"):
        learn(alone, JUDGED, Learning())
    unjudged = collection_of(made_up(), {"q": "one"})
    with pytest.raises(DataError, match="no judgments"):
        learn(unjudged, JUDGED, Learning())


def test_requests_say_what_each_engine_can() -> None:
    boosts = {"title": 10.0, "body": 2.5, "brand": 0.0}
    assert requests(Boosts(MOST, boosts)) == {
        "opensearch": (
            multi := {"query": {"multi_match": {"query": "$text", "type": MOST, "fields": ["title^10", "body^2.5"]}}}
        ),
        "elasticsearch": multi,
        "solr": {"defType": "edismax", "q": "$text", "q.op": "OR", "qf": "title^10 body^2.5", "tie": "1"},
        "vespa": {
            "rank_profile": "rank-profile boosts {\n    first-phase {\n        expression: 10 * bm25(title) + "
            "2.5 * bm25(body)\n    }\n}\n"
        },
    }
    assert list(requests(Boosts(DISMAX, boosts, 0.3))) == ["solr"]
    assert list(requests(Boosts(CROSS, boosts, 0.3))) == ["opensearch", "elasticsearch"]
    found = requests(Boosts(COMBINED, {"title": 2.0, "body": 1.0}))
    assert found == {"elasticsearch": {"query": {"combined_fields": {"query": "$text", "fields": ["title^2", "body"]}}}}
    vespa = TARGETS["vespa"].fields
    assert vespa is not None
    assert vespa.request is not None
    profile = vespa.request(Boosts(BEST, {"a": 3.0, "b": 2.0, "c": 1.0}, 0.25)) or {}
    assert "0.75 * max(max(3 * bm25(a), 2 * bm25(b)), 1 * bm25(c)) + 0.25 * (3 * bm25(a) + " in str(profile)


def test_the_command_writes_boosts_that_it_reads_again(tmp_path: Path) -> None:
    from querywise.data.collections import write_collection

    write_collection(planted(20), tmp_path / "shop")
    asked = ("boosts", "shop", "--candidates", "judged", "--folds", "3", "--forms", "most_fields,best_fields")
    done = commands.run(tmp_path, *asked, "--out", "boosts.json")
    assert done.returncode == 0, done.stderr
    assert "20 judged queries, each ranked by boosts learned from others" in done.stdout
    written = json.loads((tmp_path / "boosts.json").read_text())
    assert written["forms"][written["type"]]["boosts"] == written["boosts"]
    mappings = written["indexes"]["opensearch"]["mappings"]["properties"]
    assert mappings == {name: {"type": "text", "analyzer": "querywise"} for name in ("title", "body", "notes")}
    filters = written["indexes"]["elasticsearch"]["settings"]["analysis"]["filter"]
    assert filters["querywise_stems"] == {"type": "snowball", "language": "English"}
    assert written["requests"]["opensearch"]["query"]["multi_match"]["type"] == written["type"]
    again = commands.run(tmp_path, *asked, "--out", "again.json", "--boosts", "boosts.json", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads((tmp_path / "again.json").read_text())
    own = json.loads(again.stdout)["forms"]["most_fields"]["tests"]["own"]
    assert {"difference", "p", "p_holm"} == set(own)
    nowhere = commands.run(tmp_path, *asked, "--out", "missing/boosts.json")
    assert nowhere.returncode == 2
    assert "does not exist" in nowhere.stderr


def test_title_and_text_alone_are_fields_too() -> None:
    documents = [{"id": each["id"], "title": each["title"], "text": each["body"]} for each in made_up(40)]
    judgments = [(f"q{place}", f"D{number}", int(number % 3 == place)) for place in range(3) for number in range(40)]
    asked = {"q0": "red apple", "q1": "green pie", "q2": "pear"}
    found = learn(collection_of(documents, asked, judgments), JUDGED, Learning((MOST,), folds=3))
    assert len(found.every[MOST].boosts) == 2
