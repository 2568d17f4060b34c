"""Ray as the workers: real clusters of several node processes on this machine, whose workers and nodes get lost."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from querywise.data.collections import Collection, read_collection
from querywise.data.folds import make_folds
from querywise.data.judged import Candidates, Judged
from querywise.data.parquet.shards import open_shards
from querywise.data.parquet.tables import read_scored
from querywise.data.parquet.writing import write_shards
from querywise.data.synthetic import make_judged
from querywise.data.training import as_taken
from querywise.errors import ClusterError, DataError
from querywise.jobs.compare import CompareOptions, run
from querywise.jobs.evaluate import scores_of, write_scored
from querywise.learners.ranksvm.ranksvm import RankSVM
from querywise.learners.trees.boosting import LambdaMART
from querywise.methods import find_method
from querywise.rankers.knn import KnnOffline2, KnnOnline
from querywise.retrieval.features import judged_candidates
from querywise.retrieval.index import build_index
from querywise.runtime import ray as ray_workers
from querywise.runtime.arrays import Floats
from querywise.runtime.ray import RayCluster
from querywise.runtime.workers import ThisProcess, use_workers, workers
from querywise.storage import load
from tests import commands
from tests.commands import QUERYWISE, output, plain
from tests.support.vectors import lines_of
from tests.worlds import inside

# Two clusters at once are too much for a small machine, so all of this runs in one process.
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

SECONDS = 400  # after which anything here hangs: in a new clone every worker compiles its kernels first
SHARDS = (1, 3, 16)
TRAIN = make_judged(queries=48, documents=12, features=6, kinds=3)
TEST = make_judged(queries=20, documents=12, features=6, kinds=3, seed=1).candidates


class TooLateError(AssertionError):
    """The work was over before anything could be killed."""


class Machines:
    """A Ray cluster of node processes on this machine: a head without cores, and nodes with one each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        with socket.socket() as free:
            free.bind(("", 0))
            self.client_port = free.getsockname()[1]
        # A lost node is noticed after two seconds rather than half a minute.
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        head = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": self.client_port}
        head |= {"no_monitor": True, "include_log_monitor": False}
        self._small = {"object_store_memory": 150_000_000}
        self._cluster = Nodes(initialize_head=True, head_node_args={**head, **self._small, "_system_config": quick})
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        """Where a driver on this machine finds it."""
        found: str = self._cluster.address
        return found

    def have(self, count: int) -> None:
        """Start or remove nodes until there are so many."""
        while len(self.nodes) > count:
            self._cluster.remove_node(self.nodes.pop())
        while len(self.nodes) < count:
            self.nodes.append(self._cluster.add_node(num_cpus=1, **self._small))

    def workers(self, node: Any) -> list[int]:
        """The processes of a node that are running a task."""
        (raylet,) = node.all_processes["raylet"]
        return [pid for pid in children(raylet.process.pid) if is_at_work(pid)]

    def serving(self) -> list[int]:
        """The processes that each serve one client, started by the one that listens for them."""
        (listening,) = self._cluster.head_node.all_processes["ray_client_server"]
        return [pid for pid in children(listening.process.pid) if b"specific-server" in command_of(pid)]

    def kill_worker(self, node: Any, done: Callable[[], bool]) -> None:
        """Kill a process of the node in the midst of a task."""
        os.kill(self.stopped(node, done), signal.SIGKILL)

    def kill_node(self, node: Any, done: Callable[[], bool]) -> None:
        """Kill a whole node while one of its processes is in the midst of a task."""
        worker = self.stopped(node, done)
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

    def stopped(self, node: Any, done: Callable[[], bool]) -> int:
        """A process of the node that is stopped in the midst of a task, which therefore cannot end."""
        while not done():
            for pid in self.workers(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    while state_of(pid) not in "TtZX":
                        time.sleep(0.001)
                    if is_at_work(pid):
                        return pid
                    os.kill(pid, signal.SIGCONT)
            time.sleep(0.001)
        raise TooLateError("the work was over before anything could be killed")

    def shut_down(self) -> None:
        """End all of it."""
        self._cluster.shutdown()


def children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


def state_of(pid: int) -> str:
    """One letter: R runs, S sleeps, T is stopped, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def command_of(pid: int) -> bytes:
    """The words of a process's command, nothing if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def is_at_work(pid: int) -> bool:
    """Whether a process calls itself by a task of ours."""
    return command_of(pid).startswith(b"ray::_run")


class Running:
    """A job in a thread of its own, in the context it was begun in."""

    def __init__(self, job: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(self._call, job), daemon=True)
        self._thread.start()

    def _call(self, job: Callable[[], Any]) -> None:
        try:
            self._found.append(job())
        except BaseException as error:  # noqa: BLE001  raised again by whoever waits
            self._error.append(error)

    def done(self) -> bool:
        """Whether it is over."""
        return not self._thread.is_alive()

    def result(self) -> Any:
        """What it gave, once it is over."""
        self._thread.join(SECONDS)
        assert self.done(), f"not finished after {SECONDS} seconds"
        if self._error:
            raise self._error[0]
        return self._found[0]


def plainly(job: Callable[[], Any]) -> Any:
    """What a job gives without a cluster."""
    with use_workers(ThisProcess()):
        return job()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")  # else what serves a client may die as it starts
        started = Machines()
        try:
            yield started
        finally:
            started.shut_down()


@pytest.fixture(scope="module", params=[1, 2], ids="{} workers".format)
def worker_count(machines: Machines, request: pytest.FixtureRequest) -> Iterator[int]:
    """So many workers, at work."""
    machines.have(request.param)
    with RayCluster(machines.address):
        yield request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training set in one, three and sixteen shards."""
    folder = tmp_path_factory.mktemp("place")
    for count in SHARDS:
        write_shards([TRAIN], folder / f"{count}.parquet", shards=count)
    return folder


def alike(found: Floats, expected: Floats, rounding: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=rounding * np.abs(expected).max())


TWO = pytest.mark.parametrize("worker_count", [2], indirect=True, ids="{} workers".format)

# The same with any number of workers and shards: as many shards as workers, fewer, and more
SPREAD = {1: (1, 16), 2: (1, 3, 16)}


def test_a_ranking_svm_does_not_depend_on_workers_or_shards(worker_count: int, place: Path) -> None:
    assert isinstance(workers(), RayCluster)
    expected = plainly(lambda: RankSVM().fit(TRAIN))
    for shards in SPREAD[worker_count]:
        data = open_shards(place / f"{shards}.parquet")
        found, same_shards = RankSVM().fit(data), plainly(partial(RankSVM().fit, data))
        alike(found.weights_, expected.weights_, 1e-9)
        assert found.weights_.tobytes() == same_shards.weights_.tobytes(), f"{shards} shards"


def test_local_models_do_not_depend_on_workers_or_shards(worker_count: int, place: Path) -> None:
    def fit(data: Any) -> Any:
        return KnnOffline2(RankSVM(), k=9).fit(data)

    expected = plainly(lambda: fit(TRAIN))
    for shards in SPREAD[worker_count]:
        found = fit(open_shards(place / f"{shards}.parquet"))
        alike(found.several_models().weights, expected.several_models().weights, 1e-6)
        alike(found.predict(TEST), expected.predict(TEST), 1e-6)
        assert found.chosen(TEST).tolist() == expected.chosen(TEST).tolist(), f"{shards} shards"


Job = Callable[[Any, Candidates], list[Floats]]  # from data to train on and to test on, all that came out


def as_judged(data: Any) -> Judged:
    found: Judged = data.load()
    return found


def ranksvm(data: Any, test: Candidates) -> list[Floats]:
    return [RankSVM(l2=0.1).fit(data).weights_]


def knn_offline_2(data: Any, test: Candidates) -> list[Floats]:
    return [inside(KnnOffline2(RankSVM(tolerance=1e-6), k=9).fit(data).several_models()).weights]


def select_ranker(data: Any, test: Candidates) -> list[Floats]:
    ranker: Any = find_method("select-ranker").build(clusters=5, l2=0.3)
    return [ranker.fit(as_taken(ranker, data)).predict(test)]


def lambdamart_local(data: Any, test: Candidates) -> list[Floats]:
    ranker = KnnOffline2(LambdaMART(trees=12, leaves=4, min_documents=5), k=12)
    return [ranker.fit(as_taken(ranker, data)).predict(test)]


def compared(data: Any, test: Candidates) -> list[Floats]:
    """Every measure of every query, and what the tests say."""
    asked = CompareOptions(("single", "knn-offline-2", "select-ranker"), fixed={"l2": 1.0, "k": 9, "clusters": 4})
    found = run(asked, make_folds(as_judged(data), seed=0), None, title="")[0].compared
    tables = [found.evaluations[name][measure] for name in found.names for measure in found.measures]
    p = [found.against_baseline(name, measure).p for name in found.names for measure in found.measures]
    return [*tables, np.array(p)]


def ranked(data: Any, test: Candidates) -> list[Floats]:
    ranker = plainly(lambda: KnnOnline(RankSVM(), k=9).fit(as_judged(data)))
    return [scores_of(ranker, data)]


JOBS: dict[str, tuple[Job, float]] = {  # and to how many digits the result is the same
    "ranksvm": (ranksvm, 1e-9),
    "knn-offline-2": (knn_offline_2, 1e-6),
    "select-ranker": (select_ranker, 1e-6),
    "lambdamart-local": (lambdamart_local, 0.0),
    "compare": (compared, 0.0),
    "rank": (ranked, 1e-9),
}


@TWO
@pytest.mark.parametrize(
    ("job", "data"),
    [
        ("select-ranker", "in shards"),
        ("lambdamart-local", "in shards"),
        ("lambdamart-local", "in memory"),
        ("compare", "in shards"),
        ("rank", "in shards"),
        ("rank", "in memory"),
    ],
)
def test_everything_else_is_the_same_too(worker_count: int, job: str, data: str, place: Path) -> None:
    work, rounding = JOBS[job]
    given = TRAIN if data == "in memory" else open_shards(place / "16.parquet")
    found, expected = work(given, TEST), plainly(lambda: work(TRAIN, TEST))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        alike(one, other, rounding)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents about places and things, so many queries that they go to the workers in several batches."""
    folder = tmp_path_factory.mktemp("collection")
    places = [f"{name}{number}" for name in ("harbour", "meadow", "valley", "bridge") for number in range(20)]
    things = ["lamp", "boat", "stone", "letter", "bell", "wheel"]
    pairs = list(itertools.product(places, things))
    about = [
        {"_id": f"{place}-{thing}", "title": f"the {thing}", "text": f"{thing} of {place} " * (1 + number % 7)}
        for number, (place, thing) in enumerate(pairs)
    ]
    queries = [{"_id": f"q-{place}-{thing}", "text": f"{thing} {place}"} for place, thing in pairs]
    (folder / "corpus.jsonl").write_text(lines_of(*about))
    (folder / "queries.jsonl").write_text(lines_of(*queries))
    grades = [f"q-{place}-{thing}\t{place}-{thing}\t1" for place, thing in pairs]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *grades]) + "\n")
    return folder


