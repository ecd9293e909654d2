"""Requests of one share group that the brokers serve, followed while it is taken back (sharegroups/README.md rule 101).

They are sent to the broker by this proxy on the client's connection, and their responses are read: acquired records,
acknowledgements, and the members that are here. New records can be held back, and requests can be stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias

from kafka_share_proxy.forwarding.apis import k78_forwarded_share_fetch
from kafka_share_proxy.forwarding.observed.forwarded_shares import refused_partitions
from kafka_share_proxy.forwarding.rewriting.address_book import node_endpoints
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import first_until
from kafka_share_proxy.sharegroups.model.forwarded_locks import ForwardedLocks, TooManyLocks
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

FOLLOWED = frozenset({ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})
WAIT_S_MAX = 0.5
"""Maximum seconds that a ShareFetch without acknowledgements waits while new records are held back."""
STOPPED_S_MAX = 20.0
"""Maximum seconds that requests are stopped. Clients wait for 30 s."""
LAST_EPOCH = -1
RENEW = 4

_Request: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"
_Response: TypeAlias = "messages.ShareFetchResponse | messages.ShareAcknowledgeResponse"


class FollowedState(NamedTuple):
    """Members and locks of a group at one time."""

    members: frozenset[str]
    """Members that have sent a heartbeat."""
    locks: Sequence[tuple[TopicIdPartition, int, int]]
    """Lowest and highest locked offset of each partition."""
    requests: int
    """Number of requests in flight that may acquire or settle records."""
    has_expired: bool
    """True if a lock has expired."""
    trouble: str
    """Reason why the locks are not known. Empty if they are."""


class FollowedGroup:
    """Members and locks of one group, as its requests show them."""

    def __init__(self, services: Services, lock_s: float) -> None:
        """`lock_s`: duration of a lock, for renewals."""
        self.members: set[str] = set()
        """Members that have sent a heartbeat to this proxy."""
        self.locks = ForwardedLocks()
        self.requests = 0
        """See FollowedState."""
        self.holds_back = False
        """True if requests acquire no new records."""
        self.lease_until = inf
        """Time at which the following ends, unless the proxy that takes the group back extends it."""
        self._trouble, self._has_expired = "", False
        self._services, self._lock_s = services, lock_s
        self._going_on: Promise[None] | None = None

    def state(self) -> FollowedState:
        locked = len(self.locks)
        self.locks.expire(self._services.timers.now())
        self._has_expired = self._has_expired or len(self.locks) < locked
        return FollowedState(
            frozenset(self.members), self.locks.bounds(), self.requests, self._has_expired, self._trouble
        )

    def stop(self) -> None:
        """Let requests wait, until `go_on` or STOPPED_S_MAX."""
        if self._going_on is None or self._going_on.done:
            self._going_on = Promise()

    def go_on(self) -> None:
        if self._going_on is not None and not self._going_on.done:
            self._going_on.set(None)

    async def until_it_goes_on(self) -> None:
        if self._going_on is not None:
            timers = self._services.timers
            await first_until(timers, timers.now() + STOPPED_S_MAX, self._going_on)

    async def serve(self, call: Call[Any]) -> Message | None:
        """Return the response of the broker. None for requests to be forwarded unchanged."""
        request = call.message
        if call.key not in FOLLOWED:
            return None
        if call.key == ApiKey.SHARE_GROUP_HEARTBEAT:
            (self.members.discard if request.member_epoch == LAST_EPOCH else self.members.add)(request.member_id)
            return None
        if isinstance(request, messages.ShareFetchRequest):
            await self._prepare(request)
        self.requests += 1
        try:
            response: _Response = await send_upstream(call, request)
        finally:
            self.requests -= 1
        try:
            self._follow(request, response)
        except TooManyLocks as error:
            self._trouble = str(error)
        _name_nodes(response, self._services)
        return response

    async def _prepare(self, request: messages.ShareFetchRequest) -> None:
        """Limit a ShareFetch as a forwarded one is. While records are held back, it only carries acknowledgements."""
        timers, limits = self._services.timers, self._services.limits
        request.max_bytes = min(request.max_bytes, int(limits.collected_bytes * k78_forwarded_share_fetch.ROOM))
        if self.holds_back and request.max_records > 0:
            if not any(_acknowledgements(request)) and request.share_session_epoch > 0:
                # Without records the broker responds immediately, and clients would send the next request immediately.
                await first_until(timers, timers.now() + min(max(request.max_wait_ms / 1000, 0), WAIT_S_MAX))
            request.max_records = 0

    def _follow(self, request: _Request, response: _Response) -> None:
        """Raises TooManyLocks."""
        if response.error_code != ErrorCode.NONE:
            return
        member_id, now = request.member_id or "", self._services.timers.now()
        refused = set(refused_partitions(response))
        for topic_partition, first, last, types in _acknowledgements(request):
            if topic_partition not in refused:
                for offset in range(first, last + 1) if len(types) > 1 else ():
                    self._settle(topic_partition, offset, offset, types[offset - first], member_id, now)
                if len(types) == 1:
                    self._settle(topic_partition, first, last, types[0], member_id, now)
        if isinstance(response, messages.ShareFetchResponse):
            locked_until = now + response.acquisition_lock_timeout_ms / 1000
            for topic in response.responses:
                for partition_entry in topic.partitions:
                    topic_partition = TopicIdPartition(bytes(topic.topic_id), partition_entry.partition_index)
                    for acquired in partition_entry.acquired_records:
                        self.locks.acquired(
                            topic_partition, acquired.first_offset, acquired.last_offset, member_id, locked_until
                        )
        if request.share_session_epoch == LAST_EPOCH:
            self.locks.session_ended(member_id)

    def _settle(
        self,
        topic_partition: TopicIdPartition,
        first: int,
        last: int,
        acknowledge_type: int,
        member_id: str,
        now: float,
    ) -> None:
        if acknowledge_type == RENEW:
            self.locks.acquired(topic_partition, first, last, member_id, now + self._lock_s)
        else:
            self.locks.settled(topic_partition, first, last)


def _acknowledgements(request: _Request) -> Iterator[tuple[TopicIdPartition, int, int, list[int]]]:
    """Yield partition, first offset, last offset and types of each batch."""
    for topic in request.topics:
        for each in topic.partitions:
            topic_partition = TopicIdPartition(bytes(topic.topic_id), each.partition_index)
            for batch in each.acknowledgement_batches:
                yield topic_partition, batch.first_offset, batch.last_offset, list(batch.acknowledge_types)


def _name_nodes(response: _Response, services: Services) -> None:
    """Replace the brokers' addresses in a response by those of this proxy."""
    nodes = [endpoint.node_id for endpoint in response.node_endpoints]
    if isinstance(response, messages.ShareFetchResponse):
        fetched = messages.ShareFetchResponse.NodeEndpoint
        response.node_endpoints = node_endpoints(services.book, services.topology, fetched, nodes)
    else:
        acknowledged = messages.ShareAcknowledgeResponse.NodeEndpoint
        response.node_endpoints = node_endpoints(services.book, services.topology, acknowledged, nodes)
