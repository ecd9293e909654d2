"""Metadata (key 3) that names a view: the view is made ready first, and shown with the partitions of its base.

Behaviour
- Everything else in such a request is asked as the client did, and the answer is one. By id (v12+) the answer tells
  that a topic is a view. Names that no view can have: 17. No such base: 3. The broker's refusal to make its topic
  is passed on. Broker-side auto-creation never sees the name of a view.
- With allow_auto_topic_creation=false (v4+) a view whose topic is missing stays missing: 3, as of any topic. One that
  is there is made ready all the same (it grows with its base).
- All other requests are forwarded: `forwarding.apis.k03_metadata`.

KIPs: 516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.forwarding.apis.k03_metadata import repair
from proxy.forwarding.ask_and_reply import ask, reply, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.views.apis.metadata_entries import metadata_entry, refused_entry
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES, is_view
from proxy.views.services import ViewServices
from proxy.wire import headers, primitives
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.values import ZERO_UUID

KEY = 3
BY_ID_SINCE = 12
"""Requests may name topics by id from here on (KIP-516)."""


def may_name_view(catalog: ViewCatalog) -> Callable[[memoryview], bool]:
    """A predicate over request frames: a view is named, or an id that is not known to be no view's."""

    def may_name(frame: memoryview) -> bool:
        data = bytes(frame)
        if PREFIX_BYTES in data:
            return True
        if data[2:4] < _BY_ID_SINCE or data.count(ZERO_UUID) >= _topics(data):
            return False  # each topic that goes by its name has an id of zeros
        return _asks_by_id(data, catalog.is_plain)

    return may_name


IDS_LOOKED_MAX = 10_000
"""Topics of one request that are looked at one by one; one with more is served here, as if it named a view."""
_ID_BYTES, _NO_NAME = 16, b"\0\0"
"""A topic that goes by its id: the id, no name, no tags."""


def _asks_by_id(data: bytes, is_plain: Callable[[bytes], bool]) -> bool:
    """Walk the topics of a request: whether an id is not known as plain, or it cannot be told."""
    try:
        at = headers.decode_request_header(data)[1]
        topics, at = primitives.read_uvarint(data, at)
        if topics > IDS_LOOKED_MAX:
            return True
        for _ in range(topics - 1):
            behind = at + _ID_BYTES
            if data[behind : behind + 2] == _NO_NAME:
                if not is_plain(data[at:behind]):
                    return True
                at = behind + 2
                continue
            name, at = primitives.read_uvarint(data, behind)
            at += max(name - 1, 0)
            if data[at]:  # tags
                return True
            at += 1
    except (RemoteProtocolError, IndexError):
        return False  # no Metadata that can be read: the broker judges it
    return False


_BY_ID_SINCE = BY_ID_SINCE.to_bytes(2, "big")


def _topics(data: bytes) -> int:
    """How many topics a request of v12 or later names, if its head is an ordinary one; else more than it can."""
    body = 10 + max(int.from_bytes(data[8:10], "big", signed=True), 0)
    if data[body : body + 1] != b"\0":
        return len(data)  # tags in the header: rare
    head = data[body + 1 : body + 3]
    if len(head) == 2 and head[0] >= 0x80 and head[1] < 0x80:
        return (head[0] & 0x7F | head[1] << 7) - 1
    return head[0] - 1 if head and head[0] < 0x80 else len(data)


async def handle(call: Call, views: ViewServices) -> bytes | None:
    """A request that may name views."""
    if call.message.topics is None:
        return None
    request = call.message
    named = [topic.name for topic in request.topics if is_view(topic.name)]
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    rest = _ask_rest(call)
    shown = await _show(views, call, named)
    answer = told(KEY, max(call.version, 1), await rest)
    by_id = views.keeper.file(topic for topic in answer.topics or () if request.topics)
    if by_id:
        answer.topics = [topic for topic in answer.topics if not is_view(topic.name)]
        shown += await _show(views, call, [name for name in by_id if name not in named])
    answer.topics = [*(answer.topics or ()), *shown]
    repair(answer, views.services.book)
    return reply(call, answer)


def _ask_rest(call: Call) -> Promise[memoryview]:
    """What is left of the request; with no topic left it asks for brokers only, which v0 cannot."""
    return ask(call.connection, KEY, max(call.version, 1), call.message)


async def _show(views: ViewServices, call: Call, topics: Sequence[str]) -> list[Any]:
    """The entries of these views. In versions that do not ask whether topics may be created, they may."""
    names, bad = views.keeper.read(topics)
    operations = bool(call.message.include_topic_authorized_operations)
    create = bool(call.message.allow_auto_topic_creation)
    sights = await views.keeper.look(call.connection, names, create=create, operations=operations)
    entries = [metadata_entry(sight) for sight in sights.values()]
    return entries + [refused_entry(topic, code) for topic, code in bad.items()]


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
