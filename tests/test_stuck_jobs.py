"""Every thread pool with a job that never ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import output, run
from tests.stuck_jobs import PROGRAMS, prepare, program_problem, service_pools

SOURCES = Path(__file__).parent.parent / "src" / "querywise"


@pytest.mark.slow
def test_a_job_that_never_ends_holds_up_nobody_else_at_the_service_nor_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    prepare(tmp_path, lambda folder, words: output(run(folder, *words)))
    found = service_pools(tmp_path)
    assert {name: said for name, said in found.items() if said} == {}
    assert len(found) == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_though_a_job_of_a_pool_never_does(name: str) -> None:
    assert program_problem(name) == ""


def test_every_thread_of_the_package_is_in_a_pool_that_is_tried_here() -> None:
    words = re.compile(r"ThreadPoolExecutor\(|Thread\(|ThreadPool\(|to_thread\(|run_in_executor\(|ProcessPool|Popen\(")
    found = {
        f"{path.relative_to(SOURCES)}: {each}"
        for path in SOURCES.rglob("*.py")
        for each in words.findall(path.read_text())
    }
    assert found == {
        "runtime/threads.py: ThreadPool(",  # work in pieces
        "runtime/threads.py: Thread(",  # of every such pool
        "runtime/ray.py: ThreadPool(",  # jobs on a cluster
        "runtime/progress.py: Thread(",  # lines of progress
        "jobs/doctor.py: ThreadPoolExecutor(",  # packages that are tried, each within a time
        "jobs/judge.py: ThreadPool(",  # requests under way
        "jobs/first_use.py: Popen(",  # what is compiled beside
        "online/log.py: ThreadPool(",  # the log of an experiment
        "service/service.py: ThreadPool(",  # rankings, long rankings, explanations, the model folder
        "service/gateway.py: ThreadPool(",  # searches in an engine, in tests/test_gateway.py
        "service/limits.py: ThreadPool(",  # judgements
        "service/lookup.py: ThreadPool(",  # query vectors
    }
