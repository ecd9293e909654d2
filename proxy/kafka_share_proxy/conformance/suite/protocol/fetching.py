"""Cases of Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import time
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.partition_reads import fetch, fetched, read
from kafka_share_proxy.conformance.suite.transactional_producers import begin_transactions, topic_and_producer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

SCHEMA = "FetchResponse.json"
SESSIONS = "KIP-227; SessionFetches"
EPOCHS = "KIP-320; Partition.checkCurrentLeaderEpoch"
LAST_STABLE = "KIP-98; FetchResponse.json (LastStableOffset, AbortedTransactions)"
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
READ_COMMITTED = 1
START_MS = int(time.time() * 1000) - 60_000


@case("produce-fetch.fetch.from-the-start", SCHEMA)
async def from_the_start(run: CaseRun) -> None:
    """A Fetch from offset 0 returns the batches with high watermark, last stable offset and log start offset."""
    topic = await run.topic()
    await run.produce(topic, 3, 2)
    partition = await read(run, topic)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("batches", spans_of(partition.records), [(0, 2, 3), (3, 4, 2)])
    equal("HighWatermark", partition.high_watermark, 5)
    equal("LastStableOffset", partition.last_stable_offset, 5)
    equal("LogStartOffset", partition.log_start_offset, 0)
    equal("PreferredReadReplica", partition.preferred_read_replica, -1)


@case_for_each(
    {str(version): (version,) for version in range(4, 19)},
    "produce-fetch.fetch.version-{name}",
    "FetchRequest.json",
    needs=("Fetch:{0}",),
)
async def each_version(run: CaseRun, version: int) -> None:
    """Fetch v{0} returns the records that were produced."""
    topic = await run.topic(count=3)
    response = await fetch(run, topic, version=version)
    partition = response.responses[0].partitions[0]
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("values", values_of(partition.records), [(n, b"record %d" % n) for n in range(3)])
    topic_in_response = bytes(response.responses[0].topic_id) if version >= 13 else response.responses[0].topic
    equal("topic", topic_in_response, topic.topic_id if version >= 13 else topic.name)


@case("produce-fetch.fetch.inside-a-batch", "KIP-74; FetchRequest.json")
async def inside_a_batch(run: CaseRun) -> None:
    """A Fetch from an offset inside a batch returns the whole batch."""
    topic = await run.topic()
    await run.produce(topic, 5, 5)
    equal("batches", spans_of((await read(run, topic, offset=7)).records), [(5, 9, 5)])


@case("produce-fetch.fetch.at-the-end", SCHEMA)
async def at_the_end(run: CaseRun) -> None:
    """A Fetch at the end of the log returns no records and no error."""
    topic = await run.topic(count=3)
    partition = await read(run, topic, offset=3)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("bytes of records", len(partition.records or b""), 0)
    equal("HighWatermark", partition.high_watermark, 3)


@case_for_each(
    {"above": (0, 4), "below": (2, 1), "negative": (0, -1)},
    "produce-fetch.fetch.out-of-range-{name}",
    "UnifiedLog.read",
)
async def out_of_range(run: CaseRun, start: int, offset: int) -> None:
    """A log of the offsets {0} to 2 and a Fetch from {1}: OFFSET_OUT_OF_RANGE."""
    topic = await run.topic(count=3)
    if start:
        await run.delete_records(topic, start)
    partition = await read(run, topic, offset=offset)
    equal("ErrorCode", partition.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
    equal("bytes of records", len(partition.records or b""), 0)


@case_for_each(
    {"topic": ("none", 0), "partition": ("", 9)}, "produce-fetch.fetch.unknown-{name}", "KafkaApis.handleFetchRequest"
)
async def unknown(run: CaseRun, kind: str, partition: int) -> None:
    """A Fetch of an unknown {name} gets UNKNOWN_TOPIC_OR_PARTITION."""
    topic = await run.topic()
    other_topic = CaseTopic(run.name(kind) if kind else topic.name, topic.topic_id, topic.leaders)
    code = (await read(run, other_topic, partition=partition, on=await run.leader(topic))).error_code
    equal("ErrorCode", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case("produce-fetch.fetch.unknown-topic-id", "KIP-516; FetchRequest.json", needs=("Fetch:13",))
async def unknown_topic_id(run: CaseRun) -> None:
    """A Fetch v13 of an unknown topic id gets UNKNOWN_TOPIC_ID."""
    topic = await run.topic()
    unknown_topic = CaseTopic(topic.name, b"\x05" * 16, topic.leaders)
    partition = await read(run, unknown_topic, version=13)
    equal("ErrorCode", partition.error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("produce-fetch.fetch.one-batch-at-least", "KIP-74")
async def one_batch_at_least(run: CaseRun) -> None:
    """PartitionMaxBytes 1 returns one whole batch."""
    topic = await run.topic()
    await run.produce(topic, 5, 5)
    equal("batches", spans_of((await read(run, topic, partition_max_bytes=1)).records), [(0, 4, 5)])


@case("produce-fetch.fetch.max-bytes-of-all", "KIP-74; ReplicaManager.readFromLog")
async def max_bytes_of_all(run: CaseRun) -> None:
    """MaxBytes 1 over two partitions returns one batch of the first and nothing of the second."""
    topic = await run.topic(2, count=5)
    response = await fetch(run, topic, fetched(0), fetched(1), max_bytes=1)
    spans = [spans_of(each.records) for each in response.responses[0].partitions]
    equal("batches by partition", spans, [[(0, 4, 5)], []])


@case("produce-fetch.fetch.partition-max-bytes", "KIP-74")
async def partition_max_bytes(run: CaseRun) -> None:
    """PartitionMaxBytes limits the records of each partition to whole batches."""
    topic = await run.topic()
    await run.produce(topic, [b"x" * 400], [b"x" * 400], [b"x" * 400])
    data = (await read(run, topic, partition_max_bytes=1000)).records
    equal("whole batches", spans_of(data), [(0, 0, 1), (1, 1, 1)])
    true("bytes", len(data) <= 1000, "at most 1000", len(data))


@case("produce-fetch.fetch.waits-max-wait", "DelayedFetch")
async def waits(run: CaseRun) -> None:
    """A Fetch at the end of the log with MinBytes 1 waits for MaxWaitMs."""
    topic = await run.topic()
    started_at = time.monotonic()
    await read(run, topic, max_wait_ms=800, min_bytes=1)
    true("duration", time.monotonic() - started_at > 0.7, "at least 700 ms")


@case("produce-fetch.fetch.waits-for-records", "DelayedFetch")
async def waits_for_records(run: CaseRun) -> None:
    """A waiting Fetch returns when a record is produced."""
    topic = await run.topic()
    connection = await run.connect(await run.node(topic.leaders[0]))

    async def produce_later() -> None:
        await trio.sleep(0.3)
        await run.produce(topic, 1)

    started_at = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce_later)
        partition = await read(run, topic, max_wait_ms=20_000, min_bytes=1, on=connection)
    true("duration", time.monotonic() - started_at < 15, "less than MaxWaitMs")
    equal("batches", spans_of(partition.records), [(0, 0, 1)])


# Leader epochs


@case_for_each(
    {
        "none": (-1, ErrorCode.NONE),
        "current": (0, ErrorCode.NONE),
        "negative": (-2, ErrorCode.NONE),
        "later": (99, ErrorCode.UNKNOWN_LEADER_EPOCH),
    },
    "produce-fetch.epochs.fetch-{name}",
    EPOCHS,
)
async def fetch_epoch(run: CaseRun, epoch: int, code: ErrorCode) -> None:
    """A Fetch with CurrentLeaderEpoch {0} of a partition in epoch 0 gets {1.name}."""
    topic = await run.topic(count=1)
    equal("ErrorCode", (await read(run, topic, current_leader_epoch=epoch)).error_code, code)


@case("produce-fetch.epochs.diverging", "KIP-595; FetchResponse.json (DivergingEpoch)", needs=("Fetch:12",))
async def diverging(run: CaseRun) -> None:
    """A Fetch whose LastFetchedEpoch ends before its offset gets the DivergingEpoch: epoch and its end offset."""
    topic = await run.topic(count=3)
    partition = await read(run, topic, offset=7, last_fetched_epoch=0)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    actual = (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
    equal("DivergingEpoch", actual, (0, 3))


@case_for_each(
    {
        "current": (0, 0, (0, 0, 3)),
        "later": (5, -1, (0, -1, -1)),
        "fenced-current": (0, -2, (74, -1, -1)),
        "unknown-current": (0, 99, (75, -1, -1)),
    },
    "produce-fetch.epochs.end-of-epoch-{name}",
    "KIP-320; OffsetForLeaderEpochResponse.json",
)
async def end_of_epoch(run: CaseRun, epoch: int, current: int, expected: tuple[int, int, int]) -> None:
    """OffsetForLeaderEpoch of epoch {0} with CurrentLeaderEpoch {1} returns (error, epoch, end offset) {2}."""
    topic = await run.topic(count=3)
    partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    topics = [{"topic": topic.name, "partitions": [partition]}]
    response = await run.request("OffsetForLeaderEpoch", await run.leader(topic), replica_id=-1, topics=topics)
    actual = response.topics[0].partitions[0]
    equal("error, epoch and end offset", (actual.error_code, actual.leader_epoch, actual.end_offset), expected)


# Fetch sessions


class SessionFetches:
    """A fetch session on one connection."""

    def __init__(self, run: CaseRun, topic: CaseTopic, connection: PeerConnection) -> None:
        self.run, self.topic, self.connection = run, topic, connection
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, *partitions: dict[str, Any], **fields: Any) -> Any:
        """Send the next request of the session."""
        topics = [{"topic": self.topic.name, "partitions": list(partitions)}] if partitions else []
        values: dict[str, Any] = {"session_id": self.session_id, "session_epoch": self.epoch, "topics": topics} | fields
        response = await fetch(self.run, self.topic, on=self.connection, **values)
        if response.error_code == 0:
            self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response


async def session(run: CaseRun, partitions: int = 1, count: int = 0) -> SessionFetches:
    """An established fetch session over all partitions, from offset 0."""
    topic = await run.topic(partitions, count=count)
    fetch_session = SessionFetches(run, topic, await run.connect(await run.node(topic.leaders[0])))
    await fetch_session.fetch(*map(fetched, topic.partitions))
    return fetch_session


@case("produce-fetch.sessions.established", SESSIONS)
async def established(run: CaseRun) -> None:
    """A full Fetch with epoch 0 establishes a session: SessionId is not 0 and every partition is in the response."""
    topic = await run.topic(2, count=1)
    fetch_session = SessionFetches(run, topic, await run.connect(await run.node(topic.leaders[0])))
    response = await fetch_session.fetch(*map(fetched, topic.partitions))
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    true("SessionId", response.session_id != 0, "not 0", response.session_id)
    equal("partitions", sorted(p.partition_index for p in response.responses[0].partitions), [0, 1])


@case("produce-fetch.sessions.sessionless", SESSIONS)
async def sessionless(run: CaseRun) -> None:
    """A Fetch with epoch -1 and no session establishes none: SessionId is 0."""
    equal("SessionId", (await fetch(run, await run.topic(), session_epoch=-1)).session_id, 0)


@case("produce-fetch.sessions.unchanged-left-out", SESSIONS)
async def unchanged_left_out(run: CaseRun) -> None:
    """An incremental Fetch returns only partitions with something new."""
    fetch_session = await session(run)
    equal("topics without anything new", list((await fetch_session.fetch()).responses), [])
    await run.produce(fetch_session.topic, 2)
    response = await fetch_session.fetch()
    equal("batches", spans_of(response.responses[0].partitions[0].records), [(0, 1, 2)])


@case("produce-fetch.sessions.moved-position", SESSIONS)
async def moved_position(run: CaseRun) -> None:
    """An incremental Fetch that names a partition changes its position in the session."""
    fetch_session = await session(run, count=5)
    response = await fetch_session.fetch(fetched(0, 5))
    equal("records at the new position", [len(p.records or b"") for t in response.responses for p in t.partitions], [])
    await run.produce(fetch_session.topic, 1)
    response = await fetch_session.fetch()
    equal("batches", spans_of(response.responses[0].partitions[0].records), [(5, 5, 1)])


@case("produce-fetch.sessions.forgotten", SESSIONS)
async def forgotten(run: CaseRun) -> None:
    """A partition in ForgottenTopicsData is no longer fetched."""
    fetch_session = await session(run, partitions=2)
    await fetch_session.fetch(forgotten_topics_data=[{"topic": fetch_session.topic.name, "partitions": [0]}])
    for partition in (0, 1):
        await run.produce(fetch_session.topic, 1, partition=partition)
    response = await fetch_session.fetch()
    actual = [p.partition_index for t in response.responses for p in t.partitions]
    equal("partitions", actual, [1])


@case_for_each({"ahead": (1,), "repeated": (-1,)}, "produce-fetch.sessions.epoch-{name}", SESSIONS)
async def wrong_epoch(run: CaseRun, difference: int) -> None:
    """An incremental Fetch with an epoch {0:+d} from the expected one gets INVALID_FETCH_SESSION_EPOCH."""
    fetch_session = await session(run)
    await fetch_session.fetch()
    response = await fetch_session.fetch(session_epoch=fetch_session.epoch + difference)
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    equal("topics", list(response.responses), [])


@case("produce-fetch.sessions.unknown", SESSIONS)
async def unknown_session(run: CaseRun) -> None:
    """An incremental Fetch of an unknown session gets FETCH_SESSION_ID_NOT_FOUND."""
    topic = await run.topic()
    response = await fetch(run, topic, session_id=123_456_789, session_epoch=5, topics=[])
    equal("ErrorCode", response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@case("produce-fetch.sessions.closed", SESSIONS)
async def closed(run: CaseRun) -> None:
    """A Fetch with epoch -1 ends the session."""
    fetch_session = await session(run)
    ended = fetch_session.session_id
    response = await fetch_session.fetch(session_epoch=-1)
    equal("SessionId", response.session_id, 0)
    response = await fetch_session.fetch(session_id=ended, session_epoch=1)
    equal("ErrorCode after the end", response.error_code, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@case("produce-fetch.sessions.several-connections", SESSIONS)
async def several_connections(run: CaseRun) -> None:
    """A fetch session is not bound to its connection."""
    fetch_session = await session(run)
    fetch_session.connection = await run.connect(fetch_session.connection.address)
    equal("ErrorCode", (await fetch_session.fetch()).error_code, ErrorCode.NONE)


# Isolation


@case("produce-fetch.isolation.committed", LAST_STABLE)
async def committed(run: CaseRun) -> None:
    """After a committed transaction both levels read its records and its marker, and no transaction is aborted."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 2)
    await producer.end(committed=True)
    await run.until(lambda: has_stable_end(run, topic, 3), "the marker")
    partition = await read(run, topic, isolation_level=READ_COMMITTED)
    batches = list(records.iter_batches(partition.records))
    equal("offsets", [(each.base_offset, each.last_offset) for each in batches], [(0, 1), (2, 2)])
    equal("control batches", [each.is_control for each in batches], [False, True])
    equal("AbortedTransactions", list(partition.aborted_transactions or ()), [])


