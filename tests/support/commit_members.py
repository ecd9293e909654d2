"""Members of consumer groups of three stock clients, as far as individual commits need them: all of them subscribe."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.raw import LIMIT_S, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python is about to drop
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError as PythonKafkaError
    from kafka.structs import OffsetAndMetadata

T = TypeVar("T")


class Refused(Exception):
    """The broker, or the proxy, returned this code for a commit."""

    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


class Member(Protocol):
    """One member, with all partitions of its topic unless others have some."""

    def commit(self, topic: str, partition: int, offset: int, text: str | None = None) -> None:
        """Commit and wait. Raises Refused."""

    def committed(self, topic: str, partition: int) -> tuple[int, str]:
        """Return what the group has committed, and the metadata."""

    def close(self) -> None:
        """Leave the group."""


class ConfluentMember:
    """librdkafka."""

    def __init__(self, bootstrap: str, group: str, topic: str, *, alone: bool = True, **settings: Any) -> None:
        """`alone`: wait for partitions; others are to be polled meanwhile (`settle`)."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
                **settings,
            }
        )
        self.consumer.subscribe([topic])
        if alone:
            until(lambda: self.consumer.poll(0.1) or self.consumer.assignment(), "partitions of a member")

    def commit(self, topic: str, partition: int, offset: int, text: str | None = None) -> None:
        place = ConfluentTopicPartition(topic, partition, offset)
        if text is not None:
            place = ConfluentTopicPartition(topic, partition, offset, text)
        try:
            responses = self.consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            raise Refused(error.args[0].code()) from None
        for response in responses or ():
            if response.error is not None:
                raise Refused(response.error.code())

    def committed(self, topic: str, partition: int) -> tuple[int, str]:
        (stored,) = self.consumer.committed([ConfluentTopicPartition(topic, partition)], timeout=LIMIT_S)
        return stored.offset, stored.metadata or ""

    def close(self) -> None:
        self.consumer.close()


def settle(*members: ConfluentMember) -> None:
    """Poll the members until each of them has one partition."""

    def are_settled() -> bool:
        for member in members:
            member.consumer.poll(0.1)
        return all(len(member.consumer.assignment()) == 1 for member in members)

    until(are_settled, "a partition for each member")


class PythonMember:
    """kafka-python."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        until(lambda: self.consumer.partitions_for_topic(topic), f"partitions of {topic}")
        self.consumer.subscribe([topic])
        until(lambda: self.consumer.poll(timeout_ms=100) or self.consumer.assignment(), "partitions of a member")
        for assigned in self.consumer.assignment():
            self.consumer.position(assigned)  # else `committed` may tell what was fetched before a commit

    def commit(self, topic: str, partition: int, offset: int, text: str | None = None) -> None:
        """Poll and commit again while the client itself joins again, e.g. for what it has learned of a new topic."""

        def is_stored() -> bool:
            try:
                self.consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, text or "", -1)})
            except PythonKafkaError as error:
                if error.errno != ErrorCode.REBALANCE_IN_PROGRESS:
                    raise Refused(error.errno) from None
                # It keeps its partitions meanwhile, so these do not show the end. On a busy machine it needs more than
                # 100 ms to join, and a poll that ends before may begin it anew.
                self.consumer.poll(timeout_ms=2000)
                return False
            return True

        until(is_stored, "the member to have joined again")

    def committed(self, topic: str, partition: int) -> tuple[int, str]:
        stored = self.consumer.committed(TopicPartition(topic, partition), metadata=True)
        return (-1, "") if stored is None else (stored.offset, stored.metadata)

    def close(self) -> None:
        self.consumer.close()


class AioMember:
    """aiokafka, which returns the committed offset without its metadata."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.consumer: Any = None
        self._run(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str, topic: str) -> None:
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await self.consumer.start()
        while not self.consumer.assignment():
            await self.consumer.getmany(timeout_ms=100)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(work, LIMIT_S)

        return self._loop.run_until_complete(bounded())

    def commit(self, topic: str, partition: int, offset: int, text: str | None = None) -> None:
        offsets = {AioTopicPartition(topic, partition): AioOffset(offset, text or "")}
        try:
            self._run(self.consumer.commit(offsets))
        except Exception as error:  # aiokafka's own, one class for each code
            raise Refused(getattr(error, "errno", -1)) from error

    def committed(self, topic: str, partition: int) -> tuple[int, str]:
        stored = self._run(self.consumer.committed(AioTopicPartition(topic, partition)))
        return -1 if stored is None else stored, ""

    def close(self) -> None:
        self._run(self.consumer.stop())
        self._loop.close()


MEMBERS: dict[str, Callable[[str, str, str], Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": PythonMember,
    "aiokafka": AioMember,
}
