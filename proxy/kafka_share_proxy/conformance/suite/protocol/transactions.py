"""Cases of transactions: producer ids and fencing, partitions, ends, offsets, description."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.classic_members import stable_member
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.conformance.suite.partition_reads import read
from kafka_share_proxy.conformance.suite.protocol.committed_offsets import committed
from kafka_share_proxy.conformance.suite.protocol.fetching import has_stable_end
from kafka_share_proxy.conformance.suite.transactional_producers import Producer, begin_transactions, topic_and_producer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

INIT = "KIP-98, KIP-360; TransactionCoordinator.handleInitProducerId"
END = "KIP-98; TransactionCoordinator.endTransaction"
OFFSETS = "KIP-98, KIP-447; OffsetMetadataManager"
READ_COMMITTED = 1


@case("transactions.init.same-id", INIT)
async def same_id(run: CaseRun) -> None:
    """A second InitProducerId of a transactional id returns the same producer id with the next epoch."""
    first = await begin_transactions(run)
    second = await begin_transactions(run, first.transactional_id)
    equal("ProducerId", second.producer_id, first.producer_id)
    equal("epochs", (first.epoch, second.epoch), (0, 1))


@case_for_each(
    {"zero": (0,), "too-long": (2_000_000_000,)},
    "transactions.init.timeout-{name}",
    "TransactionCoordinator (transaction.max.timeout.ms)",
)
async def invalid_timeout(run: CaseRun, timeout_ms: int) -> None:
    """InitProducerId with a timeout of {0} ms gets INVALID_TRANSACTION_TIMEOUT."""
    first = await begin_transactions(run)
    response = await run.request(
        "InitProducerId",
        first.coordinator,
        transactional_id=first.transactional_id,
        transaction_timeout_ms=timeout_ms,
    )
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@case("transactions.init.empty-id", INIT)
async def empty_id(run: CaseRun) -> None:
    """InitProducerId with an empty transactional id gets INVALID_REQUEST."""
    response = await run.request("InitProducerId", transactional_id="", transaction_timeout_ms=60_000)
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUEST)


@case("transactions.init.own-epoch", INIT)
async def own_epoch(run: CaseRun) -> None:
    """InitProducerId with the present producer id and epoch returns the next epoch (KIP-360)."""
    producer = await begin_transactions(run)
    response = await init_with(run, producer, producer.producer_id, producer.epoch)
    actual = (response.error_code, response.producer_id, response.producer_epoch)
    equal("error, id and epoch", actual, (0, producer.producer_id, 1))


async def init_with(run: CaseRun, producer: Producer, producer_id: int, epoch: int) -> Any:
    """Return the response to an InitProducerId that names an id and epoch."""
    return await run.request(
        "InitProducerId",
        producer.coordinator,
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@case("transactions.init.old-epoch", INIT)
async def old_epoch(run: CaseRun) -> None:
    """InitProducerId with an epoch of an earlier producer gets PRODUCER_FENCED."""
    first = await begin_transactions(run)
    await begin_transactions(run, first.transactional_id)
    await begin_transactions(run, first.transactional_id)
    response = await init_with(run, first, first.producer_id, first.epoch)
    equal("ErrorCode", response.error_code, ErrorCode.PRODUCER_FENCED)


@case("transactions.init.aborts-the-open-one", INIT)
async def aborts_the_open_one(run: CaseRun) -> None:
    """A new producer with the same transactional id aborts the open transaction of the earlier one."""
    topic, first = await topic_and_producer(run)
    await first.append(topic, 2)
    await begin_transactions(run, first.transactional_id)
    await run.until(lambda: has_stable_end(run, topic, 3), "the abort marker")
    partition = await read(run, topic, isolation_level=READ_COMMITTED)
    equal("AbortedTransactions", [each.first_offset for each in partition.aborted_transactions], [0])


@case_for_each(
    {"add": ("AddPartitionsToTxn",), "end": ("EndTxn",)},
    "transactions.fenced.{name}",
    "KIP-588; TransactionCoordinator",
)
async def fenced(run: CaseRun, api: str) -> None:
    """{0} of a fenced producer gets PRODUCER_FENCED."""
    topic, first = await topic_and_producer(run)
    await first.append(topic, 1)
    await begin_transactions(run, first.transactional_id)
    code = await (first.add_partition(topic) if api == "AddPartitionsToTxn" else first.end_code(committed=True))
    equal("ErrorCode", code, ErrorCode.PRODUCER_FENCED)


@case("transactions.fenced.produce", "KIP-588; ProducerAppendInfo.checkProducerEpoch")
async def fenced_produce(run: CaseRun) -> None:
    """Produce of a fenced producer gets INVALID_PRODUCER_EPOCH."""
    topic, first = await topic_and_producer(run)
    await first.append(topic, 1)
    second = await begin_transactions(run, first.transactional_id)
    await second.append(topic, 1)
    code = (await first.try_append(topic, 1, 1)).error_code
    equal("ErrorCode", code, ErrorCode.INVALID_PRODUCER_EPOCH)
    await second.end(committed=True)


@case("transactions.add.wrong-producer-id", "TransactionCoordinator.handleAddPartitionsToTransaction")
async def wrong_producer_id(run: CaseRun) -> None:
    """AddPartitionsToTxn with another producer id gets INVALID_PRODUCER_ID_MAPPING."""
    topic, producer = await topic_and_producer(run)
    producer.producer_id += 1_000_000
    equal("ErrorCode", await producer.add_partition(topic), ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@case("transactions.add.unknown-id", "TransactionCoordinator.handleAddPartitionsToTransaction")
async def unknown_transactional_id(run: CaseRun) -> None:
    """AddPartitionsToTxn of an unknown transactional id gets INVALID_PRODUCER_ID_MAPPING."""
    topic, producer = await topic_and_producer(run)
    producer.transactional_id = run.name("none")
    producer.coordinator = await run.coordinator(producer.transactional_id, 1)
    equal("ErrorCode", await producer.add_partition(topic), ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@case("transactions.add.unknown-partition", "KafkaApis.handleAddPartitionsToTxnRequest")
async def unknown_partition(run: CaseRun) -> None:
    """AddPartitionsToTxn with an unknown partition adds none: UNKNOWN_TOPIC_OR_PARTITION and
    OPERATION_NOT_ATTEMPTED.
    """
    topic, producer = await topic_and_producer(run)
    response = await run.request(
        "AddPartitionsToTxn",
        producer.coordinator,
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[{"name": topic.name, "partitions": [0, 9]}],
    )
    results = response.results_by_topic_v3_and_below[0].results_by_partition
    codes = {each.partition_index: each.partition_error_code for each in results}
    expected = {0: int(ErrorCode.OPERATION_NOT_ATTEMPTED), 9: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    equal("errors", codes, expected)


@case("transactions.produce.not-added", "KIP-890 (transaction.partition.verification.enable)")
async def not_added(run: CaseRun) -> None:
    """A transactional batch for a partition that is not in the transaction is refused, and nothing is appended."""
    topic, producer = await topic_and_producer(run)
    code = (await producer.try_append(topic, 1, 0)).error_code
    one_of("ErrorCode", code, [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
    equal("end of the log", await run.end_offset(topic), 0)


@case_for_each({"commit": (True,), "abort": (False,)}, "transactions.end.without-transaction-{name}", END)
async def end_without(run: CaseRun, is_commit: bool) -> None:
    """EndTxn (committed {0}) without a transaction gets INVALID_TXN_STATE."""
    producer = await begin_transactions(run)
    equal("ErrorCode", await producer.end_code(committed=is_commit), ErrorCode.INVALID_TXN_STATE)


@case_for_each({"commit": (True,), "abort": (False,)}, "transactions.end.repeated-{name}", END)
async def end_repeated(run: CaseRun, is_commit: bool) -> None:
    """A repeated EndTxn (committed {0}) succeeds, because the response may be lost."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 1)
    codes = [await producer.end_code(committed=is_commit) for _ in range(2)]
    equal("ErrorCodes", codes, [0, 0])


