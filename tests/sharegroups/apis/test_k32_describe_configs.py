"""DescribeConfigs on GROUP resources."""

from __future__ import annotations

import pytest
from kafka_share_proxy.sharegroups.apis.group_configs import is_ours
from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS_BY_NAME
from kafka_share_proxy.wire.definitions import registry

DESCRIBE = 32
GROUP, TOPIC, BROKER = 32, 2, 4


def resource(name: str, kind: int = GROUP, keys: list[str] | None = None):
    message = registry.message("DescribeConfigsRequest")
    return message.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)


def upstream(knows_groups: bool = True, denied: frozenset[int] = frozenset()):
    """A broker: 4.x knows GROUP resources, 3.9 fails the whole request; refuses the resource types in `denied`."""

    def response(version, request):
        message = registry.message("DescribeConfigsResponse")
        strange = not knows_groups and any(r.resource_type == GROUP for r in request.resources)
        results = []
        for r in request.resources:
            code = 42 if strange else (30 if r.resource_type == GROUP else 31) if r.resource_type in denied else 0
            names = (
                ["consumer.session.timeout.ms", "share.session.timeout.ms"] if r.resource_type == GROUP else ["other"]
            )
            configs = [
                message.DescribeConfigsResourceResult(name=name, value="1", config_source=5)
                for name in names
                if not code and (not r.configuration_keys or name in r.configuration_keys)
            ]
            results.append(
                message.DescribeConfigsResult(
                    error_code=code,
                    error_message="no" if code else "",
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    configs=configs,
                )
            )
        return message(results=results)

    return response


@pytest.fixture(params=[True, False], ids=["upstream with group settings", "upstream without"])
def knows_groups(request, world) -> bool:
    world.broker.responses[DESCRIBE] = upstream(request.param)
    return request.param


def values(result):
    return {entry.name: entry.value for entry in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_setting_of_an_unknown_group_is_described(world, knows_groups, version):
    """Defaults with source 5; other types' settings follow where upstream has them, its own share.* never."""
    (result,) = world.call(DESCRIBE, version, resources=[resource("any")]).results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, GROUP, "any")
    ours = [entry for entry in result.configs if is_ours(entry.name)]
    assert [entry.name for entry in ours] == [key.name for key in GROUP_CONFIGS_BY_NAME.values()]
    assert {entry.config_source for entry in ours} == {5}
    assert values(result)["share.record.lock.duration.ms"] == "30000"
    assert values(result)["share.session.timeout.ms"] == "45000"
    assert ("consumer.session.timeout.ms" in values(result)) == knows_groups


def test_what_a_group_sets_has_source_group(world):
    """Source 8, with the broker's settings as synonyms after it: 4 if the proxy is configured that way, 5 by
    default.
    """
    world.broker.responses[DESCRIBE] = upstream()
    world.limit(group_share_record_lock_duration_ms=20_000)
    world.services.coordinator.store_settings("shared", {"share.record.lock.duration.ms": "25000"})
    response = world.call(
        DESCRIBE,
        4,
        resources=[resource("shared", keys=["share.record.lock.duration.ms"])],
        include_synonyms=True,
        include_documentation=True,
    )
    (entry,) = response.results[0].configs
    assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("25000", 8, 3, False)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("share.record.lock.duration.ms", "25000", 8),
        ("group.share.record.lock.duration.ms", "20000", 4),
        ("group.share.record.lock.duration.ms", "30000", 5),
    ]
    assert entry.documentation


def test_synonyms_and_documentation_are_returned_only_on_request(world, knows_groups):
    """A setting without broker setting is its own synonym."""
    keys = ["share.isolation.level"]
    (entry,) = world.call(DESCRIBE, 4, resources=[resource("g", keys=keys)]).results[0].configs
    assert (entry.synonyms, entry.documentation, entry.config_type) == ([], None, 2)
    (entry,) = world.call(DESCRIBE, 4, resources=[resource("g", keys=keys)], include_synonyms=True).results[0].configs
    assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [("share.isolation.level", 5)]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["share.isolation.level", "nonsense"], {"share.isolation.level"}),
        (
            ["share.isolation.level", "consumer.session.timeout.ms"],
            {"share.isolation.level", "consumer.session.timeout.ms"},
        ),
        (["consumer.session.timeout.ms"], {"consumer.session.timeout.ms"}),
        (["share.nonsense"], set()),
    ],
)
def test_keys_choose(world, keys, names):
    """Unknown ones are omitted, and so are all unrequested ones."""
    world.broker.responses[DESCRIBE] = upstream()
    (result,) = world.call(DESCRIBE, 4, resources=[resource("g", keys=keys)]).results
    assert set(values(result)) == names


