"""Setup of audit events from the settings: their log, their sinks, and the name of the proxy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from uuid import uuid4

from kafka_share_proxy.app.observing.audit_file import AuditFile
from kafka_share_proxy.app.observing.audit_shipping import AuditShipping, Sink
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.app.observing.audit_topics import AuditedTopicNames
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.feature.feature import ALL, NONE, PART, Coverage
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.interfaces import Notes, Workers


def set_up(
    config: Config,
    services: Services,
    name: str,
    client: Callable[[], ClusterClient],
    workers: Workers,
) -> AuditShipping | None:
    """Create the log of events and its shipping. Return None if audit is off. `name`: of this proxy, if not set.

    `workers`: the threads that open compressed batches.
    """
    audit_settings, notes = config.audit, services.notes
    if not audit_settings.on:
        return None
    sinks: list[Sink] = []
    if audit_settings.file is not None:
        sinks.append(AuditFile(audit_settings.file, audit_settings.file_bytes, audit_settings.files_kept, notes))
    if audit_settings.topic is not None:
        sinks.append(AuditTopic(audit_settings.topic, client(), notes))
    sampling = (audit_settings.key_samples_per_s, audit_settings.load_interval_s, audit_settings.key_bytes)
    audit = Audit(services.timers, audit_settings.queue_events, *sampling, random.random, workers)

    def known_name(topic_id: bytes) -> str | None:
        topic = services.topology.topic_by_id(topic_id)
        return None if topic is None else topic.name

    proxy_id = f"{audit_settings.proxy_id or name}-{uuid4().hex[:12]}"
    names = AuditedTopicNames(known_name, client(), services.timers.now)
    return AuditShipping(audit, sinks, proxy_id, lambda: services.topology.cluster_id, names, services.timers)


def report(shipping: AuditShipping | None, coverages: Iterable[Coverage], config: Config, notes: Notes) -> None:
    """Report which events this proxy sees, also in the log if not all."""
    if shipping is None:
        return
    for coverage in (*coverages, _key_samples(config)):
        shipping.audit.report_coverage(*coverage)
        if coverage.sees != ALL:
            notes("audit-sees-part", subject=coverage.subject, sees=coverage.sees, reason=coverage.reason)


def _key_samples(config: Config) -> Coverage:
    samples_per_s = config.audit.key_samples_per_s
    if samples_per_s:
        text = f"a sample: the keys of what was read are sampled {samples_per_s:g} times a second"
        return Coverage("key_samples", PART, text)
    return Coverage("key_samples", NONE, "audit.key_samples_per_s is 0: load has no keys")
