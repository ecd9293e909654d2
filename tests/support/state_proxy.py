"""A proxy that hosts the test state in addition to share groups, or a process that only follows it.

    python tests/support/state_proxy.py PORT serve --config FILE
    python tests/support/state_proxy.py PORT follow BOOTSTRAP

It is controlled by lines of JSON on 127.0.0.1:PORT. The response to {"put": [key, text]} is the outcome, and to {} the
held texts. {"put": ..., "with": [[topic, partition, [value, ...]], ...]} puts it together with records of other topics.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import trio
import yaml
from kafka_share_proxy.app.serving import features, server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.durable.described_state import DescribedState
from kafka_share_proxy.durable.interfaces import JournalRefused, OutsideRecords
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.durable.tail import Tail
from kafka_share_proxy.feature.feature import Feature, FeatureKind, Platform, Probe
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import Address

from tests.support.small_state import WIDE_STATE, HeldTexts, Texts, wide_partition_of


def _note(event: str, /, **context: Any) -> None:
    print(event, context, flush=True)


class Follower:
    """A tail with what it holds."""

    def __init__(self, access: BrokerAccess) -> None:
        self.texts = Texts()
        self.tail = Tail(WIDE_STATE, self.texts, access)

    def reported(self) -> dict[str, Any]:
        tail = self.tail
        known = {"loaded": tail.is_all_loaded, "age_s": min(tail.age_s, 1e9), "delay_s": tail.delay_s}
        return {"followed": self.texts.values, "behind": tail.behind, **known}


class ReportedState:
    """The test state, and the socket of its control port."""

    def __init__(self, port: int, platform: Platform) -> None:
        self.texts = HeldTexts()
        self._hosted = platform.host(WIDE_STATE, self.texts, wide_partition_of)
        self._port = port
        self._follower = Follower(platform.access)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follower.tail.run)
            nursery.start_soon(serve, self._port, self.respond)

    async def respond(self, requested: dict[str, Any]) -> dict[str, Any]:
        gate = self._hosted.gate
        if "put" not in requested:
            served = sorted(p for p in self._hosted.served if gate.lets_in([p]))
            return {"served": served, "held": self.texts.values, **self._follower.reported()}
        key, text = requested["put"]
        if not gate.lets_in([wide_partition_of(key)]):
            return {"refused": gate.why_not([wide_partition_of(key)])[0].name}
        began, arrived = time.perf_counter(), trio.Event()
        promise = self._append([(key, text.encode())], requested.get("with"))
        promise.on_settled(arrived.set)
        await arrived.wait()
        try:
            promise.result()
        except JournalRefused as refusal:
            return {"refused": refusal.code.name}
        self.texts.values[key] = text
        return {"stored": key, "ms": (time.perf_counter() - began) * 1000} if "with" in requested else {"stored": key}

    def _append(self, records: list[tuple[str, bytes | None]], outside: Any) -> Promise[None]:
        journal = self._hosted.journal
        if outside is None:
            return journal.append(records)
        together = [
            OutsideRecords(topic, partition, [Record(None, value.encode()) for value in values])
            for topic, partition, values in outside
        ]
        return journal.append_with(records, together)


class ReportedFeature(FeatureKind):
    """The test state as a feature of a proxy."""

    section = probe_path = "told"

    def __init__(self, port: int) -> None:
        self._port = port

    def states(self, settings: Any, cluster: ClusterSnapshot) -> tuple[DescribedState[Any], ...]:
        return (WIDE_STATE,)

    def build(self, settings: Any, platform: Platform) -> Feature:
        return Feature(probe=Probe(path="told"), tasks=(ReportedState(self._port, platform).run,))


async def serve(port: int, response: Any) -> None:
    """Respond to lines."""

    async def one(stream: trio.SocketStream) -> None:
        received = b""
        async for data in stream:
            received += data
            while b"\n" in received:
                line, received = received.split(b"\n", 1)
                await stream.send_all(json.dumps(await response(json.loads(line))).encode() + b"\n")

    await trio.serve_tcp(one, port, host="127.0.0.1")


async def follow(port: int, bootstrap: str) -> None:
    host, _, number = bootstrap.rpartition(":")
    settings = ClusterClientSettings()
    client = partial(ClusterClient, [Address(host, int(number))], settings)
    follower = Follower(BrokerAccess(client=client, settings=settings, own=None, notes=_note))

    async def response(_requested: dict[str, Any]) -> dict[str, Any]:
        return follower.reported()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.tail.run)
        nursery.start_soon(serve, port, response)


def main(port: str, mode: str, *arguments: str) -> int:
    if mode == "follow":
        trio.run(follow, int(port), arguments[0])
        return 0
    _, file = arguments
    config = Config(**yaml.safe_load(Path(file).read_text()))
    return server.run(config, (*features.FEATURES, ReportedFeature(int(port))))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
