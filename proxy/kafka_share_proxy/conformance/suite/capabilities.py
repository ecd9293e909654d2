"""Capabilities of a cluster, detected before the cases run: by its versions and features, else by trying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.building import KEYS
from kafka_share_proxy.conformance.suite.cluster_under_test import ATTEMPTS, PAUSE_S, ClusterUnderTest, SetUpFailed
from kafka_share_proxy.conformance.suite.connection import BadResponse, ConnectionFailed, PeerConnection
from kafka_share_proxy.conformance.suite.dial_errors import ADVICE
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.conformance.suite.expectations import NotOffered
from kafka_share_proxy.wire.errors import ErrorCode, error_name

RELEASES = ((21, "3.9"), (25, "4.0"), (27, "4.1"), (29, "4.2"), (30, "4.3"))
"""Highest supported metadata.version -> release (MetadataVersion). Above them: 4.4."""
PROXY, PROXY_ON = "proxy", "proxy on "
"""Key of a difference of this proxy on any release, and what its releases begin with."""
SHARE_APIS = ("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge")
CONSUMER_APIS = ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe")
RANGE_END = 2
"""Offset after the range that is committed to find out about individual commits."""
SHORT_LOCK_MS = 1000
"""Duration of locks in cases that wait for their end."""

SETTINGS: Mapping[str, tuple[str, str]] = {
    "short-locks": ("share.record.lock.duration.ms", str(SHORT_LOCK_MS)),
    "delivery-limit": ("share.delivery.count.limit", "2"),
    "lock-limit": ("share.partition.max.record.locks", "100"),
    "renew-switch": ("share.renew.acknowledge.enable", "false"),
    "isolation": ("share.isolation.level", "read_committed"),
    "dead-letters": ("errors.deadletterqueue.topic.name", "dead-letters"),
    "key-order": ("share.ordering", "key"),
    "redelivery-delay": ("share.redelivery.delay.ms", "500"),
    "group-settings": ("share.auto.offset.reset", "earliest"),
}
"""Capability -> a setting of a group and the value that the peer must accept."""


@dataclass
class Capabilities:
    """Capabilities that are offered, and the reason for each missing one."""

    release: str
    """Release of Kafka as far as its features show it; "proxy on 3.9" if this proxy serves share groups on it."""
    versions: Mapping[int, tuple[int, int]]
    features: Mapping[str, int]
    """Finalized features and their levels."""
    missing: dict[str, str] = field(default_factory=dict)
    """Capability -> reason why it is not offered."""

    def lacks(self, needs: tuple[str, ...]) -> str | None:
        """Return the reason why a case with these needs is skipped; None if it can run."""
        for need in needs:
            api, colon, version = need.partition(":")
            reason = self._lacks_version(api, int(version)) if colon else self.missing.get(need)
            if reason:
                return reason
        return None

    def difference(self, differs: Mapping[str, str]) -> str | None:
        """Return why the peer is known to differ in a case; None if it is not."""
        known = differs.get(self.release)
        return differs.get(PROXY) if known is None and self.release.startswith(PROXY_ON) else known

    def _lacks_version(self, api: str, version: int) -> str | None:
        if KEYS[api] not in self.versions:
            return f"{api} is not offered"
        lowest, highest = self.versions[KEYS[api]]
        return None if lowest <= version <= highest else f"{api} is offered in versions {lowest} to {highest}"


async def discover(dialling: Dialling) -> tuple[ClusterUnderTest, Capabilities]:
    """Return the cluster and what it offers. Raises ConnectionFailed, BadResponse."""
    connection = await dialling.connect_bootstrap(Trail())
    try:
        cluster, capabilities = await _first_responses(dialling, connection)
        await _Probe(cluster, capabilities, connection).run()
    finally:
        await connection.aclose()
    return cluster, capabilities


async def _first_responses(dialling: Dialling, connection: PeerConnection) -> tuple[ClusterUnderTest, Capabilities]:
    """Request ApiVersions and Metadata. A broker that requires a login responds to ApiVersions only."""
    try:
        response = await connection.request("ApiVersions", 3, client_software_name="c", client_software_version="1")
        if response.error_code:
            raise BadResponse(f"ApiVersions v3: {error_name(response.error_code)}")
        versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        cluster = ClusterUnderTest(dialling, versions)
        nodes = await _nodes(cluster, connection)
    except ConnectionFailed as error:
        raise ConnectionFailed(f"{error}: {ADVICE}") from None
    features = {each.name: each.max_version_level for each in response.finalized_features or ()}
    supported = {each.name: each.max_version for each in response.supported_features or ()}
    missing = {} if nodes > 1 else {"several-nodes": "Metadata shows fewer than two brokers"}
    return cluster, Capabilities(_release(supported, versions), versions, features, missing)


async def _nodes(cluster: ClusterUnderTest, connection: PeerConnection) -> int:
    try:
        return len(await cluster.brokers(connection))
    except NotOffered:
        return 0


def _release(supported: Mapping[str, int], versions: Mapping[int, tuple[int, int]]) -> str:
    level = supported.get("metadata.version", 0)
    release = next((name for highest, name in RELEASES if level <= highest), "4.4") if level else "unknown"
    return f"{PROXY_ON}{release}" if release == "3.9" and KEYS["ShareFetch"] in versions else release


class _Probe:
    """Requests that find out what the versions of APIs do not show. They create one topic and one group."""

    def __init__(self, cluster: ClusterUnderTest, capabilities: Capabilities, connection: PeerConnection) -> None:
        self._cluster, self._capabilities, self._connection = cluster, capabilities, connection

    async def run(self) -> None:
        for name, apis in (("share", SHARE_APIS), ("consumer-groups", CONSUMER_APIS)):
            if missing := [api for api in apis if KEYS[api] not in self._capabilities.versions]:
                self._capabilities.missing[name] = f"{missing[0]} is not offered"
        await self._share_groups()
        await self._consumer_groups()
        await self._settings()
        await self._views_and_commits()

    async def _share_groups(self) -> None:
        if "share" not in self._capabilities.missing:
            group = self._cluster.name("probe")
            response = await self._connection.request("ShareGroupDescribe", 1, group_ids=[group])
            if response.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION:
                self._capabilities.missing["share"] = "share groups are switched off (share.version 0)"

    async def _consumer_groups(self) -> None:
        if "consumer-groups" not in self._capabilities.missing:
            group = self._cluster.name("probe")
            response = await self._connection.request("ConsumerGroupDescribe", 0, group_ids=[group])
            if response.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION:
                self._capabilities.missing["consumer-groups"] = "groups of KIP-848 are switched off"

    async def _settings(self) -> None:
        for name, (key, value) in SETTINGS.items():
            if "share" in self._capabilities.missing:
                self._capabilities.missing[name] = self._capabilities.missing["share"]
                continue
            group = self._cluster.name("probe")
            error = await self._cluster.alter_group(self._connection, group, {key: value}, validate_only=True)
            if error:
                self._capabilities.missing[name] = f"{key}={value} is refused: {error.strip()}"
        if self._capabilities.features.get("share.version", 0) < 2:
            self._capabilities.missing.setdefault("dead-letters", "share.version is below 2")
        if "key-order" not in self._capabilities.missing and not self._capabilities.release.startswith(PROXY_ON):
            self._capabilities.release = f"{PROXY_ON}{self._capabilities.release}"

    async def _views_and_commits(self) -> None:
        try:
            topic = await self._cluster.create_topic(self._connection, self._cluster.name("probe"))
            view = await self._cluster.find_topic(self._connection, f"__view.r2.{topic.name}")
            if view is None:
                self._capabilities.missing["views"] = "a view of a topic is not shown as a topic"
            if not await self._keeps_ranges(topic.name):
                self._capabilities.missing["individual-commits"] = "committed ranges are not moved over"
        except (SetUpFailed, NotOffered) as error:
            for name in ("views", "individual-commits"):
                self._capabilities.missing.setdefault(name, str(error))

    async def _keeps_ranges(self, topic: str) -> bool:
        """Commit offset 0 and the range 0-1: a peer with individual commits returns offset 2."""
        group = self._cluster.name("probe")
        self._cluster.groups.add(group)
        address = await self._cluster.coordinator(self._connection, group)
        coordinator = await self._cluster.dialling.connect(address, Trail())
        try:
            for _ in range(ATTEMPTS):
                offset = await self._committed(coordinator, group, topic)
                if offset is not None:
                    return offset == RANGE_END
                await trio.sleep(PAUSE_S)
        finally:
            await coordinator.aclose()
        raise SetUpFailed("the coordinator does not accept a commit")

    async def _committed(self, coordinator: PeerConnection, group: str, topic: str) -> int | None:
        """Commit offset 0 with a range and return the committed offset; None if the coordinator is loading."""
        partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": f"ic/1;0-{RANGE_END - 1}"}
        commit: dict[str, Any] = {"group_id": group, "generation_id_or_member_epoch": -1}
        commit["topics"] = [{"name": topic, "partitions": [partition]}]
        await coordinator.request("OffsetCommit", self._cluster.version("OffsetCommit"), **commit)
        groups = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
        response = await coordinator.request("OffsetFetch", self._cluster.version("OffsetFetch"), groups=groups)
        offsets = [p.committed_offset for each in response.groups[0].topics for p in each.partitions]
        return offsets[0] if offsets and offsets[0] >= 0 else None
