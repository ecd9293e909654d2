"""Settings of a consumer, checked before any request is sent: every mistake is named, with what to do."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, Connect, Identity
from kafka_share_proxy.client import bearer_token
from kafka_share_proxy.client.bearer_token import OAuthBearer, bearer_identity
from kafka_share_proxy.client.option_advice import option_advice
from kafka_share_proxy.consumer.option_checks import check_types, names
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire.bootstrap import BadServer
from kafka_share_proxy.wire.bootstrap import servers as bootstrap_servers
from kafka_share_proxy.wire.values import Address

CLIENT_ID = "kafka-share-proxy-client"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Options = TypeVar("Options", ConsumerOptions, ShareConsumerOptions)


class SaslLogin(NamedTuple):
    """Identity of the client for SASL."""

    mechanism: str
    username: str
    password: str | Callable[[], str]
    """Password, or a function that is called for it at every authentication."""


class ConnectionSettings(NamedTuple):
    """Checked settings of bootstrap servers and connections."""

    bootstrap: Sequence[Address]
    connections: ClusterClientSettings


def connection_settings(
    bootstrap: str | Iterable[str],
    client_id: str,
    tls: ssl.SSLContext | bool | None,
    sasl: SaslLogin | OAuthBearer | tuple[str, str, str] | None,
    connect: Connect,
) -> ConnectionSettings:
    """Raise ConfigurationError with what is wrong and what would be right. Arguments are those of `open_consumer`."""
    check_arguments(
        {
            "client_id": (client_id, str),
            "tls": (tls, ssl.SSLContext | bool | None),
            "connect": (connect, callable),
        }
    )
    if not client_id:
        raise ConfigurationError("client_id is empty: leave it out for the default")
    context = ssl.create_default_context() if tls is True else tls or None
    connections = ClusterClientSettings(
        tls=None if context is None else TlsContext(context),
        identity=_identity(sasl),
        requires_sasl=True,
        connect=connect,
        client_id=client_id,
        tls_setting="tls=",
    )
    return ConnectionSettings(addresses(bootstrap), connections)


def checked_options(kind: type[Options], group: str | None, options: Mapping[str, Any]) -> Options:
    """Return the options of a consumer. Raises ConfigurationError."""
    known = tuple(name for name in names(kind) if name != "group_id")
    other = names(ShareConsumerOptions if kind is ConsumerOptions else ConsumerOptions)
    if unknown := [name for name in options if name not in known]:
        advice = [f"no option is called {name!r}: {option_advice(name, known, other)}" for name in unknown]
        raise ConfigurationError("; ".join(advice))
    check_arguments({"group": (group, str | None)})
    if group is not None and not group:
        raise ConfigurationError("group is empty: leave it out to read without a group")
    return kind(group_id=group, **options)


def check_arguments(values: Mapping[str, tuple[object, Any]]) -> None:
    """Raise ConfigurationError for an argument, name -> (value, type), of another type."""
    if wrong := check_types(values):
        raise ConfigurationError("; ".join(wrong))


def optional_function(value: object) -> tuple[object, Any]:
    return value, type(None) if value is None else callable


def addresses(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """Return the servers, each once, in order. Raises ConfigurationError."""
    try:
        check_arguments({"bootstrap": (bootstrap, str | Iterable)})
        listed = [bootstrap] if isinstance(bootstrap, str) else list(bootstrap)
        check_arguments({"bootstrap": (listed, Sequence[str])})
        servers = bootstrap_servers(listed)
    except BadServer as error:
        raise ConfigurationError(f"bootstrap server {error}: write host:port, with a port of 1 to 65535") from None
    if not servers:
        raise ConfigurationError("bootstrap names no server: write host:port")
    return servers


def _identity(sasl: SaslLogin | OAuthBearer | tuple[str, str, str] | None) -> Identity | None:
    if sasl is None:
        return None
    if isinstance(sasl, OAuthBearer):
        return bearer_identity(sasl)
    if not (isinstance(sasl, tuple) and len(sasl) == 3):
        raise ConfigurationError("sasl: write (mechanism, user name, password), SaslLogin(...) or OAuthBearer(...)")
    mechanism, username, password = sasl
    if not isinstance(username, str) or not (isinstance(password, str) or callable(password)):
        raise ConfigurationError("sasl: the user name is a str, and the password a str or a function that returns it")
    if mechanism == bearer_token.MECHANISM:
        raise ConfigurationError("sasl mechanism OAUTHBEARER: say sasl=OAuthBearer(a function that returns a token)")
    if mechanism not in MECHANISMS:
        raise ConfigurationError(f"sasl mechanism {mechanism!r}: one of {', '.join(MECHANISMS)}")
    if not username:
        raise ConfigurationError("sasl: the user name is empty")
    return Identity(
        mechanism=mechanism, username=username, password=password if callable(password) else lambda: password
    )