@pytest.fixture(scope="module")
def collection(documents: Path) -> Collection:
    return read_collection(documents)


def features_of(collection: Collection) -> list[Floats]:
    judged, coverage = judged_candidates(collection, build_index(collection.documents()), top=60)
    return [judged.candidates.features, judged.labels.astype(float), np.array([coverage.found, coverage.relevant])]


@TWO
def test_features_from_text_are_the_same(worker_count: int, collection: Collection) -> None:
    found, expected = features_of(collection), plainly(lambda: features_of(collection))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


@TWO
def test_scores_in_parquet_are_the_same(worker_count: int, place: Path, tmp_path: Path) -> None:
    ranker = plainly(lambda: KnnOnline(RankSVM(), k=9).fit(TRAIN))
    shards = open_shards(place / "16.parquet")
    assert write_scored(ranker, "1", shards, tmp_path / "scores.parquet") == len(TRAIN.labels)
    plainly(lambda: write_scored(ranker, "1", shards, tmp_path / "plain.parquet"))
    found, expected = read_scored(tmp_path / "scores.parquet"), read_scored(tmp_path / "plain.parquet")
    assert found.query_ids == expected.query_ids
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9, atol=1e-12)
    assert len(list((tmp_path / "scores.parquet").iterdir())) == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.parquet", "scores.parquet"]


