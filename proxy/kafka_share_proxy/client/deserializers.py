"""Keys and values as objects of the application, made when records are handed out (client/README.md rule 38)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.client.share_records import ShareRecord
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.wire.values import TopicPartition

Deserialize = Callable[[bytes], Any]
"""Function that converts the bytes of a key or value. It is not called for null."""


class RecordDeserializationError(ConsumerError):
    """A key or value cannot be deserialized; `__cause__` is the error of the deserializer.

    Raised again by a consumer until the application seeks past the offset. A share consumer has released the record.
    """

    def __init__(self, partition: TopicPartition, offset: int, part: str, cause: Exception) -> None:
        self.partition = partition
        self.offset = offset
        self.part = part
        """"key" or "value"."""
        self.__cause__ = cause
        super().__init__(f"{partition} at offset {offset}: the {part} cannot be deserialized: {cause!r}")


AnyRecord = TypeVar("AnyRecord", ConsumerRecord, ShareRecord)


class Deserializers:
    """Key and value deserializers of a consumer. False if it has none."""

    def __init__(self, key: Deserialize | None = None, value: Deserialize | None = None) -> None:
        self._key, self._value = key, value

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def deserialized(self, records: Iterable[AnyRecord]) -> tuple[list[AnyRecord], RecordDeserializationError | None]:
        """Return the records up to the first that fails, and why it fails."""
        done: list[AnyRecord] = []
        for record in records:
            part = "key"
            try:
                key = _value_of(self._key, record.key)
                part = "value"
                value = _value_of(self._value, record.value)
            except Exception as error:  # any exception of the program's own function
                partition = TopicPartition(record.topic, record.partition)
                return done, RecordDeserializationError(partition, record.offset, part, error)
            done.append(record._replace(key=key, value=value))
        return done, None


def _value_of(deserialize: Deserialize | None, data: Any) -> Any:
    return data if deserialize is None or data is None else deserialize(bytes(data))
