"""Interceptors of the application for records that poll returns, and for committed offsets.

Source: ConsumerInterceptor and ConsumerInterceptors of Kafka's clients (KIP-42). See client/README.md rule 27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kafka_share_proxy.client.notes import INTERCEPTOR_FAILED, ConsumerNote, Observe
from kafka_share_proxy.client.polled_records import BuiltRecords, ConsumerRecord, PolledRecords
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

T = TypeVar("T")


class ConsumerInterceptor:
    """Base class that does nothing; override methods. Their exceptions are noted, and the consumer continues."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Return those of the polled records that the application is to get: fewer, others, or the same.

        The position advances past all of them; with individual commits the omitted ones count as done.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Observe accepted offsets, also of automatic commits. Called by the network task: it must be quick."""

    def close(self) -> None:
        """Called once, when the consumer is closed."""


class Interceptors:
    """Chain of interceptors: each one gets the records that the one before returned."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], observe: Observe) -> None:
        self._all = tuple(interceptors)
        self._observe = observe

    def __bool__(self) -> bool:
        return bool(self._all)

    def consumed(self, polled: PolledRecords) -> PolledRecords:
        records: Sequence[ConsumerRecord] = polled
        for each in self._all:
            before = records
            records = self._call(each, "on_consume", partial(each.on_consume, before), before)
        return polled if records is polled else BuiltRecords(polled.parts, records)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._all:
            self._call(each, "on_commit", partial(each.on_commit, offsets), None)

    def close(self) -> None:
        ended, self._all = self._all, ()
        for each in ended:
            self._call(each, "close", each.close, None)

    def _call(self, interceptor: ConsumerInterceptor, name: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # as ConsumerInterceptors: an observer must not end what it observes
            facts = {"interceptor": type(interceptor).__name__, "method": name, "error": repr(error)}
            self._observe(ConsumerNote(INTERCEPTOR_FAILED, facts))
            return otherwise
