"""Names for programs that use Kafka: a consumer for Trio, individual commits for any client, sessions of Spark.

`open_consumer` gives a consumer for the time of a block, against a cluster or through the proxy. Its names, and Trio
with them, are loaded when they are first used:

    async with open_consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
        while True:
            result = await consumer.poll(1)
            start(result.records)  # work continues in parallel
            await consumer.commit(finished())
            if busy & result.to_be_revoked:
                consumer.delay_revoke(busy & result.to_be_revoked)  # False: already lost
            abort(result.lost)

`open_share_consumer` gives a member of a share group, whose records are locked for it until they are acknowledged, and
for as long as they are processed:

    options = {"group": "billing", "topics": ["orders"], "acknowledgement_mode": "explicit"}
    async with open_share_consumer("localhost:9092", **options) as consumer:
        for record in await consumer.poll():
            async with consumer.work(record):  # accepted at the end, released by an error
                await process(record)

Programs to begin with, each whole: `kafka_share_proxy.recipes`, and `kafka_share_proxy.share_recipes`.

`open_spark_session` gives a session of Spark in which topics are read by key range, a task for each; pyspark is loaded
when it is called:

    spark = open_spark_session("orders", "local[4]")
    options = {"bootstrap": "localhost:9092", "topic": "orders", "keyRanges": "8"}
    spark.read.format("keyrange").options(**options).load().write.parquet("orders")

Everything below does no I/O, so any client can be used with it.

A group commits an offset, and with it, as metadata, which records above that offset are done as well:
`ic/1;43-45,48-49`. Every client can send that text and get it back. Without a proxy brokers keep it, up to 4096
characters, and the last commit wins, so that a partition should have one owner, as in every consumer group.

Records finished in any order. After a restart, what was done is not processed again:

    >>> ledger = OffsetLedger.from_committed(41, "ic/1;43-45")  # the offset and metadata that committed() returned
    >>> [offset for offset in (41, 42, 43, 44, 45, 46) if ledger.delivered(offset)]
    [41, 42, 46]
    >>> ledger.done(46)
    >>> ledger.offset, ledger.text()  # what to commit: an offset and its metadata
    (41, 'ic/1;43-46')
    >>> ledger.done(42)
    >>> ledger.done(41)
    >>> ledger.offset, ledger.text()
    (47, 'ic/1;')

Work on other threads. One thread polls, commits, and uses the ledger; the workers hand it what they have finished:

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from queue import SimpleQueue
    >>> finished = SimpleQueue()
    >>> def process(offset):
    ...     finished.put(offset)  # after the work
    >>> ledger = OffsetLedger.from_committed(None, None)
    >>> with ThreadPoolExecutor(4) as workers:
    ...     for offset in (0, 1, 2, 4):  # 3 is a transaction marker, which no client delivers
    ...         if ledger.delivered(offset):
    ...             _ = workers.submit(process, offset)
    >>> while not finished.empty():
    ...     ledger.done(finished.get())
    >>> ledger.offset
    5

Where brokers get the text as it is, it must be short; the widest ranges are kept, and the rest is delivered again:

    >>> ledger = OffsetLedger(0, [(n * 10, n * 10 + 5) for n in range(1, 2000)])
    >>> len(ledger.text()), len(ledger.text(BROKER_METADATA_MAX))
    (21778, 4088)

What a group has not done, for a backfill, out of its committed offset and metadata:

    >>> text = parse_commit_text("ic/1;43-45,48-49;u=written by the nightly job")
    >>> [str(gap) for gap in text.ranges.gaps(41, 55)]
    ['41-42', '46-47', '50-54']
    >>> text.user_text
    'written by the nightly job'

Bad text is an error that says what is wrong with it:

    >>> parse_commit_text("ic/1;43-45,49-48")
    Traceback (most recent call last):
    ...
    kafka_share_proxy.MalformedCommitText: '49-48' begins after its end: write first-last

The newest records immediately after a crash, and the backlog in parallel (KIP-333):

    >>> ledger = OffsetLedger.from_committed(70, "ic/1;80-89")
    >>> left = ledger.jump(120)  # the end of the log; the main flow continues there
    >>> [str(span) for span in left]
    ['70-79', '90-119']
    >>> rest = ledger.flow(left[0])
    >>> rest.delivered(70), ledger.delivered(120)
    (True, True)
    >>> ledger.done(120)
    >>> ledger.offset, ledger.text()
    (70, 'ic/1;80-89,120-120')

The rules, each with its source: offsets/README.md, client/README.md,
proxy/kafka_share_proxy/pipeline/README.md.
"""

