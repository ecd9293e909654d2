"""Metrics of share groups under names that map to Kafka's (ShareGroupMetrics, SharePartitionMetrics,
ShareSessionCache). Names without the prefix `ksp_`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_share_proxy.feature.metrics import Figure, Metrics
from kafka_share_proxy.loop.histogram import Histogram
from kafka_share_proxy.sharegroups.counters import ACKNOWLEDGE_TYPES, GroupFigures, ShareFigures
from kafka_share_proxy.sharegroups.lag import LagSurvey, ShareLag
from kafka_share_proxy.sharegroups.services import ShareServices

SHARES_A_STEP = 1_000
"""Number of share partitions examined between serving clients: about a millisecond."""

HISTOGRAMS: Mapping[str, tuple[str, Callable[[GroupFigures], Histogram]]] = {
    "share_topic_partitions_acquire_time_seconds": (
        "Time from the arrival of a ShareFetch until it acquired records.",
        lambda group: group.acquire_s,
    ),
    "share_request_topic_partitions_fetch_ratio": (
        "Fraction of the share partitions in a session that returned records to a ShareFetch.",
        lambda group: group.fetch_ratio,
    ),
    "share_fetch_lock_time_seconds": (
        "Time that a share partition was locked for one reader, including its wait for new records.",
        lambda group: group.fetch_lock_s,
    ),
    "share_in_flight_batch_messages": (
        "Records in each in-flight batch at its first delivery.",
        lambda group: group.batch_records,
    ),
}
"""Histograms by group: name -> (help, accessor)."""


@dataclass
class _InFlight:
    """Records and batches in the windows of all loaded share partitions, by group."""

    messages: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    delayed: Counter[str] = field(default_factory=Counter)
    blocked: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)


def add(metrics: Metrics, services: ShareServices, lag: ShareLag) -> None:
    """Add all metrics of share groups that are served here."""
    coordinator, reads = services.coordinator, services.reads

    def members() -> float:
        return sum(len(group.members) for group in coordinator.groups.values())

    metrics.add("share_groups", "gauge", "Share groups held here.", lambda: len(coordinator.groups))
    metrics.add("share_members", "gauge", "Members of share groups.", members)
    metrics.add("share_partitions", "gauge", "Share partitions loaded.", lambda: sum(1 for _ in coordinator.shares()))
    metrics.add("share_partitions_resting", "gauge", "Share partitions at rest.", lambda: coordinator.resting)
    _add_group_metrics(metrics, services)
    _add_lag_metrics(metrics, services, lag)
    metrics.add("share_reads_reserved", "gauge", "Share partitions being read upstream.", lambda: reads.reserved)
    metrics.add("share_fetches_waiting", "gauge", "ShareFetch requests that wait for records.", lambda: reads.waiting)


def _add_group_metrics(metrics: Metrics, services: ShareServices) -> None:
    figures, in_flight = services.figures, _InFlight()
    metrics.before(lambda: _sum_windows(services, in_flight))
    metrics.add(
        "share_record_acknowledgements",
        "counter",
        "Records acknowledged, by acknowledge type.",
        lambda: _acknowledgements(figures),
        "group",
        "ack_type",
    )
    metrics.add(
        "share_acquisition_lock_timeouts",
        "counter",
        "Records whose acquisition lock ended before they were acknowledged.",
        _by_group(figures, lambda group: group.lock_timeouts),
        "group",
    )
    _add_dead_letter_metrics(metrics, services, in_flight)
    metrics.add("share_in_flight_messages", "gauge", _WINDOW, lambda: in_flight.messages, "group")
    metrics.add("share_in_flight_batches", "gauge", _RUNS, lambda: in_flight.batches, "group")
    metrics.add("share_delayed_messages", "gauge", _DELAYED, lambda: in_flight.delayed, "group")
    metrics.add("share_blocked_messages", "gauge", _BLOCKED, lambda: in_flight.blocked, "group")
    for name, (help_text, read) in HISTOGRAMS.items():
        metrics.add(name, "histogram", help_text, _by_group(figures, read), "group")
    _add_process_metrics(metrics, services)


def _add_lag_metrics(metrics: Metrics, services: ShareServices, lag: ShareLag) -> None:
    latest = [LagSurvey()]

    def take_survey() -> Generator[None, None, None]:
        latest[0] = yield from lag.survey()

    def by_label(counts: Mapping[str, int]) -> Counter[str]:
        labelled = Counter[str]()
        for group_id, count in counts.items():
            labelled[services.figures.label(group_id)] += count
        return labelled

    metrics.add_lookup(lag.refresh)
    metrics.before(take_survey)
    help_text = "Records that the group has not settled (KIP-1226), as far as the ends of the logs are known."
    metrics.add("share_group_lag", "gauge", help_text, lambda: by_label(latest[0].by_group), "group")
    help_text = "Share partitions whose lag is not known, and not in ksp_share_group_lag."
    metrics.add("share_lag_partitions_unknown", "gauge", help_text, lambda: by_label(latest[0].unknown), "group")


def _add_dead_letter_metrics(metrics: Metrics, services: ShareServices, in_flight: _InFlight) -> None:
    """Add the meters of KIP-1191, and what only exists because no dead letter is lost."""
    counters: tuple[tuple[str, str, Callable[[GroupFigures], float]], ...] = (
        ("records", "Dead letters written.", lambda group: group.dead_letters),
        ("produce_requests", "Transactions with dead letters.", lambda group: group.dead_letter_requests),
        ("failed_produce_requests", "Failed ones, which are retried.", lambda group: group.dead_letter_failures),
    )
    for name, help_text, read in counters:
        metrics.add(f"share_dead_letter_{name}", "counter", help_text, _by_group(services.figures, read), "group")
    help_text = "Records that wait until their dead letters are written."
    metrics.add("share_dead_letters_waiting", "gauge", help_text, lambda: in_flight.dead_letters, "group")
    help_text = "Topics for dead letters that cannot be written at present."
    metrics.add("share_dead_letter_topics_unwritable", "gauge", help_text, lambda: len(_unwritable(services)))


def _unwritable(services: ShareServices) -> Mapping[str, str]:
    return {} if services.dead_letters is None else services.dead_letters.unwritable


_WINDOW = "Offsets from the start offset to the end of the window, including settled ones."
_DELAYED = "Offsets that wait for their redelivery, because they were released or their lock ended."
_BLOCKED = "Records that wait for an earlier one with the same key, in groups with key order."
_RUNS = "Runs of offsets in one state in those windows: in-flight batches, and the parts of divided ones."


def _add_process_metrics(metrics: Metrics, services: ShareServices) -> None:
    figures, coordinator = services.figures, services.coordinator
    help_text = "Time from the first ShareFetch of a share partition until its start offset was stored."
    metrics.add("share_partition_load_time_seconds", "histogram", help_text, lambda: figures.load_s)
    metrics.add(
        "share_state_write_seconds",
        "histogram",
        "Time to append one change of share state.",
        lambda: figures.state_write_s,
    )
    help_text = "Hand-overs to the brokers and take-backs that ended, by outcome."
    metrics.add("share_group_moves", "counter", help_text, lambda: dict(figures.moves), "outcome")
    help_text = "Time for which a hand-over or a take-back held new records back."
    metrics.add("share_group_held_back_seconds", "histogram", help_text, lambda: figures.held_back_s)
    metrics.add("share_sessions", "gauge", "Open share sessions.", lambda: len(coordinator.sessions))
    metrics.add(
        "share_session_partitions",
        "gauge",
        "Share partitions in open share sessions.",
        lambda: coordinator.sessions.partitions,
    )
    metrics.add(
        "share_session_evictions",
        "counter",
        "Share sessions that ended with their connection.",
        lambda: coordinator.sessions.evicted,
    )


def _sum_windows(services: ShareServices, in_flight: _InFlight) -> Iterator[None]:
    """Forget deleted groups, and sum up the windows once for all metrics. Runs in steps, because there may be many."""
    coordinator, figures = services.coordinator, services.figures
    figures.forget(lambda group_id: coordinator.group(group_id) is None and not coordinator.keys_of(group_id))
    messages, batches, delayed, blocked, letters = (Counter[str]() for _ in range(5))
    for number, (key, share) in enumerate(list(coordinator.shares())):
        label, window = figures.label(key.group_id), share.partition
        messages[label] += window.end_offset - window.start_offset + 1
        batches[label] += len(window.runs)
        blocked[label] += window.blocked_records()
        delayed[label] += sum(wait.last - wait.first + 1 for wait in window.waiting())
        letters[label] += window.dead_letters_waiting()
        if number % SHARES_A_STEP == 0:
            yield
    in_flight.messages, in_flight.batches = messages, batches
    in_flight.delayed, in_flight.blocked, in_flight.dead_letters = delayed, blocked, letters


def _acknowledgements(figures: ShareFigures) -> dict[tuple[str, ...], float]:
    return {
        (label, name): group.acknowledged[acknowledge_type]
        for label, group in figures.shown()
        for acknowledge_type, name in ACKNOWLEDGE_TYPES.items()
    }


def _by_group(figures: ShareFigures, read: Callable[[GroupFigures], Figure]) -> Callable[[], dict[str, Figure]]:
    return lambda: {label: read(group) for label, group in figures.shown()}
