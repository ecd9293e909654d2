"""Random scripts of requests: the cluster in one process responds as a native broker of Kafka 4.3 does."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
import trio
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record

from tests.support.blocking_connection import Connection
from tests.support.raw import Raw, address, until
from tests.support.target_caller import START_MS, running_cluster
from tests.support.two_clusters import NOTE, RECEIVE, Script, Step, Trace, differences, query, run_native, run_target

pytestmark = pytest.mark.broker

STEPS = 60
ScriptOf = Callable[[str, str, random.Random], Script]
Steps = Generator[Step, Any, Any]


# Records


def a_batch(rng: random.Random, count: int, **header: Any) -> bytes:
    batch_records = [
        Record(None, b"v%d" % rng.randrange(1000), timestamp=START_MS + rng.randrange(5000)) for _ in range(count)
    ]
    return records.build_batch(0, batch_records, **header)


def produce(topic: str, batch: bytes, *, version: int = 9, acks: int = -1, transactional_id: str | None = None) -> Step:
    data = {"index": 0, "records": batch}
    return query(
        "Produce", version, acks=acks, timeout_ms=10_000, transactional_id=transactional_id,
        topic_data=[{"name": topic, "partition_data": [data]}],
    )  # fmt: skip


def fetch(topic: str, offset: int, partition_bytes: int, *, isolation: int = 0, **values: Any) -> Step:
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": partition_bytes,
        "current_leader_epoch": -1,
    }
    partition |= values.pop("partition", {})
    full = {"max_wait_ms": 0, "min_bytes": 0, "session_epoch": -1, "isolation_level": isolation}
    return query("Fetch", 12, **{**full, "topics": [{"topic": topic, "partitions": [partition]}], **values})


def list_offset(topic: str, timestamp: int, epoch: int = -1) -> Step:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": epoch}
    return query("ListOffsets", 8, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}])


def records_script(topic: str, _: str, rng: random.Random) -> Script:
    producers = []
    for _ in range(2):
        step = query("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
        response = yield from traced_again(step, lambda r: r.error_code)
        producers.append([response.producer_id, 0, 0])
    session_id, session_epoch = 0, 0
    for _ in range(STEPS):
        kind = rng.choice(
            ["plain", "idempotent", "idempotent", "fetch", "session", "offsets", "odd", "epoch", "delete"]
        )
        if kind == "plain":
            yield produce(topic, a_batch(rng, rng.randint(1, 4)), acks=rng.choice([-1, 1, 2]))
        elif kind == "idempotent":
            producer = rng.choice(producers)
            yield from _idempotent(topic, producer, rng)
        elif kind == "fetch":
            epoch = {"last_fetched_epoch": rng.choice([-1, 0, 0, 1]), "current_leader_epoch": rng.choice([-1, 0, 1])}
            yield fetch(topic, rng.randrange(-1, 60), rng.choice([1, 100, 200, 10_000]), partition=epoch)
        elif kind == "session":
            wrong = rng.random() < 0.2
            response = yield fetch(
                topic, rng.randrange(10), 300,
                session_id=session_id, session_epoch=session_epoch + wrong, max_bytes=rng.choice([1, 10_000]),
            )  # fmt: skip
            if response.error_code == 0:
                session_id, session_epoch = response.session_id, session_epoch + 1
        elif kind == "offsets":
            yield list_offset(topic, rng.choice([-1, -2, -3, -4, START_MS, START_MS + 2500, START_MS + 9000]))
        elif kind == "odd":
            yield from _odd(topic, rng)
        elif kind == "epoch":
            partition = {
                "partition": 0,
                "current_leader_epoch": rng.choice([-1, 0, 1]),
                "leader_epoch": rng.randrange(3),
            }
            topics = [{"topic": topic, "partitions": [partition]}]
            yield query("OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)
        elif rng.random() < 0.3:
            partition = {"partition_index": 0, "offset": rng.choice([1, 2, 3, 1000, -2])}
            yield query("DeleteRecords", 2, timeout_ms=5000, topics=[{"name": topic, "partitions": [partition]}])


def _idempotent(topic: str, producer: list[int], rng: random.Random) -> Steps:
    producer_id, epoch, sequence = producer
    count, shift = rng.randint(1, 3), rng.choice([0, 0, 0, 0, -1, 1, 5])
    if rng.random() < 0.1:
        epoch += rng.choice([-1, 1])
    first = max(sequence + shift, 0)
    header = {"producer_id": producer_id, "producer_epoch": max(epoch, 0), "base_sequence": first}
    data = a_batch(rng, count, **header)
    for _ in range(rng.choice([1, 1, 2])):
        response = yield produce(topic, data)
    if response.responses[0].partition_responses[0].error_code == 0:
        producer[1:] = [max(epoch, 0), first + count]


def _odd(topic: str, rng: random.Random) -> Steps:
    data = bytearray(a_batch(rng, 2))
    kind = rng.choice(["crc", "two", "base", "empty", "unknown topic", "unknown partition", "control", "compressed"])
    if kind == "crc":
        data[-1] ^= 1
    elif kind == "two":
        data = data + bytes(data)
    elif kind == "base":
        data[7] = 3
    elif kind == "empty":
        data = bytearray()
    elif kind == "control":
        data = bytearray(a_batch(rng, 1, is_control=True))
    elif kind == "compressed":
        data = bytearray(a_batch(rng, 3, codec=rng.randint(1, 4)))
    if kind == "unknown partition":
        partition = {"index": 7, "records": bytes(data)}
        yield query("Produce", 9, acks=1, timeout_ms=1000, topic_data=[{"name": topic, "partition_data": [partition]}])
    else:
        yield produce(topic + "-none" if kind == "unknown topic" else topic, bytes(data))


# Transactions


def again(step: Step, code_of: Callable[[Any], int]) -> Steps:
    """Repeat a request while another transaction of the producer is being completed; then once for the trace."""
    for _ in range(2000):
        response = yield Step(step.api, step.version, step.values, step.connection, is_traced=False)
        if code_of(response) not in (14, 15, 16, 51):
            return response
    raise TimeoutError(step.api)


def completed(transactional_id: str) -> Steps:
    """Wait until the markers are written."""
    for _ in range(5000):
        step = Step("DescribeTransactions", 0, {"transactional_ids": [transactional_id]}, is_traced=False)
        response = yield step
        if not response.transaction_states[0].transaction_state.startswith("Prepare"):
            break
    yield query("DescribeTransactions", 0, transactional_ids=[transactional_id])


def transactions_script(topic: str, name: str, rng: random.Random) -> Script:
    begin = query("InitProducerId", 5, transactional_id=name, transaction_timeout_ms=60_000)
    response = yield from traced_again(begin, _code)
    producer = [response.producer_id, response.producer_epoch, 0]
    for _ in range(STEPS):
        kind = rng.choice(["produce", "produce", "add", "end", "end", "init", "fetch", "fetch", "wrong", "offsets"])
        if kind == "produce":
            yield from _produce_in(topic, name, producer, rng)
        elif kind == "add":
            yield from traced_again(_add(topic, name, producer), _first_code)
        elif kind == "end":
            yield from _end(name, producer, rng)
        elif kind == "init" and rng.random() < 0.5:
            yield from _init(name, producer, rng)
        elif kind == "fetch":
            yield fetch(topic, rng.randrange(40), rng.choice([200, 100_000]), isolation=rng.choice([0, 1, 1]))
            yield list_offset(topic, -1)
        elif kind == "wrong":
            wrong = {
                "producer_id": producer[0] + rng.randrange(2) * 1000,
                "producer_epoch": producer[1] + rng.choice([-1, 1]),
            }
            yield query("EndTxn", rng.choice([4, 5]), transactional_id=name, committed=True, **wrong)
        elif kind == "offsets":
            yield from _offsets_in_transaction(topic, name, producer, rng)


def _produce_in(topic: str, name: str, producer: list[int], rng: random.Random) -> Steps:
    header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": producer[2]}
    data = a_batch(rng, 2, is_transactional=True, **header)
    step = produce(topic, data, version=rng.choice([10, 12]), transactional_id=name)
    response = yield from traced_again(step, _not_enough_replicas)
    if response.responses[0].partition_responses[0].error_code == 0:
        producer[2] += 2


def _not_enough_replicas(response: Any) -> int:
    """Return 51 for the code that brokers return while another transaction of the producer is being completed."""
    return 51 if response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS else 0


def _end(name: str, producer: list[int], rng: random.Random) -> Steps:
    version, committed = rng.choice([4, 5]), rng.random() < 0.5
    values = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
    response = yield from traced_again(query("EndTxn", version, committed=committed, **values), _code)
    yield from completed(name)
    if response.error_code == 0 and version == 5 and [response.producer_id, response.producer_epoch] != producer[:2]:
        producer[:] = [response.producer_id, response.producer_epoch, 0]


def _init(name: str, producer: list[int], rng: random.Random) -> Steps:
    known = {"producer_id": producer[0], "producer_epoch": producer[1]} if rng.random() < 0.5 else {}
    step = query("InitProducerId", 5, transactional_id=name, transaction_timeout_ms=60_000, **known)
    response = yield from traced_again(step, _code)
    if response.error_code == 0:
        producer[:] = [response.producer_id, response.producer_epoch, 0]


def _code(response: Any) -> int:
    return int(response.error_code)


def traced_again(step: Step, code_of: Callable[[Any], int]) -> Steps:
    """Repeat a request until no earlier transaction is in its way, and trace its last response by its codes."""
    response = yield from again(step, code_of)
    yield Step(NOTE, step.version, {"response": response})
    return response


def _first_code(response: Any) -> int:
    return int(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def _add(topic: str, name: str, producer: list[int]) -> Step:
    return query(
        "AddPartitionsToTxn", 3, v3_and_below_transactional_id=name, v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1], v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    )  # fmt: skip


def _offsets_in_transaction(topic: str, name: str, producer: list[int], rng: random.Random) -> Steps:
    group = f"{name}-group"
    values = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": group}
    if rng.random() < 0.3:
        yield from traced_again(query("AddOffsetsToTxn", 4, **values), lambda r: r.error_code)
    partition = {"partition_index": 0, "committed_offset": rng.randrange(10)}
    yield from traced_again(
        query("TxnOffsetCommit", rng.choice([3, 5]), topics=[{"name": topic, "partitions": [partition]}], **values),
        lambda r: r.topics[0].partitions[0].error_code,
    )
    stable = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    yield query("OffsetFetch", 8, groups=stable, require_stable=True)


# Groups


def join(
    group: str, member_id: str, *, connection: int = 0, version: int = 9, protocols: str = "a", **values: Any
) -> Step:
    names = [{"name": each, "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"} for each in protocols]
    full = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": names,
    }
    return query("JoinGroup", version, connection=connection, group_id=group, member_id=member_id, **{**full, **values})


def sync(group: str, member_id: str, generation: int, assigned: list[str], *, connection: int = 0) -> Step:
    assignments = [{"member_id": each, "assignment": b"part of %d" % len(assigned)} for each in assigned]
    return query(
        "SyncGroup", 5, connection=connection, group_id=group, member_id=member_id, generation_id=generation,
        protocol_type="consumer", protocol_name="a", assignments=assignments,
    )  # fmt: skip


def later(step: Step) -> Step:
    return Step(step.api, step.version, step.values, step.connection, waits=False)


def receive(connection: int) -> Step:
    return Step(RECEIVE, 0, {}, connection)


def classic_script(topic: str, group: str, rng: random.Random) -> Script:
    first = (yield join(group, "")).member_id
    yield join(group, "no such member")
    response = yield join(group, first)
    generation = response.generation_id
    yield query("Heartbeat", 4, group_id=group, member_id=first, generation_id=generation)
    yield sync(group, first, generation + 1, [])
    yield sync(group, first, generation, [first])
    yield query("DescribeGroups", 5, groups=[group])
    second = (yield join(group, "", connection=1)).member_id
    yield later(join(group, second, connection=1))
    step = query("Heartbeat", 4, group_id=group, member_id=first, generation_id=generation)
    yield from traced_again(step, lambda r: r.error_code or 51)
    yield join(group, first)
    response = yield receive(1)
    generation = response.generation_id
    yield later(sync(group, second, generation, [], connection=1))
    yield sync(group, first, generation, [first, second])
    yield receive(1)
    yield from _classic_steps(topic, group, [first, second], generation, rng)


def _classic_steps(topic: str, group: str, members: list[str], generation: int, rng: random.Random) -> Steps:
    for _ in range(STEPS // 2):
        member, wrong = rng.choice([*members, "stranger"]), generation + rng.choice([0, 0, 0, 1, -1])
        kind = rng.choice(["heartbeat", "commit", "commit", "fetch", "sync", "describe", "rejoin", "static", "delete"])
        if kind == "heartbeat":
            yield query("Heartbeat", 4, group_id=group, member_id=member, generation_id=wrong)
        elif kind == "commit":
            outside = rng.random() < 0.2
            yield commit(group, topic, rng, -1 if outside else wrong, "" if outside else member)
        elif kind == "fetch":
            yield offsets_of(group, topic)
        elif kind == "sync":
            yield sync(group, member, wrong, [])
        elif kind == "describe":
            yield query("DescribeGroups", 6, groups=[group, group + "-none"])
        elif kind == "rejoin" and member == members[1]:
            yield join(group, member, connection=1)
        elif kind == "static":
            yield query("Heartbeat", 4, group_id=group, member_id=member, generation_id=wrong, group_instance_id="none")
        elif kind == "delete":
            yield query("DeleteGroups", 2, groups_names=[group, group + "-none"])
    for member in [*members, "stranger"]:
        yield query("LeaveGroup", 5, group_id=group, members=[{"member_id": member}])
    yield query("DescribeGroups", 6, groups=[group])
    partitions = [{"partition_index": 0}, {"partition_index": 9}]
    yield query("OffsetDelete", 0, group_id=group, topics=[{"name": topic, "partitions": partitions}])
    yield offsets_of(group, topic)
    yield query("DeleteGroups", 2, groups_names=[group])


def commit(group: str, topic: str, rng: random.Random, generation: int, member: str, version: int = 9) -> Step:
    partitions = [
        {
            "partition_index": rng.choice([0, 0, 0, 5]),
            "committed_offset": rng.randrange(100),
            "committed_metadata": "m" * size,
        }
        for size in rng.choice([[3], [0], [5000]])
    ]
    names = [topic] if rng.random() < 0.8 else [topic, topic + "-none"]
    topics = [{"name": name, "partitions": partitions} for name in names]
    return query(
        "OffsetCommit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=topics,
    )


def offsets_of(group: str, topic: str, **values: Any) -> Step:
    group_request = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}], **values}
    return query("OffsetFetch", 9, groups=[group_request, {"group_id": group + "-none", "topics": None}])


def static_script(topic: str, group: str, rng: random.Random) -> Script:
    response = yield join(group, "", group_instance_id="i")
    first = response.member_id
    yield sync(group, first, 1, [first])
    response = yield join(group, "", group_instance_id="i")
    second = response.member_id
    yield query("Heartbeat", 4, group_id=group, member_id=first, generation_id=1, group_instance_id="i")
    yield query("Heartbeat", 4, group_id=group, member_id=second, generation_id=1, group_instance_id="i")
    yield sync(group, second, 1, [])
    yield join(group, second, group_instance_id="i", protocols="ba")
    yield commit(group, topic, rng, 1, second)
    yield query("LeaveGroup", 5, group_id=group, members=[{"member_id": first, "group_instance_id": "i"}])
    yield query("LeaveGroup", 5, group_id=group, members=[{"member_id": "", "group_instance_id": "i"}])
    yield query("DescribeGroups", 6, groups=[group])


def consumer_script(topic: str, group: str, rng: random.Random) -> Script:
    topic_id = (yield query("Metadata", 12, topics=[{"name": topic}])).topics[0].topic_id
    epochs: dict[str, int] = {}
    owned: dict[str, set[int]] = {}
    for _ in range(STEPS):
        member = rng.choice(["m1", "m2"])
        kind = rng.choice(["beat", "beat", "beat", "full", "leave", "wrong", "commit", "fetch", "describe"])
        if member not in epochs:
            response = yield beat(
                group, member, 0, subscribed_topic_names=[topic], rebalance_timeout_ms=60_000, topic_partitions=[]
            )
            epochs[member], owned[member] = response.member_epoch, partitions_of(response)
        elif kind in ("beat", "full"):
            has = [{"topic_id": bytes(topic_id), "partitions": sorted(owned[member])}] if owned[member] else []
            more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic]} if kind == "full" else {}
            response = yield beat(group, member, epochs[member], topic_partitions=has, **more)
            if response.error_code:
                del epochs[member]
            else:
                epochs[member] = response.member_epoch
                owned[member] = partitions_of(response) if response.assignment is not None else owned[member]
        elif kind == "leave":
            yield beat(group, member, -1)
            del epochs[member]
        elif kind == "wrong":
            yield beat(group, rng.choice([member, "stranger"]), epochs[member] + rng.choice([1, 7]))
        elif kind == "commit":
            yield commit(
                group, topic, rng, epochs[member] + rng.choice([0, 0, 1, -1]), rng.choice([member, "stranger", member])
            )
        elif kind == "fetch":
            yield offsets_of(group, topic, member_id=member, member_epoch=epochs[member] + rng.choice([0, 1]))
        else:
            yield query("ConsumerGroupDescribe", 1, group_ids=[group, group + "-none"])


def beat(group: str, member: str, epoch: int, **values: Any) -> Step:
    return query("ConsumerGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **values)


def partitions_of(response: Any) -> set[int]:
    topics = response.assignment.topic_partitions if response.assignment is not None else []
    return {index for each in topics for index in each.partitions}


# Share groups


def share_script(topic: str, group: str, rng: random.Random) -> Script:
    """Sessions stay open, because a broker responds to their end before it has released their records.

    Start offsets are left out: here they move without waiting for a write (sharegroups/README.md rule 63).
    """
    topic_id = bytes((yield query("Metadata", 12, topics=[{"name": topic}])).topics[0].topic_id)
    epochs = {"m1": 0, "m2": 0}
    yield produce(topic, a_batch(rng, 3))
    yield from _joined(topic, group)
    yield from _started(topic_id, group)
    for _ in range(STEPS // 2):
        member = rng.choice(["m1", "m2"])
        connection = 1 if member == "m1" else 2
        kind = rng.choice(["produce", "fetch", "fetch", "acknowledge", "acknowledge", "renew", "wrong"])
        epoch = epochs[member]
        if kind == "produce":
            yield produce(topic, a_batch(rng, rng.randint(1, 5)))
            continue
        if kind == "wrong":
            yield share_fetch(topic_id, group, member, epoch + 3, rng, connection)
            continue
        if kind in ("acknowledge", "renew") and epoch > 0:
            response = yield acknowledge(topic_id, group, member, epoch, rng, connection, renew=kind == "renew")
        else:
            response = yield share_fetch(topic_id, group, member, epoch, rng, connection)
        if response.error_code == 0:
            epochs[member] = epoch + 1


def _joined(topic: str, group: str) -> Steps:
    """Join, and wait for the assignment: before it a broker has not initialized the group's state."""
    pause = fetch(topic, 3, 1000, max_wait_ms=100, min_bytes=1 << 20)
    epoch, topics = 0, [topic]
    for _ in range(200):
        values = {"group_id": group, "member_id": "first", "member_epoch": epoch, "subscribed_topic_names": topics}
        response = yield Step("ShareGroupHeartbeat", 1, values, is_traced=False)
        epoch = response.member_epoch
        if response.assignment is not None and response.assignment.topic_partitions:
            return
        yield Step(pause.api, pause.version, pause.values, is_traced=False)
    raise TimeoutError(group)


