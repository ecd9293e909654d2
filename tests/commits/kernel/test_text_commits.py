"""The commonest individual commit: the extension, its Python fallback and the model plan the same."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest
from kafka_share_proxy.commits.kernel import text_commits
from kafka_share_proxy.commits.kernel.text_commits import Sample, _python_merge_repeated, _python_plan
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.commits.model.topic_records import TopicRecords
from kafka_share_proxy.offsets.commit_text import PREFIX, one_range, parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.codec import commit_frames, frames
from kafka_share_proxy.wire.codec.commit_frames import VERSIONS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

KERNELS = [text_commits.plan, _python_plan]
MERGES = [text_commits.merge_repeated, _python_merge_repeated]
COMMITTED, ROOM, RANGES_MAX = 5, 4096, 100
RESPONSE = b"size" + (77).to_bytes(4, "big") + b"accepted"
IDS_SINCE, EPOCH_SINCE = 10, 6
LARGEST = "9" * 18
TOPIC_ID = b"t" * 16


def request(version: int, text: str | None, offset: int = COMMITTED, epoch: int = 3) -> tuple[bytes, Any]:
    """Return an OffsetCommit of one partition, and its entry as read."""
    request_class = messages.OffsetCommitRequest
    entry = request_class.OffsetCommitRequestPartition(
        partition_index=2,
        committed_offset=offset,
        committed_leader_epoch=epoch if version >= EPOCH_SINCE else -1,
        committed_metadata=text,
    )
    topic = request_class.OffsetCommitRequestTopic(
        name="orders" if version < IDS_SINCE else "",
        topic_id=TOPIC_ID if version >= IDS_SINCE else b"",
        partitions=[entry],
    )
    frame = bytes(frames.request(ApiKey.OFFSET_COMMIT, version, 77, "c", request_class(group_id="g", topics=[topic])))
    parts = commit_frames.read(frame, version)
    assert parts is not None
    return frame, parts[3][0]


def planned(plan: Any, text: str | None, held: str = "", version: int = 9, **fields: Any) -> Any:
    """Plan a commit of this text over held ranges."""
    ranges = parse_commit_text(PREFIX + held).ranges
    frame, entry = request(version, text, fields.get("offset", COMMITTED))
    room, most = fields.get("room", ROOM), fields.get("ranges_max", RANGES_MAX)
    committed = fields.get("committed", COMMITTED)
    sample = Sample(version, entry, most, None)
    return plan(memoryview(frame), len(frame), sample, committed, (ranges.starts, ranges.ends), room)


def metadata_of(frame: bytes) -> str:
    return str(frames.decode_request(memoryview(frame)[4:])[1].topics[0].partitions[0].committed_metadata)


@pytest.mark.parametrize("plan", KERNELS)
@pytest.mark.parametrize("version", VERSIONS)
def test_request_carries_all_ranges_and_is_otherwise_unchanged(plan: Any, version: int) -> None:
    frame, correlation_id, *merged = planned(plan, "ic/1;11-12", "7-10,20-20", version)
    header, message = frames.decode_request(memoryview(frame)[4:])
    _, before = frames.decode_request(memoryview(request(version, "ic/1;7-12,20-20")[0])[4:])
    assert (header.correlation_id, header.client_id, message) == (77, "c", before)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (correlation_id, merged) == (77, [0, 1, 7, 13, 11, 13])


@pytest.mark.parametrize("plan", KERNELS)
@pytest.mark.parametrize(
    ("held", "text", "after", "merged"),
    [
        ("", "9-9", "9-9", (0, 0, 9, 10)),
        ("9-9", "9-9", "9-9", (0, 1, 9, 10)),
        ("9-9", "6-7", "6-7,9-9", (0, 0, 6, 8)),
        ("9-9", "11-11", "9-9,11-11", (1, 1, 11, 12)),
        ("9-9,11-11,30-40", "10-10", "9-11,30-40", (0, 2, 9, 12)),
        ("9-9,11-11,30-40", "8-29", "8-40", (0, 3, 8, 41)),
        ("9-20", "10-11\0", "9-20\0", (0, 1, 9, 21)),
        ("", "10-11\0\0", "10-11\0", (0, 0, 10, 12)),
        ("", f"{LARGEST}-{LARGEST}", f"{LARGEST}-{LARGEST}", (0, 0, int(LARGEST), int(LARGEST) + 1)),
    ],
)
def test_range_is_merged(plan: Any, held: str, text: str, after: str, merged: tuple[int, ...]) -> None:
    frame, _, *planned_merge, _, _ = planned(plan, PREFIX + text, held)
    assert (metadata_of(frame), tuple(planned_merge)) == (PREFIX + after, merged)


@pytest.mark.parametrize("plan", KERNELS)
@pytest.mark.parametrize(
    "text", [None, "", "mine", "ic/1;", "ic/2;9-9", "ic/1;9", "ic/1;9-", "ic/1;9-8", "ic/1;9-9,11-11", "ic/1;9-9;u=x",
             "ic/1;9-9 ", "ic/1; 9-9", "ic/1;-9-9", "ic/1;9-9\0x", f"ic/1;9-1{LARGEST}", "ic/1;٣-٤", "é"],
)  # fmt: skip
def test_uncommon_texts_are_left_to_the_model(plan: Any, text: str | None) -> None:
    assert planned(plan, text) is None


@pytest.mark.parametrize("plan", KERNELS)
def test_commits_that_move_the_offset_are_left_to_the_model(plan: Any) -> None:
    for fields in ({"offset": COMMITTED + 1}, {"offset": -1, "committed": -1}, {"committed": COMMITTED - 1}):
        assert planned(plan, "ic/1;9-9", **fields) is None
    assert planned(plan, "ic/1;5-9") is None
    assert planned(plan, "ic/1;9-9", "5-5") is None


@pytest.mark.parametrize("plan", KERNELS)
def test_ranges_without_room_are_left_to_the_model(plan: Any) -> None:
    """Characters of the metadata, ranges of a partition, and a string of Kafka's."""
    assert planned(plan, "ic/1;9-9", "11-11", room=len("ic/1;9-9,11-11")) is not None
    assert planned(plan, "ic/1;9-9", "11-11", room=len("ic/1;9-9,11-11") - 1) is None
    assert planned(plan, "ic/1;9-9\0", "11-11", room=len("ic/1;9-9,11-11")) is None
    assert planned(plan, "ic/1;9-9", "11-11", ranges_max=2) is not None
    assert planned(plan, "ic/1;9-9", "11-11", ranges_max=1) is None
    assert planned(plan, "ic/1;10-10", "9-9,11-11", ranges_max=1) is not None
    assert planned(plan, "ic/1;9-9", room=-1) is None
    many = ",".join(f"{first}-{first}" for first in range(100_000, 104_600, 2))
    assert len(many) > 32_000
    frame, *_ = planned(plan, "ic/1;9-9", many, room=1 << 20, ranges_max=1 << 20)
    assert metadata_of(frame) == f"ic/1;9-9,{many}"
    longer = f"{many},{','.join(f'{first}-{first}' for first in range(200_000, 200_200, 2))}"
    assert planned(plan, "ic/1;9-9", longer, room=1 << 20, ranges_max=1 << 20) is None


