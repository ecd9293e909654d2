"""IncrementalAlterConfigs and AlterConfigs on GROUP resources."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.sharegroups.apis.group_configs import settings_of
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

ALTER, INCREMENTAL = 33, 44
GROUP, TOPIC, BROKER = 32, 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT, LEVEL = "share.session.timeout.ms", "share.isolation.level"


def resource(name: str, *changes: tuple[str, int, str | None], kind: int = GROUP):
    message = registry.message("IncrementalAlterConfigsRequest")
    configs = [message.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in changes]
    return message.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def replacement(name: str, *settings: tuple[str, str | None]):
    message = registry.message("AlterConfigsRequest")
    configs = [message.AlterableConfig(name=n, value=v) for n, v in settings]
    return message.AlterConfigsResource(resource_type=GROUP, resource_name=name, configs=configs)


def upstream(
    key: int, knows_groups: bool = True, denied: frozenset[int] = frozenset(), invalid: frozenset[str] = frozenset()
):
    """A broker; refuses the resource types in `denied` and the settings in `invalid`."""

    def response(version, request):
        message = registry.message(f"{registry.API_KEYS[key]}Response")
        strange = not knows_groups and any(r.resource_type == GROUP for r in request.resources)
        entries = []
        for r in request.resources:
            code = 42 if strange else (30 if r.resource_type == GROUP else 31) if r.resource_type in denied else 0
            code = code or (40 if invalid & {change.name for change in r.configs} else 0)
            entries.append(
                message.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message="no" if code else None,
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
            )
        return message(responses=entries)

    return response


@pytest.fixture(params=[True, False], ids=["upstream with group settings", "upstream without"])
def knows_groups(request, world) -> bool:
    for key in (ALTER, INCREMENTAL):
        world.broker.responses[key] = upstream(key, request.param)
    return request.param


def alter(world, *resources, version: int = 1, **more):
    response = world.call(INCREMENTAL, version, resources=list(resources), **more)
    return [(entry.resource_name, entry.error_code) for entry in response.responses]


def stored(world, group_id: str = "g"):
    return dict(world.services.coordinator.stored_settings(group_id))


@pytest.mark.parametrize("version", range(2))
def test_a_setting_is_stored_before_the_group_exists(world, knows_groups, version):
    """Item 108: it holds immediately, is durable, and can be read back from the journal."""
    assert alter(world, resource("g", (TIMEOUT, SET, "50000")), version=version) == [("g", 0)]
    assert world.services.coordinator.settings("g").session_timeout_s == 50.0
    assert settings_of(world.journal.values[StateKey("settings", "g")]) == {TIMEOUT: "50000"}
    assert alter(world, resource("g", (TIMEOUT, DELETE, None))) == [("g", 0)]
    assert stored(world) == {}
    assert StateKey("settings", "g") not in world.journal.values


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([(TIMEOUT, SET, None)], 42, "Null value"),
        ([("share.nope", SET, "1")], 40, "Unknown group config name: share.nope"),
        ([(TIMEOUT, SET, "1")], 40, "group.share.min.session.timeout.ms"),
        ([(TIMEOUT, SET, "x")], 40, "Not a number of type INT"),
        ([("share.nope", DELETE, None)], 0, None),
        ([(LEVEL, DELETE, None)], 0, None),
        ([(TIMEOUT, APPEND, "5")], 40, "Can't APPEND to key"),
        ([(TIMEOUT, SUBTRACT, "5")], 40, "Can't SUBTRACT from key"),
        ([(TIMEOUT, 9, "5")], 42, "Unknown operation 9"),
        ([(TIMEOUT, SET, "50000"), (TIMEOUT, SET, "51000")], 42, "duplicate config keys"),
        ([("share.auto.offset.reset", SET, "by_duration:-PT1S")], 40, "by_duration"),
        ([(TIMEOUT, SET, "50000"), (LEVEL, SET, "x")], 40, "read_committed"),
        ([], 0, None),
    ],
)
def test_what_native_kafka_refuses_is_refused_whole(world, knows_groups, changes, code, words):
    """Measured on 4.3.0: the codes, and that nothing of a refused resource is stored."""
    response = world.call(INCREMENTAL, 1, resources=[resource("g", *changes)])
    (entry,) = response.responses
    assert entry.error_code == code
    assert words is None or words in entry.error_message
    assert stored(world) == {}


def test_changes_are_judged_together(world, knows_groups):
    """A session timeout below the old heartbeat interval is valid with the new one; alone it is not."""
    world.limit(group_share_min_session_timeout_ms=6000)
    both = resource("g", ("share.heartbeat.interval.ms", SET, "14000"), (TIMEOUT, SET, "15000"))
    assert alter(world, both) == [("g", 0)]
    assert alter(world, resource("g", (TIMEOUT, SET, "13000"))) == [("g", 40)]
    assert alter(world, resource("g", ("share.heartbeat.interval.ms", DELETE, None), (TIMEOUT, SET, "13000"))) == [
        ("g", 0)
    ]
    assert stored(world) == {TIMEOUT: "13000"}


def test_validate_only_changes_nothing(world, knows_groups):
    """The verdict is the same, the settings stay; the broker gets the flag as well."""
    assert alter(world, resource("g", (TIMEOUT, SET, "50000")), validate_only=True) == [("g", 0)]
    assert alter(world, resource("g", (TIMEOUT, SET, "1")), validate_only=True) == [("g", 40)]
    assert stored(world) == {}
    assert all(request.validate_only for request in world.broker.requests(INCREMENTAL))


def test_only_ours_changes_nothing_upstream(world, knows_groups):
    """The broker gets only the query of the right: no settings of ours, nothing carried out."""
    alter(world, resource("g", (TIMEOUT, SET, "50000")))
    for request in world.broker.requests(INCREMENTAL):
        assert request.validate_only
        assert all(not r.configs for r in request.resources)


def test_settings_of_other_types_are_the_brokers(world):
    """They are sent there without ours; if it refuses them, ours are not stored either."""
    world.broker.responses[INCREMENTAL] = upstream(INCREMENTAL, invalid=frozenset({"consumer.bad"}))
    mixed = resource("g", (TIMEOUT, SET, "50000"), ("consumer.session.timeout.ms", SET, "45000"))
    assert alter(world, mixed) == [("g", 0)]
    (request,) = world.broker.requests(INCREMENTAL)
    assert [change.name for change in request.resources[0].configs] == ["consumer.session.timeout.ms"]
    assert not request.validate_only
    assert alter(world, resource("h", (TIMEOUT, SET, "50000"), ("consumer.bad", SET, "1"))) == [("h", 40)]
    assert stored(world, "h") == {}


@pytest.mark.parametrize("name", ["consumer.session.timeout.ms", "consumer.nope", "nope", "Share.session.timeout.ms"])
def test_an_unknown_setting_of_a_group_is_40_with_its_name_where_upstream_has_none(world, name):
    """INVALID_CONFIG, as a broker that has settings of groups says of a name it does not know; nothing is stored."""
    for key in (ALTER, INCREMENTAL):
        world.broker.responses[key] = upstream(key, knows_groups=False)
    for resources in ([(name, SET, "1")], [(TIMEOUT, SET, "50000"), (name, SET, "1")]):
        response = world.call(INCREMENTAL, 1, resources=[resource("g", *resources)])
        assert [entry.error_code for entry in response.responses] == [40]
        assert f"Unknown group config name: {name}" in response.responses[0].error_message
    (entry,) = world.call(ALTER, 2, resources=[replacement("g", (TIMEOUT, "50000"), (name, "1"))]).responses
    assert (entry.error_code, name in entry.error_message) == (40, True)
    assert stored(world) == {}


def test_an_unknown_setting_is_judged_by_its_operation_where_upstream_has_none(world):
    """Native Kafka does the same: there is nothing to delete, lists cannot be appended to, a value must be given."""
    world.broker.responses[INCREMENTAL] = upstream(INCREMENTAL, knows_groups=False)
    assert alter(world, resource("g", (TIMEOUT, SET, "50000"), ("consumer.x", DELETE, None))) == [("g", 0)]
    assert stored(world) == {TIMEOUT: "50000"}
    assert alter(world, resource("g", ("consumer.x", APPEND, "1"))) == [("g", 40)]
    assert alter(world, resource("g", ("consumer.x", SET, None))) == [("g", 42)]
    assert alter(world, resource("g", ("consumer.x", 9, "1"))) == [("g", 42)]


def test_an_unknown_setting_is_reported_only_with_the_right_to_change_settings(world):
    """30 without the right on the cluster, where upstream has no settings of groups."""
    world.broker.responses[INCREMENTAL] = upstream(INCREMENTAL, knows_groups=False, denied=frozenset({BROKER}))
    assert alter(world, resource("g", ("nope", SET, "1"))) == [("g", 30)]


def test_what_a_broker_with_group_settings_refuses_keeps_its_code(world):
    """42 of such a broker is about the request (a null value), not about the kind of resource."""
    knows = upstream(INCREMENTAL)

    def response(version, request):
        if any(change.value is None for r in request.resources for change in r.configs):
            return upstream(INCREMENTAL, knows_groups=False)(version, request)
        return knows(version, request)

    world.broker.responses[INCREMENTAL] = response
    (entry,) = world.call(INCREMENTAL, 1, resources=[resource("g", ("consumer.x", SET, None))]).responses
    assert (entry.error_code, entry.error_message) == (42, "no")


def test_without_the_right_nothing_is_changed(world):
    """30: judged on the group where upstream knows group settings, on the cluster elsewhere."""
    change = resource("g", (TIMEOUT, SET, "50000"))
    world.broker.responses[INCREMENTAL] = upstream(INCREMENTAL, denied=frozenset({GROUP}))
    assert alter(world, change) == [("g", 30)]
    world.broker.responses[INCREMENTAL] = upstream(INCREMENTAL, knows_groups=False, denied=frozenset({BROKER}))
    assert alter(world, change) == [("g", 30)]
    assert stored(world) == {}


def test_other_resources_of_the_request_are_the_brokers(world, knows_groups):
    """In a separate request; each resource has its own outcome."""
    topic = resource("t", ("retention.ms", SET, "1"), kind=TOPIC)
    assert alter(world, topic, resource("g", (TIMEOUT, SET, "1")), resource("h", (TIMEOUT, SET, "50000"))) == [
        ("t", 0),
        ("g", 40),
        ("h", 0),
    ]
    assert [r.resource_type for r in world.broker.requests(INCREMENTAL)[0].resources] == [TOPIC]


def test_a_group_without_name_or_named_twice_is_refused(world, knows_groups):
    """42 for each; they are not sent to the broker."""
    change = (TIMEOUT, SET, "50000")
    assert alter(world, resource("", change)) == [("", 42)]
    assert alter(world, resource("g", change), resource("g", change)) == [("g", 42), ("g", 42)]
    assert stored(world) == {}


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_everything(world, knows_groups, version):
    """The older request leaves exactly what it names."""
    alter(world, resource("g", (TIMEOUT, SET, "50000")))
    response = world.call(ALTER, version, resources=[replacement("g", (LEVEL, "read_committed"))])
    assert [entry.error_code for entry in response.responses] == [0]
    assert stored(world) == {LEVEL: "read_committed"}
    for settings, code in (([("share.nope", "1")], 40), ([(TIMEOUT, None)], 42)):
        response = world.call(ALTER, version, resources=[replacement("g", *settings)])
        assert [entry.error_code for entry in response.responses] == [code]
    assert stored(world) == {LEVEL: "read_committed"}


def test_what_cannot_be_stored_does_not_hold(world, knows_groups):
    """The client gets the error, and the old settings stay in force."""

    world.refuse_writes()
    assert alter(world, resource("g", (TIMEOUT, SET, "50000"))) == [("g", 15)]
    assert stored(world) == {}


def test_requests_without_a_group_are_forwarded(world):
    """Topics and brokers are none of our business."""
    assert not world.serves(INCREMENTAL, 1, resources=[resource("g", kind=TOPIC)])
    assert world.serves(INCREMENTAL, 1, resources=[resource("t", kind=TOPIC), resource("g")])
    assert world.serves(ALTER, 2, resources=[replacement("g")])


def begin(world, *resources):
    return world.send(INCREMENTAL, 1, resources=list(resources))


def verdicts(reply):
    return [(entry.resource_name, entry.error_code) for entry in reply.message.responses]


@pytest.fixture
def journal(world):
    for key in (ALTER, INCREMENTAL):
        world.broker.responses[key] = upstream(key)
    return world.slow()


def test_a_change_with_unknown_outcome_is_7_and_applies_when_it_is_stored(world, journal):
    """Not before; and although the client no longer waits for it."""
    reply = begin(world, resource("g", (TIMEOUT, SET, "50000")))
    world.timers.advance(RESPONSE_MAX_S - 0.1)
    assert not reply.done
    world.timers.advance(0.2)
    assert verdicts(reply) == [("g", ErrorCode.REQUEST_TIMED_OUT)]
    assert stored(world) == {}
    journal.confirm()
    assert stored(world) == {TIMEOUT: "50000"}
    assert world.notes[-1][0] == "share-group-settings-changed"


def test_a_change_whose_client_left_holds_when_it_is_stored(world, journal):
    begin(world, resource("g", (TIMEOUT, SET, "50000"))).task.cancel()
    journal.confirm()
    assert stored(world) == {TIMEOUT: "50000"}


def test_two_changes_of_a_group_are_both_kept(world, journal):
    """The second waits for the first, since what it leaves depends on it; groups do not wait for each other."""
    first = begin(world, resource("g", (TIMEOUT, SET, "50000")))
    second = begin(world, resource("g", (LEVEL, SET, "read_committed")))
    begin(world, resource("h", (TIMEOUT, SET, "50000")))
    assert [records[0][0].group_id for records, _ in journal.appends] == ["g", "h"]
    for _ in range(3):
        journal.confirm()
    assert verdicts(first) == verdicts(second) == [("g", 0)]
    assert stored(world) == settings_of(journal.values[StateKey("settings", "g")])
    assert stored(world) == {TIMEOUT: "50000", LEVEL: "read_committed"}


def test_a_change_after_one_with_unknown_outcome_is_7_and_does_nothing(world, journal):
    begin(world, resource("g", (TIMEOUT, SET, "50000")))
    second = begin(world, resource("g", (LEVEL, SET, "read_committed")))
    world.timers.advance(RESPONSE_MAX_S)
    assert verdicts(second) == [("g", ErrorCode.REQUEST_TIMED_OUT)]
    journal.refuse(ErrorCode.NOT_COORDINATOR)
    assert (stored(world), journal.appends) == ({}, [])


@pytest.mark.parametrize("code", [-1, 7, 30_137])
@pytest.mark.parametrize("knows", [True, False])
def test_a_code_of_the_broker_is_passed_on(world, code, knows):
    """If it has settings of groups: its code for the group; otherwise its code for the cluster."""
    message = registry.message("IncrementalAlterConfigsResponse")

    def response(version, request):
        (requested,) = request.resources
        kind, name = requested.resource_type, requested.resource_name
        expected = code if knows or kind == BROKER else 42
        entry = message.AlterConfigsResourceResponse
        return message(responses=[entry(error_code=expected, resource_type=kind, resource_name=name)])

    world.broker.responses[INCREMENTAL] = response
    (altered,) = world.call(INCREMENTAL, 1, resources=[resource("g", (TIMEOUT, SET, "50000"))]).responses
    assert altered.error_code == code
    assert world.services.coordinator.stored_settings("g") == {}


def test_no_result_is_no_permission(world):
    message = registry.message("IncrementalAlterConfigsResponse")
    world.broker.responses[INCREMENTAL] = lambda version, request: message(responses=[])
    (altered,) = world.call(INCREMENTAL, 1, resources=[resource("g", (TIMEOUT, SET, "50000"))]).responses
    assert altered.error_code == -1
    assert world.services.coordinator.stored_settings("g") == {}


def test_a_topic_for_dead_letters_is_refused_while_state_is_in_memory(world, knows_groups):
    assert world.services.dead_letters is None
    changed = resource("g", ("errors.deadletterqueue.topic.name", SET, "dlq.t"))
    (entry,) = world.call(INCREMENTAL, 1, resources=[changed]).responses
    assert entry.error_code == ErrorCode.INVALID_CONFIG
    assert "Set `share_groups.state: topic` in the settings of the proxy." in entry.error_message
    assert stored(world) == {}