from __future__ import annotations

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.offsets.commit_text import (
    RANGES_MAX,
    CommitText,
    CommitTextError,
    MalformedCommitText,
    TooManyRanges,
    UnknownCommitTextVersion,
    commit_text_version,
    parse_commit_text,
    write_commit_text,
)
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX, LedgerFlow, LedgerSnapshot, OffsetLedger
from kafka_share_proxy.offsets.partition_commits import CommitOutcome, after_individual_commit, after_plain_commit
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan, RangeChange

if TYPE_CHECKING:
    from kafka_share_proxy.client.application_poll import PollResult
    from kafka_share_proxy.client.bearer_token import OAuthBearer
    from kafka_share_proxy.client.consumer import Consumer
    from kafka_share_proxy.client.deserializers import RecordDeserializationError
    from kafka_share_proxy.client.interceptors import ConsumerInterceptor
    from kafka_share_proxy.client.network_task import ConsumerClosed, WokenUp
    from kafka_share_proxy.client.notes import ConsumerNote
    from kafka_share_proxy.client.opening import open_consumer
    from kafka_share_proxy.client.polled_records import ConsumerRecord, PolledRecords, RecordsUnreadable
    from kafka_share_proxy.client.rebalance_listener import RebalanceListener
    from kafka_share_proxy.client.settings import SaslLogin
    from kafka_share_proxy.client.share_consumer import ShareConsumer, ShareConsumerState
    from kafka_share_proxy.client.share_opening import open_share_consumer
    from kafka_share_proxy.client.share_records import ShareRecord
    from kafka_share_proxy.client.tracing import TracingMissing, processing_span
    from kafka_share_proxy.consumer.events import BrokerRefused, CallTimedOut, ConsumerError, PartitionLostError
    from kafka_share_proxy.consumer.fetch.key_filter import KeyFilter, slots_of
    from kafka_share_proxy.consumer.fetch.offset_requests import NoOffsetForPartition
    from kafka_share_proxy.consumer.groups.states import ConsumerState
    from kafka_share_proxy.consumer.option_types import ConsumerKeywords, ShareConsumerKeywords
    from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
    from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
    from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
    from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult, LockLostError
    from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
    from kafka_share_proxy.consumer.topic_listing import PartitionInfo
    from kafka_share_proxy.pipeline.session import SparkMissing, open_spark_session
    from kafka_share_proxy.pipeline.share.share_stream import ShareStream
    from kafka_share_proxy.pipeline.source.options import BadOption
    from kafka_share_proxy.pipeline.source.starting import KeptStart, kept_start
    from kafka_share_proxy.wire.key_filter import NullKeys
    from kafka_share_proxy.wire.values import TopicPartition

__all__ = [
    "BROKER_METADATA_MAX",
    "RANGES_MAX",
    "AcknowledgeType",
    "AcknowledgementResult",
    "BadOption",
    "BrokerRefused",
    "CallTimedOut",
    "CommitOutcome",
    "CommitText",
    "CommitTextError",
    "ConfigurationError",
    "Consumer",
    "ConsumerClosed",
    "ConsumerError",
    "ConsumerInterceptor",
    "ConsumerKeywords",
    "ConsumerNote",
    "ConsumerOptions",
    "ConsumerRecord",
    "ConsumerState",
    "Flow",
    "KeptStart",
    "KeyFilter",
    "LedgerFlow",
    "LedgerSnapshot",
    "LockLostError",
    "MalformedCommitText",
    "NoOffsetForPartition",
    "NullKeys",
    "OAuthBearer",
    "OffsetAndMetadata",
    "OffsetLedger",
    "OffsetRanges",
    "OffsetSpan",
    "PartitionInfo",
    "PartitionLostError",
    "PollResult",
    "PolledRecords",
    "RangeChange",
    "RebalanceListener",
    "RecordDeserializationError",
    "RecordsUnreadable",
    "SaslLogin",
    "ShareConsumer",
    "ShareConsumerKeywords",
    "ShareConsumerOptions",
    "ShareConsumerState",
    "ShareRecord",
    "ShareStream",
    "SparkMissing",
    "TooManyRanges",
    "TopicPartition",
    "TracingMissing",
    "UnknownCommitTextVersion",
    "WokenUp",
    "after_individual_commit",
    "after_plain_commit",
    "commit_text_version",
    "kept_start",
    "open_consumer",
    "open_share_consumer",
    "open_spark_session",
    "parse_commit_text",
    "processing_span",
    "slots_of",
    "write_commit_text",
]

