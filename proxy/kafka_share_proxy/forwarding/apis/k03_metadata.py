"""Metadata (key 3): forwarded, with rewritten broker addresses, and without the proxy's own topics in "all topics".

Rules: forwarding/README.md 10 to 12. Another broker is named as controller, as brokers without ZooKeeper do: each
forwards requests for the controller. A response with a top-level error (v13, KIP-1102) is forwarded without brokers, as
it arrived. The response alone does not show that it is about all topics, so the request is inspected.

Requests that name a view: `views.apis.k03_metadata`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.forwarding.dispatch.early_matches import AboutAllTopics, matcher_on_first_use
from kafka_share_proxy.forwarding.dispatch.forwarded_api import ForwardedApi, RewritingParts
from kafka_share_proxy.forwarding.dispatch.routes import Amend, Context, Kind, Rewrite, Route
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.rewriting.address_rewriting import reachable, repaired, rewriter, sized, unusable
from kafka_share_proxy.forwarding.rewriting.hidden_topics import Unclear, show_no_hidden, without_hidden
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.endpoints import Endpoint
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.METADATA


def repair(response: messages.MetadataResponse, book: AddressBook) -> None:
    """Replace broker addresses. Brokers without one, and their leadership, are left out."""
    upstream_nodes = {broker.node_id for broker in response.brokers or ()}
    response.brokers = reachable(response.brokers, book)
    if not response.brokers and response.error_code == ErrorCode.NONE:
        if upstream_nodes:
            raise unusable("Metadata")
        response.brokers = _bound_brokers(book)
    hidden_nodes = upstream_nodes - {broker.node_id for broker in response.brokers}
    if hidden_nodes:
        _without_leaders(response, hidden_nodes)
    if response.controller_id in hidden_nodes:
        response.controller_id = response.brokers[0].node_id if response.brokers else UNKNOWN_NODE


def all_topics_rewriter(version: int, book: AddressBook) -> Rewrite:
    """Return the rewriter of responses to "all topics", which also removes hidden topics."""
    readdress = rewriter(KEY, version, book, repair, names_no_broker)

    def rewrite(frame: memoryview, context: Context) -> bytes | None:
        changed = readdress(frame, context)
        response = frame if changed is None else memoryview(changed)[4:]
        try:
            pieces = without_hidden(response, version)
        except Unclear:
            return repaired(response, KEY, version, book, lambda decoded, _: show_no_hidden(decoded))
        return changed if pieces is None else sized(*pieces)

    return rewrite


def names_no_broker(_: memoryview, endpoints: Sequence[Endpoint]) -> bool:
    return not endpoints


def _bound_brokers(book: AddressBook) -> list[messages.MetadataResponse.MetadataResponseBroker]:
    broker = messages.MetadataResponse.MetadataResponseBroker
    addresses = [(node_id, book.ours_of(node_id)) for node_id in sorted(book.nodes)]
    brokers = [broker(node_id=node_id, host=at.host, port=at.port) for node_id, at in addresses if at is not None]
    if not brokers:
        raise unusable("Metadata")
    return brokers


def _without_leaders(response: messages.MetadataResponse, hidden_nodes: set[int]) -> None:
    for topic in response.topics or ():
        for partition in topic.partitions or ():
            if partition.leader_id in hidden_nodes:
                partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
                partition.leader_id = UNKNOWN_NODE


def _amend(version: int, parts: RewritingParts) -> Amend:
    every = parts.cache.through(all_topics_rewriter(version, parts.book))
    for_all = Route(kind=Kind.RESPONSE, key=KEY, version=version, rewrite=every)
    is_about_all = matcher_on_first_use(AboutAllTopics(), KEY, version)
    return lambda frame: for_all if is_about_all(frame) else None


API = ForwardedApi(
    key=KEY,
    repair=repair,
    special=lambda _: names_no_broker,
    responses_repeat=True,
    amend=_amend,
    requests_repeat=True,
)
