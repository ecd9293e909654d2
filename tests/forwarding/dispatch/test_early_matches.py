"""Early matches in the bytes of a request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.forwarding.dispatch.early_matches import (
    ELEMENTS_MAX,
    AboutAllTopics,
    AnyOf,
    ByGroupId,
    ByIdOrTag,
    ByTopicId,
    ByTopicPrefix,
    ByUnknownTopicId,
    ByVersion,
    ContainsAny,
    ContainsNow,
    EveryRequest,
    FromVersion,
    LongerThan,
    Whenever,
    kind_at,
)
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

GROUPS = [
    (key, version)
    for key in (
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
    )
    for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]
ONE, TWO = b"1" * 16, b"2" * 16


def frame(key: int, version: int, client_id: str | None = "c", **fields: Any) -> memoryview:
    message = registry.message(f"{registry.API_KEYS[key]}Request")(**fields)
    return memoryview(frames.request(key, version, 1, client_id, message))[4:]


def naming(key: int, version: int, group_id: str, client_id: str | None = "c") -> memoryview:
    """A request about this group, the last one where there is a list of them."""
    if key == ApiKey.OFFSET_FETCH and version >= 8:
        group = registry.message("OffsetFetchRequest").OffsetFetchRequestGroup
        return frame(key, version, client_id, groups=[group(group_id="first"), group(group_id=group_id)])
    return frame(key, version, client_id, group_id=group_id)


@given(st.sampled_from(GROUPS), st.text(max_size=200), st.none() | st.text(max_size=20))
def test_the_group_is_found(case: tuple[int, int], group_id: str, client_id: str | None) -> None:
    """Old and flexible encodings are covered, after a transactional id, with any client id."""
    key, version = case
    request = naming(key, version, group_id, client_id)
    assert ByGroupId(lambda name: name == group_id).matcher(key, version)(request)
    assert not ByGroupId(lambda name: name == group_id + "x").matcher(key, version)(request)


@given(st.sampled_from(GROUPS), st.binary(max_size=40), st.integers(0, 30))
def test_a_broken_request_is_nobodys_group(case: tuple[int, int], noise: bytes, byte_count: int) -> None:
    """The broker judges it."""
    key, version = case
    start = bytes(naming(key, version, "g"))[: 8 + byte_count]
    assert ByGroupId(lambda _: True).matcher(key, version)(memoryview(start + noise)) in (True, False)
    assert not ByGroupId(lambda _: True).matcher(key, version)(memoryview(start[:9]))


def test_no_request_is_read_while_no_group_is_selected() -> None:
    def never(_: str) -> bool:
        raise AssertionError("nothing is to be read")

    assert not ByGroupId(never, lambda: False).matcher(8, 8)(frame(8, 8, group_id="g"))


def test_a_list_of_very_many_groups_is_selected_after_decoding() -> None:
    group = registry.message("OffsetFetchRequest").OffsetFetchRequestGroup
    for count, expected in ((ELEMENTS_MAX, False), (ELEMENTS_MAX + 1, True)):
        request = frame(9, 8, groups=[group(group_id="g")] * count)
        assert ByGroupId(lambda _: False).matcher(9, 8)(request) is expected


def test_words_are_found_wherever_they_stand() -> None:
    """Fixed ones, and those that come and go."""
    request = memoryview(b"before word behind")
    assert ContainsAny((b"no", b"word")).matcher(2, 7)(request)
    assert not ContainsAny((b"no",)).matcher(2, 7)(request)
    words: dict[bytes, None] = {}
    matches = ContainsNow(words.keys(), 20).matcher(2, 7)  # type: ignore[arg-type]  # KeysView is one in all but name
    assert not matches(request)
    words[b"word"] = None
    assert matches(request)
    assert not matches(memoryview(b"nothing"))
    assert matches(memoryview(bytes(21))), "too long to be searched"


def test_early_matches_that_need_no_bytes() -> None:
    """Length, version and present state suffice."""
    nothing = memoryview(b"")
    assert EveryRequest().matcher(1, 1)(nothing)
    verdicts = [FromVersion(1).matcher(74, version)(frame(74, version)) for version in (0, 1)]
    assert verdicts == [False, True]
    assert not FromVersion(1).matcher(74, 1)(frame(74, 1)[:9]), "no header: the broker judges it"
    longer = LongerThan(3).matcher(1, 1)
    assert (longer(memoryview(b"123")), longer(memoryview(b"1234"))) == (False, True)
    so = [False, True]
    matches = Whenever(lambda: so.pop(0)).matcher(1, 1)
    assert (matches(nothing), matches(nothing)) == (False, True)


def test_kinds_are_joined_and_change_with_the_version() -> None:
    """None of them looks below the first version that has one."""
    kind = ByVersion({2: ContainsAny((b"two",)), 5: AnyOf((ContainsAny((b"five",)), ContainsAny((b"5",))))})
    verdicts = [
        [kind.matcher(3, version)(memoryview(word)) for word in (b"two", b"five", b"5")] for version in (1, 2, 4, 5, 6)
    ]
    assert verdicts == [
        [False] * 3,
        [True, False, False],
        [True, False, False],
        [False, True, True],
        [False, True, True],
    ]
    assert kind_at(kind, 4) == ContainsAny((b"two",))
    assert kind_at(EveryRequest(), 4) == EveryRequest()


PRODUCE = registry.message("ProduceRequest")


@pytest.mark.parametrize("version", range(3, 13))
def test_topics_by_the_beginning_of_their_names(version: int) -> None:
    """Also before the whole request has arrived; unclear or unreadable requests are selected."""
    matches = ByTopicPrefix("__view.").matcher(0, version)
    data = [PRODUCE.PartitionProduceData(records=b"__view." * 20)]
    for names, expected in ((["a"], False), (["a", "b"], False), (["__view.x"], True), (["a", "__view.x"], True)):
        topics = [PRODUCE.TopicProduceData(name=name, partition_data=data) for name in names]
        request = frame(0, version, topic_data=topics)
        assert matches(request) is expected
        assert matches(request[: bytes(request).index(b"__view")]) is (expected or len(names) > 1)
    assert matches(memoryview(b"\0\0\0\x08\0\0\0\1\xff\xfe"))


def test_topics_by_their_ids() -> None:
    """One is wanted, and one unknown."""
    data = [PRODUCE.PartitionProduceData(records=b"x")]
    request = frame(0, 13, topic_data=[PRODUCE.TopicProduceData(topic_id=i, partition_data=data) for i in (ONE, TWO)])
    assert ByTopicId(lambda each: each == TWO).matcher(0, 13)(request)
    assert not ByTopicId(lambda each: each == b"3" * 16).matcher(0, 13)(request)
    assert ByTopicId(lambda _: False, 1).matcher(0, 13)(request), "too many"
    assert ByTopicId(lambda _: False).matcher(0, 13)(request[:20]), "more is to come"
    assert ByTopicId(lambda _: False).matcher(0, 13)(memoryview(bytes(8) + b"\xff\xfe")), "no request"


METADATA = registry.message("MetadataRequest")


def requested(*topics: bytes | str) -> memoryview:
    topic_entries = [{"name": each} if isinstance(each, str) else {"name": None, "topic_id": each} for each in topics]
    return frame(3, 12, topics=[METADATA.MetadataRequestTopic(**each) for each in topic_entries])


def test_a_topic_that_goes_by_its_name_has_no_unknown_id() -> None:
    known = {ONE: None}
    matches = ByUnknownTopicId(known, 10).matcher(3, 12)
    assert not matches(requested("a", "b"))
    assert not matches(requested("a", ONE))
    assert matches(requested("a", TWO))
    assert not matches(frame(3, 12, topics=None))
    assert matches(requested(*[ONE] * 11)), "too many"
    assert not matches(requested("a", TWO)[:30]), "the broker judges it"
    known[TWO] = None
    assert not matches(requested("a", TWO))


FETCH = registry.message("FetchRequest")


@pytest.mark.parametrize("version", [13, 14, 15])
def test_fetches_by_id_or_tag(version: int) -> None:
    """Unreadable ones are selected as well."""
    matches = ByIdOrTag({ONE: None}, 2).matcher(1, version)

    def fetch(*ids: bytes, tags: Any = ()) -> memoryview:
        parts = [FETCH.FetchPartition(partition=0), FETCH.FetchPartition(partition=1, unknown_tags=tags)]
        return frame(1, version, topics=[FETCH.FetchTopic(topic_id=each, partitions=parts) for each in ids])

    assert not matches(fetch())
    assert not matches(fetch(ONE, ONE))
    assert matches(fetch(ONE, TWO))
    assert matches(fetch(ONE, tags=((27501, b"x"),)))
    assert matches(fetch(ONE, ONE, ONE)), "too many"
    assert matches(fetch(ONE)[:40])


@pytest.mark.parametrize("version", range(registry.versions(3)[0], registry.versions(3)[1] + 1))
def test_a_null_list_requests_all_topics_and_in_v0_an_empty_one(version: int) -> None:
    matches = AboutAllTopics().matcher(3, version)
    assert matches(frame(3, version, topics=[] if version == 0 else None))
    assert matches(frame(3, version, topics=[])) is (version == 0)
    assert not matches(frame(3, version, topics=[METADATA.MetadataRequestTopic(name="a")]))


def test_a_list_that_cannot_be_null_requests_all_when_it_is_empty() -> None:
    matches = AboutAllTopics().matcher(75, 0)
    topic = registry.message("DescribeTopicPartitionsRequest").TopicRequest
    assert matches(frame(75, 0, topics=[]))
    assert not matches(frame(75, 0, topics=[topic(name="a")]))
