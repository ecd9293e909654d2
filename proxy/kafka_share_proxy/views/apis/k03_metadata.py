"""Metadata (key 3) that names a view: the view is shown with the partitions of its base.

Behaviour
- All other topics of such a request are requested from the broker as the client did, and one response has all. By id
  (v12+) the broker's response shows that a topic is a view. Invalid view names: 17. No such base: 3. Broker-side
  auto-creation never gets the name of a view.
- No topic is created, regardless of allow_auto_topic_creation says (views/README.md rule 11). A view without a topic is
  shown to a client that may create it, without a topic id. What forbids it (TOPIC_AUTHORIZATION_FAILED, a policy) is
  passed on.
- A view that has a topic is made ready: it grows with its base.
- A client that requests them (tag 27502) gets the weights of the slots of a plan (views/README.md rule 54).
- All other requests are forwarded: `forwarding.apis.k03_metadata`.

KIPs: 516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.forwarding.apis.k03_metadata import repair
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import AnyOf, ByUnknownTopicId, ByVersion, EarlyMatch
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import (
    decode_response_in_slices,
    replied,
    send_request_in_slices,
)
from kafka_share_proxy.views.apis.metadata_entries import metadata_entry, refused_entry
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.creation import Missing, SeenView
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire import slot_weights
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

KEY = ApiKey.METADATA
BY_ID_SINCE = 12
"""First version that can request topics by id (KIP-516)."""


IDS_LOOKED_MAX = 10_000
"""Maximum number of topics in one request that are checked one by one. A request with more is served as if it named a
view."""


def may_name_view(catalog: ViewCatalog) -> EarlyMatch:
    """Return the check for requests that name a view, or a topic id that is not known to be plain."""
    return AnyOf((NAMES_VIEW, ByVersion({BY_ID_SINCE: ByUnknownTopicId(catalog.plain_ids, IDS_LOOKED_MAX)})))


async def handle(call: Call[messages.MetadataRequest], views: ViewServices) -> bytes | None:
    """Handle a request that may name views. Return None to forward it."""
    request = call.message
    if request.topics is None:
        return None
    named = await _take_views(call)
    version = max(call.version, 1)  # a request without topics returns only the brokers, which v0 cannot express
    rest = await send_request_in_slices(call.work, call.connection, KEY, version, request)
    shown = await _show(views, call, named)
    response = await decode_response_in_slices(call.work, messages.MetadataResponse, version, await rest)
    by_id = await views.keeper.file(response.topics or () if request.topics else (), call.work)
    if by_id:
        response.topics = [topic for topic in response.topics if not is_view(topic.name)]
        shown += await _show(views, call, dict.fromkeys(name for name in by_id if name not in named))
    response.topics = [*(response.topics or ()), *shown]
    repair(response, views.services.book)
    return await replied(call, response)


async def _take_views(call: Call[messages.MetadataRequest]) -> dict[str, None]:
    """Leave the other topics in the request, and return the names of its views."""
    named: dict[str, None] = {}
    rest = []
    for topic in call.message.topics or ():
        if topic.name is not None and is_view(topic.name):
            named[topic.name] = None
        else:
            rest.append(topic)
        await call.work.step()
    call.message.topics = rest
    return named


async def _show(views: ViewServices, call: Call[messages.MetadataRequest], topics: Iterable[str]) -> list[TopicEntry]:
    names, bad = await views.keeper.read(topics, call.work)
    operations = bool(call.message.include_topic_authorized_operations)
    sights = await views.keeper.look(
        call.connection, names, missing=Missing.OFFER, operations=operations, work=call.work
    )
    entries = [await metadata_entry(call.work, sight) for sight in sights.values()]
    if slot_weights.is_requested(call.message.unknown_tags):
        for sight, entry in zip(sights.values(), entries, strict=True):
            entry.unknown_tags = _weights(views.catalog, sight)
            await call.work.step()
    return entries + await call.work.map(lambda topic: refused_entry(topic, bad[topic]), bad)


def _weights(catalog: ViewCatalog, sight: SeenView) -> tuple[slot_weights.Tag, ...]:
    plan = None if sight.name.plan is None else catalog.plan(sight.name.plan)
    return () if plan is None or not plan.weights else (slot_weights.written(plan.weights),)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
