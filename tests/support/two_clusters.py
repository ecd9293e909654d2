"""One script of requests, run against a real cluster and against the cluster in one process.

A script is a generator: it yields a `Step` and is sent the response. What both clusters return is compared as a trace,
in which ids that a cluster chooses (of topics, members, producers, sessions) are replaced by their order of appearance.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records

from tests.support.blocking_connection import Connection, build
from tests.support.raw import KEYS
from tests.support.target_caller import Caller

LEFT_OUT = frozenset({
    "throttle_time_ms", "error_message", "host", "port", "unknown_tags", "node_endpoints", "log_append_time_ms",
    "transaction_start_time_ms", "last_timestamp", "acknowledge_error_message", "batch_index_error_message",
    "authorized_operations", "client_host", "rack", "coordinator_epoch", "cluster_id", "broker_id", "node_id",
    "current_leader",
})  # fmt: skip
"""Fields that may differ."""
IDS = frozenset({"topic_id", "member_id", "producer_id", "session_id", "leader_id", "leader", "controller_id"})
"""Fields with ids that the cluster chooses."""
SHOWN_MAX = 8
"""Maximum number of differences that a failure shows."""
NO_IDS = (-1, 0, "", bytes(16), None)
"""Values of such fields that name nothing."""


@dataclass(frozen=True)
class Step:
    """One request. `connection`: number of the connection. `is_traced`: False for what is repeated until it works."""

    api: str
    version: int
    values: dict[str, Any] = field(default_factory=dict)
    connection: int = 0
    is_traced: bool = True
    waits: bool = True
    """False: send it, and receive the response by a later step `receive`."""


def query(api: str, version: int, *, connection: int = 0, **values: Any) -> Step:
    return Step(api, version, values, connection)


RECEIVE = "receive"
"""Step that receives the response of one that did not wait."""
NOTE = "note"
"""Step that traces a response which the script has."""
Script = Generator[Step, Any, None]
Trace = list[tuple[str, Any]]


class Labels:
    """Ids by their order of appearance."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], str] = {}

    def of(self, name: str, value: Any) -> Any:
        if value in NO_IDS and not (name == "producer_id" and value == 0):
            return value
        kind = "node" if name in ("leader_id", "controller_id") else name
        kind = "member_id" if name == "leader" else kind
        return self._known.setdefault((kind, value), f"{kind} {sum(key[0] == kind for key in self._known)}")

    def plain(self, value: Any, name: str = "") -> Any:
        """Return a value without what may differ."""
        if isinstance(value, Message):
            return {each: self.plain(getattr(value, each), each) for each in value.FIELDS if each not in LEFT_OUT}
        if isinstance(value, list | tuple):
            items = [self.plain(each, name) for each in value]
            return sorted(items, key=_name_of) if items and isinstance(items[0], dict) else items
        if name == "records":
            return batches_of(bytes(value or b""))
        if isinstance(value, memoryview | bytearray):
            value = bytes(value)
        return self.of(name, value) if name in IDS else value


def _name_of(entry: dict[str, Any]) -> str:
    """Return what names an entry of an array: brokers return topics and groups in any order."""
    names = ("name", "topic_name", "group_id", "partition_index", "member_id")
    return str(next((entry[name] for name in names if name in entry), ""))


def batches_of(data: bytes) -> list[Any]:
    """Return what matters of record batches: offsets, epochs, values, and the bytes of a part at the end."""
    batches: list[Any] = []
    end = 0
    try:
        for header in records.iter_batches(data):
            end = header.end
            values = [(r.offset, r.key, r.value) for r in records.decode_records(data[header.position : end])]
            kind = "marker" if header.is_control else "records"
            content = None if header.is_control else values
            batches.append(
                (kind, header.base_offset, header.last_offset, header.leader_epoch, header.producer_epoch, content)
            )
    except RemoteProtocolError as error:
        batches.append(str(error))
    return [*batches, len(data) - end]