def _started(topic_id: bytes, group: str) -> Steps:
    """Wait until the broker has initialized the share partition, and give back what was acquired."""
    names = {"group_id": group, "member_id": "first"}
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
    limits = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1000, "max_records": 3, "batch_size": 3}
    for epoch in range(100):
        values = {**names, **limits, "share_session_epoch": epoch, "topics": topics, "forgotten_topics_data": []}
        response = yield Step("ShareFetch", 2, values, 3, is_traced=False)
        if response.responses and response.responses[0].partitions[0].acquired_records:
            break
    yield query("ShareAcknowledge", 2, connection=3, share_session_epoch=-1, topics=[], **names)


def share_fetch(topic_id: bytes, group: str, member: str, epoch: int, rng: random.Random, connection: int) -> Step:
    partitions = [
        {"partition_index": 0, "acknowledgement_batches": a_few(rng) if epoch > 0 and rng.random() < 0.3 else []}
    ]
    return query(
        "ShareFetch", 2, connection=connection, group_id=group, member_id=member, share_session_epoch=epoch,
        max_wait_ms=100, min_bytes=1, max_bytes=rng.choice([150, 1 << 20]), max_records=rng.choice([1, 3, 500]),
        batch_size=rng.choice([1, 3, 500]), share_acquire_mode=rng.choice([0, 0, 1]),
        topics=[{"topic_id": topic_id, "partitions": partitions}], forgotten_topics_data=[],
    )  # fmt: skip


