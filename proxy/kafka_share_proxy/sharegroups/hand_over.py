"""Hand-over of a share group from here to the brokers (sharegroups/README.md rules 95-99).

How it works: until the stored state is deleted, in one append, the group is served here; from then on its requests are
forwarded. All steps before may be repeated: a proxy that ends meanwhile leaves the group where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.queries import CoordinatorOf, Resource, about_coordinators, about_topics
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.loop.waiting import wait_until
from kafka_share_proxy.sharegroups.apis.offset_requests import not_starting
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.model.group import ShareGroup
from kafka_share_proxy.sharegroups.model.partition import Transition
from kafka_share_proxy.sharegroups.model.settings import NOTHING_ACQUIRED, WINDOW_CLOSED, without_counterpart
from kafka_share_proxy.sharegroups.placement import ShareRules
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.group_changes import succeeded
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError

CHECKING, CLOSING, MOVING = "checking", "closing", "moving"
HANDED_OVER, REFUSED = "handed over", "refused"

WAIT_S_MAX = 900.0
"""Maximum seconds that a hand-over waits for unsettled records."""
CHECK_EVERY_S = 0.05
"""Seconds between two checks of the windows."""
BROKERS_WAIT_S = 30.0
"""Maximum seconds of retries while the coordinator is not ready."""
AGAIN_AFTER_S = 0.5
NAMED_MAX = 20
"""Maximum number of partitions in the text of a refusal."""
KEPT_MAX = 1_000
"""Maximum number of ended hand-overs whose outcome is kept."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The last one is also the response while the brokers create their own share state topic."""

Window = dict[str, Any]
"""Partition with records that are not settled: topic, partition, start_offset, end_offset."""


class HandOverRefused(ProxyError):
    """The group stays here. The text says why, and what to do."""


class HandOvers:
    """Hand-overs of this process by group."""

    def __init__(self, services: ShareServices, rules: ShareRules) -> None:
        self._services, self._rules = services, rules
        self._by_group: dict[str, HandOver] = {}

    def latest(self, group_id: str) -> HandOver | None:
        return self._by_group.get(group_id)

    def start(self, group_id: str, *, wait_s: float, force: bool) -> HandOver:
        """Begin a hand-over, or return the one in progress. Raises HandOverRefused."""
        current = self._by_group.get(group_id)
        if current is not None and not current.ended:
            return current
        group = self._services.coordinator.group(group_id)
        if group is None:
            raise HandOverRefused(f"share group {group_id} is not held here")
        reason = self._refusal(group)
        if reason:
            raise HandOverRefused(reason)
        for ended in [name for name, each in self._by_group.items() if each.ended][: len(self._by_group) - KEPT_MAX]:
            del self._by_group[ended]
        made = self._by_group[group_id] = HandOver(self._services, group, wait_s=min(wait_s, WAIT_S_MAX), force=force)
        on_its_own(made.run())
        return made

    def _refusal(self, group: ShareGroup) -> str:
        services, group_id = self._services, group.group_id
        if services.fleet is not None:
            return "a fleet does not hand groups over: run one proxy with cluster.mode: single for the hand-over"
        if services.own is None:
            return "the proxy has no identity of its own at the brokers"
        if not self._rules.native:
            return self._rules.lacking or "it is not known yet whether the brokers serve share groups; try again soon"
        if self._rules.serve(group_id) == "local":
            return (
                f"share_groups.serve is local for {group_id}, which would create it here again: say auto, and restart"
            )
        if not services.coordinator.keys_of(group_id):
            return f"{group_id} has read nothing yet: delete it instead"
        return "the group is being deleted" if group.deleting else ""


