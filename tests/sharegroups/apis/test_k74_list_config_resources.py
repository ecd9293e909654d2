"""ListConfigResources: groups with settings here."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry

LIST = 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def upstream(*resources: tuple[int, str], error_code: int = 0):
    """A broker that has these resources: (type, name)."""

    def response(version, request):
        message = registry.message("ListConfigResourcesResponse")
        entries = [message.ConfigResource(resource_type=kind, resource_name=name) for kind, name in resources]
        return message(config_resources=entries, error_code=error_code)

    return response


@pytest.fixture(autouse=True)
def newer(world):
    """A broker that knows resource types, unless the test says otherwise."""
    world.services.versions.learn(1, {LIST: (0, 1)})


@pytest.mark.parametrize("types", [[], [GROUP], [TOPIC, GROUP]])
def test_groups_with_settings_here_are_listed_once(world, types):
    """Before the broker's entries; whether the groups exist does not matter."""
    world.group("without settings")
    for group_id in ("b", "a", "both"):
        world.services.coordinator.store_settings(group_id, {"share.isolation.level": "read_committed"})
    world.broker.responses[LIST] = upstream((TOPIC, "t"), (GROUP, "both"))
    response = world.call(LIST, 1, resource_types=types)
    assert [(entry.resource_type, entry.resource_name) for entry in response.config_resources] == [
        (GROUP, "a"),
        (GROUP, "b"),
        (TOPIC, "t"),
        (GROUP, "both"),
    ]


def test_a_refusal_is_passed_on(world):
    """The broker judges the right on the cluster."""
    world.services.coordinator.store_settings("a", {"share.isolation.level": "read_committed"})
    world.broker.responses[LIST] = upstream(error_code=31)
    response = world.call(LIST, 1, resource_types=[GROUP])
    assert (response.error_code, response.config_resources) == (31, [])


def test_other_requests_are_forwarded(world):
    """Version 0 is about client metrics, and types may leave groups out."""
    assert not world.serves(LIST, 0)
    assert world.passes(LIST, 1, resource_types=[TOPIC, CLIENT_METRICS])


@pytest.fixture
def older(world):
    """A broker that lists client metrics and nothing else."""
    world.services.versions.learn(1, {LIST: (0, 0)})
    world.services.coordinator.store_settings("a", {"share.isolation.level": "read_committed"})
    world.broker.responses[LIST] = upstream((CLIENT_METRICS, "m"))
    world.broker.responses[3] = metadata
    return world


def metadata(version, request):
    message = registry.message("MetadataResponse")
    brokers = [message.MetadataResponseBroker(node_id=node, host="h", port=1) for node in (1, 2)]
    names = [] if request.topics is not None else ["t", "__proxy_share_state"]
    topics = [message.MetadataResponseTopic(name=name, partitions=[]) for name in names]
    return message(brokers=brokers, topics=topics)


@pytest.mark.parametrize(
    ("types", "listed"),
    [
        ([GROUP], [(GROUP, "a")]),
        ([CLIENT_METRICS], [(CLIENT_METRICS, "m")]),
        ([BROKER], [(BROKER, "1"), (BROKER, "2")]),
        (
            [],
            [
                (GROUP, "a"),
                (CLIENT_METRICS, "m"),
                (BROKER_LOGGER, "1"),
                (BROKER_LOGGER, "2"),
                (BROKER, "1"),
                (BROKER, "2"),
                (TOPIC, "t"),
            ],
        ),
    ],
)
def test_an_older_broker_is_queried_for_the_parts(older, types, listed):
    response = older.call(LIST, 1, resource_types=types)
    assert [(entry.resource_type, entry.resource_name) for entry in response.config_resources] == listed
    assert len(older.broker.requests(LIST)) == 1, "it judges the right"


def test_an_older_broker_s_refusal_and_unknown_types(older):
    assert older.call(LIST, 1, resource_types=[GROUP, 77]).error_code == 35
    older.broker.responses[LIST] = upstream(error_code=31)
    response = older.call(LIST, 1, resource_types=[GROUP])
    assert (response.error_code, response.config_resources) == (31, [])
