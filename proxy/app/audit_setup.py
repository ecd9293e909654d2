"""Audit events as the settings want them: which sinks there are, and what the proxy is called in its events."""

from __future__ import annotations

from uuid import uuid4

from proxy.app.audit_file import AuditFile
from proxy.app.audit_shipping import AuditShipping, Sink
from proxy.app.audit_topic import AuditTopic
from proxy.app.config import Config
from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import OwnSettings
from proxy.loop.interfaces import Notes
from proxy.sharegroups.audit_events import Audit
from proxy.sharegroups.services import ShareServices


def set_up(
    config: Config, services: ShareServices, name: str, settings: OwnSettings, notes: Notes
) -> AuditShipping | None:
    """Let share requests tell what happens, and ship it; None where audit is off. `name`: of this proxy, if unset."""
    wanted = config.audit
    if not wanted.on or not services.serve_share:
        return None
    sinks: list[Sink] = []
    if wanted.file is not None:
        sinks.append(AuditFile(wanted.file, wanted.file_bytes, wanted.files_kept, notes))
    if wanted.topic is not None:
        client = OwnClient(config.upstream.bootstrap, settings, config.upstream.nodes)
        sinks.append(AuditTopic(wanted.topic, client, settings, config.upstream.nodes, notes))
    audit = Audit(services.timers, wanted.queue_events, wanted.key_samples_per_s)
    services.audit = services.writes.audit = audit

    def topic_name(topic_id: bytes) -> str:
        topic = services.topology.topic_by_id(topic_id)
        return topic_id.hex() if topic is None else topic.name

    proxy_id = f"{wanted.proxy_id or name}-{uuid4().hex[:12]}"
    return AuditShipping(
        audit, sinks, proxy_id, lambda: services.topology.cluster_id, topic_name, wanted.load_interval_s
    )
