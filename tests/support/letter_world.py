"""Share groups with dead letters: a small cluster with a topic for them, and a journal with transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.durable.interfaces import JournalRefused, OutsideRecords
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

from tests.support.manual_timers import WALL_MS
from tests.support.ports import SlowJournal, World
from tests.support.scripted_cluster import Cluster, Topic

TOPIC = "dlq.t"
SETTING, COPIES = "errors_deadletterqueue_topic_name", "errors_deadletterqueue_copy_record_enable"
Values = list[tuple[Any, bytes | None]]


class TransactionJournal(SlowJournal):
    """Writes values and records of other topics together, or refuses both."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster: Cluster | None = None
        self.refuses: list[ErrorCode] = []
        """Codes for the next transactions."""
        self.holds = False
        """True if transactions wait for `commit`."""
        self.transactions: list[tuple[Values, Sequence[OutsideRecords], Promise[None]]] = []
        """Transactions in flight."""
        self.committed: list[int] = []
        """Number of dead letters of each transaction."""

    def append_with(self, values: Sequence[tuple[Any, bytes | None]], outside: Sequence[OutsideRecords]) -> Any:
        promise: Promise[None] = Promise()
        if self.refuses:
            promise.fail(JournalRefused(self.refuses.pop(0)))
            return promise
        self.transactions.append((list(values), outside, promise))
        if not self.holds:
            self.commit()
        return promise

    def commit(self) -> None:
        """Make the oldest transaction visible."""
        values, outside, promise = self.transactions.pop(0)
        assert self.cluster is not None
        for each in outside:
            log = self.cluster.topics[each.topic].logs[each.partition]
            data = records.build_batch(log.end, [record._replace(offset=-1) for record in each.records])
            log.batches.append((log.end, log.end + len(each.records) - 1, data))
            log.end += len(each.records)
        self.committed.append(sum(len(each.records) for each in outside))
        SlowJournal.append(self, values) if not self.slow else None
        promise.set(None)


class LetterWorld(World):
    """Group g, whose dead letters are for dlq.t."""

    journal: TransactionJournal

    def __init__(self, *, partitions: int = 1, configs: dict[str, str] | None = None, **settings: Any) -> None:
        super().__init__(journal=TransactionJournal(), dead_letters=DeadLetters(**settings))
        self.journal.cluster = self.cluster
        self.configs = configs or {}
        """Settings of every topic that the broker knows."""
        self.created: list[Any] = []
        """Topics of CreateTopics requests."""
        self.unknown_configs = {"errors.deadletterqueue.group.enable"} - self.configs.keys()
        """Settings that the broker does not know."""
        self.cluster.respond_unscripted = self._respond
        if partitions:
            self.cluster.create(TOPIC, leaders=(1,) * partitions)
        self.learn_brokers()
        self.configure("g", share_auto_offset_reset="earliest", **{SETTING: TOPIC})

    def learn_brokers(self) -> None:
        message = registry.message("MetadataResponse")
        brokers = [
            message.MetadataResponseBroker(node_id=node, host=address.host, port=address.port, rack=None)
            for node, address in self.cluster.nodes.items()
        ]
        self.services.topology.fold(message(brokers=brokers, cluster_id="c", topics=[]), self.timers.now())

    def letters(self, partition: int = 0) -> list[records.Record]:
        """Return the dead letters in a partition of dlq.t."""
        data = b"".join(batch for _, _, batch in self.cluster.topics[TOPIC].logs[partition].batches)
        return [
            record
            for batch in records.iter_batches(data)
            for record in records.decode_records(data[batch.position : batch.end])
        ]

    def offsets(self, partition: int = 0) -> list[int]:
        """Return the source offsets of the dead letters."""
        return [int(dict(each.headers)["__dlq.errors.offset"] or b"") for each in self.letters(partition)]

    def waiting(self, topic: Topic, partition: int = 0) -> int:
        share = self.services.coordinator.share(("g", topic.topic_id, partition))  # type: ignore[arg-type]  # equal
        assert share is not None
        return share.partition.dead_letters_waiting()

    def _respond(self, key: int, version: int, request: Any) -> Any:
        return self._create(request) if key == 19 else self._describe(request)

    def _create(self, request: Any) -> Any:
        (topic,) = request.topics
        self.created.append(topic)
        result = registry.message("CreateTopicsResponse").CreatableTopicResult
        unknown = self.unknown_configs & {each.name for each in topic.configs}
        code = ErrorCode.INVALID_CONFIG if unknown else ErrorCode.NONE
        if not unknown:
            self.cluster.create(topic.name)
        return registry.message("CreateTopicsResponse")(topics=[result(name=topic.name, error_code=code)])

    def _describe(self, request: Any) -> Any:
        message = registry.message("DescribeConfigsResponse")
        entries = [
            message.DescribeConfigsResult.DescribeConfigsResourceResult(name=name, value=value)
            if hasattr(message.DescribeConfigsResult, "DescribeConfigsResourceResult")
            else message.DescribeConfigsResourceResult(name=name, value=value)
            for name, value in self.configs.items()
        ]
        (resource,) = request.resources
        result = message.DescribeConfigsResult(resource_type=2, resource_name=resource.resource_name, configs=entries)
        return message(results=[result])


NOW_MS = WALL_MS