def test_no_keys_are_all_keys(world, knows_groups):
    """Brokers also treat an empty list like null."""
    (result,) = world.call(DESCRIBE, 4, resources=[resource("g", keys=[])]).results
    assert len([name for name in values(result) if is_ours(name)]) == len(GROUP_CONFIGS_BY_NAME)


def test_other_resources_are_the_brokers(world, knows_groups):
    """They are requested separately, since 3.9 fails a whole request that names a group."""
    response = world.call(DESCRIBE, 4, resources=[resource("t", TOPIC), resource("g"), resource("1", BROKER)])
    assert [(r.resource_type, r.resource_name, r.error_code) for r in response.results] == [
        (TOPIC, "t", 0),
        (GROUP, "g", 0),
        (BROKER, "1", 0),
    ]
    first = world.broker.requests(DESCRIBE)[0]
    assert [r.resource_type for r in first.resources] == [TOPIC, BROKER]


def test_a_group_without_name_is_refused(world, knows_groups):
    """42, and the others of the request are served."""
    response = world.call(DESCRIBE, 4, resources=[resource(""), resource("g")])
    assert [(r.resource_name, r.error_code) for r in response.results] == [("", 42), ("g", 0)]


def test_without_the_right_nothing_is_shown(world):
    """30: judged on the group where upstream knows group settings, on the cluster elsewhere."""
    world.broker.responses[DESCRIBE] = upstream(denied=frozenset({GROUP}))
    (result,) = world.call(DESCRIBE, 4, resources=[resource("g")]).results
    assert (result.error_code, result.configs) == (30, [])
    world.broker.responses[DESCRIBE] = upstream(knows_groups=False, denied=frozenset({BROKER}))
    (result,) = world.call(DESCRIBE, 4, resources=[resource("g")]).results
    assert (result.error_code, result.configs) == (30, [])


def test_the_same_group_twice_gets_two_entries(world, knows_groups):
    """Brokers do the same, with the keys of each."""
    requested = [resource("g", keys=["share.isolation.level"]), resource("g", keys=["share.auto.offset.reset"])]
    response = world.call(DESCRIBE, 4, resources=requested)
    assert [list(values(result)) for result in response.results] == [
        ["share.isolation.level"],
        ["share.auto.offset.reset"],
    ]


def test_requests_without_a_group_are_forwarded(world):
    """Any group may be held here or not."""
    world.group("g")
    assert not world.serves(DESCRIBE, 4, resources=[resource("g", TOPIC), resource("1", BROKER)])
    assert world.serves(DESCRIBE, 4, resources=[resource("t", TOPIC), resource("never heard of")])


@pytest.mark.parametrize("code", [-1, 7, 30_137])
@pytest.mark.parametrize("knows", [True, False])
def test_a_code_of_the_broker_is_passed_on(world, code, knows):
    """If it has settings of groups: its code for the group; otherwise its code for the cluster."""
    message = registry.message("DescribeConfigsResponse")

    def response(version, request):
        (requested,) = request.resources
        code_expected = code if knows or requested.resource_type == BROKER else 42
        return message(results=[result(requested, code_expected)])

    def result(requested, code_expected):
        kind, name = requested.resource_type, requested.resource_name
        return message.DescribeConfigsResult(
            error_code=code_expected, resource_type=kind, resource_name=name, configs=[]
        )

    world.broker.responses[DESCRIBE] = response
    (described,) = world.call(DESCRIBE, 4, resources=[resource("g")]).results
    assert (described.error_code, described.configs) == (code, [])


def test_no_result_is_no_permission(world):
    message = registry.message("DescribeConfigsResponse")
    world.broker.responses[DESCRIBE] = lambda version, request: message(results=[])
    (described,) = world.call(DESCRIBE, 4, resources=[resource("g")]).results
    assert (described.error_code, described.configs) == (-1, [])
