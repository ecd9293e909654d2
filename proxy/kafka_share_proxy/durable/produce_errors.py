"""Error codes of a Produce response: whether the record batch is in the log, and what the producer does next.

Taken from the sources of Kafka 3.9 and 4.3, for an idempotent producer without a transaction, acks=all, Produce v11 or
lower. A broker raises errors at three points:

- *before* the append: `KafkaApis.handleProduceRequest`, then `ReplicaManager.appendToLocalLog` up to `LocalLog.append`,
  which writes. Such an error means that this attempt wrote nothing.
- *after* the append: `DelayedProduce` waits for the replicas. Its errors do not mean that: the batch is in the log of
  this leader, and stays there unless the next leader lacks it.
- *both*: the same code is raised before and after, and the response does not show which.

Rules: durable/README.md 7 to 10. An error from before the append is about one attempt only. A duplicate older than the
last five batches gets 45.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from kafka_share_proxy.wire.errors import ErrorCode


class Raised(Enum):
    """Point at which a broker finds the error, relative to the append to its local log."""

    BEFORE = auto()
    AFTER = auto()
    BOTH = auto()


class Follows(Enum):
    """Next action of the producer."""

    STORED = auto()
    UNKNOWN = auto()
    """The batch may be in the log. Send the same bytes again."""
    NOT_NOW = auto()
    """This attempt wrote nothing. Retry for a while, then refuse."""
    NEVER = auto()
    """This attempt wrote nothing, nor would the next. Refuse."""
    TOO_LARGE = auto()
    """This attempt wrote nothing. Fewer records may fit."""
    START_AGAIN = auto()
    """The broker forgot the sequence numbers. Write a new takeover record, then the same content."""
    FENCED = auto()
    """Another proxy has taken over."""


class ProduceError(NamedTuple):
    """One error code of `ProduceResponse.PartitionProduceResponse.ErrorCode`."""

    code: ErrorCode
    raised: Raised
    by: str
    """Java classes that raise it, in 3.9 and 4.3 alike."""
    follows: Follows


PRODUCE_ERRORS: tuple[ProduceError, ...] = (
    ProduceError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        Raised.BOTH,
        "KafkaApis.handleError and ReplicaManager.appendToLocalLog, for whatever was thrown, wherever it was",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.CORRUPT_MESSAGE,
        Raised.BEFORE,
        "UnifiedLog.analyzeAndValidateRecords, LogValidator (checksums)",
        Follows.NOT_NOW,
    ),
    ProduceError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        Raised.BOTH,
        "KafkaApis.handleProduceRequest; ReplicaManager.getPartitionOrError, which DelayedProduce calls again later",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        Raised.BOTH,
        "Partition.appendRecordsToLeader; DelayedProduce, by Partition.checkEnoughReplicasReachOffset",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.REQUEST_TIMED_OUT,
        Raised.AFTER,
        "DelayedProduce: the replicas took longer than the request's timeout",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.MESSAGE_TOO_LARGE,
        Raised.BEFORE,
        "UnifiedLog.analyzeAndValidateRecords, and UnifiedLog.append where the batch was recompressed",
        Follows.TOO_LARGE,
    ),
    ProduceError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        Raised.BEFORE,
        "ReplicaManager.appendToLocalLog: a topic internal to brokers",
        Follows.NEVER,
    ),
    ProduceError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        Raised.BEFORE,
        "UnifiedLog.append: larger than a segment (segment.bytes)",
        Follows.TOO_LARGE,
    ),
    ProduceError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        Raised.BEFORE,
        "Partition.appendRecordsToLeader, before it looks for duplicates",
        Follows.NOT_NOW,
    ),
    ProduceError(
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Raised.AFTER,
        "DelayedProduce, by Partition.checkEnoughReplicasReachOffset",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.INVALID_REQUIRED_ACKS,
        Raised.BEFORE,
        "ReplicaManager.appendRecords",
        Follows.NEVER,
    ),
    ProduceError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        Raised.BEFORE,
        "KafkaApis.handleProduceRequest",
        Follows.NEVER,
    ),
    ProduceError(ErrorCode.INVALID_TIMESTAMP, Raised.BEFORE, "LogValidator", Follows.NEVER),
    ProduceError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, Raised.BEFORE, "LogValidator", Follows.NEVER),
    ProduceError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Raised.BEFORE,
        "ProducerAppendInfo.checkSequence: neither the next sequence number nor one of the last five batches",
        Follows.START_AGAIN,
    ),
    ProduceError(
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        Raised.BEFORE,
        "no class of 3.9 or 4.3; older brokers: the sequence is in the log, regardless of the replicas",
        Follows.START_AGAIN,
    ),
    ProduceError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        Raised.BEFORE,
        "ProducerAppendInfo.checkProducerEpoch: a record of a later epoch is in the log",
        Follows.FENCED,
    ),
    ProduceError(
        ErrorCode.INVALID_TXN_STATE,
        Raised.BEFORE,
        "ProducerAppendInfo.appendDataBatch: the producer id has a transaction open",
        Follows.NEVER,
    ),
    ProduceError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Raised.BEFORE,
        "KafkaApis.handleProduceRequest",
        Follows.NEVER,
    ),
    ProduceError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        Raised.BOTH,
        "ReplicaManager.getPartitionOrError, which DelayedProduce calls again; UnifiedLog.append, half done",
        Follows.UNKNOWN,
    ),
    ProduceError(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        Raised.BEFORE,
        "no class of 3.9 or 4.3; older brokers: as 45, for a producer of which nothing is known",
        Follows.START_AGAIN,
    ),
    ProduceError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, Raised.BEFORE, "ProduceRequest.validateRecords", Follows.NEVER
    ),
    ProduceError(
        ErrorCode.INVALID_RECORD, Raised.BEFORE, "ProduceRequest.validateRecords, LogValidator", Follows.NEVER
    ),
    ProduceError(
        ErrorCode.PRODUCER_FENCED,
        Raised.BEFORE,
        "no class of 3.9 or 4.3; older brokers: as 47",
        Follows.FENCED,
    ),
)
"""No path of a produce in 3.9 or 4.3 raises other codes. They do not prove that nothing was appended."""

_FOLLOWS = {ErrorCode.NONE: Follows.STORED} | {row.code: row.follows for row in PRODUCE_ERRORS}


def what_follows(code: ErrorCode) -> Follows:
    return _FOLLOWS.get(code, Follows.UNKNOWN)
