"""Versions offered to a client, from responses of real brokers (tests/golden)."""

from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.dispatch import offered_versions
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

GOLDEN = Path(__file__).parents[2] / "golden"
RELEASES = ("3.9.1", "4.3.0")
LOCAL, UPSTREAM = Offer((share_group_apis.OFFER,)), Offer()


def response(release: str, version: int):
    frame = bytes.fromhex((GOLDEN / release / f"ApiVersions.v{version}.hex").read_text())
    return frames.decode_response(18, version, frame)[1]


def table(release: str) -> dict[int, tuple[int, int]]:
    return offered_versions.ranges_of(response(release, 4))


def test_share_apis_are_offered_on_a_broker_without_share_groups():
    offered = offered_versions.effective(table("3.9.1"), LOCAL)
    assert {key: offered[key] for key in range(76, 80)} == {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2)}
    assert {key: offered[key] for key in (90, 91, 92)} == {90: (0, 1), 91: (0, 0), 92: (0, 0)}
    assert not {*range(83, 88)} & set(offered)


def test_share_apis_of_upstream_are_offered_when_it_serves_them():
    offered = offered_versions.effective(table("4.3.0"), UPSTREAM)
    assert {key: offered[key] for key in (76, 77, 78, 79)} == {76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2)}
    assert {90, 91, 92} <= set(offered), "its own offsets of share groups are forwarded"


def test_a_broker_without_share_groups_gets_none_when_they_are_upstreams_matter():
    assert not {76, 77, 78, 79} & set(offered_versions.effective(table("3.9.1"), UPSTREAM))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("offer", [LOCAL, UPSTREAM])
def test_the_caps_hold(release, offer):
    offered = offered_versions.effective(table(release), offer)
    assert offered[1] == (4, 15)
    assert offered[18] == (0, 4)
    assert offered[55] == (0, 1)
    assert offered[0][0] == 0, "librdkafka looks for Produce v0"


@pytest.mark.parametrize("release", RELEASES)
def test_every_offered_range_is_within_ours_and_upstreams(release):
    upstream = table(release)
    for key, (lowest, highest) in offered_versions.effective(upstream, UPSTREAM).items():
        ours, theirs = registry.versions(key), upstream[key]
        assert lowest >= max(ours[0], theirs[0]) or key == ApiKey.PRODUCE
        assert highest <= min(ours[1], theirs[1])


def test_the_table_of_a_3_9_broker():
    """Written down once, so that a change of the definitions is seen where clients will see it."""
    offered = offered_versions.effective(table("3.9.1"), LOCAL)
    assert {key: offered[key] for key in (0, 1, 2, 3, 8, 9, 10, 11, 16, 19, 32, 68, 69)} == {
        0: (0, 11), 1: (4, 15), 2: (1, 9), 3: (0, 12), 8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (0, 9),
        16: (0, 5), 19: (2, 7), 32: (1, 4), 68: (0, 0), 69: (0, 0),
    }  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
def test_no_api_for_brokers_or_controllers_is_offered(release):
    everything = {key: registry.versions(key) for key in registry.API_KEYS} | table(release)
    offered = offered_versions.effective(everything, UPSTREAM)
    internal = [key for key in registry.API_KEYS if "broker" not in registry.listeners(key)]
    assert internal
    assert not set(offered) & {*internal, *offered_versions.BROKER_INTERNAL}


def test_unknown_keys_are_hidden_or_passed_by_setting():
    upstream = table("4.3.0") | {6: (0, 8), 4000: (0, 3)}
    assert 4000 not in offered_versions.effective(upstream, LOCAL)
    passing = offered_versions.effective(upstream, Offer((share_group_apis.OFFER,), pass_unknown=True))
    assert passing[4000] == (0, 3)
    assert 6 not in passing, "a key that Kafka gave up is not a newer one"


def test_without_topic_ids_upstream_share_groups_are_not_offered_and_check_says_why():
    old = table("3.9.1") | {3: (0, 9)}
    assert 78 not in offered_versions.effective(old, LOCAL)
    (sentence,) = offered_versions.shortcomings(old, LOCAL)
    assert "Metadata v12" in sentence
    assert "v9" in sentence
    assert offered_versions.shortcomings(table("3.9.1"), LOCAL) == ()
    assert offered_versions.shortcomings(old, UPSTREAM) == ()


