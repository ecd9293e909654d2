"""Requests of other group types for an id that is a share group here."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

JOIN, COMMIT, TXN_COMMIT, DELETE, CONSUMER_BEAT, CONSUMER_DESCRIBE, STREAMS_BEAT, STREAMS_DESCRIBE = (
    11, 8, 28, 47, 68, 69, 88, 89
)  # fmt: skip


def versions(key: int) -> range:
    low, high = registry.versions(key)
    return range(low, high + 1)


def commit_fields(group_id: str, *codes_of: str, key: int = COMMIT, **more):
    message = registry.message(f"{registry.API_KEYS[key]}Request")
    topic, partition = (
        (message.OffsetCommitRequestTopic, message.OffsetCommitRequestPartition)
        if key == COMMIT
        else (message.TxnOffsetCommitRequestTopic, message.TxnOffsetCommitRequestPartition)
    )
    topics = [topic(name=name, partitions=[partition(partition_index=0, committed_offset=5)]) for name in codes_of]
    return {"group_id": group_id, "topics": topics, **more}


def committed(codes: dict[str, int], key: int = COMMIT):
    """Return an upstream that returns these codes by topic name."""
    name = f"{registry.API_KEYS[key]}Response"

    def response(version, request):
        message = registry.message(name)
        topic, partition = getattr(message, f"{name}Topic"), getattr(message, f"{name}Partition")
        return message(
            topics=[
                topic(name=t.name, partitions=[partition(partition_index=0, error_code=codes[t.name])])
                for t in request.topics
            ]
        )

    return response


@pytest.mark.parametrize("version", versions(JOIN))
def test_a_classic_member_cannot_join(world, version):
    """23, also when the group is empty, and nothing is sent that could create a group upstream."""
    world.group("shared")
    response = world.call(
        JOIN, version, group_id="shared", session_timeout_ms=1, protocol_type="consumer", protocols=[]
    )
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (response.generation_id, response.members) == (-1, [])
    assert [key for key, _, _ in world.broker.requested] == [12]


@pytest.mark.parametrize(("key", "kind"), [(CONSUMER_BEAT, "consumer"), (STREAMS_BEAT, "streams")])
@pytest.mark.parametrize("epoch", [0, 5, -1])
def test_consumer_and_streams_members_cannot_join(world, key, kind, epoch):
    """69 with Kafka's text, whatever the epoch."""
    world.group("shared", "member")
    response = world.call(key, 0, group_id="shared", member_id="m", member_epoch=epoch)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == f"Group shared is not a {kind} group."


@pytest.mark.parametrize("key", [JOIN, CONSUMER_BEAT, STREAMS_BEAT])
def test_without_read_on_the_group_nothing_is_returned(world, key):
    """30, and no word about what the group is."""
    world.group("shared")
    world.broker.denied.add(("READ", "shared"))
    response = world.call(key, registry.versions(key)[1], group_id="shared")
    assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert getattr(response, "error_message", None) is None


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_cannot_be_committed(world, version):
    """69 per partition, but the broker's topic errors remain; the request upstream is of a member that cannot exist."""
    world.group("shared")
    world.broker.responses[COMMIT] = committed({"good": 22, "also": 25, "gone": 3, "secret": 29})
    fields = commit_fields("shared", "good", "also", "gone", "secret", generation_id_or_member_epoch=-1, member_id="")
    response = world.call(COMMIT, version, **fields)
    assert {t.name: t.partitions[0].error_code for t in response.topics} == {
        "good": 69, "also": 69, "gone": 3, "secret": 29
    }  # fmt: skip
    (requested,) = world.broker.requests(COMMIT)
    assert requested.generation_id_or_member_epoch == 0
    assert requested.member_id == "kafka-share-proxy-rights-probe"


@pytest.mark.parametrize("code", [14, 15, 16, 30])
def test_a_broker_that_is_not_the_coordinator_says_so(world, code):
    """The client looks for the coordinator, as it would with any group; a refusal stays one."""
    world.group("shared")
    world.broker.responses[COMMIT] = committed({"good": code})
    response = world.call(COMMIT, 8, **commit_fields("shared", "good"))
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(6))
def test_offsets_cannot_be_committed_in_a_transaction(world, version):
    """69 per partition; below v3 no request goes upstream, since without a member it would write."""
    world.group("shared")
    world.broker.responses[TXN_COMMIT] = committed({"good": 25, "gone": 3}, TXN_COMMIT)
    fields = commit_fields(
        "shared", "good", "gone", key=TXN_COMMIT, transactional_id="t", producer_id=1, producer_epoch=0
    )
    response = world.call(TXN_COMMIT, version, **fields)
    codes = {t.name: t.partitions[0].error_code for t in response.topics}
    assert codes == ({"good": 69, "gone": 3} if version >= 3 else {"good": 69, "gone": 69})
    assert len(world.broker.requests(TXN_COMMIT)) == (1 if version >= 3 else 0)


