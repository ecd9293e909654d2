"""A minimal second state: texts by key, in a separate topic, for tests of the mechanism."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import trio
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.gate import StateGate
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.key_hash import partition_for

TEXT, TAKEOVER, KEEP_ALIVE = range(3)
_HEAD = TEXT.to_bytes(2, "big")


def encode_key(key: str) -> bytes:
    return _HEAD + key.encode()


def decode_key(key: bytes) -> str:
    return key.removeprefix(_HEAD).decode()


def partition_of(key: str) -> int:
    return partition_for(key.encode(), TEST_STATE.partitions)


def wide_partition_of(key: str) -> int:
    return partition_for(key.encode(), PARTITIONS)


TEST_STATE: DescribedState[str] = DescribedState(
    name="test state",
    serves="texts",
    setting="texts.state",
    topic="__test_state",
    partitions=8,
    transactional_prefix="__proxy-test-",
    record_types=frozenset({TEXT}),
    takeover_type=TAKEOVER,
    keep_alive_type=KEEP_ALIVE,
    encode_key=encode_key,
    partition_of=partition_of,
)


WIDE_STATE = replace(TEST_STATE, partitions=PARTITIONS, partition_of=wide_partition_of)
"""The same with as many partitions as are spread over a fleet."""


def text_gate() -> StateGate:
    return StateGate(TEST_STATE.partitions, partition_of)


class Texts:
    """Texts held by the owner, and by every follower."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.forgotten: list[set[int]] = []
        self.message_bytes = 0

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self.apply(key, value)
            await trio.lowlevel.checkpoint()

    def apply(self, key: bytes, value: bytes | None) -> None:
        if TEST_STATE.is_keep_alive(key):
            return
        if value is None:
            self.values.pop(decode_key(key), None)
        elif value == b"unreadable":
            raise RemoteProtocolError("a text that cannot be read")
        else:
            self.values[decode_key(key)] = value.decode()

    def forget(self, partitions: Collection[int]) -> None:
        removed = set(partitions)
        self.forgotten.append(removed)
        self.values = {key: value for key, value in self.values.items() if partition_of(key) not in removed}

    def figures(self) -> Mapping[str, int]:
        return {"texts": len(self.values)}


class HeldTexts(Texts):
    """See described_state.HeldState."""

    async def forget(self, partitions: Collection[int]) -> None:  # type: ignore[override]  # the owner's takes its time
        super().forget(partitions)
        await trio.lowlevel.checkpoint()

    def stored(self, partitions: Collection[int], time_ms: int) -> Iterator[tuple[str, bytes]]:
        for key, value in list(self.values.items()):
            if partition_of(key) in partitions:
                yield key, value.encode()

    def limit_records(self, message_bytes: int) -> None:
        self.message_bytes = message_bytes
