"""What a consumer is opened with, checked before anything is sent: every mistake is named, with what to do."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import trio

from proxy.brokers.own_connection import Connect, Identity, OwnSettings
from proxy.consumer.options import ConfigurationError, ConsumerOptions
from proxy.consumer.share_options import ShareConsumerOptions
from proxy.wire.bootstrap import BadServer
from proxy.wire.bootstrap import servers as bootstrap_servers
from proxy.wire.values import Address

CLIENT_ID = "kafka-share-proxy-client"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

Options = TypeVar("Options", ConsumerOptions, ShareConsumerOptions)


class SaslLogin(NamedTuple):
    """Who the client is to the brokers."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str
    password: str | Callable[[], str]
    """Or what reads it, at every authentication."""


class ConnectionSettings(NamedTuple):
    """Checked: which servers, and how connections are made."""

    bootstrap: Sequence[Address]
    connections: OwnSettings


class ClientSettings(NamedTuple):
    """What `open_consumer` was given, checked."""

    bootstrap: Sequence[Address]
    connections: OwnSettings
    options: ConsumerOptions


def client_settings(
    bootstrap: str | Iterable[str],
    *,
    group: str | None = None,
    client_id: str = CLIENT_ID,
    tls: ssl.SSLContext | bool | None = None,
    sasl: SaslLogin | tuple[str, str, str] | None = None,
    connect: Connect = trio.open_tcp_stream,
    options: Mapping[str, Any],
) -> ClientSettings:
    """Check all of it. Raises ConfigurationError, with what is wrong and what would be right.

    Args:
        bootstrap: `host:port,host:port`, or several of these.
        group: the group id.
        client_id: what requests say of the program; quotas and logs of brokers name it.
        tls: True: certificates that the system trusts; or a context of your own.
        sasl: mechanism, user name, password.
        connect: dials (host, port).
        options: fields of ConsumerOptions by name.
    """
    checked = checked_options(ConsumerOptions, group, options)
    return ClientSettings(*connection_settings(bootstrap, client_id, tls, sasl, connect), checked)


def connection_settings(
    bootstrap: str | Iterable[str],
    client_id: str,
    tls: ssl.SSLContext | bool | None,
    sasl: SaslLogin | tuple[str, str, str] | None,
    connect: Connect,
) -> ConnectionSettings:
    """Arguments and errors as of `client_settings`."""
    context = ssl.create_default_context() if tls is True else tls or None
    connections = OwnSettings(
        tls=context, identity=_identity(sasl), connect=connect, client_id=client_id, tls_setting="tls"
    )
    return ConnectionSettings(addresses(bootstrap), connections)


def checked_options(kind: type[Options], group: str | None, options: Mapping[str, Any]) -> Options:
    """The options of a consumer. Raises ConfigurationError.

    Args:
        kind: of which consumer.
        group: the group id.
        options: fields of the kind by name.
    """
    _check_names(tuple(each.name for each in fields(kind) if each.init), options)
    if group is not None and not group:
        raise ConfigurationError("group is empty: leave it out to read without a group")
    try:
        return kind(group_id=group, **options)
    except TypeError as error:
        raise ConfigurationError(f"an option has a value of another type than it needs: {error}") from error


def addresses(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """Servers, each once, in their order. ConfigurationError: one of them is no host and port, or there is none."""
    try:
        found = bootstrap_servers([bootstrap] if isinstance(bootstrap, str) else bootstrap)
    except BadServer as error:
        raise ConfigurationError(f"bootstrap server {error}: write host:port, with a port of 1 to 65535") from None
    if not found:
        raise ConfigurationError("bootstrap names no server: write host:port")
    return found


def _identity(sasl: SaslLogin | tuple[str, str, str] | None) -> Identity | None:
    if sasl is None:
        return None
    mechanism, username, password = sasl
    if mechanism not in MECHANISMS:
        raise ConfigurationError(f"sasl mechanism {mechanism!r}: one of {', '.join(MECHANISMS)}")
    if not username:
        raise ConfigurationError("sasl: the user name is empty")
    return Identity(
        mechanism=mechanism, username=username, password=password if callable(password) else lambda: password
    )


def _check_names(known: Sequence[str], options: Mapping[str, Any]) -> None:
    for name in options:
        if name == "group_id":
            raise ConfigurationError("group_id: say group=")
        if name not in known:
            (near,) = difflib.get_close_matches(name, known, 1, 0.5) or ("",)
            advice = f"; did you mean {near!r}?" if near else f": there are {', '.join(known)}"
            raise ConfigurationError(f"no option is called {name!r}{advice}")
