"""Metadata (key 3) that names a view: the view is shown with the partitions of its base.

Rules: views/README.md 2, 11 to 15, 17, 20, 52 and 54. All other topics of such a request are requested from the broker
as the client did, and one response has all. All other requests are forwarded: `forwarding.apis.k03_metadata`.
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
from kafka_share_proxy.views.creation import Missing, ViewOutcome
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire import slot_weights
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

KEY = ApiKey.METADATA
BY_ID_SINCE = 12
"""First version that may name topics by id."""

IDS_CHECKED_MAX = 10_000
"""Maximum number of topic ids that are compared before a request is decoded."""


def may_name_view(catalog: ViewCatalog) -> EarlyMatch:
    return AnyOf((NAMES_VIEW, ByVersion({BY_ID_SINCE: ByUnknownTopicId(catalog.plain_ids, IDS_CHECKED_MAX)})))


async def handle(call: Call[messages.MetadataRequest], views: ViewServices) -> bytes | None:
    request = call.message
    if request.topics is None:
        return None
    view_names = await _without_views(call)
    version = max(call.version, 1)  # a request without topics returns only the brokers, which v0 cannot express
    pending = await send_request_in_slices(call.work, call.connection, KEY, version, request)
    shown = await _show(views, call, view_names)
    response = await decode_response_in_slices(call.work, messages.MetadataResponse, version, await pending)
    by_id = await views.creation.learn_plain_topics(response.topics or () if request.topics else (), call.work)
    if by_id:
        response.topics = [topic for topic in response.topics if not is_view(topic.name)]
        shown += await _show(views, call, dict.fromkeys(name for name in by_id if name not in view_names))
    response.topics = [*(response.topics or ()), *shown]
    repair(response, views.services.book)
    return await replied(call, response)


async def _without_views(call: Call[messages.MetadataRequest]) -> dict[str, None]:
    """Remove the views from the request, and return their names."""
    view_names: dict[str, None] = {}
    remaining = []
    for topic in call.message.topics or ():
        if topic.name is not None and is_view(topic.name):
            view_names[topic.name] = None
        else:
            remaining.append(topic)
        await call.work.step()
    call.message.topics = remaining
    return view_names


async def _show(views: ViewServices, call: Call[messages.MetadataRequest], topics: Iterable[str]) -> list[TopicEntry]:
    """Return the entries of views."""
    names, errors = await views.creation.parse_names(topics, call.work)
    operations = bool(call.message.include_topic_authorized_operations)
    outcomes = await views.creation.prepare(
        call.connection, names, missing=Missing.OFFER, operations=operations, work=call.work
    )
    entries = [await metadata_entry(call.work, outcome) for outcome in outcomes.values()]
    if slot_weights.is_requested(call.message.unknown_tags):
        for outcome, entry in zip(outcomes.values(), entries, strict=True):
            entry.unknown_tags = _weights(views.catalog, outcome)
            await call.work.step()
    return entries + await call.work.map(lambda topic: refused_entry(topic, errors[topic]), errors)


def _weights(catalog: ViewCatalog, outcome: ViewOutcome) -> tuple[slot_weights.Tag, ...]:
    plan = None if outcome.name.plan is None else catalog.plan(outcome.name.plan)
    return () if plan is None or not plan.weights else (slot_weights.tag_of(plan.weights),)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
