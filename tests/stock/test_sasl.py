"""SASL_PLAINTEXT and an authorizer: rights are judged as by the broker, and clients survive a restart of the proxy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection, build
from tests.support.brokers import NEW, OLD, QUICK, USERS, Running
from tests.support.raw import GROUP_RESOURCE, Raw, RawError, Topic, authenticate, until
from tests.support.worlds import ACCEPT, World, warm_up

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

ADMIN, ALICE, BOB = (("admin", "admin-secret"), ("alice", "alice-secret"), ("bob", "bob-secret"))
TOPIC, GROUP, TRANSACTIONAL_ID, PREFIXED = 2, 3, 5, 4
ALLOW = 3
READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8
QUIET = {"log_level": 2}
Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    kafka = running.cluster(OLD, sasl=USERS)
    _allow_alice(kafka.bootstrap)
    return kafka


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    identity = {"mechanism": "PLAIN", "username": ADMIN[0], "password": ADMIN[1]}
    upstream = {"bootstrap": kafka.bootstrap, "sasl": identity}
    return running.front(kafka.bootstrap, {"upstream": upstream, "share_groups": {"broker": QUICK}})


@pytest.fixture(scope="module")
def native(running: Running) -> Cluster:
    native = running.cluster(NEW, sasl=USERS, properties=QUICK)
    _allow_alice(native.bootstrap)
    warm_up(native.bootstrap, ADMIN)
    return native


def _allow_alice(bootstrap: str) -> None:
    """She may read and write topics, and read in groups, of alice-*, and see topics of shown-*."""
    alice = "alice-"
    rights = [(TOPIC, alice, READ), (TOPIC, alice, WRITE), (GROUP, alice, READ), (TOPIC, "shown-", DESCRIBE)]
    _allow(bootstrap, "alice", rights)


def test_rights_are_judged_alike(front: Front, native: Cluster) -> None:
    """The proxy allows and refuses the same as the share APIs of native Kafka."""
    assert _judgements("proxy", front.bootstrap) == _judgements("native", native.bootstrap)


def test_a_client_that_is_newer_than_the_proxy_steps_down_before_sasl(front: Front) -> None:
    """ApiVersions v5, as franz-go and Java 4.4 send it first: 35, and the connection continues to SASL and Metadata."""
    host, port = front.bootstrap.rsplit(":", 1)
    software = {"client_software_name": "c", "client_software_version": "1"}
    with Connection(Address(host, int(port))) as opened:
        opened.send(18, 5, build("ApiVersionsRequest", **software))
        _, response = frames.decode_response(18, 0, opened.receive())
        assert (response.error_code, response.api_keys[0].max_version) == (ErrorCode.UNSUPPORTED_VERSION, 4)
        assert opened.send_request(18, 4, build("ApiVersionsRequest", **software)).error_code == 0
        authenticate(opened, *ALICE)
        assert opened.send_request(3, 12, build("MetadataRequest", topics=[])).brokers


def _judgements(name: str, bootstrap: str) -> dict[str, Any]:
    with ExitStack() as stack:
        admin, alice, bob = (World(name, bootstrap, "alice-judged", user) for user in (ADMIN, ALICE, BOB))
        for world in (admin, alice, bob):
            stack.callback(world.close)
        mine = admin.topic()
        shown, hidden = admin.raw.create_topic("shown-topic"), admin.raw.create_topic("hidden")
        for topic in (mine, shown, hidden):
            admin.raw.produce(topic, 1)
        for group in (admin.group(), "secret"):
            admin.raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        return {
            "alice": _of_member(alice, mine, shown, hidden), "alice's groups": _of_groups(alice),
            "bob": _of_stranger(bob, mine),
        }  # fmt: skip


def _of_member(w: World, mine: Topic, shown: Topic, hidden: Topic) -> dict[str, Any]:
    a = w.member(w.group(start=None), topics=[mine])
    got = a.take(mine)
    mixed = a.fetch(mine, shown, hidden, wait_ms=0)
    settled = a.acknowledge((mine, 0, 0, 0, ACCEPT), (shown, 0, 0, 0, ACCEPT), (hidden, 0, 0, 0, ACCEPT))
    other = w.member("secret", "B")
    return {
        "records": got.acquired(mine),
        "fetch": (mixed.error, mixed.code(mine), mixed.code(shown), mixed.code(hidden)),
        "acknowledge": (settled.error, settled.code(mine), settled.code(shown), settled.code(hidden)),
        "join a group that is not mine": other.heartbeat(0, topics=[mine.name]).error_code,
        "subscribe to what is hidden": w.member(a.group, "C").heartbeat(0, topics=[hidden.name]).error_code,
        "subscribe to what is shown": w.member(a.group, "D").heartbeat(0, topics=[shown.name]).error_code,
        "fetch in a group that is not mine": other.fetch(mine, wait_ms=0).error,
        "acknowledge in a group that is not mine": other.acknowledge(epoch=1).error,
    }


def _of_groups(w: World) -> dict[str, Any]:
    group = w.group(start=None)
    described = w.raw.send_request("ShareGroupDescribe", 1, group_ids=[group, "secret"]).groups
    listed = w.raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"]).groups
    return {
        "describe": sorted((w.plain(each.group_id), each.error_code) for each in described),
        "list": [name for each in listed if (name := w.plain(each.group_id)) in ("g", "secret")],
        "delete": w.raw.send_request("DeleteGroups", 2, groups_names=[group]).results[0].error_code,
        "configure": w.raw.try_configure(GROUP_RESOURCE, group, {"share.isolation.level": "read_committed"}).error_code,
    }


def _of_stranger(w: World, topic: Topic) -> dict[str, Any]:
    member = w.member(w.group(start=None), "B")
    return {
        "join": member.heartbeat(0, topics=[topic.name]).error_code,
        "metadata": w.raw.send_request("Metadata", 12, topics=[{"name": topic.name}]).topics[0].error_code,
        "list": w.raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"]).groups,
        "describe": w.raw.send_request("ShareGroupDescribe", 1, group_ids=[member.group]).groups[0].error_code,
    }


def test_unauthenticated_requests_are_refused(front: Front) -> None:
    """Nothing is served before authentication: the connection ends, as the broker would end it."""
    asking = [
        ("ShareGroupHeartbeat", 1, {"group_id": "alice-g", "member_id": "m", "member_epoch": 0}),
        ("ShareFetch", 2, {"group_id": "alice-g", "member_id": "m"}),
        ("ShareGroupDescribe", 1, {"group_ids": ["alice-g"]}),
        ("ListGroups", 4, {}),
        ("Metadata", 12, {"topics": []}),
    ]
    for api, version, values in asking:
        with Raw(front.bootstrap) as raw, pytest.raises(ConnectionError):
            raw.send_request(api, version, **values)


LIFETIME_S = 3.0
"""Lifetime of a SASL session in seconds, if the brokers have one (KIP-368)."""


@pytest.fixture(scope="module", params=[OLD, NEW])
def expiring(running: Running, request: pytest.FixtureRequest) -> dict[str, str]:
    """A cluster with a proxy that serves share groups, and the cluster alone if it has them."""
    native = request.param == NEW
    lifetime = {"connections.max.reauth.ms": str(round(LIFETIME_S * 1000))}
    kafka = running.cluster(request.param, sasl=USERS, properties=(QUICK if native else {}) | lifetime)
    _allow_alice(kafka.bootstrap)
    identity = {"mechanism": "PLAIN", "username": ADMIN[0], "password": ADMIN[1]}
    upstream = {"bootstrap": kafka.bootstrap, "sasl": identity}
    front = running.front(kafka.bootstrap, {"upstream": upstream, "share_groups": {"serve": "local"}})
    return {"proxy": front.bootstrap} | ({"native": kafka.bootstrap} if native else {})


def test_nothing_is_served_after_the_session_lifetime(expiring: dict[str, str], fresh: Fresh) -> None:
    """Brokers do the same at the first request after it; a client that authenticated again in time continues."""
    for name, bootstrap in expiring.items():
        group = f"alice-{fresh('group')}"
        until(partial(_joins, bootstrap, group), f"{name} to let the member in")
        with Raw(bootstrap, sasl=ALICE) as alice:
            on = alice.coordinator(group)
            idle, renewed = alice.connect(on), alice.connect(on)
            assert _beats(idle, group) == _beats(renewed, group) == 0
            time.sleep(0.6 * LIFETIME_S)
            authenticate(renewed, *ALICE)
            time.sleep(0.6 * LIFETIME_S)
            assert _beats(renewed, group) == 0
            with pytest.raises(ConnectionError):
                _beats(idle, group)


def _joins(bootstrap: str, group: str) -> bool:
    """True if the group takes a member, on connections that live for no longer than that takes."""
    with Raw(bootstrap, sasl=ALICE) as raw:
        return _beats(raw.on_coordinator(group), group) == 0


def _beats(connection: Connection, group: str) -> int:
    beat = build(
        "ShareGroupHeartbeatRequest", group_id=group, member_id="a-member-of-22-letters", member_epoch=0,
        subscribed_topic_names=["alice-topic"],
    )  # fmt: skip
    return int(connection.send_request(76, 1, beat).error_code)


def test_wrong_password(front: Front) -> None:
    """The broker's own refusal reaches the client."""
    with Raw(front.bootstrap, sasl=("alice", "wrong")) as raw, pytest.raises(RawError, match="error 58"):
        raw.brokers()


