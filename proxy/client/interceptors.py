"""What an application puts between the consumer and itself: it sees records that poll returns, and offsets committed.

Source: ConsumerInterceptor and ConsumerInterceptors of Kafka's clients (KIP-42). See client/README.md rule 27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar, overload

from proxy.client.notes import INTERCEPTOR_FAILED, ConsumerNote, Observe
from proxy.client.polled_records import ConsumerRecord, PolledRecords
from proxy.consumer.partitions import OffsetAndMetadata, Partitions
from proxy.wire.records import Record
from proxy.wire.values import TopicPartition

T = TypeVar("T")
"""What a method of an interceptor returns."""


class ConsumerInterceptor:
    """Does nothing: override what you want. What a method raises is noted, and the consumer goes on without it."""

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """See the records of one poll, and return those that the application is to get: fewer, others, or the same.

        The position moves on behind all of them; with individual commits those that are left out count as done.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See what the group has accepted, also of automatic commits. Called by the network task: it must be quick."""

    def close(self) -> None:
        """Called once, when the consumer is closed."""


class InterceptedRecords(PolledRecords):
    """The records of one poll as interceptors left them; what is to be committed is that of all."""

    def __init__(self, polled: PolledRecords, records: Iterable[ConsumerRecord]) -> None:
        super().__init__(polled.parts)
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        return list(self._records[index]) if isinstance(index, slice) else self._records[index]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._records)

    @property
    def partitions(self) -> Partitions:
        """Of which there are records."""
        return frozenset(TopicPartition(each.topic, each.partition) for each in self._records)

    def of(self, partition: TopicPartition) -> Iterator[Record]:
        """The records of one partition, without its name."""
        return (Record(*each[2:]) for each in self._records if (each.topic, each.partition) == partition)


class Interceptors:
    """All of one consumer, each given what the one before returned."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor], observe: Observe) -> None:
        self._all = tuple(interceptors)
        self._observe = observe

    def __bool__(self) -> bool:
        return bool(self._all)

    def consumed(self, polled: PolledRecords) -> PolledRecords:
        """What the application gets of these."""
        records: Sequence[ConsumerRecord] = polled
        for each in self._all:
            given = records
            records = self._called(each, "on_consume", partial(each.on_consume, given), given)
        return polled if records is polled else InterceptedRecords(polled, records)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell all of them."""
        for each in self._all:
            self._called(each, "on_commit", partial(each.on_commit, offsets), None)

    def close(self) -> None:
        """Tell all of them, once."""
        ended, self._all = self._all, ()
        for each in ended:
            self._called(each, "close", each.close, None)

    def _called(self, interceptor: ConsumerInterceptor, name: str, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except Exception as error:  # as ConsumerInterceptors: an observer must not end what it observes
            facts = {"interceptor": type(interceptor).__name__, "method": name, "error": repr(error)}
            self._observe(ConsumerNote(INTERCEPTOR_FAILED, facts))
            return otherwise
