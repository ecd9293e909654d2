"""Cases of Produce: acknowledgement modes, checks of batches, idempotence."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.conformance.suite.building import KEYS, build
from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.conformance.suite.partition_reads import read
from kafka_share_proxy.conformance.suite.transactional_producers import idempotent_producer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression, records

SCHEMA = "ProduceResponse.json"
CHECKS = "LogValidator, ProduceRequest.validateRecords"
IDEMPOTENCE = "KIP-98; ProducerAppendInfo"
LAST_SEQUENCE = 0x7FFFFFFF
OLD_MS = int(time.time() * 1000) - 3_600_000
CACHED_BATCHES = 5


def plain_batch(count: int = 1, **fields: object) -> bytes:
    """Return a batch of a producer without an id."""
    batch_records = [records.Record(value=b"value %d" % n, timestamp=OLD_MS) for n in range(count)]
    return records.build_batch(0, batch_records, **fields)  # type: ignore[arg-type]  # passed on as they are


@case_for_each({"leader": (1,), "all": (-1,)}, "produce-fetch.produce.acks-{name}", SCHEMA)
async def acks(run: CaseRun, number: int) -> None:
    """Produce with acks {0} returns the base offset, no append time and the log start offset."""
    topic = await run.topic(count=3)
    response = await run.append(topic, plain_batch(2), acks=number)
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    equal("BaseOffset", response.base_offset, 3)
    equal("LogAppendTimeMs", response.log_append_time_ms, -1)
    equal("LogStartOffset", response.log_start_offset, 0)

    async def is_replicated() -> bool:  # with acks 1 the response precedes the followers
        return await run.end_offset(topic) == 5

    await run.until(is_replicated, "end of the log at 5")


@case("produce-fetch.produce.acks-none", "ProduceRequest.json (Acks)")
async def acks_none(run: CaseRun) -> None:
    """Produce with acks 0 gets no response, and the next response on the connection is that of the next request."""
    topic = await run.topic()
    connection = await run.connect(await run.node(topic.leaders[0]))
    entry = {"name": topic.name, "partition_data": [{"index": 0, "records": plain_batch()}]}
    message = build("Produce", acks=0, timeout_ms=1000, topic_data=[entry])
    await connection.send(KEYS["Produce"], run.cluster.version("Produce"), message)
    await connection.request("ApiVersions", 0)
    await run.until(lambda: _has_end(run, topic, 1), "the record")


async def _has_end(run: CaseRun, topic: CaseTopic, offset: int) -> bool:
    return await run.end_offset(topic) == offset


@case("produce-fetch.produce.acks-none-refused", "KafkaApis.handleProduceRequest")
async def acks_none_refused(run: CaseRun) -> None:
    """A refused Produce with acks 0 ends the connection, because there is no response to report it."""
    topic = await run.topic()
    connection = await run.connect(await run.node(topic.leaders[0]))
    entry = {"name": run.name("none"), "partition_data": [{"index": 0, "records": plain_batch()}]}
    message = build("Produce", acks=0, timeout_ms=1000, topic_data=[entry])
    await connection.send(KEYS["Produce"], run.cluster.version("Produce"), message)
    true("connection", await connection.is_closed_by_peer(), "closed by the peer")


@case_for_each(
    {"2": (2,), "minus-2": (-2,)}, "produce-fetch.produce.invalid-acks-{name}", "ReplicaManager.appendRecords"
)
async def invalid_acks(run: CaseRun, number: int) -> None:
    """Produce with acks {0} gets INVALID_REQUIRED_ACKS for its partition."""
    topic = await run.topic()
    response = await run.append(topic, plain_batch(), acks=number)
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUIRED_ACKS)
    equal("end of the log", await run.end_offset(topic), 0)


@case_for_each(
    {"topic": ("none", 0), "partition": ("", 9)},
    "produce-fetch.produce.unknown-{name}",
    "KafkaApis.handleProduceRequest",
)
async def unknown(run: CaseRun, kind: str, partition: int) -> None:
    """Produce to an unknown {name} gets UNKNOWN_TOPIC_OR_PARTITION and base offset -1."""
    topic = await run.topic()
    entry: dict[str, Any] = {"name": run.name(kind) if kind else topic.name}
    entry |= {"partition_data": [{"index": partition, "records": plain_batch()}]}
    response = await run.request("Produce", await run.leader(topic), acks=-1, timeout_ms=1000, topic_data=[entry])
    partition_response = response.responses[0].partition_responses[0]
    equal("ErrorCode", partition_response.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    equal("BaseOffset", partition_response.base_offset, -1)


@case("produce-fetch.produce.unknown-topic-id", "KIP-516; ProduceRequest.json", needs=("Produce:13",))
async def unknown_topic_id(run: CaseRun) -> None:
    """Produce v13 to an unknown topic id gets UNKNOWN_TOPIC_ID."""
    topic = await run.topic()
    unknown_topic = CaseTopic(topic.name, b"\x05" * 16, topic.leaders)
    response = await run.append(unknown_topic, plain_batch(), version=13)
    equal("ErrorCode", response.error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("produce-fetch.produce.by-topic-id", "KIP-516; ProduceRequest.json", needs=("Produce:13",))
async def by_topic_id(run: CaseRun) -> None:
    """Produce v13 names its topic by id and is accepted."""
    topic = await run.topic()
    response = await run.append(topic, plain_batch(2), version=13)
    equal("ErrorCode and BaseOffset", (response.error_code, response.base_offset), (0, 0))


@case_for_each(
    {str(version): (version,) for version in range(3, 13)},
    "produce-fetch.produce.version-{name}",
    "ProduceRequest.json",
    needs=("Produce:{0}",),
)
async def each_version(run: CaseRun, version: int) -> None:
    """Produce v{0} appends a batch and returns its base offset."""
    topic = await run.topic(count=1)
    response = await run.append(topic, plain_batch(2), version=version)
    equal("ErrorCode and BaseOffset", (response.error_code, response.base_offset), (0, 1))
    data = (await read(run, topic, offset=1)).records
    equal("read values", values_of(data), [(1, b"value 0"), (2, b"value 1")])


def _spoiled() -> bytes:
    good = bytearray(plain_batch())
    good[-1] ^= 0xFF
    return bytes(good)


def _shortened_count() -> bytes:
    batch = bytearray(plain_batch(2))
    batch[57:61] = (5).to_bytes(4, "big")
    return records.seal(bytes(batch))


BAD_BATCHES: Mapping[str, tuple[bytes | None, str, list[ErrorCode]]] = {
    "checksum": (_spoiled(), "a wrong checksum", [ErrorCode.CORRUPT_MESSAGE]),
    "two-batches": (plain_batch() + plain_batch(), "two batches", [ErrorCode.INVALID_RECORD]),
    "empty": (b"", "no batch", [ErrorCode.INVALID_RECORD]),
    "count": (_shortened_count(), "fewer records than its header says", [ErrorCode.INVALID_RECORD]),
    "control": (
        plain_batch(is_control=True),
        "the control bit",
        [ErrorCode.INVALID_RECORD],
    ),
}


@case_for_each(
    {name: (data, words, codes) for name, (data, words, codes) in BAD_BATCHES.items()},
    "produce-fetch.produce.bad-batch-{name}",
    CHECKS,
)
async def bad_batch(run: CaseRun, data: bytes | None, _words: str, codes: list[ErrorCode]) -> None:
    """A batch with {1} is refused with {2[0].name}, and nothing is appended."""
    topic = await run.topic()
    response = await run.append(topic, data)
    one_of("ErrorCode", response.error_code, codes)
    equal("BaseOffset", response.base_offset, -1)
    equal("end of the log", await run.end_offset(topic), 0)


CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@case_for_each(
    {name: (name, codec) for name, codec in CODECS.items()},
    "produce-fetch.produce.codec-{name}",
    "LogValidator; KIP-110",
)
async def codec_kept(run: CaseRun, _name: str, codec: int) -> None:
    """A batch compressed with {0} is appended and read with the same codec and records."""
    topic = await run.topic()
    values = [b"a compressed value " * 20] * 5
    batch_records = [records.Record(value=value, timestamp=OLD_MS) for value in values]
    response = await run.append(topic, records.build_batch(0, batch_records, codec=codec))
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    data = (await read(run, topic)).records
    equal("codec", [each.compression for each in records.iter_batches(data)], [codec])
    equal("values", [value for _, value in values_of(data)], values)


@case_for_each(
    {name: (name, codec) for name, codec in CODECS.items()},
    "produce-fetch.produce.topic-codec-{name}",
    "LogValidator (compression.type)",
)
async def topic_codec(run: CaseRun, name: str, codec: int) -> None:
    """A topic with compression.type {0} stores an uncompressed batch compressed with {0}."""
    topic = await run.topic(configs={"compression.type": name})
    await run.append(topic, plain_batch(3))
    data = (await read(run, topic)).records
    equal("codec", [each.compression for each in records.iter_batches(data)], [codec])
    equal("values", [value for _, value in values_of(data)], [b"value 0", b"value 1", b"value 2"])


@case("produce-fetch.produce.zstd-before-version-7", "KIP-110; ProduceRequest.validateRecords", needs=("Produce:6",))
async def early_zstd(run: CaseRun) -> None:
    """A batch compressed with zstd in Produce v6 gets UNSUPPORTED_COMPRESSION_TYPE."""
    topic = await run.topic()
    response = await run.append(topic, plain_batch(codec=compression.ZSTD), version=6)
    equal("ErrorCode", response.error_code, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@case("produce-fetch.produce.too-large", "UnifiedLog.append (max.message.bytes)")
async def too_large(run: CaseRun) -> None:
    """A batch larger than max.message.bytes of its topic gets MESSAGE_TOO_LARGE."""
    topic = await run.topic(configs={"max.message.bytes": "500"})
    big = records.build_batch(0, [records.Record(value=b"x" * 600, timestamp=OLD_MS)])
    equal("ErrorCode", (await run.append(topic, big)).error_code, ErrorCode.MESSAGE_TOO_LARGE)
    equal("ErrorCode of a small batch", (await run.append(topic, plain_batch())).error_code, ErrorCode.NONE)


@case("produce-fetch.produce.log-append-time", "KIP-32; ProduceResponse.json (LogAppendTimeMs)")
async def log_append_time(run: CaseRun) -> None:
    """A topic with LogAppendTime returns the broker's time, and the records are read with it."""
    topic = await run.topic(configs={"message.timestamp.type": "LogAppendTime"})
    response = await run.append(topic, plain_batch(2))
    now = int(time.time() * 1000)
    shown = response.log_append_time_ms
    true("LogAppendTimeMs", abs(now - shown) < 600_000, f"within ten minutes of {now}", shown)
    data = (await read(run, topic)).records
    (batch,) = records.iter_batches(data)
    equal("timestamp type", batch.timestamp_type, records.LOG_APPEND_TIME)
    equal("timestamps", {r.timestamp for r in records.decode_records(data)}, {shown})


