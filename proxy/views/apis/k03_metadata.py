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

from collections.abc import Sequence

from proxy.brokers.questions import TopicEntry
from proxy.forwarding.apis.k03_metadata import repair
from proxy.forwarding.ask_and_reply import ask, reply, told
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.early_looks import AnyOf, ByUnknownTopicId, ByVersion, EarlyLook
from proxy.forwarding.interfaces import Call
from proxy.loop.promise import Promise
from proxy.views.apis.metadata_entries import metadata_entry, refused_entry
from proxy.views.apis.named_views import NAMES_VIEW
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey

KEY = ApiKey.METADATA
BY_ID_SINCE = 12
"""Requests may name topics by id from here on (KIP-516)."""


IDS_LOOKED_MAX = 10_000
"""Topics of one request that are looked at one by one; one with more is served here, as if it named a view."""


def may_name_view(catalog: ViewCatalog) -> EarlyLook:
    """Requests that name a view, or an id that is not known to be no view's."""
    return AnyOf((NAMES_VIEW, ByVersion({BY_ID_SINCE: ByUnknownTopicId(catalog.plain_ids, IDS_LOOKED_MAX)})))


async def handle(call: Call[messages.MetadataRequest], views: ViewServices) -> bytes | None:
    """A request that may name views."""
    request = call.message
    if request.topics is None:
        return None
    named = [topic.name for topic in request.topics if topic.name is not None and is_view(topic.name)]
    request.topics = [topic for topic in request.topics if not is_view(topic.name)]
    rest = _ask_rest(call)
    shown = await _show(views, call, named)
    answer = told(messages.MetadataResponse, max(call.version, 1), await rest)
    by_id = views.keeper.file(topic for topic in answer.topics or () if request.topics)
    if by_id:
        answer.topics = [topic for topic in answer.topics if not is_view(topic.name)]
        shown += await _show(views, call, [name for name in by_id if name not in named])
    answer.topics = [*(answer.topics or ()), *shown]
    repair(answer, views.services.book)
    return reply(call, answer)


def _ask_rest(call: Call[messages.MetadataRequest]) -> Promise[memoryview]:
    """What is left of the request; with no topic left it asks for brokers only, which v0 cannot."""
    return ask(call.connection, KEY, max(call.version, 1), call.message)


async def _show(views: ViewServices, call: Call[messages.MetadataRequest], topics: Sequence[str]) -> list[TopicEntry]:
    """The entries of these views. In versions that do not ask whether topics may be created, they may."""
    names, bad = views.keeper.read(topics)
    operations = bool(call.message.include_topic_authorized_operations)
    create = bool(call.message.allow_auto_topic_creation)
    sights = await views.keeper.look(call.connection, names, create=create, operations=operations)
    entries = [metadata_entry(sight) for sight in sights.values()]
    return entries + [refused_entry(topic, code) for topic, code in bad.items()]


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: may_name_view(views.catalog))
