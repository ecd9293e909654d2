"""ListConfigResources: groups with settings here."""

from __future__ import annotations

import pytest

from proxy.wire import registry

LIST = 74
TOPIC, CLIENT_METRICS, GROUP = 2, 16, 32


def upstream(*resources: tuple[int, str], error_code: int = 0):
    """A broker that has these resources: (type, name)."""

    def answer(version, request):
        message = registry.message("ListConfigResourcesResponse")
        entries = [message.ConfigResource(resource_type=kind, resource_name=name) for kind, name in resources]
        return message(config_resources=entries, error_code=error_code)

    return answer


@pytest.mark.parametrize("types", [[], [GROUP], [TOPIC, GROUP]])
def test_groups_with_settings_here_are_listed_once(world, types):
    """Behind what the broker lists; whether the groups exist does not matter."""
    world.group("without settings")
    for group_id in ("b", "a", "both"):
        world.services.coordinator.store_settings(group_id, {"share.isolation.level": "read_committed"})
    world.broker.answers[LIST] = upstream((TOPIC, "t"), (GROUP, "both"))
    answer = world.call(LIST, 1, resource_types=types)
    assert [(entry.resource_type, entry.resource_name) for entry in answer.config_resources] == [
        (TOPIC, "t"),
        (GROUP, "both"),
        (GROUP, "a"),
        (GROUP, "b"),
    ]


def test_a_refusal_is_passed_on(world):
    """The broker judges the right on the cluster."""
    world.services.coordinator.store_settings("a", {"share.isolation.level": "read_committed"})
    world.broker.answers[LIST] = upstream(error_code=31)
    answer = world.call(LIST, 1, resource_types=[GROUP])
    assert (answer.error_code, answer.config_resources) == (31, [])


def test_other_requests_are_forwarded(world):
    """Version 0 is about client metrics, and types may leave groups out."""
    assert not world.serves(LIST, 0)
    assert not world.serves(LIST, 1, resource_types=[TOPIC, CLIENT_METRICS])