def a_text(chance: random.Random) -> str:
    first = chance.choice((chance.randrange(60), chance.randrange(10**18)))
    text = f"ic/1;{first}-{first + chance.randrange(8)}{chance.choice(('', '', chr(0)))}"
    at = chance.randrange(len(text))
    return text if chance.random() < 0.7 else text[:at] + chance.choice("0-;,\0x") + text[at + chance.randrange(2) :]


@pytest.mark.parametrize("version", VERSIONS)
def test_extension_fallback_and_model_agree(version: int) -> None:
    """Any ranges, texts and limits. Where both plan, the model's ranges are those of the request."""
    chance, plan_count = random.Random(version), 0
    for _ in range(600):
        starts = sorted(chance.sample(range(6, 60), chance.randrange(9)))
        held = OffsetRanges((start, start + 1 + chance.randrange(3)) for start in starts)
        text, room = a_text(chance), chance.choice((ROOM, 20, 40))
        frame, entry = request(version, text)
        bounds = held.starts, held.ends
        arguments = (frame, len(frame), Sample(version, entry, 8, None), COMMITTED, bounds, room)
        planned_commit = text_commits.plan(*arguments)
        assert planned_commit == _python_plan(*arguments), (text, held)
        if planned_commit is None:
            continue
        plan_count += 1
        done = one_range(text)
        partition = PartitionCommits(held.copy(), COMMITTED, is_committed_known=True, topic_id=TOPIC_ID)
        partition.records = TopicRecords(is_bound=True)
        plan = partition.plan_kept(PartitionCommit(COMMITTED, done), room - len(PREFIX) - text.endswith("\0"), 8)
        assert plan is not None
        assert metadata_of(planned_commit[0]).rstrip("\0") == PREFIX + plan.ranges
        for merge_repeated in MERGES:
            merged = held.copy()
            assert merge_repeated(RESPONSE, RESPONSE, (merged.starts, merged.ends), planned_commit)
            assert str(merged) == plan.ranges
    assert plan_count > 50