class HandOver:
    """One hand-over of one group."""

    def __init__(self, services: ShareServices, group: ShareGroup, *, wait_s: float, force: bool) -> None:
        self.phase = CHECKING
        self.reason = ""
        self.again: list[Window] = []
        """Partitions whose records the brokers deliver again."""
        self.left_out: list[str] = []
        """Settings that the brokers do not have."""
        self.held_back_s = 0.0
        """Time for which new records were held back."""
        self._services, self._group, self._group_id = services, group, group.group_id
        self._wait_s, self._force = wait_s, force
        self._names: dict[bytes, str] = {}
        self._partitions = 0
        """Number of share partitions whose start offsets the brokers have."""

    @property
    def ended(self) -> bool:
        return self.phase in (HANDED_OVER, REFUSED)

    def view(self) -> dict[str, Any]:
        return {
            "group": self._group_id,
            "phase": self.phase,
            "reason": self.reason,
            "held_back_s": round(self.held_back_s, 3),
            "delivered_again": self.again,
            "settings_left_out": self.left_out,
        }

    async def run(self) -> None:
        services, begun = self._services, self._services.timers.now()
        services.notes("share-group-hand-over", group=self._group_id, force=self._force)
        try:
            await self._check()
            begun = services.timers.now()
            await self._close(begun + self._wait_s)
            await self._move()
        except (ProxyError, JournalRefused) as error:
            self.phase, self.reason = REFUSED, str(error)
        finally:
            self.held_back_s = services.timers.now() - begun
            self._group.deleting = False
            if self.phase != HANDED_OVER:  # requests that arrived before the end must acquire nothing either
                services.coordinator.hold_back(self._group_id, None)
            for key in services.coordinator.keys_of(self._group_id):
                services.reads.wake(key)
        if self.phase == HANDED_OVER:
            services.notes("share-group-handed-over", group=self._group_id, seconds=round(self.held_back_s, 3))
            if services.audit is not None:
                again = sum(window["end_offset"] - window["start_offset"] + 1 for window in self.again)
                services.audit.handed_over(self._group_id, self._partitions, self.held_back_s, again)
        else:
            services.notes("share-group-stays", group=self._group_id, reason=self.reason)

    # Steps

    async def _check(self) -> None:
        """Refuse what the brokers cannot do, before anything changes."""
        stored = self._services.coordinator.stored_settings(self._group_id)
        self.left_out = without_counterpart(stored)
        if self.left_out and not self._force:
            raise HandOverRefused(
                f"the brokers do not have {', '.join(self.left_out)}: unset them, or use --force to go without"
            )
        topics = sorted({key.topic_id for key in self._services.coordinator.keys_of(self._group_id)})
        response = await self._own().send_request(self._node(), ApiKey.METADATA, about_topics(ids=topics))
        self._names = {topic.topic_id: topic.name for topic in response.topics if topic.name}
        await self._set_natively(self._settings(), validate_only=True)

    async def _close(self, deadline: float) -> None:
        """Hold new records back until everything in flight is settled."""
        self.phase, services = CLOSING, self._services
        services.coordinator.hold_back(self._group_id, WINDOW_CLOSED)
        while (windows := self._windows()) and services.timers.now() < deadline:
            await wait_until(services.timers, services.timers.now() + CHECK_EVERY_S)
            self._still_held()
        if windows and not self._force:
            named = ", ".join(map(_named, windows[:NAMED_MAX]))
            more = f" and {len(windows) - NAMED_MAX} more" if len(windows) > NAMED_MAX else ""
            raise HandOverRefused(
                f"not settled within {self._wait_s:g} s: {named}{more}; wait longer, or use --force to have them "
                "delivered again"
            )

    async def _move(self) -> None:
        self.phase, services = MOVING, self._services
        self._group.deleting = True  # nothing joins, and no share partition starts
        services.coordinator.hold_back(self._group_id, NOTHING_ACQUIRED)
        while starting := [key for key in services.reads.starting if key.group_id == self._group_id]:
            await not_starting(services, starting)
        self._still_held()
        await self._release_all()
        self._still_held()
        settings, windows, offsets = self._settings(), self._windows(), self._start_offsets()
        if windows and not self._force:
            raise HandOverRefused(f"changed meanwhile: {', '.join(map(_named, windows[:NAMED_MAX]))}; try again")
        self.again = windows
        await self._set_natively(settings, validate_only=False)
        await self._alter_natively(offsets)
        self._partitions = sum(map(len, offsets.values()))
        self._still_held()
        if settings != self._settings() or self._group_id in services.changes.settings:
            raise HandOverRefused("the settings of the group were changed meanwhile; try again")
        await self._delete()

    async def _release_all(self) -> None:
        """End all locks, and wait until no change of a share partition of the group waits to be written."""
        services, settings = self._services, self._services.coordinator.settings(self._group_id)
        released = [
            (key, transition)
            for key, share in services.coordinator.loaded_of(self._group_id)
            if (transition := share.partition.decide_release_all(settings)) is not None
        ]
        # A later change of a share partition is settled after all its earlier ones.
        last = [(key, Transition((), ())) for key, _ in services.coordinator.loaded_of(self._group_id)]
        for written in (services.writes.write(released), services.writes.write(last)):
            for code in (await written).values():
                if code != ErrorCode.NONE:
                    raise HandOverRefused(f"the share state cannot be stored here ({code.name}); try again")

    async def _delete(self) -> None:
        """Delete the group here. From the moment it is stored the brokers serve it."""
        services, group_id = self._services, self._group_id
        coordinator = services.coordinator
        keys = [StateKey("partition", *key) for key in coordinator.keys_of(group_id)]
        deleted = [StateKey("group", group_id), StateKey("settings", group_id), *keys]
        stored = services.writes.put([(key, None) for key in deleted])

        def forget() -> None:
            if succeeded(stored):
                coordinator.remove_group(group_id)
                coordinator.store_settings(group_id, {})

        services.writes.after(stored, forget)
        await stored
        self.phase = HANDED_OVER

    # The brokers

    async def _set_natively(self, settings: Mapping[str, str], *, validate_only: bool) -> None:
        if not settings:
            return
        message = messages.IncrementalAlterConfigsRequest
        configs = [message.AlterableConfig(name=name, value=value) for name, value in sorted(settings.items())]
        resource = message.AlterConfigsResource(
            resource_type=Resource.GROUP, resource_name=self._group_id, configs=configs
        )
        request = message(resources=[resource], validate_only=validate_only)
        response = await self._own().send_request(self._node(), ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
        for each in response.responses:
            if each.error_code != ErrorCode.NONE:
                raise HandOverRefused(f"the brokers refuse the settings: {each.error_message} ({each.error_code})")

    async def _alter_natively(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        message = messages.AlterShareGroupOffsetsRequest
        topics = [
            message.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    message.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in sorted(partitions.items())
                ],
            )
            for name, partitions in sorted(offsets.items())
        ]
        request, timers = message(group_id=self._group_id, topics=topics), self._services.timers
        deadline = timers.now() + BROKERS_WAIT_S
        while True:
            code, text = await self._altered(request)
            if code == ErrorCode.NONE:
                return
            if code not in _NOT_READY or timers.now() >= deadline:
                raise HandOverRefused(f"the brokers refuse the start offsets: {text or 'no reason'} ({code})")
            await wait_until(timers, timers.now() + AGAIN_AFTER_S)

    async def _altered(self, request: messages.AlterShareGroupOffsetsRequest) -> tuple[int, str]:
        about = about_coordinators(CoordinatorOf.GROUP, [self._group_id])
        found = await self._own().send_request(self._node(), ApiKey.FIND_COORDINATOR, about)
        coordinator = found.coordinators[0]
        if coordinator.error_code != ErrorCode.NONE:
            return coordinator.error_code, coordinator.error_message or ""
        response = await self._own().send_request(coordinator.node_id, ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)
        if response.error_code != ErrorCode.NONE:
            return response.error_code, response.error_message or ""
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code != ErrorCode.NONE:
                    return each.error_code, f"{topic.topic_name}-{each.partition_index} {each.error_message or ''}"
        return ErrorCode.NONE, ""

    def _own(self) -> ClusterQueries:
        if self._services.own is None:
            raise HandOverRefused("the proxy has no identity of its own at the brokers")
        return self._services.own

    def _node(self) -> int:
        brokers = self._services.topology.brokers
        if not brokers:
            raise HandOverRefused("no broker is known yet; try again")
        return min(brokers)

    # The group

    def _still_held(self) -> None:
        if self._services.coordinator.group(self._group_id) is not self._group:
            raise HandOverRefused("the group was deleted, or its state moved to another proxy, meanwhile")

    def _settings(self) -> dict[str, str]:
        stored = self._services.coordinator.stored_settings(self._group_id)
        return {name: value for name, value in stored.items() if name not in without_counterpart(stored, all_=True)}

    def _keys(self) -> Sequence[ShareKey]:
        """Share partitions of topics that exist."""
        return sorted(key for key in self._services.coordinator.keys_of(self._group_id) if key.topic_id in self._names)

    def _windows(self) -> list[Window]:
        found = []
        for key in self._keys():
            share = self._services.coordinator.share(key)
            if share is not None and share.partition.end_offset >= share.partition.start_offset:
                found.append(
                    {
                        "topic": self._names[key.topic_id],
                        "partition": key.partition,
                        "start_offset": share.partition.start_offset,
                        "end_offset": share.partition.end_offset,
                    }
                )
        return found

    def _start_offsets(self) -> dict[str, dict[int, int]]:
        offsets: dict[str, dict[int, int]] = {}
        for key in self._keys():
            share = self._services.coordinator.share(key)
            if share is not None:
                offsets.setdefault(self._names[key.topic_id], {})[key.partition] = share.partition.start_offset
        if not offsets:
            raise HandOverRefused("all topics of the group were deleted: delete it instead")
        return offsets


def _named(window: Window) -> str:
    return f"{window['topic']}-{window['partition']} offsets {window['start_offset']}-{window['end_offset']}"
