"""Setup of audit events from the settings: their sources, their sinks, and the name of the proxy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from kafka_share_proxy.app.observing.audit_file import AuditFile
from kafka_share_proxy.app.observing.audit_shipping import AuditShipping, Sink
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.app.observing.audit_topics import AuditedTopicNames
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.commits.audit_events import CommitAudit
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.dispatch.routes import Routes
from kafka_share_proxy.forwarding.observed.forwarded_shares import watched
from kafka_share_proxy.loop.interfaces import Notes, Workers
from kafka_share_proxy.sharegroups.audit_events import ShareAudit
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.views.audit_events import ViewAudit
from kafka_share_proxy.views.services import ViewServices

ALL, PART, NONE = "all", "part", "none"
"""Share of a subject's events that this proxy sees."""


class Sight(NamedTuple):
    """Coverage of one subject by the events of this proxy."""

    subject: str
    sees: str
    reason: str


@dataclass(frozen=True, slots=True)
class Audited:
    """Services that emit events."""

    share: ShareServices
    views: ViewServices | None = None
    commits: CommitServices | None = None
    are_mixed: bool = False
    """True if some share groups are served here and others by the brokers."""


def set_up(config: Config, audited: Audited, name: str, settings: OwnSettings, notes: Notes) -> AuditShipping | None:
    """Connect all event sources and create the shipping. Return None if audit is off. `name`: of this proxy, if not
    set.
    """
    wanted, services = config.audit, audited.share
    if not wanted.on:
        return None
    sinks: list[Sink] = []
    if wanted.file is not None:
        sinks.append(AuditFile(wanted.file, wanted.file_bytes, wanted.files_kept, notes))
    if wanted.topic is not None:
        client = OwnClient(config.upstream.bootstrap, settings, config.upstream.nodes)
        sinks.append(AuditTopic(wanted.topic, client, settings, config.upstream.nodes, notes))
    sampling = (wanted.key_samples_per_s, wanted.load_interval_s, wanted.key_bytes)
    audit = Audit(services.timers, wanted.queue_events, *sampling, random.random)
    _connect(audit, audited)
    for sight in _sights(config, audited):
        audit.see(*sight)
        if sight.sees != ALL:
            notes("audit-sees-part", subject=sight.subject, sees=sight.sees, reason=sight.reason)

    def seen(topic_id: bytes) -> str | None:
        topic = services.topology.topic_by_id(topic_id)
        return None if topic is None else topic.name

    proxy_id = f"{wanted.proxy_id or name}-{uuid4().hex[:12]}"
    client, timers = OwnClient(config.upstream.bootstrap, settings, config.upstream.nodes), services.timers
    names = AuditedTopicNames(seen, client, timers.now)
    return AuditShipping(audit, sinks, proxy_id, lambda: services.topology.cluster_id, names, timers)


def watching(shipping: AuditShipping | None, routes: Routes) -> Routes:
    """Return routes that emit events for share groups served by the brokers, if audit is on."""
    return routes if shipping is None else watched(routes, shipping.audit)


def give_workers(shipping: AuditShipping | None, workers: Workers) -> None:
    """Set the threads that open compressed batches."""
    if shipping is not None:
        shipping.audit.keys.workers = workers


def _connect(audit: Audit, audited: Audited) -> None:
    share, views, commits = audited.share, audited.views, audited.commits
    if share.serve_share:
        share.audit = share.writes.audit = ShareAudit(audit, share.timers, share.coordinator)
    if views is not None:
        views.reads.audit = told = ViewAudit(audit)
        views.catalog.on_plan = told.plan_loaded
        for plan in views.catalog.plans:
            told.plan_loaded(plan)
    if commits is not None:
        commits.audit = CommitAudit(audit, commits.state_owner)


def _sights(config: Config, audited: Audited) -> Iterator[Sight]:
    yield _share_groups(config, audited)
    if audited.views is None:
        yield Sight("views", NONE, "views.serve is off: views are topics like any other")
    else:
        yield Sight("views", ALL, "every answer to a reader of a view or with a KeyFilter, summed up by the second")
    if audited.commits is None:
        yield Sight("commits", NONE, "commits.serve is off: metadata of commits is not looked at")
    else:
        yield Sight("commits", PART, "commits within transactions are not told, nor what tools and brokers delete")
    plain = "OffsetCommit of groups that do not commit individually passes through unread"
    yield Sight("plain_commits", NONE, plain)
    looks = config.audit.key_samples_per_s
    if looks:
        yield Sight("key_samples", PART, f"a sample: the keys of what was read are looked at {looks:g} times a second")
    else:
        yield Sight("key_samples", NONE, "audit.key_samples_per_s is 0: load has no keys")


def _share_groups(config: Config, audited: Audited) -> Sight:
    forwarded = (
        "what passes through here is seen, deliveries and acknowledgements; what the brokers do by themselves is not: "
        "locks that run out, sessions that end, the start offset"
    )
    if not audited.share.serve_share:
        return Sight("share_groups", PART, f"the brokers serve share groups: {forwarded}")
    if audited.are_mixed:
        return Sight("share_groups", PART, f"the brokers serve some of the share groups: of these {forwarded}")
    if config.peer_address is not None:
        return Sight("share_groups", ALL, "of the groups that this proxy owns; the others' proxies tell of theirs")
    return Sight("share_groups", ALL, "every delivery")