# What is lost on the way


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen shards with some work in each."""
    folder = tmp_path_factory.mktemp("large") / "large.parquet"
    write_shards([make_judged(queries=96, documents=40, features=20, kinds=3)], folder, shards=16)
    return folder


@TWO
@pytest.mark.parametrize(
    "job", ["ranksvm", "knn-offline-2", "compare", "features"]
)  # the others are spread as these are
def test_a_lost_worker_and_a_lost_node_change_nothing(
    worker_count: int, machines: Machines, job: str, large: Path, collection: Collection
) -> None:
    test = make_judged(queries=10, documents=40, features=20, kinds=3, seed=1).candidates

    def work() -> list[Floats]:
        return features_of(collection) if job == "features" else JOBS[job][0](open_shards(large), test)

    machines.have(worker_count)
    expected = work()
    first, second = machines.nodes
    for attempt in range(10):  # the work may be over before both are lost
        running = Running(work)
        try:
            machines.kill_worker(first, running.done)
            machines.kill_node(second, running.done)
        except TooLateError:
            assert attempt < 9
        for found, undisturbed in zip(running.result(), expected, strict=True):
            np.testing.assert_allclose(found, undisturbed, rtol=1e-9, atol=1e-12)
        if len(machines.nodes) == 1:
            break


@TWO
def test_when_one_job_fails_the_others_are_not_waited_for(
    worker_count: int, machines: Machines, tmp_path: Path
) -> None:
    machines.have(worker_count)
    pool, let_go = workers(), tmp_path / "let go"

    def wait_until(path: Path) -> None:
        while not path.exists():
            time.sleep(0.05)

    def job(number: int) -> Any:
        if number == 1:
            while not any(map(machines.workers, machines.nodes)):
                time.sleep(0.01)
            raise DataError("the second")
        return pool.each(wait_until, [let_go])

    running = Running(lambda: pool.together(job, range(9), "Jobs"))
    with pytest.raises(DataError, match="the second"):
        running.result()
    let_go.touch()
    assert pool.each(abs, [-1, 2]) == [1, 2]


@TWO
def test_a_second_cluster_in_one_process_is_refused(worker_count: int) -> None:
    before = workers()
    with pytest.raises(ClusterError, match="already running in this process"), RayCluster():
        raise AssertionError("there are two of them")
    assert workers() is before
    assert workers().each(abs, [-1, 2]) == [1, 2]


@TWO
def test_a_shard_that_is_missing_or_damaged_is_named(worker_count: int, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "3.parquet", tmp_path / "train.parquet")
    shards = open_shards(tmp_path / "train.parquet")
    ranker = plainly(lambda: RankSVM().fit(TRAIN))
    part = tmp_path / "train.parquet" / "part-00001.parquet"
    content = part.read_bytes()
    for harm in (part.unlink, lambda: part.write_bytes(content[:-9]), lambda: part.write_bytes(bytes(len(content)))):
        harm()
        for work in (lambda: RankSVM().fit(shards), lambda: scores_of(ranker, shards)):
            messages = []
            for way in (plainly, lambda job: job()):
                with pytest.raises(DataError, match=r"part-00001\.parquet") as caught:
                    way(work)
                messages.append(str(caught.value))
            assert messages[0] == messages[1]


# The command line

FIT = ["fit", "data.parquet", "--method", "knn-offline-2", "--k", "9", "--set", "l2=0.3", "--out"]
FEATURES = ["features", "docs", "--top", "60", "--out"]
COMPARE = ["compare", "data.parquet", "--methods", "single,knn-offline-2", "--k", "9", "--json"]
RANK = ["rank", "model", "data.parquet"]


def call(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    with begun(folder, *words) as process:
        return finished(process)


def begun(folder: Path, *words: object, **settings: str) -> subprocess.Popen[str]:
    """A command, as from a terminal: in a process group of its own; with settings of the environment."""
    return subprocess.Popen(
        [QUERYWISE, *map(str, words)],
        cwd=folder,
        env=plain() | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    try:
        out, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


IMPATIENT = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "0"}  # Ray's client gives up at once rather than after half a minute
LOST = "the connection to the cluster was lost"


def on_client(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """A command on a cluster at a client's address; begun anew, at most twice, when the connection is lost.

    On a busy machine, Ray's client loses its connection now and then. It is the only failure that is forgiven.
    """
    for _ in range(2):
        done = call(folder, *words)
        if not (done.returncode == 2 and LOST in done.stderr):
            return done
    return call(folder, *words)


def here(folder: Path, *words: object) -> str:
    """What a command prints that needs no cluster, in this process."""
    return commands.output(commands.run(folder, *words))


def without_times(text: str) -> Any:
    """What compare printed, but for what depends on the machine."""
    found = json.loads(text)
    for method in found["methods"].values():
        del method["fit_seconds"], method["predict_milliseconds"]
    del found["verdict"], found["cheapest"]
    return found


def have_the_same_scores(one: Path, other: Path) -> None:
    found, expected = read_scored(one), read_scored(other)
    assert (found.query_ids, found.document_ids) == (expected.query_ids, expected.document_ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9, atol=1e-12)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, collection: Collection, documents: Path) -> Path:
    """A folder with data and two models, where commands are given."""
    folder = tmp_path_factory.mktemp("desk")
    data = make_judged(queries=320, documents=30, features=8, kinds=3)
    write_shards([Judged(replace(data.candidates, queries=None), data.labels)], folder / "data.parquet", shards=16)
    (folder / "docs").symlink_to(documents)
    here(folder, *FIT, "model")
    here(folder, *FIT[:-1], "--method", "knn-online", "--out", "online")
    return folder


@pytest.fixture(scope="module")
def client(machines: Machines) -> str:
    """Where the cluster is found from another machine."""
    machines.have(2)
    return f"ray://127.0.0.1:{machines.client_port}"


@pytest.mark.parametrize("where", ["auto", "client"])
def test_fit_on_a_cluster(desk: Path, where: str, client: str, tmp_path: Path) -> None:
    output(on_client(desk, *FIT, tmp_path / "model", "--cluster", client if where == "client" else where))
    found, expected = load(tmp_path / "model"), load(desk / "model")
    test = make_judged(queries=20, documents=12, features=8, kinds=3, seed=1).candidates
    alike(inside(found).several_models().weights, inside(expected).several_models().weights, 1e-9)
    alike(found.predict(test), expected.predict(test), 1e-9)


def test_features_on_a_cluster(desk: Path, client: str, tmp_path: Path) -> None:
    printed = [here(desk, *FEATURES, tmp_path / "plain")]
    printed += [output(on_client(desk, *FEATURES, tmp_path / "spread", "--cluster", client))]
    assert printed[1] == printed[0].replace("plain", "spread")
    assert contents(tmp_path / "spread") == contents(tmp_path / "plain")


def test_compare_on_a_cluster(desk: Path, client: str) -> None:
    found, expected = output(on_client(desk, *COMPARE, "--cluster", client)), here(desk, *COMPARE)
    assert without_times(found) == without_times(expected)


def test_rank_on_a_cluster(desk: Path, client: str, tmp_path: Path) -> None:
    here(desk, *RANK, "--out", tmp_path / "plain.parquet")
    output(on_client(desk, *RANK, "--out", tmp_path / "spread.parquet", "--cluster", client))
    have_the_same_scores(tmp_path / "spread.parquet", tmp_path / "plain.parquet")


def test_scores_on_standard_output_are_the_same_when_a_node_is_lost(machines: Machines, desk: Path) -> None:
    machines.have(2)
    words = ["rank", "online", "data.parquet"]
    # Here before a node is lost, which Ray says on the standard output of every process that is connected.
    expected = [float(line) for line in here(desk, *words).splitlines()]
    with begun(desk, *words, "--cluster", machines.address) as process:
        machines.kill_node(machines.nodes[0], lambda: process.poll() is not None)
        found = output(finished(process))
    np.testing.assert_allclose([float(line) for line in found.splitlines()], expected, rtol=1e-9, atol=1e-12)


def test_a_lost_connection_ends_with_one_message(machines: Machines, desk: Path, client: str, tmp_path: Path) -> None:
    before = set(machines.serving())
    with begun(desk, *FIT, tmp_path / "model", "--cluster", client, **IMPATIENT) as process:
        worker = machines.stopped(machines.nodes[0], lambda: process.poll() is not None)
        (serving,) = set(machines.serving()) - before
        for pid in (serving, worker):
            os.kill(pid, signal.SIGKILL)
        done = finished(process)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {client}: {LOST} ("), done.stderr
    assert done.stderr.endswith("). Start again: finished work is on disk and will be reused.\n"), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "model").exists()


class StandIn:
    """Ray, as far as a cluster is connected to and checked; `fails` has an error, or none, for every try."""

    def __init__(self, name: str, *fails: Exception | None) -> None:
        self.name, self.fails, self.begun = name, list(fails), False
        self.did: list[str] = []

    def is_initialized(self) -> bool:
        return self.begun

    def _step(self, name: str) -> None:
        self.did.append(name)
        if name == self.name and (error := self.fails.pop(0)):
            self.begun = type(error) is not Exception
            raise error

    def init(self, **options: Any) -> None:
        assert not self.begun
        self.begun = True
        self._step("init")

    def cluster_resources(self) -> dict[str, int]:
        self._step("check")
        return {"CPU": 1}

    def shutdown(self) -> None:
        self.did.append("shutdown")
        self.begun = False

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        return lambda work: work

    def nodes(self) -> list[Any]:
        return []

    def get(self, asked: list[Any]) -> list[Any]:
        return asked


NOT_STARTED = ConnectionAbortedError("Initialization failure from server:\nthe process did not start.")
LOSSES = {
    "init": ("init", NOT_STARTED, "Ray does not answer: the process did not start."),
    "check": ("check", ConnectionError('GRPC connection failed: <\n\tdetails = "Socket closed"\n>'), "(Socket closed)"),
    "rpc": ("check", grpc.RpcError("Stream removed"), "(Stream removed)"),
    "gone": ("check", Exception("Ray Client is not connected."), "(Ray Client is not connected)"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_first_connection_is_tried_three_times(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, error, words = LOSSES[loss]
    monkeypatch.setattr(ray_workers, "_must_answer", lambda address: None)
    for fails, well in (([error, error, None], True), ([error, error, error], False)):
        standing = StandIn(name, *fails)
        monkeypatch.setattr(ray_workers, "_ray", lambda standing=standing: standing)
        expecting = contextlib.nullcontext() if well else pytest.raises(ClusterError, match=re.escape(words))
        with expecting, RayCluster("ray://127.0.0.1:1"):
            assert well
        once = ["init", "shutdown"] if name == "init" else ["init", "check", "shutdown"]
        last = ["init", "check", "shutdown"] if well else once
        assert standing.did == [*once, *once, *last]


def test_what_is_no_lost_connection_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers, "_must_answer", lambda address: None)
    standing = StandIn("init", ValueError("a wrong address"))
    monkeypatch.setattr(ray_workers, "_ray", lambda: standing)
    with pytest.raises(ClusterError, match="Ray does not answer: a wrong address"), RayCluster("ray://127.0.0.1:1"):
        raise AssertionError("there is no connection")
    assert standing.did == ["init", "shutdown"]


def test_a_cluster_of_its_own_goes_by_no_variables_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {
        "RAY_ADDRESS": "127.0.0.1:1",
        "RAY_REDIS_ADDRESS": "127.0.0.1:1",
        "RAY_AUTH_TOKEN": "known to others",
        "RAY_RUNTIME_ENV_HOOK": "theirs.hook",
    }
    for name, value in foreign.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ray_workers, "_ray", lambda: StandIn("init", None))
    with RayCluster():
        assert not foreign.keys() & os.environ.keys()
        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert {name: os.environ[name] for name in foreign} == foreign


# Runs that are cut short


def killed_after_some(process: subprocess.Popen[str], finished_parts: Callable[[], list[Path]], count: int) -> None:
    """Kill a command once some of its parts are finished and others are not."""
    while not finished_parts():
        assert process.poll() is None, "the command was over before it could be killed"
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGKILL
    assert 0 < len(finished_parts()) < count


def marks(paths: list[Path]) -> dict[str, tuple[int, int]]:
    """What tells a file from another of the same name."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def test_ranking_goes_on_where_a_killed_driver_stopped(machines: Machines, desk: Path, tmp_path: Path) -> None:
    machines.have(2)
    out, words = tmp_path / "scores.parquet", ["rank", "online", "data.parquet"]
    cluster = ["--cluster", machines.address]

    def parts() -> list[Path]:
        return sorted(tmp_path.glob(".scores.parquet.unfinished/part-*.parquet"))

    with begun(desk, *words, "--out", out, *cluster) as process:
        killed_after_some(process, parts, 16)
    assert not out.exists()
    while any(machines.workers(node) for node in machines.nodes):
        time.sleep(0.01)  # the tasks that were on their way
    before = marks(parts())
    output(call(desk, *words, "--out", out, *cluster))
    after = marks(list(out.iterdir()))
    assert len(after) == 16
    assert before.items() <= after.items()
    assert parts() == []
    here(desk, *words, "--out", tmp_path / "plain.parquet")
    have_the_same_scores(out, tmp_path / "plain.parquet")


