"""What `check` says about views: whether they are served, by which kernel, and what the proxy's own identity lacks.

Nothing of it keeps the proxy from working: without these rights views are served, follow their bases only when clients
with the rights ask, begin anew in the mind of each proxy, and know no plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.app.check_state import CREATE, DESCRIBE, NO_BITS, READ, WRITE
from proxy.app.config import Config
from proxy.brokers.own_client import OwnClient
from proxy.brokers.questions import about_topics
from proxy.views.kernel import slicing
from proxy.views.state_records import PARTITIONS, TOPIC
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

DELETE, ALTER = 6, 7
_NAMES = {READ: "READ", WRITE: "WRITE", CREATE: "CREATE", DELETE: "DELETE", ALTER: "ALTER", DESCRIBE: "DESCRIBE"}
PROBE = "__view.r2.kafka-share-proxy-check"
"""A view that does not exist: rights on it are those on all of them, where they are given by prefix."""


@dataclass(frozen=True, slots=True)
class ViewRights:
    """What the identity may do to the topics of views."""

    partitions: int = 0
    """Of the topic of facts about views; 0 where it does not exist yet."""
    missing_on_topic: tuple[str, ...] = ()
    missing_on_views: tuple[str, ...] = ()


async def ask(own: OwnClient) -> ViewRights:
    """Ask with the proxy's own identity; changes nothing. Raises ProxyError when no server answers."""
    answer, _ = await own.ask(ApiKey.METADATA, about_topics([TOPIC, PROBE], operations=True))
    topics = {topic.name: topic for topic in answer.topics}
    kept = topics[TOPIC]
    exists = kept.error_code == ErrorCode.NONE
    wanted = (READ, WRITE, DESCRIBE) if exists else (READ, WRITE, DESCRIBE, CREATE)
    return ViewRights(
        partitions=len(kept.partitions or ()) if exists else 0,
        missing_on_topic=_missing(kept, wanted),
        missing_on_views=_missing(topics[PROBE], (DESCRIBE, ALTER, DELETE, CREATE)),
    )


def _missing(topic: object, wanted: tuple[int, ...]) -> tuple[str, ...]:
    code, bits = getattr(topic, "error_code", 0), getattr(topic, "topic_authorized_operations", NO_BITS)
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        bits = 0
    return () if bits == NO_BITS else tuple(_NAMES[each] for each in wanted if not bits >> each & 1)


def judge(config: Config, found: ViewRights | None) -> Iterator[str]:
    """A remark for each thing that does not work; `found` None: there is no identity to ask with."""
    if not config.views.serve:
        return
    forgets = "what views belong to is not kept, and plans are refused"
    if found is None:
        yield f"views: {forgets}, for the proxy has no identity of its own (upstream.sasl.*)"
        return
    if config.views.state == "topic" and found.partitions not in (0, PARTITIONS):
        yield f"views: {forgets}: topic {TOPIC} has {found.partitions} partitions and must have {PARTITIONS}"
    if config.views.state == "topic" and found.missing_on_topic:
        lacks = ", ".join(found.missing_on_topic)
        yield f"views: {forgets}: the proxy's own identity lacks {lacks} on topic {TOPIC}"
    if found.missing_on_views:
        lacks = ", ".join(found.missing_on_views)
        yield (
            "views follow their bases only when a client with the right asks: the proxy's own identity lacks "
            f"{lacks} on topics __view.*"
        )


def line(config: Config) -> str:
    """How views are served, for a person."""
    if not config.views.serve:
        return "Views: off (views.serve)."
    kernel = "in C" if slicing.KERNEL == "c" else "in Python, for the one in C was not built: slow"
    return f"Views: served by the proxy; records are divided {kernel}."
