"""What the handlers of every feature are given: built once at start, by tests from small parts.

A feature that keeps something itself adds to it in a class of its own (`sharegroups.services`, `views.services`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.brokers.cluster_view import ClusterView
from proxy.brokers.interfaces import OwnQuestions
from proxy.brokers.topic_leaders import AskingOptions
from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.memory_budget import AnswerBudget
from proxy.forwarding.offered_versions import EffectiveVersions
from proxy.loop.interfaces import Notes, Timers
from proxy.loop.slices import Slices
from proxy.wire.values import Limits


@dataclass(slots=True, kw_only=True)
class Services:
    """What handlers may use beyond their `Call`. One per process."""

    limits: Limits
    timers: Timers
    notes: Notes
    book: AddressBook
    """Which address of the proxy stands for which broker."""
    topology: ClusterView
    """Brokers, topics and leaders, as the brokers told of them."""
    versions: EffectiveVersions
    answers: AnswerBudget
    """All answers made here that the kernel has not taken yet; the plane counts them."""
    slices: Slices
    """Those who wait for their turn in large work."""
    own: OwnQuestions | None = None
    """Questions under the proxy's own identity; None where it asks none."""
    options: AskingOptions = field(default_factory=AskingOptions)
