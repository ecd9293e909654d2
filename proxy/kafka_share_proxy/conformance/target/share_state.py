"""Share groups of a cluster: the model of `sharegroups/`, with state in memory that is durable immediately."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.timers import ClusterTimer, ClusterTimers, Signal
from kafka_share_proxy.conformance.target.topics import HostedPartition, TopicRegistry
from kafka_share_proxy.sharegroups.model.coordinator import Change, Share, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.group import TopicInfo
from kafka_share_proxy.sharegroups.model.offset_reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits


class ShareState:
    """All share groups. Requests call `coordinator`, and then `settle` what it decided."""

    def __init__(self, topics: TopicRegistry, clock: Clock, timers: ClusterTimers) -> None:
        self.coordinator = ShareCoordinator(BrokerShareLimits())
        self._topics, self._clock, self._timers = topics, clock, timers
        self._changed: dict[str, Signal] = {}
        self._timer: ClusterTimer | None = None
        self._ends_sessions: set[int] = set()
        """Numbers of the connections whose end closes their sessions."""

    def changed(self, group_id: str) -> Signal:
        """Return the signal that records of a group may be available again."""
        return self._changed.setdefault(group_id, Signal())

    def settle(self, changes: Iterable[Change]) -> None:
        """Apply decided changes, and wake the requests that wait for records."""
        for key, transition in changes:
            share = self.coordinator.share(key)
            if share is not None:
                share.partition.apply(transition)
            self.changed(key.group_id).notify()
        self.schedule()

    def schedule(self) -> None:
        """Set the timer for the next lock or session that ends."""
        deadline = self.coordinator.next_deadline()
        if self._timer is None or self._timer.callback is None or deadline < self._timer.deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._timers.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self.settle(self.coordinator.expire(self._clock.now()))

    # Sessions

    def end_session(self, key: SessionKey) -> None:
        """Close a session and release what it holds."""
        session = self.coordinator.sessions.end(key)
        if session is not None:
            self.settle(self.coordinator.release(session))

    def end_with(self, number: int, on_close: list[Callable[[], None]]) -> None:
        """Close the sessions of a connection when it ends."""
        if number in self._ends_sessions:
            return
        self._ends_sessions.add(number)

        def closed() -> None:
            self._ends_sessions.discard(number)
            for session in self.coordinator.sessions.end_connection(number):
                self.settle(self.coordinator.release(session))

        on_close.append(closed)

    # Share partitions

    def share(self, key: ShareKey, partition: HostedPartition) -> Share | None:
        """Return a share partition at its present leader and log start. None if it has no state."""
        change = self.coordinator.move_leader(key, partition.leader)
        if change is not None:
            self.settle([change])
        share = self.coordinator.share(key)
        if share is not None:
            share.partition.move_log_start(partition.log.start)
            share.partition.move_log_end(partition.log.end)
        return share

    def start(self, key: ShareKey, partition: HostedPartition) -> Share:
        """Create a share partition where `share.auto.offset.reset` says."""
        log = partition.log
        timestamp = self.coordinator.settings(key.group_id).offset_reset.timestamp_ms(self._clock.wall_ms())
        if timestamp == EARLIEST_TIMESTAMP:
            offset = log.start
        else:
            first = None if timestamp == LATEST_TIMESTAMP else log.find_timestamp(timestamp)
            offset = log.end if first is None else first[1]
        share = self.begin_at(key, partition, offset)
        share.partition.reports_offsets = False
        return share

    def begin_at(self, key: ShareKey, partition: HostedPartition, offset: int) -> Share:
        """Replace the state of a share partition. It begins at this offset, without deliveries."""
        old = self.coordinator.share(key)
        epoch = 0 if old is None else old.partition.state_epoch + 1
        if old is not None:
            self.coordinator.remove_share(key)
        created = self.coordinator.new_partition(key, offset, epoch)
        self.changed(key.group_id).notify()
        return self.coordinator.add_share(key, created, partition.leader)

    def delete_topic(self, topic_id: bytes) -> None:
        """Drop the share partitions of a deleted topic."""
        for group_id, known_id in list(self.coordinator.topics()):
            if known_id == topic_id:
                for key in self.coordinator.keys_of(group_id):
                    if key.topic_id == topic_id:
                        self.coordinator.remove_share(key)
                self.changed(group_id).notify()

    def topic_infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return ids and numbers of partitions of the topics that exist."""
        topics = [topic for name in names if (topic := self._topics.with_name(name)) is not None]
        return {topic.name: TopicInfo(topic.topic_id, len(topic.partitions)) for topic in topics}
