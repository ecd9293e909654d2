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

KIPs: 516 (topic ids), 1102 (rebootstrap). Requests that name a view: `views.apis.k03_metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.address_rewriting import ours, repaired, rewriter, sized, unusable
from proxy.forwarding.early_looks import AboutAllTopics
from proxy.forwarding.forwarded_api import ForwardedApi, RewritingParts
from proxy.forwarding.hidden_topics import Unclear, show_no_hidden, without_hidden
from proxy.forwarding.routes import Amend, Context, Kind, Rewrite, Route
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.endpoints import Endpoint
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.METADATA


def repair(answer: messages.MetadataResponse, book: AddressBook) -> None:
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


def names_no_broker(_: memoryview, found: Sequence[Endpoint]) -> bool:
    """Whether an answer has an empty list of brokers, which `repair` has to judge."""
    return not found


def _known(book: AddressBook) -> list[messages.MetadataResponse.MetadataResponseBroker]:
    """The brokers with a listener here, when upstream names none."""
    broker = messages.MetadataResponse.MetadataResponseBroker
    known = [(node_id, book.ours_of(node_id)) for node_id in sorted(book.nodes)]
    found = [broker(node_id=node_id, host=at.host, port=at.port) for node_id, at in known if at is not None]
    if not found:
        raise unusable("Metadata")
    return found


def _without_leaders(answer: messages.MetadataResponse, gone: set[int]) -> None:
    for topic in answer.topics or ():
        for partition in topic.partitions or ():
            if partition.leader_id in gone:
                partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
                partition.leader_id = UNKNOWN_NODE


def _amend(version: int, parts: RewritingParts) -> Amend:
    """Answers to "all topics" are another matter than those to names; the request tells which it will be."""
    every = parts.cache.through(all_topics_rewriter(version, parts.book))
    for_all = Route(kind=Kind.ANSWER, key=KEY, version=version, rewrite=every)
    asks = AboutAllTopics().look(KEY, version)
    return lambda frame: for_all if asks(frame) else None


API = ForwardedApi(
    key=KEY,
    repair=repair,
    special=lambda _: names_no_broker,
    answers_repeat=True,
    amend=_amend,
    requests_repeat=True,
)
