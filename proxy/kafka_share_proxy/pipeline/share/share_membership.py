"""Membership of a share group on blocking sockets: a thread sends ShareGroupHeartbeat (pipeline/README.md rule 46)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress

from kafka_share_proxy.consumer.share.share_membership import FIRST_RETRY_S, JOIN_EPOCH, LEAVE_EPOCH, REJOIN_CODES
from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, TryAgain, check_code
from kafka_share_proxy.pipeline.share.share_locks import ShareMemberName
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError
from kafka_share_proxy.wire.values import TopicPartition

HEARTBEAT_VERSION = 1
ASSIGNED_S = 30.0
"""Seconds to wait for the first assignment: brokers initialise new share partitions first."""


class NoShareGroups(ProxyError):
    """The servers do not support share groups."""


class BlockingShareMembership:
    """Membership that sends heartbeats in a thread. Any thread may read `assigned` and `failed`."""

    def __init__(self, options: ShareSourceOptions) -> None:
        self.name = ShareMemberName(options.group, str(uuid.uuid4()))
        self.assigned: Mapping[TopicPartition, bytes] = {}
        """Partition -> topic id. Always replaced as a whole."""
        self.failed: ProxyError | None = None
        """Error that has ended the heartbeats."""
        self._topics = options.source.topics
        self._cluster = BlockingClusterClient(options.source)
        self._epoch = JOIN_EPOCH
        self._pause_s, self._retry_s = FIRST_RETRY_S, FIRST_RETRY_S
        self._pending: dict[bytes, list[int]] | None = None
        """Assignment with unknown topic names."""
        self._ended, self._first = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._send_heartbeats, name="share group heartbeats", daemon=True)

    def join(self) -> None:
        """Wait for the first partitions.

        Raises NoShareGroups, Unavailable, LoginRefused, and ReadRefused if the group or a topic cannot be used.
        """
        self._cluster.topics(self._topics)
        self._cluster.retry(self._heartbeat)
        self._thread.start()
        self._first.wait(ASSIGNED_S)
        if self.failed is not None:
            raise self.failed

    def leave(self) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._epoch != JOIN_EPOCH and self.failed is None:
            with suppress(ProxyError, TryAgain):
                self._send_heartbeat(LEAVE_EPOCH)
        self._cluster.close()

    def _send_heartbeats(self) -> None:
        while not self._ended.wait(self._pause_s):
            try:
                self._cluster.retry(self._heartbeat)
            except ProxyError as error:
                self.failed = error
                self._first.set()
                return

    def _heartbeat(self) -> None:
        """Send a heartbeat and apply its response.

        Raises TryAgain, UpstreamLost, and errors that a retry cannot change.
        """
        response = self._send_heartbeat(self._epoch)
        if response.error_code in REJOIN_CODES and self._epoch != JOIN_EPOCH:
            self._epoch = JOIN_EPOCH
            raise TryAgain(f"group {self.name.group} no longer knows this member")
        check_code(response.error_code, f"group {self.name.group}: {response.error_message or 'no reason was given'}")
        self._epoch = response.member_epoch
        self._pause_s = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._pending = {
                bytes(each.topic_id): list(each.partitions) for each in response.assignment.topic_partitions
            }
        self._name_topics()
        if self._pending is not None or not self.assigned:
            self._pause_s, self._retry_s = min(self._pause_s, self._retry_s), self._retry_s * 2

    def _send_heartbeat(self, epoch: int) -> messages.ShareGroupHeartbeatResponse:
        connection = self._cluster.coordinator(self.name.group)
        try:
            connection.version(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION)
        except RemoteProtocolError:
            raise NoShareGroups(
                f"{connection.address} serves no share groups: name a kafka-share-proxy as bootstrap, or brokers of 4.2"
            ) from None
        request = messages.ShareGroupHeartbeatRequest(
            group_id=self.name.group, member_id=self.name.member_id, member_epoch=epoch
        )
        if epoch == JOIN_EPOCH:
            request.subscribed_topic_names = sorted(self._topics)
        return connection.send_request(ApiKey.SHARE_GROUP_HEARTBEAT, request, HEARTBEAT_VERSION)

    def _name_topics(self) -> None:
        """Assign known topics. One may have been created again just now."""
        if self._pending is None:
            return
        names = {topic.topic_id: name for name, topic in self._cluster.topics(self._topics).items()}
        if not self._pending.keys() <= names.keys():
            return
        self.assigned = {
            TopicPartition(names[topic_id], number): topic_id
            for topic_id, numbers in self._pending.items()
            for number in numbers
        }
        self._pending = None
        if self.assigned:
            self._first.set()