@pytest.mark.parametrize(("key", "version"), [(COMMIT, 8), (TXN_COMMIT, 4), (TXN_COMMIT, 2)])
def test_ranges_of_individual_commits_are_refused_with_42_and_a_reason(world, key, version):
    """If individual commits are served; the broker's topic errors remain."""
    world.services.has_ranges = lambda group_id, metadata: (metadata or "").startswith("ic/1;")
    world.group("shared")
    world.broker.responses[key] = committed({"ranges": 25, "plain": 25, "gone": 3}, key)
    fields = commit_fields("shared", "ranges", "plain", "gone", key=key)
    for topic in (fields["topics"][0], fields["topics"][2]):
        topic.partitions[0].committed_metadata = "ic/1;5-7"
    more = {} if key == COMMIT else {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
    response = world.call(key, version, **fields, **more)
    codes = {t.name: t.partitions[0].error_code for t in response.topics}
    assert codes == {"ranges": 42, "plain": 69, "gone": 3 if version > 2 else 42}
    assert "it is a share group" in str([note for note in world.notes if note[0] == "commit-refused"])


def test_a_transactional_commit_below_v3_needs_read_on_the_group(world):
    """30 per partition."""
    world.group("shared")
    world.broker.denied.add(("READ", "shared"))
    response = world.call(TXN_COMMIT, 2, **commit_fields("shared", "good", key=TXN_COMMIT, transactional_id="t"))
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_offsets_cannot_be_deleted(world):
    """69 even where upstream has offsets under that id; none are touched. 30 without DELETE."""
    world.group("shared")
    message = registry.message("OffsetDeleteRequest")
    topics = [
        message.OffsetDeleteRequestTopic(name="t", partitions=[message.OffsetDeleteRequestPartition(partition_index=0)])
    ]
    assert world.call(DELETE, 0, group_id="shared", topics=topics).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.broker.responses[DELETE] = lambda *_: registry.message("OffsetDeleteResponse")(error_code=0, topics=[])
    assert world.call(DELETE, 0, group_id="shared", topics=topics).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    del world.broker.responses[DELETE]
    world.broker.denied.add(("DELETE", "shared"))
    assert world.call(DELETE, 0, group_id="shared", topics=topics).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("key", "kind"), [(CONSUMER_DESCRIBE, "consumer"), (STREAMS_DESCRIBE, "streams")])
def test_a_share_group_is_described_as_no_other_type(world, key, kind):
    """69 for the id held here; the other ids and refusals are the broker's."""
    world.group("shared")
    world.group("secret")
    codes = {"shared": 69, "secret": 30, "other": 0}

    def describe(version, request):
        message = registry.message(f"{registry.API_KEYS[key]}Response")
        return message(
            groups=[message.DescribedGroup(group_id=g, error_code=codes[g], members=[]) for g in request.group_ids]
        )

    world.broker.responses[key] = describe
    response = world.call(key, 0, group_ids=["other", "shared", "secret"])
    assert {group.group_id: group.error_code for group in response.groups} == codes
    assert response.groups[1].error_message == f"Group shared is not a {kind} group."


@pytest.mark.parametrize("key", [JOIN, COMMIT, TXN_COMMIT, DELETE, CONSUMER_BEAT, STREAMS_BEAT])
def test_requests_for_other_groups_are_forwarded(world, key):
    """With and without groups held here, in every version; an id that only resembles one is another."""
    for version in versions(key):
        if key == COMMIT and version >= 10:
            continue
        assert not world.serves(key, version, group_id="shared")
    world.group("shared")
    for version in versions(key):
        if key == COMMIT and version >= 10:
            continue
        assert world.serves(key, version, group_id="shared")
        for other in ("share", "shared ", "Shared", "", "ü" * 100):
            assert not world.serves(key, version, group_id=other)


def test_requests_with_the_same_response_of_a_broker_are_forwarded(world):
    """SyncGroup, Heartbeat, LeaveGroup, OffsetFetch, AddOffsetsToTxn: for a share group as for an unknown id."""
    world.group("shared")
    for key in (14, 12, 13, 9, 25):
        assert not world.serves(key, 0, group_id="shared")