def run_native(script: Script, connect: Callable[[], Connection]) -> Trace:
    """Run a script against a real cluster of one node."""
    connections: dict[int, Connection] = {}
    sent: dict[int, tuple[int, int]] = {}
    labels, trace = Labels(), Trace()
    response: Any = None
    try:
        while True:
            step = script.send(response)
            connection = connections.get(step.connection) or connections.setdefault(step.connection, connect())
            response = _native(connection, step, sent)
            if step.is_traced and response is not None:
                trace.append((f"{step.api} v{step.version}", labels.plain(response)))
    except StopIteration:
        return trace
    finally:
        for connection in connections.values():
            connection.close()


def _native(connection: Connection, step: Step, sent: dict[int, tuple[int, int]]) -> Any:
    from kafka_share_proxy.wire.codec import frames

    if step.api == NOTE:
        return step.values["response"]
    if step.api == RECEIVE:
        key, version = sent.pop(step.connection)
        return frames.decode_response(key, version, connection.receive())[1]
    key, message = KEYS[step.api], build(f"{step.api}Request", **step.values)
    if step.waits:
        return connection.send_request(key, step.version, message)
    connection.send(key, step.version, message)
    sent[step.connection] = (key, step.version)
    return None


async def run_target(script: Script, cluster: TargetCluster) -> Trace:
    """Run a script against a cluster of one node in this process."""
    callers: dict[int, Caller] = {}
    running: dict[int, list[Any]] = {}
    labels, trace = Labels(), Trace()
    response: Any = None
    async with trio.open_nursery() as nursery:
        try:
            while True:
                step = script.send(response)
                caller = callers.setdefault(step.connection, Caller(cluster, number=step.connection + 1))
                if step.api == NOTE:
                    response = step.values["response"]
                elif step.api == RECEIVE:
                    await trio.testing.wait_all_tasks_blocked()
                    response = running.pop(step.connection)[0]
                else:
                    message = build(f"{step.api}Request", **step.values)
                    if step.waits:
                        response = await caller.send(message, step.version)
                    else:
                        results = running[step.connection] = []
                        nursery.start_soon(_collect, caller, message, step.version, results)
                        await trio.testing.wait_all_tasks_blocked()
                        response = None
                if step.is_traced and response is not None:
                    trace.append((f"{step.api} v{step.version}", labels.plain(response)))
        except StopIteration:
            nursery.cancel_scope.cancel()
    return trace


async def _collect(caller: Caller, message: Any, version: int, results: list[Any]) -> None:
    results.append(await caller.send(message, version))


def differences(native: Trace, target: Trace) -> list[str]:
    """Return the first differing steps as text."""
    differing = []
    for number, (theirs, ours) in enumerate(zip(native, target, strict=False)):
        if theirs != ours:
            differing += [f"step {number}, {theirs[0]}: {each}" for each in _leaves(theirs[1], ours[1], "")]
    if len(native) != len(target):
        differing.append(f"{len(native)} steps against {len(target)}")
    return differing[:SHOWN_MAX]


def _begins(theirs: Any, ours: Any) -> bool:
    """Return True if the first batches are the same, up to the last one of the broker.

    Its list of aborted transactions may be shorter or longer: it goes up to an entry of the index.
    """
    if not theirs or not ours:
        return False
    if not isinstance(theirs[-1], int):
        count = min(len(theirs), len(ours))
        return bool(theirs[:count] == ours[:count])
    batches = theirs[:-1]
    return bool(batches) and ours[: len(batches)] == batches


def _leaves(theirs: Any, ours: Any, path: str) -> list[str]:
    """Return the places that differ. A broker may return fewer records than fit, but none only if there are none."""
    if path.endswith((".records", ".aborted_transactions")) and _begins(theirs, ours):
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [text for key in theirs for text in _leaves(theirs[key], ours.get(key), f"{path}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return [text for index, (a, b) in pairs for text in _leaves(a, b, f"{path}[{index}]")]
    return [] if theirs == ours else [f"{path} is {theirs}, here {ours}"]
