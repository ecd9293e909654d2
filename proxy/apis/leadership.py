"""Topics, leaders and topic rights, refreshed over the asking client's own connection.

A client is told "unknown topic" or "not the leader" only by a view that is fresh (`ShareOptions.view_age_s`); an older
one is asked again first, on that client's connection and therefore with its rights. That age is also what bounds the
rate: however many clients ask, a topic is looked up once per that time, and what does not exist is remembered per
connection for as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.apis.ports import Connection
from proxy.apis.promise import Promise
from proxy.apis.rights import DESCRIBE_BIT, NO_BITS, READ_BIT, Right, rights_of
from proxy.apis.services import Services
from proxy.errors import ErrorCode
from proxy.wire import registry

METADATA, METADATA_VERSION = 3, 12
"""v12 is the lowest that takes topic ids, and every supported broker has it."""

ABSENT_MAX = 1000
"""Absent topics remembered per connection; past it all are forgotten."""


def ask_topics(connection: Connection, names: Iterable[str] = (), ids: Iterable[bytes] = ()) -> Promise[memoryview]:
    """Send Metadata for these topics, with the principal's rights on them; `tell_topics` understands the answer."""
    message = registry.message("MetadataRequest")
    wanted = [message.MetadataRequestTopic(name=name) for name in names]
    wanted += [message.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    request = message(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    return connection.ask(METADATA, METADATA_VERSION, registry.request(METADATA, METADATA_VERSION).encode(request))


def tell_topics(connection: Connection, services: Services, answer: memoryview) -> None:
    """Fold the answer into the view, and remember the rights it tells."""
    now = services.timers.now()
    metadata = registry.response(METADATA, METADATA_VERSION).decode(answer)
    services.topology.fold(metadata, now)
    for topic in metadata.topics:
        _remember(connection, topic, now)


def _remember(connection: Connection, topic: Any, now: float) -> None:
    rights, absent = rights_of(connection), _absent(connection)
    if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        if len(absent) >= ABSENT_MAX:
            absent.clear()
        absent[topic.topic_id if topic.name is None else topic.name] = now
    if topic.name is None:
        return
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        rights.remember(Right.READ_TOPIC, topic.name, False, now)
        rights.remember(Right.DESCRIBE_TOPIC, topic.name, False, now)
        return
    bits = topic.topic_authorized_operations
    if bits != NO_BITS:
        rights.remember(Right.READ_TOPIC, topic.name, bool(bits & READ_BIT), now)
        rights.remember(Right.DESCRIBE_TOPIC, topic.name, bool(bits & DESCRIBE_BIT), now)


def _absent(connection: Connection) -> dict[str | bytes, float]:
    """Topics, by name or id, that the broker did not show to this connection, and when it said so."""
    return connection.memory.setdefault("absent-topics", {})  # type: ignore[no-any-return]


def names_to_ask(connection: Connection, services: Services, names: Iterable[str], right: Right) -> list[str]:
    """Of these topics the ones whose entry is old, or on which this connection's right is not known."""
    now, options, view = services.timers.now(), services.options, services.topology
    rights, absent = rights_of(connection), _absent(connection)
    asked = []
    for name in names:
        known = rights.verdict(right, name, now, options.rights_cache_s) is not None
        if known and view.age(name, now) <= options.view_age_s:
            continue
        if now - absent.get(name, float("-inf")) > options.view_age_s:
            asked.append(name)
    return asked


def ids_to_ask(connection: Connection, services: Services, ids: Iterable[bytes]) -> list[bytes]:
    """Of these topics the ones nobody knows, that have not just been asked for on this connection."""
    now, absent = services.timers.now(), _absent(connection)
    unknown = (topic_id for topic_id in ids if services.topology.topic_by_id(topic_id) is None)
    return [i for i in unknown if now - absent.get(i, float("-inf")) > services.options.view_age_s]


def may(connection: Connection, services: Services, right: Right, name: str) -> bool:
    """Is this known to be allowed? Not knowing counts as no."""
    now = services.timers.now()
    return rights_of(connection).verdict(right, name, now, services.options.rights_cache_s) is True


def endpoints(services: Services, message: Any, node_ids: Iterable[int]) -> list[Any]:
    """NodeEndpoints of a share response: the proxy's own address for each broker that has one here."""
    found = []
    for node_id in sorted(set(node_ids)):
        broker = services.topology.brokers.get(node_id)
        address = services.book.advertise(node_id, broker.address) if broker is not None else None
        if broker is not None and address is not None:
            found.append(message.NodeEndpoint(node_id=node_id, host=address.host, port=address.port, rack=broker.rack))
    return found