_LAZY = {
    "AcknowledgeType": "kafka_share_proxy.consumer.share.share_acknowledgements",
    "AcknowledgementResult": "kafka_share_proxy.consumer.share.share_holds",
    "BadOption": "kafka_share_proxy.pipeline.source.options",
    "BrokerRefused": "kafka_share_proxy.consumer.events",
    "CallTimedOut": "kafka_share_proxy.consumer.events",
    "ConfigurationError": "kafka_share_proxy.consumer.options",
    "Consumer": "kafka_share_proxy.client.consumer",
    "ConsumerClosed": "kafka_share_proxy.client.network_task",
    "ConsumerError": "kafka_share_proxy.consumer.events",
    "ConsumerInterceptor": "kafka_share_proxy.client.interceptors",
    "ConsumerKeywords": "kafka_share_proxy.consumer.option_types",
    "ConsumerNote": "kafka_share_proxy.client.notes",
    "ConsumerOptions": "kafka_share_proxy.consumer.options",
    "ConsumerRecord": "kafka_share_proxy.client.polled_records",
    "ConsumerState": "kafka_share_proxy.consumer.groups.states",
    "Flow": "kafka_share_proxy.consumer.partitions",
    "KeptStart": "kafka_share_proxy.pipeline.source.starting",
    "KeyFilter": "kafka_share_proxy.consumer.fetch.key_filter",
    "LockLostError": "kafka_share_proxy.consumer.share.share_holds",
    "NoOffsetForPartition": "kafka_share_proxy.consumer.fetch.offset_requests",
    "NullKeys": "kafka_share_proxy.wire.key_filter",
    "OAuthBearer": "kafka_share_proxy.client.bearer_token",
    "OffsetAndMetadata": "kafka_share_proxy.consumer.partitions",
    "PartitionInfo": "kafka_share_proxy.consumer.topic_listing",
    "PartitionLostError": "kafka_share_proxy.consumer.events",
    "PollResult": "kafka_share_proxy.client.application_poll",
    "PolledRecords": "kafka_share_proxy.client.polled_records",
    "RebalanceListener": "kafka_share_proxy.client.rebalance_listener",
    "RecordDeserializationError": "kafka_share_proxy.client.deserializers",
    "RecordsUnreadable": "kafka_share_proxy.client.polled_records",
    "SaslLogin": "kafka_share_proxy.client.settings",
    "ShareConsumer": "kafka_share_proxy.client.share_consumer",
    "ShareConsumerKeywords": "kafka_share_proxy.consumer.option_types",
    "ShareConsumerOptions": "kafka_share_proxy.consumer.share.share_options",
    "ShareConsumerState": "kafka_share_proxy.client.share_consumer",
    "ShareRecord": "kafka_share_proxy.client.share_records",
    "ShareStream": "kafka_share_proxy.pipeline.share.share_stream",
    "SparkMissing": "kafka_share_proxy.pipeline.session",
    "TopicPartition": "kafka_share_proxy.wire.values",
    "TracingMissing": "kafka_share_proxy.client.tracing",
    "WokenUp": "kafka_share_proxy.client.network_task",
    "kept_start": "kafka_share_proxy.pipeline.source.starting",
    "open_consumer": "kafka_share_proxy.client.opening",
    "open_share_consumer": "kafka_share_proxy.client.share_opening",
    "open_spark_session": "kafka_share_proxy.pipeline.session",
    "processing_span": "kafka_share_proxy.client.tracing",
    "slots_of": "kafka_share_proxy.consumer.fetch.key_filter",
}
"""Name -> the module that has it, loaded with all it needs when the name is first used."""


def __getattr__(name: str) -> Any:
    """Import a name of the client or the pipeline when it is first used. They load Trio and many modules."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    _show_public_names()
    return value


def _show_public_names() -> None:
    """Give the public classes of all loaded modules this package as their module, for tracebacks and `repr`."""
    for name in __all__:
        thing = getattr(modules.get(_LAZY.get(name, __name__)), name, None)
        if isinstance(thing, type):
            thing.__module__ = __name__


_show_public_names()


def __dir__() -> list[str]:
    return __all__
