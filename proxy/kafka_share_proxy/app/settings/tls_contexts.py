"""TLS contexts from the settings. Raises ConfigError if the named files are invalid."""

from __future__ import annotations

import ssl
from typing import NamedTuple

from kafka_share_proxy.app.settings.config import ClientTls, Config, PeerTls, UpstreamTls
from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.fleet.links import LinkTls
from kafka_share_proxy.loop.tls_context import TlsContext


class TlsContexts(NamedTuple):
    """TLS of one proxy. None for plain text."""

    clients: TlsContext | None
    brokers: TlsContext | None
    proxies: LinkTls | None

    def take(self, other: TlsContexts) -> None:
        """Let later handshakes use the contexts of `other`, in the roles that both have."""
        pairs = [(self.clients, other.clients), (self.brokers, other.brokers)]
        if self.proxies is not None and other.proxies is not None:
            pairs += [(self.proxies.dials, other.proxies.dials), (self.proxies.dialled, other.proxies.dialled)]
        for held, new in pairs:
            if held is not None and new is not None:
                held.current = new.current


def contexts(config: Config) -> TlsContexts:
    """Return the contexts of all roles."""
    return TlsContexts(
        towards_clients(config.client_tls),
        towards_brokers(config.upstream.tls),
        between_proxies(config.cluster.peer.tls),
    )


def towards_clients(tls: ClientTls) -> TlsContext | None:
    """Return the server side for clients; None for plain text."""
    if tls.cert_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_pair(context, "client_tls", tls.cert_file, tls.key_file)
    if tls.client_ca_file is not None:
        _load_authorities(context, "client_tls.client_ca_file", tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return TlsContext(context)


def towards_brokers(tls: UpstreamTls) -> TlsContext | None:
    """Return the client side for brokers; None for plain text."""
    if not tls.on:
        return None
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    if tls.ca_file is not None:
        # Accept only the named authorities: the system's list is for a cluster without its own.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authorities(context, "upstream.tls.ca_file", tls.ca_file)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        _load_pair(context, "upstream.tls", tls.cert_file, tls.key_file)
    return TlsContext(context)


def between_proxies(tls: PeerTls) -> LinkTls | None:
    """Return both sides for the links of a fleet; None for plain text."""
    if tls.cert_file is None or tls.ca_file is None:
        return None
    dials, dialled = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in (dials, dialled):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        _load_pair(context, "cluster.peer.tls", tls.cert_file, tls.key_file)
        _load_authorities(context, "cluster.peer.tls.ca_file", tls.ca_file)
    return LinkTls(TlsContext(dials), TlsContext(dialled), tls.server_name)


def _load_pair(context: ssl.SSLContext, section: str, cert_file: str, key_file: str | None) -> None:
    def no_passphrase() -> str:
        # Without this, OpenSSL would prompt at the terminal, and a service would hang there.
        raise ConfigError(f"{section}.key_file: {key_file} has a passphrase; give a key without one")

    try:
        context.load_cert_chain(cert_file, key_file, no_passphrase)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"{section}.cert_file: {cert_file} and {key_file} do not work: {_words(error)}") from None


def _load_authorities(context: ssl.SSLContext, path: str, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise ConfigError(f"{path}: {file} holds no certificates: {_words(error)}") from None


def _words(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return (reason or str(error)).replace("_", " ").lower()
