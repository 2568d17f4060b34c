"""Words and vectors, reproduced: the command on a small collection, its numbers, and the test over all collections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from querywise.evaluation.significance import paired_t_test
from reproduction import hybrid
from tests.commands import output, refused, reproduce

KINDS = ("tree", "jam", "juice", "cake")
WORDS = ("apple", "pear", "plum", "fig", "kiwi", "lime")
FOUND = {"bm25", "vectors"}


def write_collection(folder: Path) -> None:
    """Every second query names its fruit; of the others only the vector tells which one is meant, and not exactly."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(len(WORDS), 6))
    pairs = [(place, kind) for place in range(len(WORDS)) for kind in KINDS]
    documents = [
        {"_id": f"{kind}-{WORDS[place]}", "title": WORDS[place], "text": f"{WORDS[place]} {kind}"}
        for place, kind in pairs
    ]
    queries = [
        {"_id": f"q{WORDS[place]}{kind}", "text": f"{kind} {WORDS[place] if number % 2 else 'fruit'}"}
        for number, (place, kind) in enumerate(pairs)
    ]
    grades = [f"q{WORDS[place]}{kind} 0 {kind}-{WORDS[place]} 2" for place, kind in pairs]
    grades += [f"q{WORDS[place]}{kind} 0 {KINDS[0]}-{WORDS[place]} 1" for place, kind in pairs if kind != KINDS[0]]
    (folder / "docs").mkdir()
    (folder / "vectors").mkdir()
    (folder / "docs" / "qrels.txt").write_text("\n".join(grades) + "\n")
    for file, name, records, noise in (
        ("corpus", "documents", documents, 0.3),
        ("queries", "queries", queries, 0.8),
    ):
        (folder / "docs" / f"{file}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
        values = np.array([meaning[place] for place, _ in pairs]) + noise * rng.normal(size=(len(pairs), 6))
        np.save(folder / "vectors" / f"{name}.npy", values.astype(np.float32))
        (folder / "vectors" / f"{name}.json").write_text(json.dumps([each["_id"] for each in records]))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a collection, its vectors, and what the command has made of them."""
    folder = tmp_path_factory.mktemp("hybrid")
    write_collection(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hybrid, "SEEDS", 1)
        output(reproduce(folder, "hybrid", "docs", "--vectors", "vectors", "--out", "made", "--quiet"))
    return folder


def numbers_in(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "numbers.json").read_text())
    return content


@pytest.mark.slow
def test_every_row_is_measured_on_the_same_candidates(place: Path) -> None:
    numbers = numbers_in(place / "made")
    rows = set(numbers["comparison"]["methods"])
    assert rows >= {"run bm25", "run vectors", "rrf", "combsum", "weights", "weights-by-query", "forest"}
    assert rows >= {"single, words", "single", "lambdamart", "blend", "blend, view signals"}
    assert numbers["comparison"]["queries"] == 24
    assert set(numbers["comparison"]["coverage"]["by_run"]) == FOUND
    assert numbers["recall"]["run bm25"] == numbers["comparison"]["coverage"]["by_run"]["bm25"]
    assert numbers["recall"]["blend"] == numbers["comparison"]["coverage"]["recall"]
    assert numbers["seeds"] == 1
    assert [set(each) for each in numbers["learned"]["weights"]] == [FOUND] * 5
    table = (place / "made" / "table.md").read_text()
    assert all(f"| {row} |" in table for row in (*rows, hybrid.ORACLE))


@pytest.mark.slow
def test_the_oracle_is_above_all_weights_and_the_gap_is_counted_from_weights(place: Path) -> None:
    numbers = numbers_in(place / "made")
    for measure in ("map", "ndcg@10"):
        means = {name: each["mean"][measure] for name, each in numbers["comparison"]["methods"].items()}
        assert numbers["oracle"][measure] >= max(means[name] for name in ("combsum", "weights", "weights-by-query"))
        gap = numbers["oracle"][measure] - means["weights"]
        assert gap > 0
        closed = numbers["closed"][measure]
        assert closed["weights"] == 0
        assert closed["single"] == pytest.approx((means["single"] - means["weights"]) / gap)
        for rival in hybrid.RIVALS:
            assert set(numbers["p_holm"][measure][rival]) == set(means) - {rival}
            assert all(p >= numbers["p"][measure][rival][name] for name, p in numbers["p_holm"][measure][rival].items())


def test_queries_of_several_collections_are_tested_together(place: Path, tmp_path: Path) -> None:
    page = hybrid.pooled({"one": place / "made", "two": place / "made"}, tmp_path / "pooled")
    assert "48 test queries of 2 collections together" in page.read_text()
    numbers = numbers_in(tmp_path / "pooled")
    first = numbers["tests"][0]
    assert (first["measure"], first["ours"], first["theirs"]) == ("map", "blend", "rrf")
    kept = json.loads((place / "made" / "queries.json").read_text())
    ours, theirs = (np.tile(kept["map"][name], 2) for name in ("blend", "rrf"))
    assert first["p"] == pytest.approx(paired_t_test(ours, theirs).p)
    assert first["gains"]["one"] == pytest.approx(float((ours - theirs).mean()))
    means = numbers_in(place / "made")["comparison"]["methods"]
    assert first["ours_mean"] == pytest.approx(means["blend"]["mean"]["map"])


def test_fewer_seeds_above_a_thousand_queries() -> None:
    assert hybrid.seeds_for(1000) == hybrid.SEEDS > hybrid.seeds_for(1001) == hybrid.FEWER_SEEDS


def test_vectors_are_asked_for_and_refused_elsewhere(place: Path) -> None:
    told = refused(reproduce(place, "hybrid", "docs", "--out", "other"))
    assert "--vectors FOLDER or --embed NAME" in told
    assert not (place / "other").exists()
    told = refused(reproduce(place, "from-text", "docs", "--vectors", "vectors", "--out", "other"))
    assert "--vectors: from-text takes no vectors" in told
