"""Codes with which a broker with an authorizer grants a right: recorded from both releases, and as the proxy takes
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.brokers.rights import GRANTS
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.support.brokers import NEW, OLD, USERS, Running
from tests.support.java_programs import compiled
from tests.support.raw import GROUP_RESOURCE, Raw, until

pytestmark = pytest.mark.broker

LOADING = 14
QUERIES = (ApiKey.HEARTBEAT, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_DELETE)
Codes = dict[int, set[int]]
"""API key of a request -> observed error codes."""


def query(raw: Raw, key: int, group: str, **options: Any) -> int:
    """Return the code in the response to one of the requests about rights."""
    if key == ApiKey.HEARTBEAT:
        fields = {"group_id": group, "generation_id": 0, "member_id": "nobody"}
        return int(raw.send_request("Heartbeat", 4, **fields, **options).error_code)
    if key == ApiKey.OFFSET_DELETE:
        return int(raw.send_request("OffsetDelete", 0, group_id=group, topics=[], **options).error_code)
    response = raw.send_request("FindCoordinator", 4, key_type=0, coordinator_keys=[group], **options)
    return int(response.coordinators[0].error_code)


class Place:
    """A cluster whose authorizer throws for any request of bob about `throws-...`, and a proxy."""

    def __init__(self, running: Running, release: str, plugin: Path) -> None:
        settings = {"authorizer.class.name": "ThrowingAuthorizer"}
        self.release = release
        self.cluster: Cluster = running.cluster(release, sasl=USERS, properties=settings, plugins=[plugin])
        self.admin, self.bob = (self.user(name) for name in ("admin", "bob"))
        self.cold = {key: query(self.admin, key, "unknown") for key in QUERIES}
        """Responses before the offsets topic exists."""
        self.admin.coordinator("unknown")
        identity = {"mechanism": "PLAIN", "username": "admin", "password": USERS.users["admin"]}
        upstream = {"bootstrap": self.cluster.bootstrap, "sasl": identity}
        self.proxy = running.front(self.cluster.bootstrap, {"upstream": upstream, "share_groups": {"serve": "local"}})

    def user(self, name: str, *, of_proxy: bool = False) -> Raw:
        bootstrap = self.proxy.bootstrap if of_proxy else self.cluster.bootstrap
        return Raw(bootstrap, sasl=(name, USERS.users[name]))


@pytest.fixture(scope="module", params=[OLD, NEW])
def place(running: Running, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(running, request.param, compiled("ThrowingAuthorizer", request.param))
    yield place
    place.admin.close()
    place.bob.close()


def join(raw: Raw, group: str, kind: str) -> None:
    """Make a classic group with one member, of this protocol type."""
    member = ""
    for _ in range(2):  # the first response gives the member its id
        response = raw.send_request(
            "JoinGroup", 5, on=raw.on_coordinator(group), group_id=group, session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000, member_id=member, group_instance_id=None, protocol_type=kind,
            protocols=[{"name": "range", "metadata": b""}],
        )  # fmt: skip
        member = response.member_id
        if not response.error_code:
            break
    assert response.error_code == 0


def beat(raw: Raw, api: str, group: str, **fields: Any) -> None:
    """Make a consumer or share group with one member."""
    topic = f"{group}-topic"
    raw.create_topic(topic)
    on = raw.on_coordinator(group)
    version = registry.versions({"ConsumerGroupHeartbeat": 68, "ShareGroupHeartbeat": 76}[api])[0]
    member = {"group_id": group, "member_id": "member-of-22-characters", "member_epoch": 0, "rack_id": None}
    sent = member | {"subscribed_topic_names": [topic]} | fields
    until(lambda: not raw.send_request(api, version, on=on, **sent).error_code, f"a member of {group}")


def test_codes_that_grant(place: Place, fresh: Callable[[str], str]) -> None:
    """For groups of every type, at the coordinator and before there is one: granted, refused, not judged."""
    connect, consumer, shared = (fresh(name) for name in ("connect", "consumer", "shared"))
    join(place.admin, connect, "connect")
    fields = {"rebalance_timeout_ms": 30_000, "topic_partitions": [], "server_assignor": None, "instance_id": None}
    beat(place.admin, "ConsumerGroupHeartbeat", consumer, **fields)
    groups = ["", "unknown", connect, consumer]
    if place.release == NEW:
        beat(place.admin, "ShareGroupHeartbeat", shared)
        groups.append(shared)
    granted: Codes = defaultdict(set)
    for key in QUERIES:
        granted[key].add(place.cold[key])
        for group in groups:
            granted[key].add(_loaded(place.admin, key, group))
            assert query(place.bob, key, group) == 30
        assert query(place.bob, key, f"throws-{connect}") == -1
    assert granted == {
        ApiKey.HEARTBEAT: {16, 24, 25},
        ApiKey.FIND_COORDINATOR: {0, 15},
        ApiKey.OFFSET_DELETE: {0, 16, 24, 68, 69},
    }
    assert all(codes <= GRANTS[key] for key, codes in granted.items())


def _loaded(raw: Raw, key: int, group: str) -> int:
    """Return the response once the group's coordinator is ready; 14 makes clients wait."""
    codes: list[int] = []

    def is_ready() -> bool:
        codes.append(query(raw, key, group))
        return codes[-1] != LOADING

    until(is_ready, f"the coordinator of {group!r}")
    return codes[-1]