def acknowledge(
    topic_id: bytes, group: str, member: str, epoch: int, rng: random.Random, connection: int, *, renew: bool
) -> Step:
    partitions = [{"partition_index": rng.choice([0, 0, 0, 0, 9]), "acknowledgement_batches": a_few(rng, renew=renew)}]
    return query(
        "ShareAcknowledge", 2, connection=connection, group_id=group, member_id=member, share_session_epoch=epoch,
        is_renew_ack=renew, topics=[{"topic_id": topic_id, "partitions": partitions}],
    )  # fmt: skip


def a_few(rng: random.Random, *, renew: bool = False) -> list[dict[str, Any]]:
    first = rng.randrange(12)
    batches = []
    for _ in range(rng.randint(1, 2)):
        last = first + rng.choice([0, 0, 1, 2])
        kinds = [1, 1, 2, 2, 3, 4] if renew else [1, 1, 2, 2, 3, 0, 4]
        types = [rng.choice(kinds) for _ in range(rng.choice([1, last - first + 1]))]
        batches.append({"first_offset": first, "last_offset": last, "acknowledge_types": types})
        first = last + rng.choice([1, 1, 2])
    return batches


# The tests


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("script", [
    records_script, transactions_script, classic_script, static_script, consumer_script, share_script,
], ids=lambda script: script.__name__.removesuffix("_script"))  # fmt: skip
async def test_random_scripts_have_the_same_responses(
    script: ScriptOf, seed: int, kafka_43: Cluster, fresh: Callable[[str], str]
) -> None:
    topic, group = fresh("topic"), fresh("group")
    native = await trio.to_thread.run_sync(partial(_on_native, script, seed, kafka_43, topic, group))
    async with running_cluster() as cluster:
        cluster.clock.resume()
        cluster.create_topic(topic, 2)
        cluster.share.coordinator.store_settings(group, {"share.auto.offset.reset": "earliest"})
        target = await run_target(script(topic, group, random.Random(seed)), cluster)
    assert differences(native, target) == []


def _has_coordinator(raw: Raw, name: str) -> bool:
    coordinator = raw.send_request("FindCoordinator", 4, key_type=1, coordinator_keys=[name]).coordinators[0]
    return not coordinator.error_code


def _on_native(script: ScriptOf, seed: int, kafka: Cluster, topic: str, group: str) -> Trace:
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic, 2, {"retention.ms": "-1"})  # START_MS is longer ago than a week
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        raw.coordinator(group)
        until(
            lambda: (
                not raw.send_request("FindCoordinator", 4, key_type=1, coordinator_keys=[group])
                .coordinators[0]
                .error_code
            ),
            "c",
        )
        raw.send_request("OffsetFetch", 8, on=raw.on_coordinator(group), groups=[{"group_id": group, "topics": None}])
    where = address(kafka.bootstrap)
    return run_native(script(topic, group, random.Random(seed)), lambda: Connection(where, "test"))