@pytest.mark.parametrize("version", VERSIONS)
def test_request_that_repeats_another_with_any_text_is_planned_as_if_it_was_read(version: int) -> None:
    chance, held, plan_count = random.Random(version), OffsetRanges([(7, 9), (20, 22)]), 0
    sample, entry = request(version, "ic/1;9-9")
    for _ in range(300):
        frame, own_entry = request(version, a_text(chance))
        fields = (COMMITTED, (held.starts, held.ends), ROOM)
        expected = text_commits.plan(frame, len(frame), Sample(version, own_entry, 8, None), *fields)
        for plan in KERNELS:
            received = memoryview(frame + b"later bytes")
            assert plan(received, len(frame), Sample(version, entry, 8, sample), *fields) == expected
        plan_count += expected is not None
    assert plan_count > 50


@pytest.mark.parametrize("plan", KERNELS)
@pytest.mark.parametrize("version", VERSIONS)
def test_request_that_differs_in_more_than_its_text_does_not_repeat_another(plan: Any, version: int) -> None:
    """Any other byte: API version, client id, group, member, topic, offset, epoch, tagged fields."""
    sample, entry = request(version, "ic/1;9-9")
    at, behind = entry[6], entry[7]
    frame = bytearray(request(version, "ic/1;11-300")[0])
    rest = len(sample) - behind
    arguments = (Sample(version, entry, 8, sample), COMMITTED, (array("q"), array("q")), ROOM)
    assert plan(frame, len(frame), *arguments) is not None
    for changed in (*range(8), *range(12, at), *range(len(frame) - rest, len(frame))):
        frame[changed] ^= 1
        assert plan(frame, len(frame), *arguments) is None, changed
        frame[changed] ^= 1
    for size in range(12, len(frame)):
        assert plan(frame, size, *arguments) is None, size
    frame[8:12] = b"abcd"
    assert plan(frame, len(frame), *arguments) is not None


@pytest.mark.parametrize("merge_repeated", MERGES)
def test_plan_is_applied_if_the_response_repeats_an_accepted_one(merge_repeated: Any) -> None:
    """Correlation ids differ. Any other byte, or another size, may be a refusal."""
    held = OffsetRanges([(7, 9), (20, 22)])
    plan = (b"", -3, 0, 2, 7, 22, 9, 20)
    for at in (*range(4), *range(8, len(RESPONSE))):
        changed = bytearray(RESPONSE)
        changed[at] ^= 1
        assert not merge_repeated(bytes(changed), RESPONSE, (held.starts, held.ends), plan)
    for size in range(len(RESPONSE)):
        assert not merge_repeated(RESPONSE[:size], RESPONSE, (held.starts, held.ends), plan)
        assert not merge_repeated(RESPONSE, RESPONSE[:size], (held.starts, held.ends), plan)
    assert not merge_repeated(b"", b"", (held.starts, held.ends), plan)
    assert str(held) == "7-8,20-21"
    assert merge_repeated(RESPONSE[:4] + b"abcd" + RESPONSE[8:], RESPONSE, (held.starts, held.ends), plan)
    assert str(held) == "7-21"


