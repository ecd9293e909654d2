"""Dead letters as records (KIP-1191, as Kafka 4.4.0 writes them; sharegroups/README.md rules 87 and 88)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.durable.interfaces import OutsideRecords
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetter
from kafka_share_proxy.wire.records.records import Record

TOPIC, PARTITION, OFFSET = "__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset"
GROUP, DELIVERY_COUNT, MESSAGE = "__dlq.errors.group", "__dlq.errors.delivery.count", "__dlq.errors.message"
"""Names of the headers. Values are UTF-8 text, numbers in decimal."""
HEADER_PREFIX = "__dlq.errors."
REJECTED_MESSAGE = "Offset rejected by client."
EXHAUSTED_MESSAGE = "Offset delivery count exceeded the threshold."
_REJECTED, _EXHAUSTED = (MESSAGE, REJECTED_MESSAGE.encode()), (MESSAGE, EXHAUSTED_MESSAGE.encode())
MESSAGES = {"rejected": REJECTED_MESSAGE, "exhausted": EXHAUSTED_MESSAGE}
"""Messages by the short names that commands accept."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class LetterSource:
    """The share partition of records that failed."""

    group_id: str
    topic: str
    partition: int
    headers: tuple[Header, Header, Header] = field(init=False)
    """Headers that its dead letters have in common."""

    def __post_init__(self) -> None:
        partition = (PARTITION, b"%d" % self.partition)
        object.__setattr__(self, "headers", ((TOPIC, self.topic.encode()), partition, (GROUP, self.group_id.encode())))


def letter_of(
    source: LetterSource, letter: DeadLetter, record: Record | None, *, now_ms: int, copies_headers: bool
) -> Record:
    """Return a dead letter. `record`: the failed record to copy. None: key and value are null.

    `copies_headers`: copy its headers and timestamp too, which Kafka never does.
    """
    topic, partition, group = source.headers
    offset, delivery_count, is_rejected = letter
    numbers = (OFFSET, b"%d" % offset), (DELIVERY_COUNT, b"%d" % delivery_count)
    headers = (topic, partition, numbers[0], group, numbers[1], _REJECTED if is_rejected else _EXHAUSTED)
    if record is None:
        return Record(None, None, headers, now_ms)
    if not copies_headers:
        return Record(record.key, record.value, headers, now_ms)
    copied_headers = tuple((name, value) for name, value in record.headers if not name.startswith(HEADER_PREFIX))
    timestamp = record.timestamp if 0 <= record.timestamp < now_ms else now_ms  # brokers refuse times in the future
    return Record(record.key, record.value, headers + copied_headers, timestamp)


def by_partition(topic: str, partitions: int, letters: Sequence[tuple[int, Record]]) -> list[OutsideRecords]:
    """Return the records by partition of their topic: source partition mod partitions."""
    placed: dict[int, list[Record]] = {}
    for source_partition, record in letters:
        placed.setdefault(source_partition % partitions, []).append(record)
    return [OutsideRecords(topic, partition, records) for partition, records in sorted(placed.items())]


def letter_text(headers: Mapping[str, bytes | None], name: str) -> str:
    """Return the text of a header of a dead letter. Empty if it is missing."""
    return (headers.get(name) or b"").decode(errors="replace")


def source_headers(record: Record) -> Iterator[tuple[str, bytes | None]]:
    """Yield the headers of a dead letter that come from its source."""
    return ((name, value) for name, value in record.headers if not name.startswith(HEADER_PREFIX))