async def has_stable_end(run: CaseRun, topic: CaseTopic, offset: int) -> bool:
    """Return True if the last stable offset is this."""
    return await run.end_offset(topic, isolation=READ_COMMITTED) == offset


@case("produce-fetch.isolation.aborted", LAST_STABLE)
async def aborted(run: CaseRun) -> None:
    """Of an aborted transaction read_committed returns the records and lists producer id and first offset."""
    topic = await run.topic(count=1)
    producer = await begin_transactions(run)
    await producer.append(topic, 2)
    await producer.end(committed=False)
    await run.until(lambda: has_stable_end(run, topic, 4), "the marker")
    partition = await read(run, topic, isolation_level=READ_COMMITTED)
    listed = [(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()]
    equal("AbortedTransactions", listed, [(producer.producer_id, 1)])
    equal("batches", [span[:2] for span in spans_of(partition.records)], [(0, 0), (1, 2), (3, 3)])
    plain = await read(run, topic, isolation_level=0)
    equal("AbortedTransactions of read_uncommitted", list(plain.aborted_transactions or ()), [])


@case("produce-fetch.isolation.open-transaction", LAST_STABLE)
async def open_transaction(run: CaseRun) -> None:
    """read_committed ends at the first offset of an open transaction; read_uncommitted reads on."""
    topic = await run.topic(count=2)
    producer = await begin_transactions(run)
    await producer.append(topic, 2)
    await run.produce(topic, 1)
    partition = await read(run, topic, isolation_level=READ_COMMITTED)
    equal("LastStableOffset", partition.last_stable_offset, 2)
    equal("HighWatermark", partition.high_watermark, 5)
    equal("batches", spans_of(partition.records), [(0, 1, 2)])
    plain = await read(run, topic)
    equal("batches of read_uncommitted", spans_of(plain.records), [(0, 1, 2), (2, 3, 2), (4, 4, 1)])
    equal("latest of read_committed", await run.end_offset(topic, isolation=READ_COMMITTED), 2)
    await producer.end(committed=True)