def test_a_comparison_goes_on_where_a_killed_driver_stopped(machines: Machines, desk: Path, tmp_path: Path) -> None:
    machines.have(2)
    cluster = ["--cluster", machines.address]

    def parts() -> list[Path]:
        found = (tmp_path / "report" / "runs").glob("*.json")
        return sorted(path for path in found if not path.name.endswith(".times.json"))

    with begun(desk, *COMPARE, "--out", tmp_path / "report", *cluster) as process:
        killed_after_some(process, parts, 10)
    before = marks(parts())
    found = output(call(desk, *COMPARE, "--out", tmp_path / "report", *cluster))
    after = marks(parts())
    assert len(after) == 10
    assert before.items() <= after.items()
    assert without_times(found) == without_times(here(desk, *COMPARE))


# No cluster


UNREACHABLE = {
    "ray://127.0.0.1:1": "nothing answers there (Connection refused). Is the cluster running?",
    "127.0.0.1:1": "nothing answers there (Connection refused). Is the cluster running?",
    "nonsense": "expected auto, or where a cluster runs: ray://host:10001 or host:6379.",
    "ray://": "expected auto, or where a cluster runs: ray://host:10001 or host:6379.",
    "127.0.0.1:99999": "nothing answers there",
    "no.such.host.invalid:6379": "nothing answers there",
}