@case("produce-fetch.produce.timestamp-too-old", "KIP-937; LogValidator.validateTimestamp")
async def timestamp_too_old(run: CaseRun) -> None:
    """A timestamp before message.timestamp.before.max.ms gets INVALID_TIMESTAMP."""
    topic = await run.topic(configs={"message.timestamp.before.max.ms": "60000"})
    equal("ErrorCode", (await run.append(topic, plain_batch())).error_code, ErrorCode.INVALID_TIMESTAMP)


@case("produce-fetch.produce.compacted-without-key", "KIP-467; LogValidator.validateKey", needs=("Produce:8",))
async def compacted_without_key(run: CaseRun) -> None:
    """A record without a key in a compacted topic gets INVALID_RECORD and is named in RecordErrors."""
    topic = await run.topic(configs={"cleanup.policy": "compact"})
    batch_records = [
        records.Record(key=b"k", value=b"v", timestamp=OLD_MS),
        records.Record(value=b"v", timestamp=OLD_MS),
    ]
    response = await run.append(topic, records.build_batch(0, batch_records))
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_RECORD)
    equal("RecordErrors", [each.batch_index for each in response.record_errors], [1])
    equal("end of the log", await run.end_offset(topic), 0)


@case("produce-fetch.produce.partitions-are-independent", "ReplicaManager.appendRecords")
async def partitions_are_independent(run: CaseRun) -> None:
    """A refused partition does not affect another of the same request."""
    topic = await run.topic(2)
    data = [{"index": 0, "records": _spoiled()}, {"index": 1, "records": plain_batch()}]
    topics = [{"name": topic.name, "partition_data": data}]
    response = await run.request("Produce", await run.leader(topic), acks=-1, timeout_ms=1000, topic_data=topics)
    codes = {each.index: each.error_code for each in response.responses[0].partition_responses}
    expected = {0: int(ErrorCode.CORRUPT_MESSAGE), 1: 0}
    equal("errors by partition", codes, {index: expected[index] for index in codes})


