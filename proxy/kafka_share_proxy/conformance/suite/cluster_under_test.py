"""The cluster under test: brokers, topics with names of their own, and the cleaning up after a run."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kafka_share_proxy.conformance.suite.building import KEYS
from kafka_share_proxy.conformance.suite.connection import ConnectionFailed, PeerConnection
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.conformance.suite.expectations import NotOffered
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, error_name
from kafka_share_proxy.wire.values import Address

PREFIX = "conformance"
CLEANUP_S = 60.0
"""Seconds that the cleaning up after a run may take."""
BATCH = 100
"""Topics or groups deleted with one request."""
ATTEMPTS, PAUSE_S = 200, 0.05
"""Attempts, and seconds between two of them, until a new topic or a coordinator can be used."""
COORDINATOR_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Errors of a coordinator in a cluster that has just started, or of a broker that is not the coordinator."""
GROUP_RESOURCE = 32
OWN_SETTINGS = ("share.", "errors.")
"""Prefixes of the settings of groups that cases change."""
SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""

SIMPLEST: Mapping[str, int] = {
    "CreatePartitions": 3,
    "CreateTopics": 7,
    "DeleteGroups": 2,
    "DeleteRecords": 2,
    "DeleteTopics": 5,
    "DescribeConfigs": 4,
    "DescribeGroups": 5,
    "Fetch": 12,
    "FindCoordinator": 4,
    "Heartbeat": 4,
    "IncrementalAlterConfigs": 1,
    "InitProducerId": 4,
    "JoinGroup": 9,
    "LeaveGroup": 5,
    "ListGroups": 5,
    "ListOffsets": 7,
    "Metadata": 12,
    "OffsetCommit": 8,
    "OffsetFetch": 8,
    "Produce": 9,
    "SyncGroup": 5,
    "TxnOffsetCommit": 3,
    "AddOffsetsToTxn": 3,
    "AddPartitionsToTxn": 3,
    "EndTxn": 3,
}
"""Highest version that cases use if they name none: later ones have other identifiers or layouts."""


class SetUpFailed(ProxyError):
    """A topic, group or setting that a case needs could not be created."""


