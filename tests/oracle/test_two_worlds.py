"""Two worlds: native Kafka 4.3.0, and the proxy with Kafka 3.9.1, behave the same.

Every item (tests/oracle/items.py) runs once in each world, both concurrently, several items in parallel. Its own checks
must hold in both, and then their transcripts must be equal field by field, but for ALLOWED.

What is not here, and why, is in ELSEWHERE and CLIENT_ONLY.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.oracle import (  # noqa: F401 - they enter their items
    items_clients,
    items_deliveries,
    items_fetch,
    items_groups,
    items_offsets,
    items_renew,
    items_tables,
    items_work,
)
from tests.oracle.compare import differences
from tests.oracle.items import ITEMS, Script
from tests.support.worlds import World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

ELSEWHERE = {
    1: "share groups switched off: test_switched_off.py",
    2: "three nodes: tests/stock/test_three_nodes_39.py, test_three_nodes_43.py",
    5: "three nodes: tests/stock/test_three_nodes_39.py, test_three_nodes_43.py",
    21: "low limits: test_low_limits.py",
    27: "2^31 requests: tests/sharegroups/model/test_sessions.py",
    51: "share groups switched off: test_switched_off.py",
    59: "low limits: test_low_limits.py",
    64: "any node of the proxy serves every share group",
    100: "a broker that goes: tests/stock/restarts.py, natively and through the proxy",
    101: "a leader that restarts: tests/stock/restarts.py",
    102: "a coordinator that moves: tests/stock/restarts.py; an owner that goes: tests/adversity/test_durable_state.py",
    111: "item 59 on the wire: test_low_limits.py",
    112: "item 21 on the wire: test_low_limits.py",
    125: "state that moves: tests/stock/restarts.py",
    137: "the offer: tests/forwarding/dispatch/test_offered_versions.py, test_switched_off.py",
    138: "tests/adversity/test_durable_state.py",
    139: "tests/stock/test_three_nodes_39.py",
    140: "tests/sharegroups/fetch/test_start_offsets.py",
}
CLIENT_ONLY = {
    71: "states of the Java consumer before it subscribes: nothing is sent",
    74: "acquisitionLockTimeoutMs is a method of the Java consumer; its value is the answer's field, items 3 and 121",
    78: "callbacks of the Java consumer; librdkafka has one, the answers behind it are those of 79, 84 and 89",
    80: "what a callback of the Java consumer may do",
    81: "headers and serialisers: records pass as the bytes they are (item 3, tests/stock)",
    90: "a deserialiser that fails: the client releases or rejects, items 8 to 10",
    96: "wakeup and interrupts of the Java consumer",
    97: "a topic name that is none: Metadata is forwarded",
    136: "Kafka 4.4 only",
}
"""Items about clients of which nothing shows on the wire, or nothing that other items do not show."""
RACES = {
    "118b": "what a ShareFetch releases is to be had again once the broker has written it, which on a busy machine may "
    "be before it looks for what else there is",
}
"""Scripts of which the native broker decides by chance, and why; the proxy has one try."""
NATIVE_TRIES = 5
RESULT_S = 300.0
"""All scripts of both worlds may stand before the one that is waited for."""
AT_ONCE = 6
"""Scripts that run at the same time; most of them only wait."""


class Outcomes:
    """Runs the scripts of all selected items, and gives each test its own."""

    def __init__(self, native: str, proxy: str, names: list[str]) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)
        worlds = {"native": native, "proxy": proxy}
        self._running = {
            (name, world): self._pool.submit(_run, ITEMS[name], name, world, bootstrap)
            for name in names
            for world, bootstrap in worlds.items()
        }

    def of(self, name: str) -> tuple[World, World]:
        return self._get(name, "native"), self._get(name, "proxy")

    def _get(self, name: str, world: str) -> World:
        running: Future[World] = self._running[name, world]
        try:
            return running.result(RESULT_S)
        except BaseException as error:
            error.add_note(f"in the world: {world}")
            raise

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _run(script: Script, name: str, world_name: str, bootstrap: str) -> World:
    """The world in which a script held."""
    tries = NATIVE_TRIES if world_name == "native" and name in RACES else 1
    for number in range(1, tries + 1):
        world = World(world_name, bootstrap, f"item-{name}-{world_name}{number if number > 1 else ''}")
        try:
            script(world)
        except AssertionError:
            if number == tries:
                raise
        else:
            return world
        finally:
            world.close()
    raise AssertionError("no try was made")


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
    """The same script gets the same responses."""
    native, proxy = outcomes.of(name)
    assert differences(name, native.transcript, proxy.transcript) == []


def test_a_script_that_the_native_broker_decides_by_chance_is_tried_again() -> None:
    """The proxy has such a script too; no item is retried for ever."""
    played: list[str] = []

    def script(world: World) -> None:
        """Holds at the third try."""
        played.append(world.name_of_topic("t"))
        assert len(played) == 3

    assert _run(script, "118b", "native", "127.0.0.1:1").name == "native"
    assert played == ["item-118b-native-t", "item-118b-native2-t", "item-118b-native3-t"]
    for name, world, tries in (("118b", "proxy", 1), ("003", "native", 1), ("118b", "native", NATIVE_TRIES)):
        played[:] = ["before"] * 3
        with pytest.raises(AssertionError):
            _run(script, name, world, "127.0.0.1:1")
        assert len(played) == 3 + tries
    assert set(RACES) <= set(ITEMS)


def test_list_is_complete() -> None:
    """Every number is scripted here or has its reason above, and none has both."""
    scripted = {int(name[:3]) for name in ITEMS}
    listed_keys = [*ELSEWHERE, *CLIENT_ONLY]
    assert sorted(listed_keys) == sorted(set(listed_keys) - scripted)
    assert scripted.union(listed_keys) == set(range(1, 141))