@pytest.mark.skipif(text_commits.KERNEL == "python", reason="the extension was not built")
def test_extension_refuses_plans_of_other_ranges() -> None:
    merge: Any = text_commits.merge_repeated
    bounds, numbers = (array("q", [7, 9]), array("q", [8, 10])), [0, 0, 1, 7, 9, 7, 9]
    for low, high in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ValueError, match="of these ranges"):
            merge(RESPONSE, RESPONSE, bounds, (b"", 0, low, high, 7, 9, 7, 9))
    with pytest.raises(ValueError, match="of these ranges"):
        merge(RESPONSE, RESPONSE, (array("i", [7, 9]), array("i", [8, 10])), (b"", *numbers))
    for wrong in ((b"", *numbers[:-1]), [b"", *numbers], (b"", 0, None, *numbers[2:]), (b"", 0, 0, 1, "7", 9, 7, 9)):
        with pytest.raises((ValueError, TypeError)):
            merge(RESPONSE, RESPONSE, bounds, wrong)
    for sample in ("text", bytearray(RESPONSE)):
        with pytest.raises(TypeError):
            merge(RESPONSE, sample, bounds, (b"", *numbers))
    with pytest.raises(ValueError, match="pair"):
        merge(RESPONSE, RESPONSE, bounds[:1], (b"", *numbers))
    with pytest.raises(TypeError):
        merge(RESPONSE, RESPONSE)


@pytest.mark.skipif(text_commits.KERNEL == "python", reason="the extension was not built")
def test_extension_refuses_what_does_not_belong_together() -> None:
    """Entries of another frame, arrays of other numbers or of different lengths."""
    frame, entry = request(9, "ic/1;9-9")
    longs, shorter, ints = array("q", [7, 9]), array("q", [8]), array("i", [8, 10])

    def plan(entry: Any, bounds: Any = (longs, longs), sample: Any = None, size: int = len(frame)) -> object:
        fields: Any = (9, entry, RANGES_MAX, sample)
        return text_commits.plan(frame, size, fields, COMMITTED, bounds, ROOM)

    for bounds in ((longs, shorter), (shorter, longs), (longs, ints), (ints, ints)):
        with pytest.raises(ValueError, match="int64"):
            plan(entry, bounds)
    for bounds in ((longs,), [longs, longs], longs):
        with pytest.raises(ValueError, match="pair"):
            plan(entry, bounds)
    for at, behind in ((3, 60), (60, 50), (50, 1 << 40), (-1, 9)):
        with pytest.raises(ValueError, match="not of this frame"):
            plan((*entry[:6], at, behind))
    for wrong in (entry[:7], list(entry), (*entry[:6], None, 60), (*entry[:4], b"x", *entry[5:])):
        with pytest.raises((ValueError, TypeError)):
            plan(wrong)
    for sample in (frame[:-1], frame[:20], b"", frame + frame):
        assert plan((*entry[:6], 50, 60), sample=sample) is None
    with pytest.raises(TypeError):
        plan(entry, sample="text")
    with pytest.raises(ValueError, match="0 or more"):
        plan(entry, size=-1)
    wrong_call: Any = text_commits.plan
    for arguments in ((frame, len(frame), (9, entry, RANGES_MAX), COMMITTED, (longs, longs), ROOM), (frame, entry)):
        with pytest.raises((ValueError, TypeError)):
            wrong_call(*arguments)
