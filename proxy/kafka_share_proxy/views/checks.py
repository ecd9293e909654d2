"""`check` for views: whether they are served, by which kernel, and which rights the proxy's own identity lacks.

Without rights views follow their bases only on requests of clients, and plans are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.brokers.operations import missing_on
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.feature.checks import CheckReport
from kafka_share_proxy.feature.state_rights import dangers_of, missing_on_internal
from kafka_share_proxy.views.kernel import slicing
from kafka_share_proxy.views.settings import Views
from kafka_share_proxy.views.state_records import PARTITIONS, TOPIC
from kafka_share_proxy.wire.acl_operations import AclOperation
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

_NEEDED_ON_VIEWS = (AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.DELETE, AclOperation.CREATE)
PROBE = "__view.r2.kafka-share-proxy-check"
"""Name of a view that does not exist. Rights granted by prefix are the same on it as on all views."""


class ViewRights(NamedTuple):
    """Rights of the identity on the topics of views."""

    partitions: int = 0
    """0 if the topic with facts about views does not exist yet."""
    missing_on_topic: tuple[str, ...] = ()
    missing_on_views: tuple[str, ...] = ()
    unsafe: str = ""
    """Reason why brokers delete records of the topic, with the command that corrects it."""
    risks: tuple[str, ...] = ()
    """Settings of the topic that put the stored facts or the service at risk."""


async def send_request(own: ClusterClient) -> ViewRights:
    """Raises ProxyError without a response of any server."""
    response, _ = await own.send_request(ApiKey.METADATA, about_topics([TOPIC, PROBE], operations=True))
    topics = {topic.name: topic for topic in response.topics}
    internal_topic = topics[TOPIC]
    exists = internal_topic.error_code == ErrorCode.NONE
    unsafe, risks = await dangers_of(own, TOPIC, PARTITIONS) if exists else ("", ())
    return ViewRights(
        unsafe=unsafe,
        risks=risks,
        partitions=len(internal_topic.partitions or ()) if exists else 0,
        missing_on_topic=missing_on_internal(internal_topic),
        missing_on_views=missing_on(topics[PROBE], _NEEDED_ON_VIEWS),
    )


class ViewCheck:
    """Part of `check` about views. See FeatureCheck."""

    name = "views"

    def __init__(self, settings: Views) -> None:
        self._settings = settings

    async def query(self, own: ClusterClient, cluster: ClusterSnapshot) -> ViewRights:  # noqa: ARG002 - as checks are called
        return await send_request(own)

    def report(self, rights: ViewRights | None, cluster: ClusterSnapshot) -> CheckReport:  # noqa: ARG002 - as checks are called
        settings = self._settings
        return CheckReport(
            line=line(settings, rights),
            obstacles=tuple(obstacles(settings, rights)),
            risks=risks(settings, rights),
            remarks=tuple(judge(settings, rights)),
        )


def judge(settings: Views, rights: ViewRights | None) -> Iterator[str]:
    """Yield remarks. `rights`: None without an identity."""
    if not settings.serve:
        return
    forgets = "what views belong to is not kept, and plans are refused"
    if rights is None:
        yield f"views: {forgets}, for the proxy has no working identity of its own (upstream.sasl.*)"
        return
    if settings.state == "topic" and rights.partitions not in (0, PARTITIONS):
        yield f"views: {forgets}: topic {TOPIC} has {rights.partitions} partitions and must have {PARTITIONS}"
    if settings.state == "topic" and rights.missing_on_topic:
        lacks = ", ".join(rights.missing_on_topic)
        yield f"views: {forgets}: the proxy's own identity lacks {lacks} on topic {TOPIC}"
    if rights.missing_on_views:
        lacks = ", ".join(rights.missing_on_views)
        yield (
            "views follow their bases only when a client with the right requests them: the proxy's own identity lacks "
            f"{lacks} on topics __view.*"
        )


def obstacles(settings: Views, rights: ViewRights | None) -> Iterator[str]:
    """Yield why the cluster would lose confirmed plans and bases."""
    if _is_stored(settings) and rights is not None and rights.unsafe:
        yield f"plans and bases of views would be lost: {rights.unsafe}"


def risks(settings: Views, rights: ViewRights | None) -> tuple[str, ...]:
    return rights.risks if _is_stored(settings) and rights is not None else ()


def _is_stored(settings: Views) -> bool:
    return settings.serve and settings.state == "topic"


def line(settings: Views, rights: ViewRights | None) -> str:
    if not settings.serve:
        return "Views: off (views.serve)."
    is_limited = any(judge(settings, rights)) or any(obstacles(settings, rights))
    limited = " with the limits above" if is_limited else ""
    kernel = "in C" if slicing.KERNEL == "c" else "in Python, which is slow (`--version` says why)"
    return f"Views: served by the proxy{limited}; records are divided {kernel}."
