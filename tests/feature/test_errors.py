"""Errors of settings end a command with a message, as every error of the proxy does."""

from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.errors import ProxyError


def test_config_error_is_an_error_of_the_proxy() -> None:
    assert issubclass(ConfigError, ProxyError)
