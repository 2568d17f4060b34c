"""Work in the event loop in turns: whatever else has arrived is answered between them, one client after the other."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from querywise.service.api import ApiError
from querywise.service.limits import Limits, Turns


def request_of(client: str) -> Any:
    return SimpleNamespace(client=SimpleNamespace(host=client))


def test_between_two_requests_that_work_others_are_answered() -> None:
    turns, done = Turns(Limits()), list[str]()

    async def work() -> None:
        await turns.take(request_of("a"), 10)
        time.sleep(0.01)
        done.append("work")

    async def health() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        done.append("health")

    async def everything() -> None:
        await asyncio.gather(*(work() for _ in range(50)), health())

    asyncio.run(everything())
    assert done.index("health") < 10, "all of the work was done first"
    assert len(done) == 51


def test_clients_that_wait_take_turns() -> None:
    turns, order = Turns(Limits()), list[str]()

    async def work(client: str) -> None:
        await turns.take(request_of(client), 10)
        time.sleep(0.01)
        order.append(client)

    async def everything() -> None:
        await asyncio.gather(*(work(client) for client in ["many"] * 30 + ["one"]))

    asyncio.run(everything())
    assert order.index("one") < 5
    assert order.count("many") == 30


def test_quick_requests_do_not_wait_for_one_another() -> None:
    turns = Turns(Limits())

    async def everything() -> None:
        for _ in range(20):
            taken = turns.take(request_of("a"), 10)
            with pytest.raises(StopIteration):  # it has not waited
                taken.send(None)

    asyncio.run(everything())


def test_bodies_that_wait_are_bounded_for_each_client_and_together() -> None:
    turns, answers = Turns(Limits(held_bytes=400_000)), list[str]()

    async def work(client: str) -> None:
        try:
            await turns.take(request_of(client), 50_000)
            time.sleep(0.006)
            answers.append("done")
        except ApiError as error:
            answers.append(error.code)

    async def everything(clients: list[str]) -> None:
        await asyncio.gather(*map(work, clients))

    asyncio.run(everything(["a"] * 10))
    assert answers.count("busy") == 8, "one works and one waits"
    answers.clear()
    asyncio.run(everything([*"abcdefghijkl"]))
    assert answers.count("busy") == 4, "one works and seven wait"


def test_who_waited_for_longer_than_an_answer_may_take_is_told_so() -> None:
    turns = Turns(Limits(seconds=0.02))

    async def work() -> str:
        try:
            await turns.take(request_of("a"), 10)
        except ApiError as error:
            return error.code
        time.sleep(0.015)
        return "done"

    async def everything() -> list[str]:
        return await asyncio.gather(*(work() for _ in range(10)))

    found = asyncio.run(everything())
    assert found[0] == "done"
    assert found[-1] == "busy"
