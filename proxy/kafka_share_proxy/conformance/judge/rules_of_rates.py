"""Rules for the rate of requests: retries, lookups, heartbeats and throttling."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kafka_share_proxy.conformance.judge.connection_history import body_of
from kafka_share_proxy.conformance.judge.events import ReceivedRequest
from kafka_share_proxy.conformance.judge.history import History
from kafka_share_proxy.conformance.judge.member_history import EPOCH_HEARTBEATS
from kafka_share_proxy.conformance.judge.rule import ClientRules
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

RULES = ClientRules()


@RULES.rule("retry-loop", "KIP-580")
def _retries(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A client waits before it repeats a request that failed (retry.backoff.ms)."""
    streak = history.connection(event).streak
    repeats = streak.failed and streak.body == body_of(event)
    if repeats and streak.count >= RETRIES_MAX and event.at - streak.since < RETRIES_S * streak.count / RETRIES_MAX:
        name = registry.API_KEYS[event.key]
        yield f"{name} v{event.version} fails and is repeated more than {RETRIES_MAX} times in {RETRIES_S:.0f} s"


@RULES.rule(
    "metadata-storm",
    "retry.backoff.ms; Metadata.timeToAllowUpdate",
    keys=frozenset({ApiKey.METADATA}),
    severity="advice",
)
def _metadata(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A client limits the rate of its Metadata requests."""
    recent = [at for at in history.connection(event).metadata if at > event.at - METADATA_S]
    if len(recent) >= METADATA_MAX:
        yield f"more than {METADATA_MAX} Metadata requests in {METADATA_S:.0f} s"


@RULES.rule("throttle-ignored", "KIP-219")
def _throttle(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A client sends nothing on a connection until the throttle time of a response has passed."""
    connection = history.connection(event)
    knew = event.received_at > connection.throttled_at + THROTTLE_SLACK_S
    if knew and event.received_at < connection.throttled_until - THROTTLE_SLACK_S:
        yield f"{registry.API_KEYS[event.key]} is sent before the throttle time has passed"


@RULES.rule("coordinator-ignored", "FindCoordinatorRequest.json; AbstractCoordinator.markCoordinatorUnknown")
def _coordinator(event: ReceivedRequest, history: History) -> Iterator[str]:
    """After NOT_COORDINATOR a client looks up the coordinator."""
    if history.connection(event).wrong_coordinator >= WRONG_NODE_MAX and hasattr(event.request, "group_id"):
        yield f"NOT_COORDINATOR was returned {WRONG_NODE_MAX} times without FindCoordinator in between"


@RULES.rule("leader-ignored", "KIP-951; Metadata.requestUpdate", keys=AT_THE_LEADER)
def _leader(event: ReceivedRequest, history: History) -> Iterator[str]:
    """After NOT_LEADER_OR_FOLLOWER a client updates its metadata."""
    if history.connection(event).wrong_leader >= WRONG_NODE_MAX:
        yield f"NOT_LEADER_OR_FOLLOWER was returned {WRONG_NODE_MAX} times without Metadata in between"


@RULES.rule("heartbeat-interval-ignored", "KIP-848; KIP-932", keys=frozenset(EPOCH_HEARTBEATS), severity="advice")
def _heartbeats(event: ReceivedRequest, history: History) -> Iterator[str]:
    """A member sends heartbeats at the interval of the response, unless something changed."""
    member = history.members.find(event.request.group_id, event.request.member_id)
    if member is None or not member.is_active or member.interval_ms < INTERVAL_MIN_S * 1000:
        return
    times = [*list(member.heartbeats)[-EARLY_HEARTBEATS:], event.at]
    shortest = member.interval_ms / 1000 * EARLY_SHARE
    gaps = [later - earlier for earlier, later in pairwise(times)]
    if len(gaps) >= EARLY_HEARTBEATS and max(gaps) < shortest:
        yield f"more than {EARLY_HEARTBEATS} heartbeats, each too early for the interval of {member.interval_ms} ms"
