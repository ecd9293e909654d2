"""Rights on share groups, as a real broker's authorizer judges them on each client's own connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.brokers import NEW, OLD, USERS, Running
from tests.support.raw import GROUP_RESOURCE, Raw, until

pytestmark = pytest.mark.broker

TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
ALLOW, LITERAL = 3, 3
LOCK = "share.record.lock.duration.ms"


class Place:
    """A cluster with an authorizer, a proxy that serves share groups in front of it, and its users."""

    def __init__(self, running: Running, release: str) -> None:
        self.knows_group_configs = release != OLD
        cluster = running.cluster(release, sasl=USERS)
        identity = {"mechanism": "PLAIN", "username": "admin", "password": USERS.users["admin"]}
        settings = {"upstream": {"bootstrap": cluster.bootstrap, "sasl": identity}, "share_groups": {"serve": "local"}}
        self.proxy = running.front(cluster.bootstrap, settings).bootstrap
        self.users = {name: Raw(self.proxy, sasl=(name, password)) for name, password in USERS.users.items()}

    def allow(self, user: str, kind: int, name: str, *operations: int) -> None:
        creations = [
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": LITERAL,
                "principal": f"User:{user}",
                "host": "*",
                "operation": operation,
                "permission_type": ALLOW,
            }
            for operation in operations
        ]
        response = self.users["admin"].send_request("CreateAcls", 2, creations=creations)
        assert all(not result.error_code for result in response.results)

    def forbid(self, user: str, kind: int, name: str, operation: int) -> None:
        """Take a right back."""
        expected = {
            "resource_type_filter": kind,
            "resource_name_filter": name,
            "pattern_type_filter": LITERAL,
            "principal_filter": f"User:{user}",
            "host_filter": "*",
            "operation": operation,
            "permission_type": ALLOW,
        }
        response = self.users["admin"].send_request("DeleteAcls", 2, filters=[expected])
        assert all(not result.error_code for result in response.filter_results)

    def again(self, user: str) -> Raw:
        """A new connection: rights are remembered per connection."""
        self.users[user].close()
        self.users[user] = Raw(self.proxy, sasl=(user, USERS.users[user]))
        return self.users[user]

    def until_allowed(self, user: str, query: Callable[[Raw], Any], denied: Any) -> Any:
        """Ask on new connections until the response is no longer this refusal (ACLs take a moment to arrive)."""

        def response() -> tuple[Any] | None:
            got = query(self.again(user))
            return None if got == denied else (got,)

        return until(response, f"{user} to be allowed")[0]


@pytest.fixture(scope="module", params=[OLD, NEW])
def place(running: Running, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(running, request.param)
    yield place
    for user in place.users.values():
        user.close()


def held(place: Place, group: str) -> str:
    """An empty share group held by the proxy."""
    admin = place.users["admin"]
    admin.create_topic(f"{group}-topic")
    admin.coordinator(group)
    for epoch in (0, -1):
        response = admin.send_request(
            "ShareGroupHeartbeat",
            1,
            group_id=group,
            member_id="member",
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=[f"{group}-topic"] if epoch == 0 else None,
        )
        assert response.error_code == 0, response.error_message
    return group


def listed(raw: Raw) -> set[str]:
    return {
        group.group_id for group in raw.send_request("ListGroups", 5, states_filter=[], types_filter=["share"]).groups
    }


def alter(raw: Raw, group: str) -> int:
    return int(raw.try_configure(GROUP_RESOURCE, group, {LOCK: "20000"}).error_code)


def described(raw: Raw, group: str) -> tuple[int, str | None]:
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": [LOCK]}
    (result,) = raw.send_request("DescribeConfigs", 4, resources=[resource]).results
    return int(result.error_code), result.configs[0].value if result.configs else None


def deleted(raw: Raw, group: str) -> int:
    return int(raw.send_request("DeleteGroups", 2, groups_names=[group]).results[0].error_code)


def joined(raw: Raw, group: str) -> int:
    response = raw.send_request(
        "JoinGroup",
        5,
        on=raw.on_coordinator(group),
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    return int(response.error_code)


def test_listing_takes_describe_on_the_group(place, fresh):
    """A user sees the groups it may describe, and no other."""
    mine, other = held(place, fresh("mine")), held(place, fresh("other"))
    assert {mine, other} <= listed(place.users["admin"])
    assert listed(place.again("alice")).isdisjoint({mine, other})
    place.allow("alice", GROUP, mine, DESCRIBE)
    until(lambda: listed(place.again("alice")) & {mine}, "the group to be listed")
    assert other not in listed(place.users["alice"])


def test_who_may_describe_the_cluster_sees_every_group(place, fresh):
    """Brokers do the same: monitoring tools have that right, and none on the groups."""
    group = held(place, fresh("group"))
    assert group not in listed(place.again("bob"))
    place.allow("bob", CLUSTER, "kafka-cluster", DESCRIBE)
    try:
        until(lambda: group in listed(place.again("bob")), "the group to be listed")
    finally:
        place.forbid("bob", CLUSTER, "kafka-cluster", DESCRIBE)


def test_deleting_takes_delete_on_the_group(place, fresh):
    """30 without; the group is still there."""
    group = held(place, fresh("group"))
    assert deleted(place.again("alice"), group) == 30
    assert group in listed(place.users["admin"])
    place.allow("alice", GROUP, group, DELETE)
    assert place.until_allowed("alice", lambda raw: deleted(raw, group), 30) == 0
    assert group not in listed(place.users["admin"])


def test_settings_take_their_own_rights(place, fresh):
    """The right is on the group if the cluster knows settings of groups, on the cluster otherwise; other rights do not
    help.
    """
    group = fresh("group")
    place.allow("bob", GROUP, group, READ, DESCRIBE, DELETE)
    until(
        lambda: (
            place.again("bob").send_request("Heartbeat", 4, group_id=group, generation_id=0, member_id="x").error_code
            != 30
        ),
        "READ",
    )
    assert described(place.users["bob"], group) == (30, None)
    assert alter(place.users["bob"], group) == 30
    kind, name = (GROUP, group) if place.knows_group_configs else (CLUSTER, "kafka-cluster")
    place.allow("bob", kind, name, DESCRIBE_CONFIGS)
    assert place.until_allowed("bob", lambda raw: described(raw, group), (30, None)) == (0, "30000")
    assert alter(place.users["bob"], group) == 30
    place.allow("bob", kind, name, ALTER_CONFIGS)
    assert place.until_allowed("bob", lambda raw: alter(raw, group), 30) == 0
    assert described(place.users["bob"], group) == (0, "20000")


def test_other_group_types_learn_nothing_without_read(place, fresh):
    """A classic member without READ is refused before the type of the group is revealed."""
    group = held(place, fresh("group"))
    place.allow("alice", GROUP, group, DESCRIBE)
    until(lambda: listed(place.again("alice")) & {group}, "DESCRIBE, which finding a coordinator takes")
    assert joined(place.users["alice"], group) == 30
    place.allow("alice", GROUP, group, READ)
    assert place.until_allowed("alice", lambda raw: joined(raw, group), 30) == 23
