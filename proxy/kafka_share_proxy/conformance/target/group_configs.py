"""Settings of groups (GROUP resources): `consumer.*` here, `share.*` of the model of `sharegroups/`."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.topic_configs import ConfigKind
from kafka_share_proxy.sharegroups.model.broker_limits import parse_int
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS, check_stored

CONSUMER_SESSION = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT = "consumer.heartbeat.interval.ms"
CONSUMER_BOUNDS: Mapping[str, tuple[int, int]] = {
    CONSUMER_SESSION: (45_000, 60_000),
    CONSUMER_HEARTBEAT: (5_000, 15_000),
}
"""Smallest and largest value (group.consumer.min and max settings of Kafka 4.3)."""

_SHARE = {key.name: key for key in GROUP_CONFIGS}


class GroupConfigs:
    """Settings of all groups. A group with settings need not exist."""

    def __init__(self, share: ShareCoordinator, settings: ClusterSettings) -> None:
        self._share = share
        self._consumer: dict[str, dict[str, str]] = {}
        self._defaults = {
            CONSUMER_SESSION: str(settings.consumer_session_timeout_ms),
            CONSUMER_HEARTBEAT: str(settings.consumer_heartbeat_interval_ms),
        }

    def keys(self) -> dict[str, ConfigKind]:
        """Return the settings with their types."""
        share = {key.name: ConfigKind(int(key.type)) for key in GROUP_CONFIGS}
        return dict(sorted({**dict.fromkeys(self._defaults, ConfigKind.INT), **share}.items()))

    def stored(self, group_id: str) -> dict[str, str]:
        return {**self._consumer.get(group_id, {}), **self._share.stored_settings(group_id)}

    def default(self, name: str) -> str:
        key = _SHARE.get(name)
        return self._defaults[name] if key is None else key.default_value(self._share.limits)

    def value(self, group_id: str, name: str) -> str:
        return self.stored(group_id).get(name, self.default(name))

    def with_settings(self) -> list[str]:
        """Return the ids of the groups that have settings."""
        return sorted({*self._consumer, *self._share.groups_with_settings()})

    def mistake(self, stored: Mapping[str, str]) -> str | None:
        """Return the error text if these are invalid settings of a group."""
        for name, value in stored.items():
            if name in CONSUMER_BOUNDS:
                low, high = CONSUMER_BOUNDS[name]
                number = parse_int(value)
                if number is None or not low <= number <= high:
                    return f"Invalid value {value} for configuration {name}: it must be {low} to {high}"
            elif name not in _SHARE:
                return f"Unknown group config name: {name}"
        return check_stored({k: v for k, v in stored.items() if k not in CONSUMER_BOUNDS}, self._share.limits)

    def store(self, group_id: str, stored: Mapping[str, str]) -> None:
        """Replace the settings of a group, which are valid."""
        consumer = {name: value for name, value in stored.items() if name in CONSUMER_BOUNDS}
        if consumer:
            self._consumer[group_id] = consumer
        else:
            self._consumer.pop(group_id, None)
        self._share.store_settings(group_id, {k: v for k, v in stored.items() if k not in CONSUMER_BOUNDS})