def test_check_says_when_there_is_no_version_in_common():
    (sentence,) = offered_versions.shortcomings(table("3.9.1") | {1: (0, 3)}, LOCAL)
    assert sentence.startswith("Fetch: upstream serves v0-v3")
    assert len(offered_versions.shortcomings({}, LOCAL)) == 5


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("version", range(5))
def test_only_the_table_and_the_share_feature_change(release, version):
    """Everything else in the broker's response - throttle, features, their epoch - is forwarded unchanged."""
    before, after = response(release, version), response(release, version)
    offered_versions.offer_to_client(after, version, LOCAL)
    assert offered_versions.ranges_of(after) == offered_versions.effective(offered_versions.ranges_of(before), LOCAL)
    assert after.throttle_time_ms == before.throttle_time_ms
    assert after.finalized_features_epoch == before.finalized_features_epoch
    retained_features = [f for f in before.finalized_features if f.name != "share.version"]
    assert [f.name for f in after.finalized_features][: len(retained_features)] == [f.name for f in retained_features]
    assert {f.name: (f.min_version, f.max_version) for f in before.supported_features}.items() <= {
        f.name: (f.min_version, f.max_version) for f in after.supported_features
    }.items()


@pytest.mark.parametrize("release", RELEASES)
def test_the_share_feature_is_reported_as_by_brokers(release):
    """Supported from 0 on, therefore only from v4 on (KAFKA-17011); finalized at 1 in every response with features."""
    offered = {}
    for version in range(5):
        message = response(release, version)
        offered_versions.offer_to_client(message, version, LOCAL)
        decoded = registry.response(18, version).decode(registry.response(18, version).encode(message))
        offered[version] = (
            [(f.min_version, f.max_version) for f in decoded.supported_features if f.name == "share.version"],
            [
                (f.min_version_level, f.max_version_level)
                for f in decoded.finalized_features
                if f.name == "share.version"
            ],
        )
    assert offered == {0: ([], []), 1: ([], []), 2: ([], []), 3: ([], [(1, 1)]), 4: ([(0, 1)], [(1, 1)])}


def test_upstreams_features_are_not_touched_when_it_serves_share_groups():
    before, after = response("4.3.0", 4), response("4.3.0", 4)
    offered_versions.offer_to_client(after, 4, UPSTREAM)
    assert [f.name for f in after.finalized_features] == [f.name for f in before.finalized_features]
    assert [f.name for f in after.supported_features] == [f.name for f in before.supported_features]


def test_a_broker_that_does_not_know_the_version_is_understood():
    """Error 35 has body v0 and the range of ApiVersions alone: nothing is added, and the cap holds."""
    frame = bytes.fromhex((GOLDEN / "4.3.0" / "ApiVersions.v5.hex").read_text())
    message = frames.decode_response(18, 0, frame)[1]
    offered_versions.offer_to_client(message, 0, LOCAL)
    assert (message.error_code, offered_versions.ranges_of(message)) == (ErrorCode.UNSUPPORTED_VERSION, {18: (0, 4)})
    message.api_keys = [type(message).ApiVersion(api_key=18, min_version=0, max_version=3)]
    offered_versions.offer_to_client(message, 0, LOCAL)
    assert offered_versions.ranges_of(message) == {18: (0, 3)}


def test_what_is_safe_to_send_to_any_broker_is_what_all_have():
    both = EffectiveVersions(LOCAL)
    both.learn(1, table("4.3.0"))
    both.learn(2, table("3.9.1"))
    assert both.upstream[3] == (0, 12)
    assert 76 not in both.upstream
    assert both.ranges[78] == (1, 2)
    both.forget(2)
    assert both.upstream == table("4.3.0")
    both.forget(2)
    assert both.upstream == table("4.3.0")


def test_auto_finds_native_share_groups_only_where_every_broker_has_them():
    assert share_group_apis.is_native([response("4.3.0", 4)])
    assert not share_group_apis.is_native([response("4.3.0", 4), response("3.9.1", 4)])
    assert not share_group_apis.is_native([])
    switched_off = response("4.3.0", 4)
    switched_off.finalized_features = [f for f in switched_off.finalized_features if f.name != "share.version"]
    assert not share_group_apis.is_native([switched_off])
    without_renewal = response("4.3.0", 4)
    for entry in without_renewal.api_keys:
        if entry.api_key == 78:
            entry.max_version = 1
    assert not share_group_apis.is_native([without_renewal])
