"""Names in the proxy's certificate, checked as clients do: by a TLS handshake in memory, for `check`."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kafka_share_proxy.app.settings.config import ClientTls, Config
from kafka_share_proxy.forwarding.rewriting.broker_addresses import NODE_ID, NODE_MAX

STEPS = 4
"""Steps of each side until a handshake has ended."""


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """Names that clients dial, by what the certificate says about them."""

    refused: dict[str, str]
    """Name -> reason why clients do not accept the certificate for it."""
    any_broker: bool
    """True if it covers the names of brokers that the cluster does not have yet."""


def coverage(config: Config, node_ids: Iterable[int]) -> CertificateNames | None:
    """Return what the certificate covers. None without TLS for clients."""
    if not config.client_tls.on:
        return None
    addresses = config.broker_addresses
    brokers = (address.host for address in map(addresses.of, sorted(node_ids)) if address is not None)
    names = dict.fromkeys([config.advertised_host, *brokers])
    check = _Check(config.client_tls)
    last = addresses.of(NODE_MAX)
    return CertificateNames(
        {name: reason for name in names if (reason := check.refusal(name))},
        any_broker=last is not None and not check.refusal(last.host),
    )


def mistakes(config: Config, names: CertificateNames | None) -> Iterator[str]:
    """Yield why clients that verify the certificate refuse it."""
    if names is not None and names.refused:
        reasons = "; ".join(dict.fromkeys(names.refused.values()))
        yield (
            f"clients that verify client_tls.cert_file refuse it for {', '.join(names.refused)} ({reasons}): it has to "
            f"name {_needed(config)}"
        )


def remarks(config: Config, names: CertificateNames | None) -> Iterator[str]:
    """Yield whether brokers that are added need a new certificate, if each broker has a name."""
    if names is None or names.refused or config.exposure != "sni":
        return
    if names.any_broker:
        yield f"client_tls.cert_file covers {config.advertised_host} and every {config.broker_names} by a wildcard"
    else:
        yield (
            f"client_tls.cert_file names each broker: one that is added needs a new certificate, with its name or with "
            f"{_needed(config)}"
        )


def _needed(config: Config) -> str:
    names = [config.advertised_host]
    if config.exposure == "sni" and config.broker_names is not None:
        label, _, domain = config.broker_names.partition(".")
        # A wildcard is one whole label, the first one (RFC 9525, 6.3).
        names.append(f"*.{domain}" if NODE_ID in label else config.broker_names)
    return " and ".join(names)


class _Check:
    """A server with the certificate, and a client that trusts exactly this one."""

    def __init__(self, tls: ClientTls) -> None:
        assert tls.cert_file is not None  # noqa: S101  # TLS is on
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(tls.cert_file, tls.key_file)
        self._client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client.load_verify_locations(tls.cert_file)
        self._client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN

    def refusal(self, name: str) -> str:
        """Return why a client that dials this name refuses the certificate. Empty if it does not."""
        inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self._server.wrap_bio(inbound, outbound, server_side=True)
        client = self._client.wrap_bio(outbound, inbound, server_hostname=name)
        for _ in range(STEPS):
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return str(error.verify_message).removesuffix(".")
            with suppress(ssl.SSLWantReadError):
                server.do_handshake()
        return ""
