"""DescribeGroups on share groups held here."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry

DESCRIBE = 15


def upstream(codes: dict[str, int]):
    """Return a broker with these codes, in another order than requested."""

    def response(version, request):
        message = registry.message("DescribeGroupsResponse")
        return message(
            groups=[
                message.DescribedGroup(
                    group_id=group_id,
                    error_code=codes[group_id],
                    error_message="not found" if version >= 6 and codes[group_id] else None,
                    group_state="Empty" if group_id == "classic" else "Dead",
                    protocol_type="consumer" if group_id == "classic" else "",
                    members=[],
                    authorized_operations=3400 if version >= 3 else -2147483648,
                )
                for group_id in reversed(request.groups)
            ]
        )

    return response


@pytest.mark.parametrize("version", range(6))
def test_below_v6_a_share_group_is_dead(world, version):
    """Error 0, state Dead, with the operations the broker names; other groups as the broker says."""
    world.group("shared", "member")
    world.broker.responses[DESCRIBE] = upstream({"shared": 0, "classic": 0})
    response = world.call(DESCRIBE, version, groups=["classic", "shared"])
    groups = {group.group_id: group for group in response.groups}
    assert (groups["shared"].error_code, groups["shared"].group_state, groups["shared"].members) == (0, "Dead", [])
    assert groups["shared"].authorized_operations == (3400 if version >= 3 else -2147483648)
    assert (groups["classic"].group_state, groups["classic"].protocol_type) == ("Empty", "consumer")


def test_from_v6_on_it_is_not_found(world):
    """Item 70: 69 with Kafka's words."""
    world.group("shared")
    world.broker.responses[DESCRIBE] = upstream({"shared": 69})
    (group,) = world.call(DESCRIBE, 6, groups=["shared"]).groups
    assert (group.error_code, group.error_message) == (69, "Group shared is not a classic group.")
    assert group.authorized_operations == -2147483648


@pytest.mark.parametrize("code", [14, 15, 16, 30])
def test_refusals_and_coordinators_elsewhere_are_passed_on(world, code):
    """The broker judges rights, and where the coordinator is."""
    world.group("shared")
    world.broker.responses[DESCRIBE] = upstream({"shared": code})
    (group,) = world.call(DESCRIBE, 5, groups=["shared"]).groups
    assert group.error_code == code


def test_requests_for_other_groups_are_forwarded(world):
    """Only a request that names a group held here is looked into."""
    assert not world.serves(DESCRIBE, 5, groups=["shared"])
    world.group("shared")
    assert not world.serves(DESCRIBE, 5, groups=["other"])
    assert world.serves(DESCRIBE, 5, groups=["other", "shared"])
