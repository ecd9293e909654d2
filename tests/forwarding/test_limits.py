"""Limits: every one bounds something by default, or says that it does not."""

from dataclasses import fields

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.forwarding.limits import Limits


def test_every_limit_but_the_optional_ones_has_a_default_above_0() -> None:
    limits = Limits()
    unbounded = {field.name for field in fields(Limits) if getattr(limits, field.name) is None}
    assert unbounded == {"connections_per_address", "connection_age_s"}
    assert all(getattr(limits, field.name) > 0 for field in fields(Limits) if field.name not in unbounded)


def test_defaults_of_the_proxys_own_connections_equal_those_of_the_limits() -> None:
    """A command without settings of limits dials like `serve`."""
    limits, own = Limits(), ClusterClientSettings()
    assert (own.dial_timeout_s, own.response_bytes) == (limits.dial_timeout_s, limits.collected_bytes)
