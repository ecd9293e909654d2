"""OffsetCommit in its commonest form: the extension, its twin and the codec say the same of the same bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka_share_proxy.wire.codec import commit_frames, frames
from kafka_share_proxy.wire.codec.commit_frames import (
    PARTITIONS_MAX,
    VERSIONS,
    _python_accepted,
    _python_read,
    _python_rewritten,
)
from kafka_share_proxy.wire.codec.primitives import STRING_MAX
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import ZERO_UUID

OFFSET_COMMIT, IDS_SINCE, EPOCH_SINCE, INSTANCE_SINCE = 8, 10, 6, 7
KERNELS = [commit_frames.read, _python_read]
METADATA = (None, "", "ic/1;43-45,48-49", "ic/1;7-7\0", "text of the user", "é")


def request(version: int, topics: int = 1, partitions: int = 2, seed: int = 0) -> tuple[bytes, Any]:
    """A whole frame, and the message in it."""
    chance, message_class = random.Random(seed), messages.OffsetCommitRequest
    topic_entries = [
        message_class.OffsetCommitRequestTopic(
            name=f"topic-{number}" if version < IDS_SINCE else "",
            topic_id=ZERO_UUID if version < IDS_SINCE else bytes([number + 1]) * 16,
            partitions=[
                message_class.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=chance.randrange(-1, 1 << 62),
                    committed_leader_epoch=chance.randrange(-1, 9) if version >= EPOCH_SINCE else -1,
                    committed_metadata=chance.choice(METADATA),
                )
                for index in range(partitions)
            ],
        )
        for number in range(topics)
    ]
    message = message_class(
        group_id="g" * chance.choice((1, 200)),
        generation_id_or_member_epoch=chance.randrange(-1, 5),
        member_id=chance.choice(("", "m-1")),
        group_instance_id=chance.choice((None, "i")) if version >= INSTANCE_SINCE else None,
        topics=topic_entries,
    )
    return bytes(frames.request(OFFSET_COMMIT, version, 77, chance.choice((None, "", "me")), message)), message


def response(version: int, codes: list[int]) -> bytes:
    message_class = messages.OffsetCommitResponse
    entries = [
        message_class.OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in enumerate(codes)
    ]
    topic = message_class.OffsetCommitResponseTopic(
        name="" if version >= IDS_SINCE else "t", topic_id=b"1" * 16, partitions=entries
    )
    return bytes(frames.response(OFFSET_COMMIT, version, 77, message_class(topics=[topic], throttle_time_ms=3)))


def changed(data: bytes, seed: int) -> bytes:
    """A few bytes of it are others, or it is cut."""
    chance, corrupted = random.Random(seed), bytearray(data)
    for _ in range(chance.randrange(3)):
        corrupted[chance.randrange(len(corrupted))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(corrupted[: chance.choice((len(corrupted), len(corrupted), chance.randrange(len(corrupted))))])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read", KERNELS)
def test_fields_are_those_that_the_codec_decodes(read: Any, version: int) -> None:
    for seed in range(20):
        frame, message = request(version, 1 + seed % 3, 1 + seed % 4, seed)
        client_id, group_id, member_id, entries = read(memoryview(frame), version)
        header, _ = frames.decode_request(memoryview(frame)[4:])
        assert (client_id, group_id, member_id) == (header.client_id, message.group_id, message.member_id)
        expected = [
            (
                topic.name or topic.topic_id,
                entry.partition_index,
                entry.committed_offset,
                entry.committed_leader_epoch,
                entry.committed_metadata,
            )
            for topic in message.topics
            for entry in topic.partitions
        ]
        assert [entry[:5] for entry in entries] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_extension_and_python_fallback_agree_about_any_bytes(version: int) -> None:
    for seed in range(400):
        frame = changed(request(version, 1 + seed % 2, 1 + seed % 3, seed)[0], seed)
        assert commit_frames.read(frame, version) == _python_read(frame, version), frame
        codes = [0] * (seed % 3) + [seed % 7 and 0]
        body = changed(response(version, codes), seed)
        for partitions in (len(codes), 1):
            accepted = commit_frames.accepted(body, version, partitions)
            assert accepted == _python_accepted(body, version, partitions), body


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rewritten", [commit_frames.rewritten, _python_rewritten])
def test_rewritten_fields_replace_the_old_ones(rewritten: Any, version: int) -> None:
    for seed in range(20):
        frame, message = request(version, 2, 2, seed)
        parts = commit_frames.read(frame, version)
        assert parts is not None
        fields = [(5, 2, None), (6, -1, ""), (7, 3, "\0"), (8, -1, None)]
        frame_with_fields = rewritten(memoryview(frame), version, parts[3], fields)
        assert int.from_bytes(frame_with_fields[:4], "big") == len(frame_with_fields) - 4
        header, again = frames.decode_request(memoryview(frame_with_fields)[4:])
        before = [entry for topic in message.topics for entry in topic.partitions]
        after = [entry for topic in again.topics for entry in topic.partitions]
        for (offset, epoch, metadata), old, new in zip(fields, before, after, strict=True):
            assert new.committed_offset == offset
            assert new.committed_leader_epoch == (epoch if version >= EPOCH_SINCE else -1)
            assert new.committed_metadata == (old.committed_metadata if metadata is None else metadata)
        assert (header.correlation_id, again.group_id, again.member_id) == (77, message.group_id, message.member_id)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rewritten", [commit_frames.rewritten, _python_rewritten])
@pytest.mark.parametrize("metadata", ["x" * 30, "ü" * 30, "x" * 31, "ü" * 63, "x" * 126, "x" * 127, "ü" * 9000])
def test_metadata_may_be_as_long_as_a_string(rewritten: Any, version: int, metadata: str) -> None:
    frame, _ = request(version)
    parts = commit_frames.read(frame, version)
    assert parts is not None
    _, again = frames.decode_request(
        memoryview(rewritten(frame, version, parts[3], [(5, 2, metadata)] * len(parts[3])))[4:]
    )
    texts = {entry.committed_metadata for topic in again.topics for entry in topic.partitions}
    assert texts == {metadata}


@pytest.mark.parametrize("rewritten", [commit_frames.rewritten, _python_rewritten])
def test_fields_that_do_not_belong_to_the_entries_are_not_written(rewritten: Any) -> None:
    frame = request(9)[0]
    parts = commit_frames.read(frame, 9)
    assert parts is not None
    for fields in ([], [(1, 1, None)], [(1, 1, "x" * (STRING_MAX + 1))] * 2):
        with pytest.raises((ValueError, OverflowError)):
            rewritten(frame, 9, parts[3], fields)


@pytest.mark.skipif(commit_frames.KERNEL == "python", reason="the extension was not built")
def test_extension_never_writes_bytes_that_are_not_the_frames() -> None:
    """Entries of another frame, and what is none at all."""
    frame = request(9)[0]
    parts = commit_frames.read(frame, 9)
    assert parts is not None
    entry = tuple(parts[3][0])
    wrong = [
        (*entry[:5], *places) for places in ((-1, 50, 60), (3, 50, 60), (60, 50, 70), (50, 60, 55), (50, 60, 1 << 40))
    ]
    for each in (*wrong, entry[:6], (*entry[:5], 50, 60, None)):
        with pytest.raises((ValueError, IndexError, TypeError)):
            commit_frames.rewritten(frame, 9, [each], [(1, 1, None)])  # type: ignore[list-item]
    for short in (b"", b"abc"):
        with pytest.raises(ValueError, match="no frame"):
            commit_frames.rewritten(short, 9, [], [])


@pytest.mark.parametrize("read", KERNELS)
def test_uncommon_requests_are_left_to_the_codec(read: Any) -> None:
    """More partitions than are read together, none at all, tags, other versions, bytes after the end."""
    assert read(request(9, 1, PARTITIONS_MAX)[0], 9) is not None
    assert read(request(9, 1, PARTITIONS_MAX + 1)[0], 9) is None
    assert read(request(9, 2, PARTITIONS_MAX // 2 + 1)[0], 9) is None
    assert read(request(9, 0)[0], 9) is None
    frame, message = request(9)
    message.unknown_tags = ((40, b"x"),)
    assert read(bytes(frames.request(OFFSET_COMMIT, 9, 1, None, message)), 9) is None
    assert read(frame + b"\0", 9) is None
    for version in (1, VERSIONS.stop):
        assert read(frame, version) is None


@pytest.mark.parametrize("accepted", [commit_frames.accepted, _python_accepted])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_is_accepted_if_every_partition_is(accepted: Any, version: int) -> None:
    assert accepted(response(version, [0, 0]), version, 2)
    assert not accepted(response(version, [0, 0]), version, 3)
    assert not accepted(response(version, [0, 25]), version, 2)
    assert not accepted(response(version, [0]) + b"\0", version, 1)
    assert not accepted(response(version, [0])[:-1], version, 1)
