"""The example of a new state in the room's README is a state: two proxies host it, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.serving import features
from kafka_share_proxy.durable import described_state
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.feature.feature import FeatureKind
from trio.testing import MockClock

from tests.durable.test_state_home import ScriptedOwner
from tests.support import state_cluster
from tests.support.conditions import until
from tests.support.platforms import platform
from tests.support.state_cluster import Loop, StateCluster

ROOM = Path(described_state.__file__).parent
README = (ROOM / "README.md").read_text()


def example() -> dict[str, Any]:
    """The names that the code block defines."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)  # our own
    return names


class Proxy:
    """A proxy that hosts the example's state alone."""

    def __init__(self, names: dict[str, Any], cluster: StateCluster, reported: list[str]) -> None:
        access = cluster.access(lambda event, **_: reported.append(event))
        loop: Any = Loop(cluster.nursery)
        self.owner = ScriptedOwner()
        self.home = StateHome(self.owner, access, loop, "a:1")
        services: Any = SimpleNamespace(notes=access.notes, own=access.own)
        proxy_platform = platform(services, client=access.client, settings=access.settings, home=self.home)
        kind = names["GroupNotes"]()
        kind.build(None, proxy_platform)
        (self.hosted,) = self.home.states
        assert kind.states(None, proxy_platform.cluster) == (self.hosted.state,)
        self.scope = trio.CancelScope()
        self.owner.assign(range(PARTITIONS))
        cluster.nursery.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            await self.home.run()


async def test_new_state_is_stored_taken_over_and_loaded(
    autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, cluster, reported = example(), StateCluster(nursery), list[str]()
    state_cluster.install(monkeypatch, cluster)
    first = Proxy(names, cluster, reported)
    await until(lambda: first.hosted.gate.is_open)
    for group in ("orders", "payments"):
        promise = first.hosted.journal.append([(group, f"note about {group}".encode())])
        await until(lambda promise=promise: promise.done)  # type: ignore[misc]
        promise.result()
    first.scope.cancel()
    second = Proxy(names, cluster, reported)
    await until(lambda: second.hosted.gate.is_open)
    notes = {"orders": "note about orders", "payments": "note about payments"}
    assert second.hosted.held.notes == notes  # type: ignore[attr-defined]
    partition = names["partition_of"]("orders")
    assert partition != names["partition_of"]("payments")
    second.owner.assign({partition})
    await until(lambda: len(second.hosted.served) == 1)
    assert second.hosted.held.notes == {"orders": "note about orders"}  # type: ignore[attr-defined]
    assert {"group-notes-loaded", "group-notes-given-up"} <= set(reported)


def test_example_is_a_feature_like_those_of_a_proxy() -> None:
    """It may join the tuple: its section and its probe are its own."""
    kind = example()["GroupNotes"]()
    assert isinstance(kind, FeatureKind)
    assert {kind.section, kind.probe_path}.isdisjoint(
        name for other in features.FEATURES for name in (other.section, other.probe_path)
    )


def test_every_file_of_the_room_is_described() -> None:
    files = {path.stem for path in ROOM.glob("*.py")} - {"__init__"}
    undescribed = {name for name in files if f"`{name}`" not in README and f"`{name}." not in README}
    assert undescribed <= {"interfaces", "memory_journal", "ownership", "producer_expiration"}, undescribed