def _settings(front: Front, user: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": front.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": user[0], "sasl.password": user[1], **QUIET, **more,
    }  # fmt: skip


def test_connections_show_the_user_once_the_broker_has_accepted_it(front: Front) -> None:
    good, bad = Producer(_settings(front, ALICE)), Producer(_settings(front, ("mallory", "wrong")))
    assert good.list_topics(timeout=30).brokers
    with pytest.raises(KafkaException):
        bad.list_topics(timeout=2)
    users = {each["user"] for each in json.loads(front.send_request("/connections")[1])["connections"]}
    assert "alice" in users
    assert "mallory" not in users
    assert "alice-secret" not in front.log.read_text()


@pytest.fixture
def topic(front: Front, fresh: Fresh) -> str:
    name = f"alice-{fresh('topic')}"
    with Raw(front.bootstrap, sasl=ADMIN) as raw:
        raw.create_topic(name)
        raw.configure_group(name, {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"})
    return name


def test_stock_client_is_refused(front: Front, topic: str) -> None:
    """A client without WRITE gets the broker's error."""
    errors: list[int] = []
    producer = Producer(_settings(front, BOB))
    producer.produce(topic, "value", on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(30) == 0
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_proxy_restarted_under_clients(front: Front, topic: str, end: str) -> None:
    """Clients with connections to broker ports continue after the proxy's restart, and lose nothing."""
    with ExitStack() as stack:
        producer = Producer(_settings(front, ALICE, **{"enable.idempotence": True}))
        consumer = Consumer(_settings(front, ALICE, **{"group.id": f"{topic}-c", "auto.offset.reset": "earliest"}))
        stack.callback(consumer.close)
        sharing = stack.enter_context(ShareConsumer(_settings(front, ALICE, **{"group.id": topic})))
        consumer.subscribe([topic])
        sharing.subscribe([topic])
        consumed: set[str] = set()
        shared: set[str] = set()

        def read() -> None:
            consumed.update(m.value().decode() for m in consumer.consume(100, 0.1) if m.error() is None)
            shared.update(m.value().decode() for m in sharing.poll(0.1) if m.error() is None)

        before, after = ({f"{when} {number}" for number in range(50)} for when in ("before", "after"))
        _produce(producer, topic, before)
        until(lambda: read() or before <= consumed & shared, "records before the restart")
        getattr(front, end)()
        _produce(producer, topic, after, flush=False)
        time.sleep(1)
        front.start()
        assert producer.flush(60) == 0
        until(lambda: read() or before | after <= consumed & shared, "records after the restart")


def _produce(producer: Producer, topic: str, values: set[str], flush: bool = True) -> None:
    errors: list[Any] = []
    for value in sorted(values):
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
    if flush:
        assert producer.flush(30) == 0
    assert errors == []


def test_proxy_without_an_identity(running: Running, kafka: Cluster, topic: str) -> None:
    """Without its own user the proxy gets the brokers' addresses, and keeps share groups in its memory."""
    nodes = {node.node_id: node.address for node in kafka.nodes}
    upstream = {"bootstrap": kafka.bootstrap, "nodes": nodes}
    front = running.front(
        kafka.bootstrap, {"upstream": upstream, "commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    )
    with Raw(front.bootstrap, sasl=ALICE) as raw:
        assert {node_id: address.port for node_id, address in raw.brokers().items()} == {1: front.first_port + 1}
    _produce(Producer(_settings(front, ALICE)), topic, {"one"})
    with ExitStack() as stack:
        sharing = stack.enter_context(ShareConsumer(_settings(front, ALICE, **{"group.id": topic})))
        sharing.subscribe([topic])
        with Raw(front.bootstrap, sasl=ADMIN) as raw:
            raw.configure_group(topic, {"share.auto.offset.reset": "earliest"})
        got: list[str] = []
        until(lambda: got.extend(m.value().decode() for m in sharing.poll(0.5)) or got == ["one"], "the record")


def test_texts_of_ranges_are_refused_without_an_identity(running: Running, kafka: Cluster, fresh: Fresh) -> None:
    """42, and the log says what is missing; every other commit passes, and nothing is dropped silently."""
    nodes = {node.node_id: str(node.address) for node in kafka.nodes}
    front = running.front(kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap, "nodes": nodes}})
    group, topic = fresh("group"), fresh("topic")
    with Raw(front.bootstrap, sasl=ADMIN) as raw:
        raw.create_topic(topic, 2)
        entries = [
            {"partition_index": 0, "committed_offset": 3, "committed_metadata": "ic/1;5-7"},
            {"partition_index": 1, "committed_offset": 4, "committed_metadata": "mine"},
        ]

        def codes() -> list[int]:
            response = raw.send_request(
                "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group,
                generation_id_or_member_epoch=-1, topics=[{"name": topic, "partitions": entries}],
            )  # fmt: skip
            return [entry.error_code for entry in response.topics[0].partitions]

        until(lambda: codes() == [42, 0], "the text to be refused and the other commit accepted")
    assert "upstream.sasl" in front.output()
    assert not front.send_request("/readyz/commits")[0]
    assert front.send_request("/readyz")[0]
    front.stop()


def test_texts_of_ranges_are_refused_while_the_identity_may_not_write(
    running: Running, native: Cluster, fresh: Fresh
) -> None:
    """42 with the reason in the log, and `check` says it; once the right is given they are taken."""
    ranges, prefix = "__individual_commit_offsets", "__proxy-commits-"
    rights = [(TOPIC, ranges, each) for each in (READ, CREATE, DESCRIBE)]
    rights += [(GROUP, "__proxy_owners", READ), (TRANSACTIONAL_ID, prefix, WRITE), (TRANSACTIONAL_ID, prefix, DESCRIBE)]
    _allow(native.bootstrap, "bob", rights)
    identity = {"mechanism": "PLAIN", "username": BOB[0], "password": BOB[1]}
    settings = {"upstream": {"bootstrap": native.bootstrap, "sasl": identity}, "share_groups": {"serve": "upstream"}}
    front = running.front(native.bootstrap, settings | {"views": {"serve": False}})
    group, topic = fresh("group"), fresh("topic")
    with Raw(front.bootstrap, sasl=ADMIN) as raw:
        raw.create_topic(topic, 1)
        entry = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "ic/1;5-7"}

        def code() -> int:
            response = raw.send_request(
                "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group,
                generation_id_or_member_epoch=-1, topics=[{"name": topic, "partitions": [entry]}],
            )  # fmt: skip
            return int(response.topics[0].partitions[0].error_code)

        until(lambda: code() == 42, "the text to be refused")
        assert f"WRITE on topic {ranges}" in front.output()
        assert not front.send_request("/readyz/commits")[0]
        _allow(native.bootstrap, "bob", [(TOPIC, ranges, WRITE)])
        until(lambda: code() == 0, "the text to be taken")
    front.stop()


def _allow(bootstrap: str, user: str, rights: Iterable[tuple[int, str, int]]) -> None:
    """Kind of resource, the beginning of its name, operation."""
    creations = [
        {
            "resource_type": kind, "resource_name": name, "resource_pattern_type": PREFIXED,
            "principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": ALLOW,
        }
        for kind, name, operation in rights
    ]  # fmt: skip
    with Raw(bootstrap, sasl=ADMIN) as raw:
        response = raw.send_request("CreateAcls", 3, creations=creations)
        assert [each.error_code for each in response.results] == [0] * len(creations)


def _allow_views(bootstrap: str, *operations: int) -> None:
    _allow(bootstrap, "alice", [(TOPIC, "__view.", operation) for operation in operations])


def test_who_may_make_and_see_views(running: Running, front: Front, kafka: Cluster, topic: str) -> None:
    """The brokers' ACL on topics `__view.*` decides; growth is the proxy's own; without an identity views work too."""
    view = f"__view.r2.{topic}"

    def shown(raw: Raw) -> tuple[int, int]:
        entry = raw.send_request("Metadata", 12, topics=[{"name": view}], allow_auto_topic_creation=True).topics[0]
        return entry.error_code, len(entry.partitions)

    nodes = {node.node_id: node.address for node in kafka.nodes}
    upstream = {"bootstrap": kafka.bootstrap, "nodes": nodes}
    bare = running.front(
        kafka.bootstrap, {"upstream": upstream, "commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
    )
    with ExitStack() as stack:
        admin, alice, bob = (stack.enter_context(Raw(front.bootstrap, sasl=user)) for user in (ADMIN, ALICE, BOB))
        past = stack.enter_context(Raw(bare.bootstrap, sasl=ALICE))
        base = admin.topic(topic)
        assert base is not None
        assert shown(alice) == shown(bob) == (29, 0)
        _allow_views(kafka.bootstrap, CREATE, READ)
        until(lambda: shown(alice) == (0, 2), "alice's view")  # brokers hear of ACLs in their own time
        assert shown(bob) == (29, 0)
        assert alice.view(view) is not None
        assert shown(bob) == (29, 0)
        assert shown(past) == (0, 2)
        assert "not stored" in bare.send_request("/readyz")[1]
        admin.add_partitions(base, 2)
        until(lambda: shown(alice) == (0, 4), "the view to grow, which alice may not do")
        assert shown(past) == (0, 4)
