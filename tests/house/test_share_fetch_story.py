"""A ShareFetch reads top to bottom: how many files a reader opens, and how often the reader returns to one.

Requests in memory are traced from the handler to the response. A reader opens each function at its first call, and
reads a function of one statement by its name. A *return* is a visit to a file that the reader had left before. Codecs,
the loop and connection slots are libraries here, and the journal in memory stands in for the real one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import kafka_share_proxy
import pytest
from kafka_share_proxy.sharegroups.apis import k78_share_fetch

from tests.support import ports
from tests.support.ports import Member, World, acquired
from tests.support.scripted_cluster import Topic
from tests.support.share_steps import from_the_start

ROOT = Path(kafka_share_proxy.__file__).parent
LIBRARIES = ("wire/", "loop/", "brokers/connection_slots.py", "durable/memory_journal.py")
FILES_MAX = 20
RETURNS_MAX = 25
STEPS = ("brokers/topic_leaders.py", "sharegroups/fetch/fetching.py")
VISITS_MAX = 2


@cache
def statements(file: str) -> dict[str, int]:
    """Qualified name of each function of a file -> number of its statements, without its docstring."""
    counts: dict[str, int] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = sum(isinstance(each, ast.stmt) for each in ast.walk(child)) - 1
                counts[prefix + child.name] = inside - (ast.get_docstring(child) is not None)
                visit(child, f"{prefix}{child.name}.<locals>.")
            else:
                visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse((ROOT / file).read_text()), "")
    return counts


class Walk:
    """Files in the order in which a reader visits them."""

    def __init__(self) -> None:
        self.visits: list[str] = []
        self._read: set[tuple[str, str]] = set()

    def trace(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or not path.is_relative_to(ROOT):
            return
        function = (path.relative_to(ROOT).as_posix(), code.co_qualname)
        if function[0].startswith(LIBRARIES) or function in self._read:
            return
        self._read.add(function)
        if statements(function[0]).get(function[1], 0) > 1 and self.visits[-1:] != [function[0]]:
            self.visits.append(function[0])

    @property
    def files(self) -> int:
        return len(set(self.visits))

    @property
    def returns(self) -> int:
        return len(self.visits) - self.files


def walk(monkeypatch: pytest.MonkeyPatch, request: Callable[[], Any]) -> tuple[Walk, Any]:
    """Trace the handler of a ShareFetch while it runs, and return its response."""
    walked, handle = Walk(), k78_share_fetch.handle

    async def traced(*arguments: Any) -> Any:
        sys.setprofile(walked.trace)
        try:
            return await handle(*arguments)
        finally:
            sys.setprofile(None)

    monkeypatch.setitem(ports.HANDLERS, k78_share_fetch.KEY, traced)
    return walked, request()


@pytest.fixture
def world() -> World:
    return from_the_start(World())


@pytest.fixture
def topic(world: World) -> Topic:
    """Topic with two batches of ten records."""
    created_topic = world.cluster.create("t")
    for _ in range(2):
        world.cluster.produce(created_topic, 10)
    return created_topic


def check(walked: Walk, returns: int = RETURNS_MAX) -> None:
    assert walked.files <= FILES_MAX, walked.visits
    assert walked.returns <= returns, walked.visits
    assert [step for step in STEPS if walked.visits.count(step) > VISITS_MAX] == []


def first_fetch(world: World, topic: Topic) -> Member:
    member = world.member()
    assert acquired(member.fetch(topic, max_records=10)) == [(0, 9, 1)]
    return member


def test_share_fetch_that_acknowledges_and_acquires_from_the_cache(
    world: World, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = first_fetch(world, topic)
    acks = {(topic.topic_id, 0): [(0, 9, [1])]}
    walked, response = walk(monkeypatch, lambda: member.fetch(acks=acks, max_records=10))
    assert acquired(response) == [(10, 19, 1)]
    assert world.cluster.count(1) == 1
    check(walked)


def test_share_fetch_that_reads_from_the_broker(world: World, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    member = first_fetch(world, topic)
    member.fetch(max_records=10)
    world.cluster.produce(topic, 10)
    walked, response = walk(monkeypatch, member.fetch)
    assert acquired(response) == [(20, 29, 1)]
    assert world.cluster.count(1) == 2
    check(walked)


def test_first_share_fetch_of_a_group(world: World, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also requests rights, leaders and the start offset, and stores the share partition."""
    member = world.member()
    walked, response = walk(monkeypatch, lambda: member.fetch(topic))
    assert acquired(response) == [(0, 19, 1)]
    check(walked)


def test_returns_are_counted() -> None:
    walked = Walk()
    walked.visits = ["a.py", "b.py", "a.py", "c.py", "a.py"]
    assert (walked.files, walked.returns) == (3, 2)
    with pytest.raises(AssertionError):
        check(walked, returns=1)