@pytest.mark.parametrize("address", UNREACHABLE)
def test_a_cluster_that_cannot_be_reached_is_named(address: str) -> None:
    before = workers()
    with pytest.raises(ClusterError) as caught, RayCluster(address):
        raise AssertionError("there is no such cluster")
    assert str(caught.value).startswith(f"address={address!r}: {UNREACHABLE[address]}")
    assert workers() is before


@pytest.mark.parametrize("address", ["ray://127.0.0.1:1", "nonsense"])
def test_a_command_without_its_cluster_ends_with_one_message(desk: Path, address: str) -> None:
    done = call(desk, *RANK, "--cluster", address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --cluster {address}: {UNREACHABLE[address]}")
    assert done.stderr.count("\n") == 1


def test_without_ray_there_is_the_line_that_installs_it(desk: Path) -> None:
    program = "import sys; sys.modules['ray'] = None; from querywise.cli import main; main()"
    for words in ([*RANK], ["fit", "data.parquet", "--out", "new"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words, "--cluster", "auto"],
            cwd=desk, env=plain(), capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, "")
        expected = "A cluster needs Ray, which is not installed. Install it: pip install 'querywise[cluster]'"
        assert done.stderr == f"error: {expected}\n"
    assert not (desk / "new").exists()


def test_an_interrupt_leaves_no_process_behind(desk: Path) -> None:
    with begun(desk, *COMPARE, "--cluster", "auto") as process:
        while not any(is_at_work(pid) for pid in descendants(process.pid)):
            assert process.poll() is None, "the command was over before it could be interrupted"
            time.sleep(0.01)
        those = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        done = finished(process)
    assert done.returncode == 130, done.stderr
    assert done.stderr == "error: interrupted; what was being written has not been changed.\n"
    assert done.stdout == ""
    deadline = time.monotonic() + SECONDS
    while left := [pid for pid in those if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those have."""
    own = children(pid)
    return [*own, *itertools.chain.from_iterable(map(descendants, own))]


def is_alive(pid: int) -> bool:
    try:
        return state_of(pid) not in "ZX"
    except OSError:
        return False
