"""The topic of share state: made as it must be, and refused when it is not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.brokers.internal_topics import MESSAGE_BYTES, OFFSETS_TOPIC, TopicRefused
from kafka_share_proxy.durable.state_producer import BATCH_BYTES_MAX
from kafka_share_proxy.durable.state_topic import StateTopic
from kafka_share_proxy.sharegroups.model.coordinator import RECORD_OVERHEAD
from kafka_share_proxy.sharegroups.model.snapshot import SNAPSHOT_BYTES_MAX
from kafka_share_proxy.sharegroups.state.state_records import PARTITIONS, SHARE_STATE, TOPIC
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.topic_client import TopicClient
from tests.support.topic_settings import COMPACTED, described


class Client(TopicClient):
    """Has a coordinator, and settings of the topic."""

    def __init__(self, brokers: int = 3) -> None:
        super().__init__(brokers)
        self.coordinator_code = ErrorCode.NONE
        self.settings: dict[str, str | None] | None = COMPACTED | {"max.message.bytes": "1048588"}
        """None: the identity may not DESCRIBE_CONFIGS."""

    def _configs(self, query: Any) -> Any:
        (resource,) = query.resources
        assert resource.resource_name == TOPIC
        code = ErrorCode.NONE if self.settings is not None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return described(query, self.settings or {}, code)

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        if key == 19:
            return await super().send_request(key, query)
        if key == 32:
            return self._configs(query), None
        response = registry.message("FindCoordinatorResponse")
        entries = [
            response.Coordinator(key=name, node_id=3, error_code=self.coordinator_code)
            for name in query.coordinator_keys
        ]
        return response(coordinators=entries), None


def topic_of(client: Client) -> StateTopic:
    return StateTopic(client, SHARE_STATE)  # type: ignore[arg-type]


async def test_missing_topic_is_made_as_decision_20_says() -> None:
    client = Client()
    assert await topic_of(client).leaders() is None
    assert await topic_of(client).create()
    configs = {config.name: config.value for config in client.created.configs}
    assert (client.created.name, client.created.num_partitions, client.created.replication_factor) == (TOPIC, 50, 3)
    assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")


@pytest.mark.parametrize(
    ("brokers", "offsets", "replicas", "in_sync"), [(1, 0, 1, 1), (2, 0, 2, 1), (5, 0, 3, 2), (5, 5, 5, 4)]
)
async def test_it_is_replicated_as_the_offsets_are(brokers: int, offsets: int, replicas: int, in_sync: int) -> None:
    client = Client(brokers)
    if offsets:
        client.topics[OFFSETS_TOPIC] = (50, offsets)
    await topic_of(client).create()
    configs = {config.name: config.value for config in client.created.configs}
    assert (client.created.replication_factor, configs["min.insync.replicas"]) == (replicas, str(in_sync))


async def test_view_names_leaders_where_brokers_are_dialled() -> None:
    client = Client(2)
    client.topics[TOPIC] = (PARTITIONS, 1)
    client.leaderless = {7}
    view = await topic_of(client).leaders()
    assert view is not None
    assert not view.is_whole
    assert 7 not in view.leaders
    assert view.addresses == {1: Address("b1", 9), 2: Address("pinned", 1)}
    client.leaderless = set()
    view = await topic_of(client).leaders()
    assert view is not None
    assert view.is_whole


async def test_another_number_of_partitions_is_refused() -> None:
    """Every group would be looked for elsewhere."""
    client = Client()
    client.topics[TOPIC] = (10, 1)
    with pytest.raises(TopicRefused, match="has 10 partitions and must have 50"):
        await topic_of(client).leaders()


async def test_what_the_identity_may_not_do_is_named() -> None:
    client = Client()
    client.topics[TOPIC] = (PARTITIONS, 1)
    client.topic_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(TopicRefused, match="DESCRIBE"):
        await topic_of(client).leaders()
    client.create_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(TopicRefused, match="cannot be created"):
        await topic_of(client).create()
    client.coordinator_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(TopicRefused, match="WRITE and DESCRIBE on transactional ids __proxy-share-"):
        await topic_of(client).coordinators(["__proxy-share-0"])


async def test_somebody_else_just_made_it() -> None:
    client = Client()
    client.create_code = ErrorCode.TOPIC_ALREADY_EXISTS
    assert not await topic_of(client).create()
    client.create_code = ErrorCode.NOT_CONTROLLER
    with pytest.raises(UpstreamLost):
        await topic_of(client).create()
    assert await topic_of(client).coordinators(["a", "b"]) == {"a": 3, "b": 3}
    await trio.lowlevel.checkpoint()


LOW, NOT_KNOWN = "state-message-bytes-low", "state-message-bytes-not-known"


@pytest.mark.parametrize(
    ("told", "found", "said"),
    [
        ("2000000", 2_000_000, []),
        ("65536", 65536, [LOW]),
        (None, MESSAGE_BYTES, [NOT_KNOWN]),
        ("", MESSAGE_BYTES, [NOT_KNOWN]),
    ],
)
async def test_how_large_a_batch_may_be(told: str | None, found: int, said: list[str]) -> None:
    """The topic's limit; without the right to read its settings, the limit that the proxy would have set."""
    client, notes = Client(), list[str]()
    client.topics[TOPIC] = (PARTITIONS, 1)
    client.settings = None if told is None else COMPACTED | {"max.message.bytes": told}
    topic = topic_of(client)
    view = await topic.leaders()
    assert view is not None
    assert topic.message_bytes(await topic.settings(view), lambda event, **_: notes.append(event)) == found
    assert notes == said


async def test_the_topic_takes_what_the_proxy_makes() -> None:
    """Also where the brokers allow less by default."""
    client = Client()
    await StateTopic(client, SHARE_STATE).create()  # type: ignore[arg-type]
    configs = {config.name: config.value for config in client.created.configs}
    largest = SNAPSHOT_BYTES_MAX + RECORD_OVERHEAD + 32767
    assert int(configs["max.message.bytes"]) >= max(largest, BATCH_BYTES_MAX)
