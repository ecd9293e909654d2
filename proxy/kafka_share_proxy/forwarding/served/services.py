"""Objects that the handlers of every feature use.

A feature with additional state extends the class (`sharegroups.services`, `views.services`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.topic_leaders import TopicQueryOptions
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.memory_budget import ResponseBudget
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.loop.interfaces import Notes, Timers
from kafka_share_proxy.loop.slices import Slices


@dataclass(slots=True, kw_only=True)
class Services:
    """Objects that handlers may use in addition to their `Call`. One instance per process."""

    limits: Limits
    timers: Timers
    notes: Notes
    book: AddressBook
    topology: ClusterMetadata
    versions: EffectiveVersions
    responses: ResponseBudget
    """Budget of local responses. The plane counts them."""
    slices: Slices
    own: ClusterQueries | None = None
    """Requests under the proxy's own identity, if any."""
    options: TopicQueryOptions = field(default_factory=TopicQueryOptions)


def build(
    *,
    limits: Limits,
    timers: Timers,
    notes: Notes,
    book: AddressBook,
    topology: ClusterMetadata,
    versions: EffectiveVersions,
    own: ClusterQueries | None = None,
    options: TopicQueryOptions | None = None,
) -> Services:
    """Build the objects that are shared by the handlers of every feature."""
    return Services(
        limits=limits,
        timers=timers,
        notes=notes,
        book=book,
        topology=topology,
        versions=versions,
        responses=ResponseBudget(limits.local_answers_total_bytes),
        slices=Slices(timers),
        own=own,
        options=options or TopicQueryOptions(),
    )
