"""Frame boundaries: the walk in C says what its twin in Python says, for any bytes cut anywhere."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_share_proxy.forwarding.dispatch.early_matches import (
    AnyOf,
    ByGroupId,
    ByKnownGroup,
    ByTopicPrefix,
    ContainsAny,
)
from kafka_share_proxy.forwarding.dispatch.request_inspection import (
    SILENT,
    AcksMatch,
    GroupMatch,
    IdMatch,
    RememberedMatch,
    TopicMatch,
    WordMatch,
    inspect_beginning,
    inspect_to_amend,
    inspect_unserved,
)
from kafka_share_proxy.forwarding.walk import walk as python
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

from tests.support.offset_commits import offset_commit
from tests.support.repeated import repeated

in_c = pytest.importorskip("kafka_share_proxy.forwarding.walk._walk", reason="the walk could not be built in C here")

FRAME_MAX = 4096
KNOWN_ID, OTHER_ID = b"k" * 16, b"o" * 16


class Named:
    """Expected."""

    def __init__(self, name: str, rewrite: Any = None) -> None:
        self.name, self.rewrite = name, rewrite

    def __repr__(self) -> str:
        return self.name


def name(key: int, version: int) -> bytes:
    return struct.pack(">hh", key, version)


PLAIN, RESPONDED, PRODUCE, LOOKED, FETCH, IDS, REPEATED, COMMIT = (
    Named("plain"), Named("answered", len), Named("produce"), Named("looked"), Named("fetch"), Named("ids"),
    Named("repeated"), Named("commit"),
)  # fmt: skip


def topic_look(version: int) -> TopicMatch:
    """Topics called "mine..." are served here."""
    serve_here = ByTopicPrefix("mine").matcher(0, version)
    return TopicMatch(version, b"mine", inspect_beginning(serve_here, AcksMatch(version, PRODUCE)), PRODUCE)


def mine(frame: memoryview) -> bool:
    return b"mine" in bytes(frame)


def topic_b(frame: memoryview) -> Named | None:
    """Requests for this topic expect another response than the others."""
    return RESPONDED if b"topic-b" in bytes(frame) else None


def tables() -> Iterator[Any]:
    """The same for both: every kind of look."""
    inspect = inspect_unserved(mine, inspect_to_amend(lambda _: None, FETCH))
    ids = inspect_unserved(lambda frame: not _ids_are_known(bytes(frame)), inspect_to_amend(lambda _: None, IDS))
    for walk in (python, in_c):
        inspected = {
            name(78, 1): inspect_to_amend(lambda frame: LOOKED if frame[-1] % 2 else None, PLAIN),
            name(1, 11): WordMatch((b"mine", b"never"), inspect, FETCH),
            name(1, 13): IdMatch({KNOWN_ID: None}, 13, ids, IDS),
            name(3, 9): RememberedMatch(inspect_unserved(mine, inspect_to_amend(topic_b, REPEATED))),
            **{name(0, version): AcksMatch(version, PRODUCE) for version in (3, 7, 8, 9, 11)},
            **{name(0, version): topic_look(version) for version in (4, 12)},
        }
        yield walk.Table({name(12, 4): PLAIN, name(10, 2): RESPONDED}, inspected, SILENT)


def _ids_are_known(frame: bytes) -> bool:
    """Check what Fetch v13 requests by another method: by its shape only what `fetch13` makes."""
    body = frame[8 + 2 + max(struct.unpack_from(">h", frame, 8)[0], 0) + 1 + 26 :]
    topics, body = body[0] - 1, body[1:]
    for _ in range(topics):
        topic_id, partitions, body = body[:16], body[16] - 1, body[17:]
        if topic_id != KNOWN_ID or any(body[33 * i + 32] for i in range(partitions)):
            return False
        body = body[33 * partitions + 1 :]
    return True


def request(key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", key, version, correlation_id)
    return struct.pack(">i", len(head) + len(body)) + head + body


def fetch13(random_: random.Random) -> bytes:
    """Build client id, tags, the fields before the topics, and topics by id."""
    body = struct.pack(">h", 2) + b"me" + b"\0" + bytes(26)
    topics = random_.randrange(3)
    body += bytes([topics + 1])
    for _ in range(topics):
        partitions = random_.randrange(3)
        body += random_.choice((KNOWN_ID, KNOWN_ID, OTHER_ID)) + bytes([partitions + 1])
        body += b"".join(
            random_.randbytes(32) + random_.choice((b"\0", b"\0", b"\0", b"\1")) for _ in range(partitions)
        )
        body += b"\0"
    return body + b"\1\1\0"


def produce(version: int, random_: random.Random) -> bytes:
    client_id = random_.choice((b"\xff\xff", b"\0\0", b"\0\2me"))
    acks = struct.pack(">h", random_.choice((0, 1, -1)))
    if version >= 9:
        return client_id + b"\0" + random_.choice((b"\0", b"\3tx")) + acks + bytes(20)
    return client_id + (random_.choice((b"\xff\xff", b"\0\2tx"))) + acks + bytes(20)


def produce_to_topics(version: int, number: int, random_: random.Random) -> bytes:
    """Build requests with the codec: to no topic, one or more."""
    message = registry.message("ProduceRequest")
    data = [message.PartitionProduceData(index=0, records=random_.choice((None, b"mine" * 5)))]
    names = random_.choices(("a", "", "min", "mine", "minefield", "x" * 130), k=random_.choice((0, 1, 1, 1, 2)))
    request = message(
        acks=random_.choice((0, 1)),
        transactional_id=random_.choice((None, None, "tx")),
        topic_data=[message.TopicProduceData(name=name, partition_data=data) for name in names],
    )
    return frames.request(0, version, number, random_.choice((None, "", "me")), request)


def some_request(random_: random.Random, number: int) -> bytes:
    key, version = random_.choice(
        ((12, 4), (10, 2), (78, 1), (1, 11), (1, 13), (3, 9), (0, 3), (0, 8), (0, 9), (0, 4), (0, 12), (99, 1))
    )
    body = random_.randbytes(random_.randrange(40)) + random_.choice((b"", b"mine"))
    if key == 0 and version in (4, 12):
        return produce_to_topics(version, number, random_)
    if key == 0:
        body = produce(version, random_)
    elif version == 13:
        body = fetch13(random_)
    elif key == 3:
        body = b"\0\2me" + random_.choice((b"topic-a", b"topic-b", b"mine"))
    return request(key, version, number, body)


def walked(walk: Any, module: Any, data: bytes, cuts: list[int]) -> tuple[list[int], list[tuple[int, object]], int]:
    """Positions it stopped at, stepping over what does not pass; what is queued then; what is left."""
    stops: list[int] = []
    at = 0
    buffer = memoryview(bytearray(data + bytes(FRAME_MAX)))
    for end in [*cuts, len(data)]:
        while at < end:
            try:
                upto = walk.receive(buffer, at, end)
            except (IndexError, RemoteProtocolError):
                upto = -1  # a look of this test that reads on where nothing is
            if upto < 0:
                return stops, list(walk.pending), -1
            stops.append(upto)
            if upto == at:
                size = struct.unpack_from(">i", buffer, at)[0]
                if end - at < 4 or not 8 <= size <= FRAME_MAX or end - at < size + 4:
                    break
                upto = at + size + 4
            at = upto
    return stops, list(walk.pending), walk.missing


@repeated("seed", range(300))
def test_requests_in_c_and_in_python(seed: int) -> None:
    """Frames of every kind, cut anywhere; every third stream has a few bytes changed."""
    compare_requests(seed)


def compare_requests(seed: int) -> None:
    random_ = random.Random(seed)
    requests = [some_request(random_, number) for number in range(random_.randrange(1, 12))]
    if seed % 3 == 0:
        requests = [each if each[4:8] == name(1, 13) else changed(each, random_) for each in requests]
    data = b"".join(requests)
    cuts = sorted(random_.randrange(len(data)) for _ in range(random_.randrange(4)))
    outcomes = [
        walked(module.RequestWalk(module.Pending(), table, FRAME_MAX), module, data, cuts)
        for module, table in zip((python, in_c), tables(), strict=True)
    ]
    assert outcomes[0] == outcomes[1]


def changed(data: bytes, random_: random.Random) -> bytes:
    """Change at most a few bytes. Not those of a Fetch v13, which `_ids_are_known` could not read then."""
    positions = random_.sample(range(len(data)), random_.choice((0, 0, 1, 3)))
    return bytes(random_.randrange(256) if at in positions else byte for at, byte in enumerate(data))


@repeated("seed", range(200))
def test_responses_in_c_and_in_python(seed: int) -> None:
    """Responses that are forwarded, some that are not, some out of order, with impossible sizes, or unexpected."""
    compare_responses(seed)


def compare_responses(seed: int) -> None:
    random_ = random.Random(seed)
    expected = [(n, random_.choice((PLAIN, PLAIN, PLAIN, RESPONDED))) for n in range(random_.randrange(8))]
    data = b"".join(
        struct.pack(">ii", random_.choice((4, 9, 30, 30, 3, FRAME_MAX + 1)), n + (random_.random() < 0.05)).ljust(34)
        for n in range(8)
    )
    cuts = sorted(random_.randrange(len(data)) for _ in range(random_.randrange(4)))
    outcomes = []
    for module in (python, in_c):
        pending = module.Pending()
        for pair in expected:
            pending.append(pair)
        outcomes.append(walked(module.ResponseWalk(pending, FRAME_MAX), module, data, cuts))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_produce_to_one_other_topic_calls_no_match_in_c(version: int) -> None:
    """It is forwarded as soon as the name of its topic has arrived."""

    def never(*_: object) -> None:
        raise AssertionError("settled in C")

    message = registry.message("ProduceRequest")
    for name_, acks, expected in (("orders", 1, [(1, PRODUCE)]), ("min", 1, [(1, PRODUCE)]), ("orders", 0, [])):
        data = [message.PartitionProduceData(index=0, records=b"x" * 50)]
        topics = [message.TopicProduceData(name=name_, partition_data=data)]
        frame = frames.request(0, version, 1, "me", message(acks=acks, topic_data=topics))
        table = in_c.Table({}, {name(0, version): TopicMatch(version, b"mine", never, PRODUCE)}, SILENT)
        for end in (frame.index(name_.encode()) + len(name_), len(frame)):
            walk = in_c.RequestWalk(in_c.Pending(), table, FRAME_MAX)
            assert walk.receive(memoryview(frame.ljust(200)), 0, end) == end
            assert list(walk.pending) == expected


def test_a_match_of_an_unknown_kind_is_refused() -> None:
    """Rather than taken for another one."""
    for kind in (-1, 99):
        matcher = type("Odd", (), {"kind": kind})()
        with pytest.raises(ValueError, match="no kind of match"):
            in_c.Table({}, {name(0, 3): matcher}, SILENT)


@pytest.mark.parametrize("module", [python, in_c])
@pytest.mark.parametrize("order", [1, -1])
def test_only_versions_in_the_table_pass(module: Any, order: int) -> None:
    """Versions below, between and above them, and other keys, stop the walk, in whatever order the table was filled."""
    versions = [(10, 0), (10, 2), (10, 31), (127, 5)][::order]
    table = module.Table({name(*each): PLAIN for each in versions}, {}, SILENT)
    for key in (0, 10, 11, 127, 128):
        for version in (*range(33), 32767):
            frame = request(key, version, 7, bytes(8))
            walk = module.RequestWalk(module.Pending(), table, FRAME_MAX)
            passes = walk.receive(memoryview(frame), 0, len(frame)) == len(frame)
            assert passes is ((key, version) in versions)


def test_a_table_has_memory_only_for_its_versions() -> None:
    """A cell for every key and version would take 640 KiB of an idle proxy, twice."""
    assert in_c.Table.__basicsize__ <= 4096


@pytest.mark.parametrize("module", [python, in_c])
def test_what_waits_is_a_queue(module: Any) -> None:
    """Taken off at both ends, however many there were."""
    pending = module.Pending()
    for number in range(100):
        pending.append((number, PLAIN))
    assert (pending[0], pending[99], len(pending)) == ((0, PLAIN), (99, PLAIN), 100)
    assert [pending.popleft()[0] for _ in range(50)] == list(range(50))
    assert pending.pop() == (99, PLAIN)
    assert [n for n, _ in pending] == list(range(50, 99))
    pending.clear()
    assert (len(pending), list(pending)) == (0, [])
    with pytest.raises(IndexError):
        pending.popleft()


GROUPS = ("plain", "known", "gruppe-ü", "", "g" * 200)
COMMITS = [
    (key, version) for key in (8, 9, 28) for version in range(registry.versions(key)[0], registry.versions(key)[1] + 1)
]


def known_group(groups: tuple[dict[str, Any], ...], unless: tuple[set[int], ...] = ()) -> ByKnownGroup:
    """Requests about these groups, or with a text of ranges."""
    by_group = ByGroupId(lambda group: bool(any(unless)) or any(group in each for each in groups))
    return ByKnownGroup(AnyOf((ContainsAny((b"ic/",)), by_group)), groups, unless, (b"ic/",))


KNOWN = known_group(({"known": 1}, {"gruppe-ü": None}), (set(),))


def commit_of(key: int, version: int, random_: random.Random) -> tuple[bytes, bool]:
    """Build a request with the codec. Return it and whether it is about unknown groups, without a text."""
    message = registry.message(f"{registry.API_KEYS[key]}Request")
    group, metadata = random_.choice(GROUPS), random_.choice(("", "user text", "ic/1;5-7", None))
    client_id = random_.choice((None, "", "me", "ic/1;"))
    one = is_plain = group not in ("known", "gruppe-ü")
    if key == 9:
        names, metadata = ([group], "")
        if version >= 8:
            names = [group, *random_.choices(GROUPS, k=random_.choice((0, 0, 1, 2)))]
            is_plain = one and len(names) == 1
            body = message(groups=[message.OffsetFetchRequestGroup(group_id=each, topics=None) for each in names])
        else:
            body = message(group_id=group, topics=[])
    else:
        topics = getattr(message, f"{registry.API_KEYS[key]}RequestTopic")
        part = getattr(message, f"{registry.API_KEYS[key]}RequestPartition")
        partitions = [part(partition_index=n, committed_offset=n, committed_metadata=metadata) for n in range(3)]
        body = message(group_id=group, topics=[topics(name="orders", partitions=partitions)])
        if key == 28:
            body.transactional_id = random_.choice(("", "tx", "t" * 130))
    has_text = "ic/" in (client_id or "") or "ic/" in (metadata or "")
    return frames.request(key, version, 5, client_id, body), is_plain and not has_text


@pytest.mark.parametrize(("key", "version"), COMMITS)
@repeated("seed", range(12))
def test_commits_of_unknown_groups_are_forwarded_in_c(key: int, version: int, seed: int) -> None:
    """Complete ones; truncated ones wait for more bytes; others that are neither plain nor known are left to the next
    match.
    """
    data, is_plain = commit_of(key, version, random.Random(seed))
    buffer = memoryview(bytearray(data + b"ic/known" * 8))
    requested: list[int] = []

    def match(_buffer: memoryview, _at: int, end: int, frame_end: int) -> None:
        requested.append(frame_end - end)

    table = in_c.Table({}, {name(key, version): GroupMatch(KNOWN, (key, version), match, COMMIT)}, SILENT)
    for end in (len(data), *range(12, len(data))):
        walk = in_c.RequestWalk(in_c.Pending(), table, FRAME_MAX)
        assert walk.receive(buffer, 0, end) == (end if is_plain and end == len(data) else 0)
    is_requested_whole, is_selected = 0 in requested, KNOWN.matcher(key, version)(memoryview(data)[4:])
    assert is_requested_whole <= (not is_plain)
    assert is_selected <= (not is_plain), "it passes in Python, too"
    assert is_plain or is_selected or is_requested_whole, "nobody has looked"


@pytest.mark.parametrize(("group", "metadata"), [("known", ""), ("other", "ic/1;3-3")])
def test_commit_of_a_known_group_or_with_a_text_is_gathered_without_another_match(group: str, metadata: str) -> None:
    """The match is called once it is gathered."""
    data, requested = frames.request(8, 8, 5, "me", offset_commit(group, "t", 3, metadata)), list[object]()
    group_match = GroupMatch(KNOWN, (8, 8), lambda *arguments: requested.append(arguments), COMMIT)
    walk = in_c.RequestWalk(in_c.Pending(), in_c.Table({}, {name(8, 8): group_match}, SILENT), FRAME_MAX)
    assert walk.receive(memoryview(data), 0, len(data)) == 0
    assert not requested


@pytest.mark.parametrize(("key", "version"), COMMITS)
def test_a_request_forwarded_in_c_is_not_selected_in_python_for_any_group_id(key: int, version: int) -> None:
    """Any bytes changed anywhere after the head, lengths included; and random bytes."""
    random_ = random.Random(key * 100 + version)
    expected, passed = KNOWN.matcher(key, version), 0
    table = in_c.Table({}, {name(key, version): GroupMatch(KNOWN, (key, version), lambda *_: None, COMMIT)}, SILENT)
    for number in range(400):
        data = bytearray(commit_of(key, version, random_)[0])
        for _ in range(number % 4):
            data[random_.randrange(12, min(len(data), 60))] = random_.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 7))
        if not number % 10:
            data[12:] = random_.randbytes(len(data) - 12)
        walk = in_c.RequestWalk(in_c.Pending(), table, FRAME_MAX)
        if walk.receive(memoryview(data), 0, len(data)):
            passed += 1
            assert not expected(memoryview(bytes(data))[4:]), bytes(data)
    assert passed


def test_group_named_again_on_one_connection_is_looked_up_again() -> None:
    """The id that was read last is kept, what is known of it is not; none is taken for one that it begins with."""
    groups: dict[str, Any] = {"other": 1}
    group_match = GroupMatch(known_group((groups,), (set(),)), (8, 8), lambda *_: None, COMMIT)
    walk = in_c.RequestWalk(in_c.Pending(), in_c.Table({}, {name(8, 8): group_match}, SILENT), FRAME_MAX)
    message = registry.message("OffsetCommitRequest")

    def passes(group: str) -> bool:
        data = memoryview(frames.request(8, 8, 5, "c", message(group_id=group, topics=[])))
        return bool(walk.receive(data, 0, len(data)))

    ids = ("g", "g", "gg", "g", "", "ü", "ü", "ü" * 200, "ü" * 200, "g")
    assert all(map(passes, ids))
    for group in ids:
        assert passes(group)
        groups[group] = 1
        assert not passes(group)
        assert not passes(group)
        del groups[group]
        assert passes(group)
    assert not passes("other")


@pytest.mark.parametrize("word", [b"ic/", b"/", b"iiii", b"cici/i"])
def test_words_are_found_wherever_they_stand(word: bytes) -> None:
    """Short and long ones, in bytes that are nearly nothing else; at both ends too."""
    random_ = random.Random(len(word))
    for length in (*range(8, 40), *range(8, 40), 200, 200):
        data = bytearray(request(1, 11, 5, bytes(random_.choice(b"ic/") for _ in range(length))))
        looks = [WordMatch((word,), lambda *_: None, FETCH) for _ in range(2)]
        passed = [
            module.RequestWalk(
                module.Pending(), module.Table({}, {name(1, 11): word_match}, SILENT), FRAME_MAX
            ).receive(memoryview(data), 0, len(data))
            for module, word_match in zip((python, in_c), looks, strict=True)
        ]
        assert passed == [0 if word in data else len(data)] * 2


@pytest.mark.parametrize("module", [python, in_c])
def test_what_is_known_may_grow_and_shrink(module: Any) -> None:
    """And while something has to be empty that is not, everything is looked at."""
    groups: dict[str, int] = {}
    unless: set[int] = set()
    data = frames.request(8, 6, 5, "me", registry.message("OffsetCommitRequest")(group_id="known", topics=[]))
    kind = known_group((groups,), (unless,))
    behind = inspect_unserved(kind.matcher(8, 6), inspect_to_amend(lambda _: None, COMMIT))
    table = module.Table({}, {name(8, 6): GroupMatch(kind, (8, 6), behind, COMMIT)}, SILENT)

    def passes() -> bool:
        walk = module.RequestWalk(module.Pending(), table, FRAME_MAX)
        return bool(walk.receive(memoryview(bytearray(data)), 0, len(data)))

    assert passes()
    groups["other"] = 1
    assert passes()
    groups["known"] = 1
    assert not passes()
    groups.clear()
    unless.add(3)
    assert not passes()
    unless.clear()
    assert passes()


def test_walk_in_c_refuses_groups_that_are_no_dict() -> None:
    kind = known_group(({"a"},))  # type: ignore[arg-type]  # what it must not be
    with pytest.raises(TypeError):
        in_c.Table({}, {name(8, 6): GroupMatch(kind, (8, 6), lambda *_: None, COMMIT)}, SILENT)


def test_a_walk_refuses_what_is_no_range_of_the_buffer() -> None:
    """C reads nothing outside."""
    walk = in_c.ResponseWalk(in_c.Pending(), FRAME_MAX)
    for start, end in ((-1, 4), (4, 2), (0, 9)):
        with pytest.raises(ValueError, match="no range"):
            walk.receive(memoryview(bytes(8)), start, end)


def test_a_table_refuses_names_that_are_no_api_version() -> None:
    """Four bytes each."""
    with pytest.raises(ValueError, match="four bytes"):
        in_c.Table({b"12": PLAIN}, {}, SILENT)


class Produced:
    """Expected of Produce v10 and later: its responses pass unless they have something to rewrite."""

    def __init__(self, version: int) -> None:
        self.rewrite = self
        self.produce_version = version

    def __call__(self, frame: memoryview, context: object) -> None:
        raise AssertionError("nothing is gathered here")


def produced(version: int, **changes: Any) -> bytes:
    """A response of the codec."""
    message = registry.message("ProduceResponse")
    part = {"index": 1, "error_code": 6, "base_offset": 5, "record_errors": [], "error_message": None}
    partition = message.PartitionProduceResponse(**{**part, **changes.get("partition", {})})
    topics = [
        message.TopicProduceResponse(name=name, topic_id=b"t" * 16, partition_responses=[partition, partition])
        for name in ("a", "long" * 20)
    ]
    return frames.response(0, version, 7, message(responses=topics, **changes.get("top", {})))


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_responses_to_produce_pass_in_c_unless_they_contain_node_endpoints(version: int) -> None:
    """Complete ones are forwarded as the codec makes them; truncated ones wait for more bytes."""
    message = registry.message("ProduceResponse")
    node = message.NodeEndpoint(node_id=1, host="kafka-1", port=9092)
    leader = message.LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    error = message.BatchIndexAndErrorMessage(batch_index=0)
    for changes, passes in (
        ({}, True),
        ({"top": {"responses": []}}, True),
        ({"top": {"throttle_time_ms": 3}}, True),
        ({"top": {"node_endpoints": [node]}}, False),
        ({"partition": {"current_leader": leader}}, False),
        ({"partition": {"error_message": "no"}}, False),
        ({"partition": {"record_errors": [error]}}, False),
    ):
        if "responses" in changes.get("top", {}):
            data = frames.response(0, version, 7, message(responses=[]))
        else:
            data = produced(version, **changes)
        buffer = memoryview(bytearray(data + bytes(64)))
        for end in (len(data), *range(8, len(data))):
            pending = in_c.Pending()
            pending.append((7, Produced(version)))
            upto = in_c.ResponseWalk(pending, FRAME_MAX).receive(buffer, 0, end)
            assert upto == (end if passes and end == len(data) else 0), changes