def test_rights_on_a_topic_are_reported_with_these_codes(place: Place, fresh: Callable[[str], str]) -> None:
    """An authorizer that throws causes -1, and the field for the rights has no information."""
    topic, none = place.admin.create_topic(fresh("topic")).name, -(1 << 31)

    def rights(raw: Raw, name: str) -> tuple[int, bool]:
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
        entry = raw.send_request("Metadata", 12, topics=[{"name": name}], **fields).topics[0]
        return int(entry.error_code), entry.topic_authorized_operations != none

    names = (topic, "missing", "not valid", "throws-topic")
    assert [rights(place.admin, name) for name in names] == [(0, True), (3, True), (17, True), (3, True)]
    assert [rights(place.bob, name) for name in names] == [(29, False), (29, False), (29, False), (-1, False)]


def test_an_authorizer_that_throws_grants_nothing(place: Place, fresh: Callable[[str], str]) -> None:
    """A share group held by the proxy: every request of bob is refused with -1, and the group still exists."""
    group = f"throws-{fresh('group')}"
    with place.user("admin", of_proxy=True) as admin, place.user("bob", of_proxy=True) as bob:
        topic = admin.create_topic(f"{group}-topic")
        member = {"group_id": group, "member_id": "member-of-22-characters", "rack_id": None}
        joined = member | {"member_epoch": 0, "subscribed_topic_names": [topic.name]}
        assert admin.send_request("ShareGroupHeartbeat", 1, **joined).error_code == 0
        assert admin.send_request("ShareGroupHeartbeat", 1, **(joined | {"member_epoch": -1})).error_code == 0
        for _ in range(2):  # the same again: nothing was remembered
            assert set(_requested_by(bob, group, joined)) == {-1}
        assert bob.try_configure(GROUP_RESOURCE, group, {"share.isolation.level": "read_committed"}).error_code in (
            -1, 30,  # where the cluster knows no settings of groups, the right is that on the cluster
        )  # fmt: skip
        listed = admin.send_request("ListGroups", 5, states_filter=[], types_filter=["share"]).groups
        assert group in [each.group_id for each in listed]


def _requested_by(raw: Raw, group: str, joined: dict[str, Any]) -> Iterator[int]:
    session = {"group_id": group, "member_id": "member-of-22-characters", "topics": []}
    yield raw.send_request("ShareGroupHeartbeat", 1, **joined).error_code
    yield raw.send_request("ShareFetch", 2, share_session_epoch=0, **session).error_code
    yield raw.send_request("ShareAcknowledge", 2, share_session_epoch=1, **session).error_code
    yield raw.send_request("ShareGroupDescribe", 1, group_ids=[group]).groups[0].error_code
    yield (
        raw.send_request("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])
        .groups[0]
        .error_code
    )
    yield raw.send_request("AlterShareGroupOffsets", 0, group_id=group, topics=[]).error_code
    yield raw.send_request("DeleteShareGroupOffsets", 0, group_id=group, topics=[]).error_code
    yield raw.send_request("DeleteGroups", 2, groups_names=[group]).results[0].error_code
    yield raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"]).error_code
    yield raw.send_request("OffsetDelete", 0, group_id=group, topics=[]).error_code
    yield raw.send_request("ConsumerGroupHeartbeat", 0, group_id=group, member_id="", member_epoch=0).error_code