@dataclass(frozen=True)
class CaseTopic:
    """A topic of a case."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]
    """Partition -> node id."""

    @property
    def partitions(self) -> Sequence[int]:
        """Indexes of its partitions."""
        return sorted(self.leaders)


@dataclass
class ClusterUnderTest:
    """One cluster (or proxy) as its clients see it."""

    dialling: Dialling
    versions: Mapping[int, tuple[int, int]]
    """API key -> lowest and highest offered version."""
    run_id: str = field(default_factory=lambda: f"{PREFIX}-{secrets.token_hex(4)}")
    topics: set[str] = field(default_factory=set)
    """Names of topics to delete at the end."""
    groups: set[str] = field(default_factory=set)
    configured: set[str] = field(default_factory=set)
    """Groups with settings."""
    left_behind: str = ""
    """Why topics and groups of the run may be left; empty if they were deleted."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def name(self, kind: str) -> str:
        """Return a name that nothing else uses."""
        return f"{self.run_id}-{next(self._numbers)}-{kind}"

    def version(self, api: str, at_most: int | None = None) -> int:
        """Return the version in which a case sends a request. Raises NotOffered."""
        key = KEYS[api]
        if key not in self.versions:
            raise NotOffered(f"{api} is not offered")
        lowest, highest = self.versions[key]
        limit = SIMPLEST.get(api, registry.versions(key)[1]) if at_most is None else at_most
        chosen = min(limit, highest, registry.versions(key)[1])
        if chosen < max(lowest, registry.versions(key)[0]):
            raise NotOffered(f"{api} is offered from version {lowest}, this case uses version {chosen}")
        return chosen

    async def brokers(self, on: PeerConnection) -> dict[int, Address]:
        """Return the brokers of Metadata by node id."""
        response = await on.request("Metadata", self.version("Metadata"), topics=[], allow_auto_topic_creation=False)
        return {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}

    async def create_topic(
        self,
        on: PeerConnection,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: Sequence[Sequence[int]] = (),
    ) -> CaseTopic:
        """Create a topic and wait until its leaders are known. Raises SetUpFailed.

        `replicas` are the nodes of each partition, the leader first. Empty: the cluster chooses them.
        """
        self.topics.add(name)
        assigned = [{"partition_index": index, "broker_ids": list(nodes)} for index, nodes in enumerate(replicas)]
        requested = {"name": name, "num_partitions": -1 if replicas else partitions, "replication_factor": -1}
        requested |= {"assignments": assigned}
        requested |= {"configs": [{"name": key, "value": value} for key, value in (configs or {}).items()]}
        response = await on.request("CreateTopics", self.version("CreateTopics"), topics=[requested], timeout_ms=10_000)
        created = response.topics[0]
        if created.error_code:
            raise SetUpFailed(f"cannot create a topic: {error_name(created.error_code)} {created.error_message or ''}")
        return await self.await_topic(on, name, len(replicas) or partitions)

    async def await_topic(self, on: PeerConnection, name: str, partitions: int) -> CaseTopic:
        """Return a topic once it has that many partitions, each with a leader. Raises SetUpFailed."""
        for _ in range(ATTEMPTS):
            topic = await self.find_topic(on, name)
            if topic is not None and len(topic.leaders) == partitions:
                return topic
            await trio.sleep(PAUSE_S)
        raise SetUpFailed(f"a new topic has no leader after {ATTEMPTS * PAUSE_S:.0f} s")

    async def find_topic(self, on: PeerConnection, name: str) -> CaseTopic | None:
        """Return a topic whose partitions all have leaders; else None."""
        version = self.version("Metadata")
        response = await on.request("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=False)
        entry = response.topics[0]
        leaders = {each.partition_index: each.leader_id for each in entry.partitions}
        if entry.error_code or not leaders or -1 in leaders.values():
            return None
        return CaseTopic(name, bytes(entry.topic_id), leaders)

    async def coordinator(self, on: PeerConnection, key: str, key_type: int = 0) -> Address:
        """Return the address of the coordinator of a group (0) or transactional id (1). Raises SetUpFailed."""
        code = 0
        for _ in range(ATTEMPTS // 4):
            response = await on.request(
                "FindCoordinator", self.version("FindCoordinator"), key_type=key_type, coordinator_keys=[key]
            )
            entry = response.coordinators[0]
            if not entry.error_code:
                return Address(entry.host, entry.port)
            code = entry.error_code
            await trio.sleep(PAUSE_S * 4)
        raise SetUpFailed(f"no coordinator: {error_name(code)}")

    async def configure_group(self, on: PeerConnection, group: str, values: Mapping[str, str]) -> None:
        """Set the settings of a group and wait until they are shown. Raises SetUpFailed."""
        self.configured.add(group)
        error = await self.alter_group(on, group, values)
        if error:
            raise SetUpFailed(f"cannot configure a group with {dict(values)}: {error}")
        for _ in range(ATTEMPTS):
            shown = await self.group_settings(on, group)
            if all(shown.get(key) == value for key, value in values.items()):
                return
            await trio.sleep(PAUSE_S)
        raise SetUpFailed(f"the settings of a group are not shown after {ATTEMPTS * PAUSE_S:.0f} s")

    async def alter_group(
        self, on: PeerConnection, group: str, values: Mapping[str, str | None], *, validate_only: bool = False
    ) -> str:
        """Set settings of a group, None takes one back; return the error as text, empty if there is none."""
        configs = [
            {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
            for key, value in values.items()
        ]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
        version = self.version("IncrementalAlterConfigs")
        response = await on.request(
            "IncrementalAlterConfigs", version, resources=[resource], validate_only=validate_only
        )
        result = response.responses[0]
        return f"{error_name(result.error_code)} {result.error_message or ''}" if result.error_code else ""

    async def group_settings(self, on: PeerConnection, group: str) -> dict[str, str | None]:
        """Return the settings of a group; empty if there are none."""
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
        response = await on.request("DescribeConfigs", self.version("DescribeConfigs"), resources=[resource])
        return {config.name: config.value for config in response.results[0].configs}

    @asynccontextmanager
    async def cleaned_up(self) -> AsyncIterator[None]:
        """Delete every topic and group of the run at the end, also after failures and interruptions."""
        try:
            yield
        finally:
            with trio.move_on_after(CLEANUP_S, shield=True) as scope:
                try:
                    await self._clean_up()
                except ProxyError as error:
                    self.left_behind = str(error)
            if scope.cancelled_caught:
                self.left_behind = f"not done within {CLEANUP_S:.0f} s"

    async def _clean_up(self) -> None:
        connection = await self.dialling.connect_bootstrap(Trail())
        try:
            await self._forget_settings(connection)
            await self._delete_groups(connection)
            names = sorted(self.topics)
            for start in range(0, len(names), BATCH):
                listed = names[start : start + BATCH]
                await connection.request(
                    "DeleteTopics", self.version("DeleteTopics"), topic_names=listed, timeout_ms=20_000
                )
        finally:
            await connection.aclose()

    async def _forget_settings(self, on: PeerConnection) -> None:
        for group in sorted(self.configured):
            settings = await self.group_settings(on, group)
            await self.alter_group(on, group, dict.fromkeys(name for name in settings if name.startswith(OWN_SETTINGS)))

    async def _delete_groups(self, on: PeerConnection) -> None:
        by_coordinator: dict[Address, list[str]] = {}
        for group in sorted(self.groups):
            by_coordinator.setdefault(await self.coordinator(on, group), []).append(group)
        for address, groups in by_coordinator.items():
            try:
                connection = await self.dialling.connect(address, Trail())
            except ConnectionFailed:
                continue
            for start in range(0, len(groups), BATCH):
                names = groups[start : start + BATCH]
                await connection.request("DeleteGroups", self.version("DeleteGroups"), groups_names=names)
            await connection.aclose()
