"""Rules for the rate of requests: retries, lookups, heartbeats and throttling."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kafka_share_proxy.conformance.judge.connection_history import body_of
from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.member_history import EPOCH_HEARTBEATS
from kafka_share_proxy.conformance.judge.rule import ClientRule
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey

RETRIES_MAX, RETRIES_S = 20, 1.0
"""Maximum number of equal requests within these seconds, each after an error. The default retry.backoff.ms is 100."""
METADATA_MAX, METADATA_S = 10, 1.0
"""Maximum number of Metadata requests of one connection within these seconds."""
WRONG_NODE_MAX = 5
"""Maximum number of requests that fail because of the wrong node, without a lookup."""
EARLY_HEARTBEATS, EARLY_SHARE = 6, 0.5
"""Number of consecutive heartbeats that each follow the one before within this share of the interval."""
THROTTLE_SLACK_S = 0.05
"""Seconds between the response and its arrival at the client, and for the precision of its timer."""
AT_THE_LEADER = frozenset(
    {ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_FETCH}
)
INTERVAL_MIN_S = 0.1


def _retries(event: ReceivedRequest, history: History) -> Iterator[str]:
    streak = history.connection(event).streak
    repeats = streak.failed and streak.body == body_of(event)
    if repeats and streak.count >= RETRIES_MAX and event.at - streak.since < RETRIES_S * streak.count / RETRIES_MAX:
        name = registry.API_KEYS[event.key]
        yield f"{name} v{event.version} fails and is repeated more than {RETRIES_MAX} times in {RETRIES_S:.0f} s"


def _metadata(event: ReceivedRequest, history: History) -> Iterator[str]:
    recent = [at for at in history.connection(event).metadata if at > event.at - METADATA_S]
    if len(recent) >= METADATA_MAX:
        yield f"more than {METADATA_MAX} Metadata requests in {METADATA_S:.0f} s"


def _throttle(event: ReceivedRequest, history: History) -> Iterator[str]:
    connection = history.connection(event)
    knew = event.received_at > connection.throttled_at + THROTTLE_SLACK_S
    if knew and event.received_at < connection.throttled_until - THROTTLE_SLACK_S:
        yield f"{registry.API_KEYS[event.key]} is sent before the throttle time has passed"


def _coordinator(event: ReceivedRequest, history: History) -> Iterator[str]:
    if history.connection(event).wrong_coordinator >= WRONG_NODE_MAX and hasattr(event.request, "group_id"):
        yield f"NOT_COORDINATOR was returned {WRONG_NODE_MAX} times without FindCoordinator in between"


def _leader(event: ReceivedRequest, history: History) -> Iterator[str]:
    if history.connection(event).wrong_leader >= WRONG_NODE_MAX:
        yield f"NOT_LEADER_OR_FOLLOWER was returned {WRONG_NODE_MAX} times without Metadata in between"


def _heartbeats(event: ReceivedRequest, history: History) -> Iterator[str]:
    member = history.members.find(event.request.group_id, event.request.member_id)
    if member is None or not member.is_active or member.interval_ms < INTERVAL_MIN_S * 1000:
        return
    times = [*list(member.heartbeats)[-EARLY_HEARTBEATS:], event.at]
    shortest = member.interval_ms / 1000 * EARLY_SHARE
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if len(gaps) >= EARLY_HEARTBEATS and max(gaps) < shortest:
        yield f"more than {EARLY_HEARTBEATS} heartbeats, each too early for the interval of {member.interval_ms} ms"


RULES = (
    ClientRule(
        id="retry-loop",
        sentence="A client waits before it repeats a request that failed (retry.backoff.ms).",
        source="KIP-580",
        check=_retries,
    ),
    ClientRule(
        id="metadata-storm",
        sentence="A client limits the rate of its Metadata requests.",
        source="retry.backoff.ms; Metadata.timeToAllowUpdate",
        check=_metadata,
        keys=frozenset({ApiKey.METADATA}),
        severity="advice",
    ),
    ClientRule(
        id="throttle-ignored",
        sentence="A client sends nothing on a connection until the throttle time of a response has passed.",
        source="KIP-219",
        check=_throttle,
    ),
    ClientRule(
        id="coordinator-ignored",
        sentence="After NOT_COORDINATOR a client looks up the coordinator.",
        source="FindCoordinatorRequest.json; AbstractCoordinator.markCoordinatorUnknown",
        check=_coordinator,
    ),
    ClientRule(
        id="leader-ignored",
        sentence="After NOT_LEADER_OR_FOLLOWER a client updates its metadata.",
        source="KIP-951; Metadata.requestUpdate",
        check=_leader,
        keys=AT_THE_LEADER,
    ),
    ClientRule(
        id="heartbeat-interval-ignored",
        sentence="A member sends heartbeats at the interval of the response, unless something changed.",
        source="KIP-848; KIP-932",
        check=_heartbeats,
        keys=frozenset(EPOCH_HEARTBEATS),
        severity="advice",
    ),
)
