"""Produce (key 0): nothing is written to a view.

Versions: all that are offered.

Behaviour
- Partitions of a view are refused with 17, which ends a producer's attempts at once; the rest of such a request is
  asked of the broker, and both answers are one. Without acks (0) there is no answer: the view's records are dropped
  with a line in the log, the rest is sent with acks=1 and its answer is ours.
- Requests are only looked into while some view is known here (`viewing.routes`). What is looked at is the names, by
  arithmetic; v13 and later has ids, which are compared with those of the views that are known. A request whose names
  have not all come yet is gathered first.
- What slips through is refused by the broker (10): no record is small enough for the topic of a view.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Any

from proxy.forwarding.address_rewriting import drop_node_endpoints
from proxy.forwarding.ask_and_reply import ask, ask_upstream, reply, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES, is_view
from proxy.views.services import ViewServices
from proxy.wire import registry
from proxy.wire.errors import ErrorCode
from proxy.wire.values import ZERO_UUID

KEY = 0
FLEXIBLE_SINCE, BY_ID_SINCE = 9, 13
NOTHING = b""
"""The answer to a request that has none."""

LOOKED_MAX = 2_000
"""Topics and partitions that are looked at; a request with more is told of when it has come whole, and in slices."""

_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from
_ONE, _LONG, _FIRST = 2, 0x80, PREFIX_BYTES[0]
"""A list of one as a varint, where longer varints begin, how the name of a view begins."""
_COMMITTED_ONCE = 1
"""acks=1: the least that is answered."""


def may_name_view(catalog: ViewCatalog) -> Callable[[memoryview], bool]:
    """A predicate over request frames (without size): a view is named, or it cannot be told from what has come."""

    def may_name(frame: memoryview) -> bool:
        try:
            version = frame[3]
            if FLEXIBLE_SINCE <= version < BY_ID_SINCE and not frame[8]:
                # What producers without transactions send, to one topic: told by the first letter of its name.
                body = 10 + frame[9]
                if not frame[body] and not frame[body + 1] and frame[body + 8] == _ONE and frame[body + 9] < _LONG:
                    return frame[body + 10] == _FIRST and _compact(frame, None)
            if version < FLEXIBLE_SINCE:
                return _classic(frame)
            return _compact(frame, catalog if version >= BY_ID_SINCE else None)
        except (error, IndexError):
            return True

    return may_name


async def handle(call: Call, views: ViewServices) -> bytes | None:
    """A request that may name views."""
    request = call.message
    refused = [each for each in request.topic_data or () if is_view(each.name) or views.catalog.view(each.topic_id)]
    if not refused:
        return None
    names = sorted({each.name or f"topic id {bytes(each.topic_id).hex()}" for each in refused})
    views.services.notes("view-produce-refused", client_id=call.client_id or "", topics=", ".join(names))
    request.topic_data = [each for each in request.topic_data if each not in refused]
    if request.acks == 0:
        return await _without_answer(call)
    answer = await ask_upstream(call, request) if request.topic_data else _nothing()
    drop_node_endpoints(answer, views.services.book)
    answer.responses = [*(answer.responses or ()), *map(_refusal, refused)]
    return reply(call, answer)


async def _without_answer(call: Call) -> bytes:
    if call.message.topic_data:
        call.message.acks = _COMMITTED_ONCE
        told(KEY, call.version, await ask(call.connection, KEY, call.version, call.message))
    return NOTHING


def _nothing() -> Any:
    return registry.message("ProduceResponse")(responses=[], node_endpoints=[])


def _refusal(topic: Any) -> Any:
    message = registry.message("ProduceResponse")
    parts = [
        message.PartitionProduceResponse(
            index=each.index,
            error_code=int(ErrorCode.INVALID_TOPIC_EXCEPTION),
            base_offset=-1,
            record_errors=[],
            error_message="nothing can be written to a view",
        )
        for each in topic.partition_data or ()
    ]
    return message.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)


def _classic(frame: memoryview) -> bool:
    """Up to v8: lengths of two and four bytes."""
    at = 8
    for _ in range(2):  # client id, transactional id
        length = _int16(frame, at)[0]
        at += 2 + max(length, 0)
    topics = _int32(frame, at + 6)[0]
    at += 10
    looked = _counted(topics)
    for left in range(topics, 0, -1):
        length = _int16(frame, at)[0]
        at += 2
        if frame[at : at + len(PREFIX_BYTES)] == PREFIX_BYTES:
            return True
        at += length
        if left == 1:
            return bool(at > len(frame))
        partitions = _int32(frame, at)[0]
        at += 4
        looked = _counted(looked + partitions)
        for _ in range(partitions):
            at += 8 + max(_int32(frame, at + 4)[0], 0)
    return False


def _compact(frame: memoryview, by_id: ViewCatalog | None) -> bool:
    """From v9 on: varints, tags; with a catalog, ids in place of names."""
    length = _int16(frame, 8)[0]
    at = 10 + max(length, 0)
    if frame[at]:
        return True  # tags in the header: rare, read at leisure
    length, at = _unsigned(frame, at + 1)
    at += max(length - 1, 0) + 6
    topics, at = _unsigned(frame, at)
    looked = _counted(topics)
    for left in range(topics - 1, 0, -1):
        if by_id is not None:
            named = by_id.view(bytes(frame[at : at + len(ZERO_UUID)])) is not None
            at += len(ZERO_UUID)
        else:
            length, at = _unsigned(frame, at)
            named = frame[at : at + len(PREFIX_BYTES)] == PREFIX_BYTES
            at += max(length - 1, 0)
        if named:
            return True
        if left == 1:
            return bool(at > len(frame))
        partitions, at = _unsigned(frame, at)
        looked = _counted(looked + partitions)
        at = _behind_partitions(frame, at, partitions)
    return False


def _counted(elements: int) -> int:
    """The same number; raises IndexError where it is too large to look at so many."""
    if elements > LOOKED_MAX:
        raise IndexError(elements)
    return elements


def _behind_partitions(frame: memoryview, at: int, partitions: int) -> int:
    for _ in range(partitions - 1):
        size, at = _unsigned(frame, at + 4)
        at += max(size - 1, 0)
        if frame[at]:
            raise IndexError(at)  # tags of a partition: rare, read at leisure
        at += 1
    if frame[at]:
        raise IndexError(at)
    return at + 1


def _unsigned(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise IndexError(at)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
