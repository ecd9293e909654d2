"""Two worlds: native Kafka 4.3.0, and the proxy in front of Kafka 3.9.1, do and answer the same.

Every item of the conformance list runs once in each world, both at the same time, several items at once. Its own
checks must hold in both, and then their transcripts must be equal field by field, but for ALLOWED.

Not here: 2 and 5 need three nodes (test_three_nodes.py); 1 and 51 are about a cluster that has share groups switched
off (test_switched_off.py); 21 and 59 need low limits (test_low_limits.py); 27 needs 2^31 requests
(tests/share/test_sessions.py); 64 has no meaning here, for any node of the proxy serves every share group.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.oracle import items_deliveries, items_fetch, items_groups, items_renew  # noqa: F401 - they enter their items
from tests.oracle.compare import differences
from tests.oracle.items import ITEMS
from tests.support.worlds import World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

ELSEWHERE = {1, 2, 5, 21, 27, 51, 59, 64}
AT_ONCE = 6
"""Scripts that run at the same time; most of them only wait."""


class Outcomes:
    """Runs the scripts of all selected items, and gives each test its own."""

    def __init__(self, native: str, proxy: str, names: list[str]) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        worlds = {"native": native, "proxy": proxy}
        self._running = {
            (name, world): self._pool.submit(_run, name, world, bootstrap)
            for name in names
            for world, bootstrap in worlds.items()
        }

    def of(self, name: str) -> tuple[World, World]:
        return self._get(name, "native"), self._get(name, "proxy")

    def _get(self, name: str, world: str) -> World:
        running: Future[World] = self._running[name, world]
        try:
            return running.result(120)
        except BaseException as error:
            error.add_note(f"in the world: {world}")
            raise

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _run(name: str, world_name: str, bootstrap: str) -> World:
    world = World(world_name, bootstrap, f"item-{name}-{world_name}")
    try:
        ITEMS[name](world)
    finally:
        world.close()
    return world


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    names = [
        item.callspec.params["name"] for item in request.session.items if item.path == request.path and _has_name(item)
    ]
    native = request.getfixturevalue("kafka_43_quick").bootstrap
    proxy = request.getfixturevalue("proxy_39_quick").bootstrap
    outcomes = Outcomes(native, proxy, names)
    yield outcomes
    outcomes.close()


def _has_name(item: pytest.Item) -> bool:
    return "name" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_item(name: str, outcomes: Outcomes) -> None:
    """The same script gives the same answers."""
    native, proxy = outcomes.of(name)
    assert differences(name, native.transcript, proxy.transcript) == []


def test_list_is_complete() -> None:
    """Every number from 1 to 70 is scripted here or named above."""
    assert {int(name[:3]) for name in ITEMS} | ELSEWHERE >= set(range(1, 71))
