"""Metadata (key 3): forwarded, brokers' addresses rewritten, the proxy's own topics kept out of "all topics".

Behaviour
- A broker whose listener cannot be bound is left out; partitions it leads get LEADER_NOT_AVAILABLE and leader -1, and
  clients ask again. Replica lists keep node ids: clients know replicas that are not listed. Another broker is named as
  controller, as brokers without ZooKeeper do: each passes on what is for the controller.
- Never an empty list of brokers (librdkafka 5301): where upstream names none and gives no error (a broker that has not
  caught up yet), the brokers with a listener here are named; where there are none either, or none of those named can
  be dialled, the connection is closed and the client tries again. An answer with a top-level error (v13, KIP-1102)
  passes without brokers, as it came.
- State topics of the proxies and view topics are left out of an answer to "all topics" (so that pattern subscriptions
  do not read them) and shown to whoever names them. The answer alone does not tell, so the request is looked at.
- A request that names a view is served here (`handle`): the view is made ready first, then everything else in the
  request is asked as the client did, and the view is shown with the partitions of its base. By id (v12+) the answer
  tells that a topic is a view. Names that no view can have: 17. No such base: 3. The broker's refusal to make the
  view's topic is passed on. Broker-side auto-creation never sees the name of a view.
- With allow_auto_topic_creation=false (v4+) a view whose topic is missing stays missing: 3, as of any topic. One that
  is there is made ready all the same (it grows with its base).

KIPs: 516 (topic ids), 1102 (rebootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.address_rewriting import ours, repaired, rewriter, sized, unusable
from proxy.forwarding.ask_and_reply import ask, reply, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.hidden_topics import Unclear, show_no_hidden, without_hidden
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Context, Rewrite
from proxy.loop.promise import Promise
from proxy.views.apis.metadata_entries import metadata_entry, refused_entry
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES, is_view
from proxy.views.services import ViewServices
from proxy.wire import headers, primitives, registry
from proxy.wire.errors import ErrorCode, RemoteProtocolError
from proxy.wire.values import UNKNOWN_NODE, ZERO_UUID

KEY = 3
BY_ID_SINCE = 12
"""Requests may name topics by id from here on (KIP-516)."""

_NULL_LIST, _NULL_COMPACT_LIST, _EMPTY_LIST = b"\xff\xff\xff\xff", b"\x00", b"\x00\x00\x00\x00"


def repair(answer: Any, book: AddressBook) -> None:
    """Our addresses; brokers without one are left out, and so is their leadership."""
    named = {broker.node_id for broker in answer.brokers or ()}
    answer.brokers = ours(answer.brokers, book)
    if not answer.brokers and answer.error_code == ErrorCode.NONE:
        if named:
            raise unusable("Metadata")
        answer.brokers = _known(book)
    gone = named - {broker.node_id for broker in answer.brokers}
    if gone:
        _without_leaders(answer, gone)
    if answer.controller_id in gone:
        answer.controller_id = answer.brokers[0].node_id if answer.brokers else UNKNOWN_NODE


def all_topics_rewriter(version: int, book: AddressBook) -> Rewrite:
    """The rewriter of answers to "all topics": our addresses, and nothing hidden."""
    readdress = rewriter(KEY, version, book, repair, names_no_broker)

    def rewrite(frame: memoryview, context: Context) -> bytes | None:
        changed = readdress(frame, context)
        answer = frame if changed is None else memoryview(changed)[4:]
        try:
            pieces = without_hidden(answer, version)
        except Unclear:
            return repaired(answer, KEY, version, book, lambda decoded, _: show_no_hidden(decoded))
        return changed if pieces is None else sized(*pieces)

    return rewrite


def names_no_broker(_: memoryview, found: Sequence[Any]) -> bool:
    """Whether an answer has an empty list of brokers, which `repair` has to judge."""
    return not found


def all_topics_marker(version: int) -> bytes:
    """What a request of this version has for "all topics" at the beginning of its body (its first field is the list).

    v0 knows no null list: there, an empty one asks for all.
    """
    if headers.request_header_version(KEY, version) >= 2:
        return _NULL_COMPACT_LIST
    return _EMPTY_LIST if version == 0 else _NULL_LIST


def asks_for_all_topics(version: int) -> Callable[[memoryview], bool]:
    """A predicate over request frames (without size) of this version.

    It says no, or raises RemoteProtocolError, where there is no whole request header.
    """
    marker = all_topics_marker(version)
    flexible = headers.request_header_version(KEY, version) >= 2
    size = len(marker)

    def asks(frame: memoryview) -> bool:
        try:
            body = 10 + frame[9]
            ordinary = not frame[8] and not (flexible and frame[body])  # a short client id, no tags: no need to decode
        except IndexError:
            ordinary = False
        body = body + flexible if ordinary else headers.decode_request_header(frame)[1]
        return frame[body : body + size] == marker

    return asks


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


def _known(book: AddressBook) -> list[Any]:
    """The brokers with a listener here, when upstream names none."""
    broker = registry.message("MetadataResponse").MetadataResponseBroker
    known = [(node_id, book.ours_of(node_id)) for node_id in sorted(book.nodes)]
    found = [broker(node_id=node_id, host=at.host, port=at.port) for node_id, at in known if at is not None]
    if not found:
        raise unusable("Metadata")
    return found


def _without_leaders(answer: Any, gone: set[int]) -> None:
    for topic in answer.topics or ():
        for partition in topic.partitions or ():
            if partition.leader_id in gone:
                partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
                partition.leader_id = UNKNOWN_NODE


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