@case("transactions.end.abort-after-commit", END)
async def abort_after_commit(run: CaseRun) -> None:
    """An abort after the commit gets INVALID_TXN_STATE."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 1)
    await producer.end(committed=True)
    equal("ErrorCode", await producer.end_code(committed=False), ErrorCode.INVALID_TXN_STATE)


@case_for_each(
    {"commit": (True, 1), "abort": (False, 0)}, "transactions.end.marker-{name}", "KIP-98; EndTransactionMarker"
)
async def marker(run: CaseRun, is_commit: bool, kind: int) -> None:
    """EndTxn (committed {0}) appends a control record of type {1} with the producer id and epoch to every partition."""
    topic = await run.topic(2)
    producer = await begin_transactions(run)
    for partition in (0, 1):
        await producer.append(topic, 1, partition)
    await producer.end(committed=is_commit)
    for partition in (0, 1):
        await run.until(lambda p=partition: _ends_at(run, topic, p, 2), "the marker")  # type: ignore[misc]
        data = memoryview((await read(run, topic, partition=partition, on=await run.leader(topic, partition))).records)
        batch = list(records.iter_batches(data))[-1]
        equal("control batch", (batch.is_control, batch.producer_id), (True, producer.producer_id))
        (record,) = records.decode_records(data[batch.position : batch.end])
        equal("type of the marker", int.from_bytes(record.key[2:4], "big") if record.key else None, kind)


async def _ends_at(run: CaseRun, topic: CaseTopic, partition: int, offset: int) -> bool:
    return await run.end_offset(topic, partition, isolation=READ_COMMITTED) == offset


@case("transactions.end.two-in-sequence", "KIP-98")
async def two_in_sequence(run: CaseRun) -> None:
    """A producer runs one transaction after another; read_committed sees both."""
    topic, producer = await topic_and_producer(run)
    for _ in range(2):
        await producer.append(topic, 1)
        await producer.end(committed=True)
    await run.until(lambda: has_stable_end(run, topic, 4), "the second marker")
    data = (await read(run, topic, isolation_level=READ_COMMITTED)).records
    equal("offsets of records", [offset for offset, _ in values_of(data)], [0, 2])


# Offsets in transactions


async def commit_in_transaction(
    run: CaseRun, producer: Producer, group: str, topic: CaseTopic, offset: int, **ids: Any
) -> int:
    """Send AddOffsetsToTxn and TxnOffsetCommit; return the error of the partition."""
    names: dict[str, Any] = {"transactional_id": producer.transactional_id, "group_id": group}
    names |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    added = await run.request("AddOffsetsToTxn", producer.coordinator, **names)
    equal("error of AddOffsetsToTxn", added.error_code, ErrorCode.NONE)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    response = await run.request("TxnOffsetCommit", await run.coordinator(group), **(names | {"topics": topics} | ids))
    return int(response.topics[0].partitions[0].error_code)


@case("transactions.offsets.pending", OFFSETS)
async def pending(run: CaseRun) -> None:
    """An offset in an open transaction is not returned; with RequireStable it gets UNSTABLE_OFFSET_COMMIT."""
    topic, group = await run.topic(), run.group()
    producer = await begin_transactions(run)
    equal("error of the commit", await commit_in_transaction(run, producer, group, topic, 5), ErrorCode.NONE)
    equal("offset", (await committed(run, group, topic)).committed_offset, -1)
    actual = await committed(run, group, topic, require_stable=True)
    equal("error with RequireStable", actual.error_code, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    await producer.end(committed=False)


@case_for_each({"commit": (True, 5), "abort": (False, -1)}, "transactions.offsets.{name}", OFFSETS)
async def ended(run: CaseRun, is_commit: bool, offset: int) -> None:
    """After EndTxn (committed {0}) the committed offset is {1}."""
    topic, group = await run.topic(), run.group()
    producer = await begin_transactions(run)
    await commit_in_transaction(run, producer, group, topic, 5)
    await producer.end(committed=is_commit)

    async def is_stable() -> bool:
        actual = await committed(run, group, topic, require_stable=True)
        return bool(actual.error_code == 0 and actual.committed_offset == offset)

    await run.until(is_stable, f"the committed offset {offset}")


@case_for_each(
    {
        "generation": ({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION),
        "member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        "right": ({}, ErrorCode.NONE),
    },
    "transactions.offsets.of-a-member-{name}",
    "KIP-447; OffsetMetadataManager.validateTransactionalOffsetCommit",
)
async def of_a_member(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """TxnOffsetCommit of a member of a classic group with {0} gets {1.name}."""
    topic = await run.topic()
    member = await stable_member(run)
    producer = await begin_transactions(run)
    ids = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id} | fields
    equal("ErrorCode", await commit_in_transaction(run, producer, member.group, topic, 5, **ids), code)
    await producer.end(committed=False)


# Description


async def describe(run: CaseRun, producer: Producer) -> Any:
    """Return the state of a transactional id by DescribeTransactions."""
    response = await run.request(
        "DescribeTransactions", producer.coordinator, transactional_ids=[producer.transactional_id]
    )
    return response.transaction_states[0]


@case("transactions.describe.ongoing", "KIP-664; DescribeTransactionsResponse.json", needs=("DescribeTransactions:0",))
async def describe_ongoing(run: CaseRun) -> None:
    """DescribeTransactions shows an open transaction as Ongoing, with producer id, epoch and partitions."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 1)
    shown = await describe(run, producer)
    actual = (shown.error_code, shown.transaction_state, shown.producer_id, shown.producer_epoch)
    equal("error, state, id and epoch", actual, (0, "Ongoing", producer.producer_id, producer.epoch))
    equal("partitions", [(each.topic, list(each.partitions)) for each in shown.topics], [(topic.name, [0])])
    await producer.end(committed=True)