# Idempotence


@case("produce-fetch.idempotence.producer-id", "KIP-98; InitProducerIdResponse.json")
async def producer_id(run: CaseRun) -> None:
    """InitProducerId without a transactional id returns a new id with epoch 0 each time."""
    first, second = await idempotent_producer(run), await idempotent_producer(run)
    true("ProducerId", first.producer_id >= 0, "0 or above", first.producer_id)
    true("second ProducerId", first.producer_id != second.producer_id, "another one", second.producer_id)
    equal("epochs", (first.epoch, second.epoch), (0, 0))


@case("produce-fetch.idempotence.duplicate", IDEMPOTENCE)
async def duplicate(run: CaseRun) -> None:
    """A repeated batch is appended once: the response has the same base offset and no error."""
    topic = await run.topic(count=1)
    producer = await idempotent_producer(run)
    first = await producer.try_append(topic, 3, 0)
    second = await producer.try_append(topic, 3, 0)
    equal("first", (first.error_code, first.base_offset), (0, 1))
    equal("second", (second.error_code, second.base_offset), (0, 1))
    equal("end of the log", await run.end_offset(topic), 4)


@case("produce-fetch.idempotence.old-duplicate", "ProducerStateEntry (NUM_BATCHES_TO_RETAIN)")
async def old_duplicate(run: CaseRun) -> None:
    """A repetition of any of the last five batches returns its own base offset."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    for number in range(CACHED_BATCHES):
        await producer.try_append(topic, 1, number)
    offsets = [(await producer.try_append(topic, 1, n)).base_offset for n in range(CACHED_BATCHES)]
    equal("base offsets", offsets, list(range(CACHED_BATCHES)))
    equal("end of the log", await run.end_offset(topic), CACHED_BATCHES)


@case("produce-fetch.idempotence.forgotten-duplicate", "ProducerAppendInfo.checkSequence")
async def forgotten_duplicate(run: CaseRun) -> None:
    """A repetition of a batch before the last five gets DUPLICATE_SEQUENCE_NUMBER or OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    for number in range(CACHED_BATCHES + 1):
        await producer.try_append(topic, 1, number)
    code = (await producer.try_append(topic, 1, 0)).error_code
    one_of("ErrorCode", code, [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
    equal("end of the log", await run.end_offset(topic), CACHED_BATCHES + 1)


@case_for_each(
    {"gap": (4,), "within-the-last-batch": (1,), "behind": (2,)},
    "produce-fetch.idempotence.sequence-{name}",
    IDEMPOTENCE,
)
async def wrong_sequence(run: CaseRun, sequence: int) -> None:
    """After three records with sequences 0 to 2, a batch of one with sequence {0} gets OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    await producer.try_append(topic, 3, 0)
    code = (await producer.try_append(topic, 1, sequence)).error_code
    equal("ErrorCode", code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    equal("error of the right sequence", (await producer.try_append(topic, 1, 3)).error_code, ErrorCode.NONE)


@case("produce-fetch.idempotence.sequence-wraps", "DefaultRecordBatch.incrementSequence")
async def sequence_wraps(run: CaseRun) -> None:
    """Sequence 2147483647 is followed by 0."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    first = await producer.try_append(topic, 2, LAST_SEQUENCE - 1)
    equal("first batch", (first.error_code, first.base_offset), (0, 0))
    second = await producer.try_append(topic, 1, 0)
    equal("batch with sequence 0", (second.error_code, second.base_offset), (0, 2))


@case("produce-fetch.idempotence.partitions-have-own-sequences", IDEMPOTENCE)
async def own_sequences(run: CaseRun) -> None:
    """Each partition has its own sequence."""
    topic = await run.topic(2)
    producer = await idempotent_producer(run)
    for partition in (0, 1):
        response = await producer.try_append(topic, 2, 0, partition)
        equal(f"partition {partition}", (response.error_code, response.base_offset), (0, 0))


@case("produce-fetch.idempotence.old-epoch", "KIP-98; ProducerAppendInfo.checkProducerEpoch")
async def old_epoch(run: CaseRun) -> None:
    """A batch with an epoch below the last one gets INVALID_PRODUCER_EPOCH."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    producer.epoch = 3
    equal("error of epoch 3", (await producer.try_append(topic, 1, 0)).error_code, ErrorCode.NONE)
    producer.epoch = 2
    equal("error of epoch 2", (await producer.try_append(topic, 1, 1)).error_code, ErrorCode.INVALID_PRODUCER_EPOCH)


@case_for_each(
    {"0": (0, ErrorCode.NONE), "1": (1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)},
    "produce-fetch.idempotence.new-epoch-from-{name}",
    "KIP-360; ProducerAppendInfo.checkSequence",
)
async def new_epoch(run: CaseRun, sequence: int, code: ErrorCode) -> None:
    """The first batch of a new epoch with sequence {0} gets {1.name}."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    await producer.try_append(topic, 1, 0)
    producer.epoch = 1
    equal("ErrorCode", (await producer.try_append(topic, 1, sequence)).error_code, code)


@case("produce-fetch.idempotence.batch-keeps-ids", "DefaultRecordBatch")
async def batch_keeps_ids(run: CaseRun) -> None:
    """A batch is read with the producer id, epoch and sequence that it was written with."""
    topic = await run.topic()
    producer = await idempotent_producer(run)
    await producer.try_append(topic, 2, 0)
    data = (await read(run, topic)).records
    (batch,) = records.iter_batches(data)
    actual = (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional)
    equal("ids of the batch", actual, (producer.producer_id, 0, 0, False))
    equal("offsets", spans_of(data), [(0, 1, 2)])
