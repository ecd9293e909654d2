"""Metadata: which requests ask for all topics."""

import pytest
from kafka_share_proxy.forwarding.dispatch.early_matches import AboutAllTopics
from kafka_share_proxy.forwarding.rewriting import hidden_topics
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

from tests.tables.golden import recorded, replaced, rewritten

REQUEST = registry.message("MetadataRequest")
VERSIONS = range(registry.versions(3)[0], registry.versions(3)[1] + 1)


def requests_topics(version: int, topics, client_id="a client", tags=b"\0") -> bool:
    frame = frames.request(3, version, 5, client_id, REQUEST(topics=topics))[4:]
    if version >= 9 and tags != b"\0":
        length = 10 + (len(client_id) if client_id is not None else 0)
        frame = frame[:length] + tags + frame[length + 1 :]
    return AboutAllTopics().matcher(3, version)(memoryview(frame))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", [None, "", "a client", "ä" * 300])
def test_all_topics_are_a_null_list_and_in_v0_an_empty_one(version, client_id):
    assert requests_topics(version, [] if version == 0 else None, client_id)
    assert not requests_topics(version, [REQUEST.MetadataRequestTopic(name="orders")], client_id)
    if version:
        assert not requests_topics(version, [], client_id), "no topic at all"


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 9])
def test_a_tag_in_the_header_does_not_hide_it(version):
    tags = bytes.fromhex("01070300ff00")
    assert requests_topics(version, None, tags=tags)
    assert not requests_topics(version, [REQUEST.MetadataRequestTopic(name="orders")], tags=tags)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_too_short_requests_nothing_or_is_none(version):
    frame = frames.request(3, version, 5, "c", REQUEST(topics=[] if version == 0 else None))[4:]
    body = 11 if version < 9 else 12
    for cut in range(8, body + 1):
        assert not AboutAllTopics().matcher(3, version)(memoryview(frame[:cut]))


@pytest.mark.parametrize(("release", "version", "frame"), recorded("Metadata"))
def test_in_a_real_response_only_the_address_changes(release, version, frame):
    assert rewritten(3, version, frame) == replaced(3, version, frame)


@pytest.mark.parametrize(
    ("topic", "hidden"),
    [
        ("__proxy_views", True),
        ("__view.r8.orders", True),
        ("__individual_commit_offsets", True),
        ("__individual_commit_offsets2", False),
        ("__consumer_offsets", False),
        ("__viewers", False),
        ("orders", False),
        (None, False),
    ],
)
def test_hidden_topics(topic, hidden):
    assert hidden_topics.is_hidden(topic) is hidden