@case_for_each(
    {"commit": (True, "CompleteCommit"), "abort": (False, "CompleteAbort")},
    "transactions.describe.{name}",
    "KIP-664",
    needs=("DescribeTransactions:0",),
)
async def describe_ended(run: CaseRun, is_commit: bool, state: str) -> None:
    """After EndTxn (committed {0}) the state becomes {1}."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 1)
    await producer.end(committed=is_commit)

    async def reached() -> bool:
        return bool((await describe(run, producer)).transaction_state == state)

    await run.until(reached, f"the state {state}")


@case("transactions.describe.unknown", "KIP-664", needs=("DescribeTransactions:0",))
async def describe_unknown(run: CaseRun) -> None:
    """DescribeTransactions of an unknown id gets TRANSACTIONAL_ID_NOT_FOUND."""
    producer = await begin_transactions(run)
    name = run.name("none")
    on = await run.coordinator(name, 1)
    producer = Producer(run, 0, 0, name, on)
    equal("ErrorCode", (await describe(run, producer)).error_code, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


@case_for_each(
    {"ongoing": (["Ongoing"], True), "empty": (["Empty"], False)},
    "transactions.list.{name}",
    "KIP-664; ListTransactionsRequest.json",
    needs=("ListTransactions:0",),
)
async def listed(run: CaseRun, states: list[str], expected: bool) -> None:
    """ListTransactions with the states {0} lists an open transaction: {1}."""
    topic, producer = await topic_and_producer(run)
    await producer.append(topic, 1)
    response = await run.request("ListTransactions", producer.coordinator, state_filters=states)
    names = {each.transactional_id for each in response.transaction_states}
    equal("listed", producer.transactional_id in names, expected)
    await producer.end(committed=True)


@case("transactions.producers.described", "KIP-664; DescribeProducersResponse.json", needs=("DescribeProducers:0",))
async def producers(run: CaseRun) -> None:
    """DescribeProducers shows the producer of a partition with its last sequence and the start of its transaction."""
    topic = await run.topic(count=1)
    producer = await begin_transactions(run)
    await producer.append(topic, 3)
    topics = [{"name": topic.name, "partition_indexes": [0]}]
    response = await run.request("DescribeProducers", await run.leader(topic), topics=topics)
    shown = response.topics[0].partitions[0].active_producers
    actual = [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset) for each in shown
    ]
    equal("producers", actual, [(producer.producer_id, 0, 2, 1)])
    await producer.end(committed=True)


@case("transactions.timeout.aborted", "KIP-98; TransactionCoordinator.abortTimedOutTransactions", limit_s=60)
async def timed_out(run: CaseRun) -> None:
    """A transaction that is open longer than its timeout is aborted by the coordinator, and its producer is fenced."""
    topic = await run.topic()
    producer = await begin_transactions(run, timeout_ms=1000)
    await producer.append(topic, 1)
    await run.until(lambda: has_stable_end(run, topic, 2), "the abort marker", 45)
    code = await producer.end_code(committed=True)
    one_of("ErrorCode of EndTxn", code, [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
    true("end of the log", await run.end_offset(topic) == 2, "2")
