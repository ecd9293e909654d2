"""The commands `views ...`, against the cluster in one process; against real ones see tests/stock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.commands import views_command
from kafka_share_proxy.app.commands.views_command import ViewsFailed, ViewsSession
from kafka_share_proxy.app.settings import config_loading
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.names import BadViewName
from kafka_share_proxy.views.model.plans import BadPlan, Plan
from kafka_share_proxy.views.state_records import TOPIC
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import Record
from typer.testing import CliRunner

from tests.support.target_brokers import TargetBrokers

runner = CliRunner()
V = "__view.r2.orders"
PLAN = {"version": 1, "topic": "orders", "ranges": [[0, 5], [5, 1 << 32]]}


class World:
    """A broker on a port of this machine, and a desk in front of it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.brokers = TargetBrokers(nursery, nodes=1, wall_ms=time.time_ns() // 1_000_000)

    @property
    def stored(self) -> list[tuple[bytes | None, bytes | None]]:
        return self.brokers.key_values(TOPIC)

    async def session(self) -> ViewsSession:
        address = await self.brokers.listen()
        settings = config_loading.load({"upstream.bootstrap": str(address)}, {}, listens=False)
        return ViewsSession(settings, self.nursery)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    return World(nursery)


async def test_a_plan_is_checked_and_stored_once(world: World) -> None:
    """The same again is the same; another one of that name is refused."""
    session = await world.session()
    text = json.dumps(PLAN).encode()
    assert "would be stored" in await views_command.plan(session, "hot", text, dry_run=True)
    assert not world.brokers.target.topics.by_name
    assert "is stored: 2 ranges" in await views_command.plan(session, "hot", text, dry_run=False)
    assert "stored already" in await views_command.plan(session, "hot", text, dry_run=False)
    assert [key for key, _ in world.stored] == [state_records.plan_key("hot")]
    other = json.dumps(PLAN | {"ranges": [[0, 6], [6, 1 << 32]]}).encode()
    with pytest.raises(ViewsFailed, match="another plan"):
        await views_command.plan(session, "hot", other, dry_run=False)
    with pytest.raises(BadPlan, match="no range"):
        await views_command.plan(session, "gap", json.dumps(PLAN | {"ranges": [[1, 9]]}).encode(), dry_run=False)


async def test_weights_of_a_stored_plan_may_be_stored_again(world: World) -> None:
    session = await world.session()
    ranges = [[0, 77, 0.5], [77, 1 << 32, 0.5]]
    await views_command.plan(session, "hot", json.dumps(PLAN | {"ranges": ranges}).encode(), dry_run=False)
    ranges[0][2] = 0.75
    text = json.dumps(PLAN | {"ranges": ranges, "topic": "other"}).encode()
    assert "would be stored with these weights" in await views_command.plan(session, "hot", text, dry_run=True)
    assert "is stored with these weights" in await views_command.plan(session, "hot", text, dry_run=False)
    assert "stored already" in await views_command.plan(session, "hot", text, dry_run=False)
    (stored,) = session.catalog.plans
    assert (stored.weights, len(world.stored)) == ((0.75, 0.5), 2)


async def test_of_two_plans_stored_at_the_same_time_the_first_stays(world: World) -> None:
    """Also after a compaction, which keeps the last record."""
    session = await world.session()
    first = Plan("hot", (0, 77), "orders")
    await session.until_read()
    handlers = world.brokers.handlers
    append = handlers[ApiKey.PRODUCE]

    async def overtaken(call: TargetCall[Any]) -> Any:
        world.brokers.write(TOPIC, 0, [Record(state_records.plan_key("hot"), state_records.plan_value(first))])
        handlers[ApiKey.PRODUCE] = append
        return await append(call)

    world.brokers.make(TOPIC)
    handlers[ApiKey.PRODUCE] = overtaken
    with pytest.raises(ViewsFailed, match="another client"):
        await views_command.plan(session, "hot", json.dumps(PLAN).encode(), dry_run=False)
    assert world.stored[-1] == (state_records.plan_key("hot"), state_records.plan_value(first))


async def test_where_nothing_can_be_stored_a_plan_is_refused(world: World) -> None:
    """The identity lacks a right."""
    session = await world.session()
    world.brokers.refuse(ApiKey.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ViewsFailed, match="DESCRIBE"):
        await views_command.plan(session, "hot", json.dumps(PLAN).encode(), dry_run=False)


async def test_only_views_are_made_and_deleted(world: World) -> None:
    """A slip of the hand must not delete a topic with records."""
    session = await world.session()
    with pytest.raises(BadViewName):
        await views_command.delete(session, ["orders"])
    with pytest.raises(BadViewName):
        await views_command.create(session, ["orders"])


def test_a_line_describes_the_state_of_a_view() -> None:
    """Ready, to grow, to be created again, or what is wrong."""
    message = registry.message("MetadataResponse")

    def entry(name: str, topic_id: bytes, partitions: int) -> Any:
        parts = [message.MetadataResponsePartition(partition_index=n) for n in range(partitions)]
        return message.MetadataResponseTopic(name=name, topic_id=topic_id, partitions=parts)

    class At:
        config = Config()
        catalog = views_command.ViewCatalog()

    def state(topic: str, partitions: int) -> str:
        entries = {"orders": entry("orders", b"b" * 16, 2), topic: entry(topic, b"v" * 16, partitions)}
        return views_command._described(At(), topic, entries)[3]  # type: ignore[arg-type]

    assert state(V, 4) == "ready"
    assert "grow" in state(V, 2)
    assert "delete it" in state(V, 5)
    assert "slots" in state("__view.r1.orders", 2)
    assert "no plan" in state("__view.pnone.orders", 2)
    At.catalog.bind(V, Binding(b"v" * 16, b"o" * 16))
    assert "earlier" in state(V, 4)
    assert "UNKNOWN_TOPIC" in views_command._described(At(), V, {V: entry(V, b"v" * 16, 4)})[3]  # type: ignore[arg-type]


def test_commands_need_brokers_and_no_address_to_listen_on() -> None:
    """`--upstream`, or a file of settings."""
    assert config_loading.load({"upstream.bootstrap": "b:1"}, {}, listens=False).listen is None
    with pytest.raises(ConfigError, match=r"listen: missing"):
        config_loading.load({"upstream.bootstrap": "b:1"}, {})
    result = runner.invoke(cli.app, ["views", "list"])
    assert result.exit_code == cli.MISUSED
    assert "upstream" in result.output


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["create", "orders"], cli.MISUSED),
        (["create", "__view.r0.orders"], cli.MISUSED),
        (["delete", "orders"], cli.MISUSED),
        (["plan", "no-such-file.json"], cli.MISUSED),
        (["create", V], cli.FAILED),
        (["list"], cli.FAILED),
    ],
)
def test_mistakes_are_distinguished_from_failures(
    arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 and 1, with one line that says what is wrong."""
    result = runner.invoke(
        cli.app,
        ["views", *arguments, "--upstream", "127.0.0.1:1", "--set", "views.create_wait_s=0.2"],
    )
    assert result.exit_code == status, result.output
    assert result.output.startswith("kafka-share-proxy: ")


def test_a_plan_file_is_named_after_itself(tmp_path: Path) -> None:
    """Unless another name is given; one that no view could have is refused."""
    file = tmp_path / "bad name.json"
    file.write_text(json.dumps(PLAN))
    result = runner.invoke(cli.app, ["views", "plan", str(file), "--upstream", "127.0.0.1:1"])
    assert result.exit_code == cli.MISUSED
    assert "'bad name'" in result.output
