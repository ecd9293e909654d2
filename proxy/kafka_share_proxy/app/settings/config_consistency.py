"""Checks between settings that are each valid alone. Reads the named files, changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kafka_share_proxy.app.settings import limit_settings
from kafka_share_proxy.app.settings.config import (
    ClientTls,
    Config,
    PeerLinks,
    PeerTls,
    Upstream,
    UpstreamSasl,
    UpstreamTls,
)
from kafka_share_proxy.app.settings.config_sources import Key
from kafka_share_proxy.app.settings.hostports import PORT_MAX, is_server_name
from kafka_share_proxy.feature.settings import Section
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.broker_addresses import NODE_ID, NODE_MAX
from kafka_share_proxy.wire.values import DECODED_BYTES

TRACING_LIBRARIES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
SECRET_BYTES_MIN = 16
"""Shorter secrets of a fleet could be guessed by who listens."""
WILDCARDS = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104  # recognised, not bound

Mistakes = Iterator[tuple[Key, str]]


def mistakes(config: Config) -> Mistakes:
    """Yield every setting that cannot work, with its path and a text that says how to correct it."""
    yield from _listening(config)
    yield from _upstream(config.upstream)
    yield from _client_tls(config.client_tls)
    wrong_limits = list(limit_settings.mistakes(config.limits))
    yield from wrong_limits or _limits_together(limit_settings.parse(config.limits))
    yield from _features(config)
    yield from _audit(config)
    yield from _fleet(config)
    yield from _tracing(config)
    yield from _trace(config)


def _trace(config: Config) -> Mistakes:
    if config.trace.client is not None and config.admin is None:
        yield ("trace", "client"), "set, but nothing could read the trace; set admin too"
    if config.trace.client == "":
        yield ("trace", "client"), "is empty; give a client id or an address"
    if config.trace.seconds > config.trace.seconds_max:
        yield ("trace", "seconds"), f"is more than trace.seconds_max ({config.trace.seconds_max:g})"


def _tracing(config: Config) -> Mistakes:
    if config.tracing.export != "none" and not all(map(_is_installed, TRACING_LIBRARIES)):
        text = "OpenTelemetry is not installed; pip install 'kafka-share-proxy[tracing]', or set it to none"
        yield ("tracing", "export"), text


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a parent
        return False


def _listening(config: Config) -> Mistakes:
    if config.listen is None:
        yield ("listen",), "missing; give --listen HOST:PORT, the address clients bootstrap from"
        return
    if config.advertised_host in WILDCARDS:
        key = "advertise"
        yield (
            (key,),
            f"needed, since no client can dial {config.advertised_host}; give the host clients reach this proxy by",
        )
    yield from _one_port(config) if config.exposure == "sni" else _ports(config)
    if config.admin == config.listen:
        yield ("admin",), "is the address of `listen`; give another port"


def _ports(config: Config) -> Mistakes:
    for name in ("broker_names", "advertise_port"):
        if getattr(config, name) is not None:
            yield (name,), "set, but exposure is ports; say sni, or take it out"
    first_port = config.broker_addresses.first_port
    if first_port > PORT_MAX:
        yield ("listen",), f"no port is left for brokers above {config.bound.port}; set first_port, or another port"
    for node_id in config.upstream.nodes:
        if first_port + node_id > PORT_MAX:
            port = first_port + node_id
            yield ("upstream", "nodes", str(node_id)), f"its port would be {port}, above {PORT_MAX}; lower first_port"


def _one_port(config: Config) -> Mistakes:
    if not config.client_tls.on:
        yield ("client_tls", "cert_file"), "needed with exposure sni: clients name their broker by TLS"
    if config.first_port is not None:
        yield ("first_port",), "set, but with exposure sni all brokers have one port; take it out"
    name, pattern = config.advertised_host, config.broker_names
    if not is_server_name(name):
        yield ("advertise",), f"needed with exposure sni: a DNS name with a dot, since TLS clients do not send {name!r}"
    if pattern is None:
        yield ("broker_names",), f"needed with exposure sni, for example broker-{NODE_ID}.{name}"
    elif pattern.count(NODE_ID) != 1 or not is_server_name(pattern.replace(NODE_ID, str(NODE_MAX))):
        yield (
            ("broker_names",),
            f"must be a DNS name with a dot and {NODE_ID} once, for example broker-{NODE_ID}.{name}",
        )
    elif _is_named_by(pattern, name):
        yield ("advertise",), f"is the name of a broker by {pattern}; give another one"


def _is_named_by(pattern: str, name: str) -> bool:
    before, _, after = pattern.lower().partition(NODE_ID)
    number = name.lower().removeprefix(before).removesuffix(after)
    return number.isdecimal() and f"{before}{number}{after}" == name.lower()


def _upstream(upstream: Upstream) -> Mistakes:
    if not upstream.bootstrap:
        yield ("upstream", "bootstrap"), "missing; give --bootstrap HOST:PORT[,HOST:PORT...]"
    yield from _upstream_tls(upstream.tls)
    yield from _sasl(upstream.sasl)


def _upstream_tls(tls: UpstreamTls) -> Mistakes:
    here = ("upstream", "tls")
    if not tls.on and (tls.ca_file or tls.cert_file or tls.key_file or tls.server_name or not tls.verify):
        yield (*here, "enabled"), "TLS is off, but other keys of upstream.tls are set; set it to true or take them out"
    yield from _pair(here, tls.cert_file, tls.key_file)
    for name in ("ca_file", "cert_file", "key_file"):
        yield from _readable((*here, name), getattr(tls, name))


def _audit(config: Config) -> Mistakes:
    if config.audit.file is None:
        return
    folder = Path(config.audit.file).resolve().parent
    if not folder.is_dir():
        yield ("audit", "file"), f"the folder {folder} does not exist"
    elif not os.access(folder, os.W_OK):
        yield ("audit", "file"), f"nothing may be written in the folder {folder}"


def _fleet(config: Config) -> Mistakes:
    peer, here = config.cluster.peer, ("cluster", "peer")
    if config.cluster.mode != "fleet":
        fleet_settings = [
            name for name in ("listen", "advertise", "secret", "secret_file") if getattr(peer, name) is not None
        ]
        fleet_settings += ["tls"] if peer.tls.is_set else []
        if fleet_settings:
            yield (*here, fleet_settings[0]), "set, but cluster.mode is single; say fleet, or take it out"
        return
    if peer.listen is None:
        yield (*here, "listen"), "needed in a fleet; give HOST:PORT, the address other proxies reach this one by"
    elif (peer.advertise or peer.listen).host in WILDCARDS:
        yield (
            (*here, "advertise"),
            f"needed: no proxy can dial {peer.listen.host}; give this proxy's own HOST:PORT",
        )
    yield from _peer_tls(peer.tls)
    yield from _readable((*here, "secret_file"), peer.secret_file)
    if peer.secret is not None and peer.secret_file is not None:
        yield (*here, "secret"), "secret_file is set too; keep one of them"
    elif peer.secret is not None or peer.secret_file is not None:
        yield from _secret(peer)
    elif not peer.insecure:
        yield (*here, "secret"), "needed in a fleet, or secret_file; only insecure: true allows proxies without one"


def _peer_tls(tls: PeerTls) -> Mistakes:
    here, files = ("cluster", "peer", "tls"), ("cert_file", "key_file", "ca_file")
    for name in files:
        if tls.is_set and getattr(tls, name) is None:
            yield (*here, name), f"needed; TLS between proxies takes all of {', '.join(files)}"
        yield from _readable((*here, name), getattr(tls, name))


def _secret(peer: PeerLinks) -> Mistakes:
    try:
        key = peer.key() or b""
    except OSError:
        return  # reported already
    if len(key) < SECRET_BYTES_MIN:
        name = "secret" if peer.secret is not None else "secret_file"
        yield ("cluster", "peer", name), f"too short; a secret has at least {SECRET_BYTES_MIN} characters"


def _client_tls(tls: ClientTls) -> Mistakes:
    here = ("client_tls",)
    yield from _pair(here, tls.cert_file, tls.key_file)
    if tls.client_ca_file and not tls.cert_file:
        yield (*here, "cert_file"), "needed to request certificates from clients; give the proxy's own"
    for name in ("cert_file", "key_file", "client_ca_file"):
        yield from _readable((*here, name), getattr(tls, name))


def _pair(here: Key, cert_file: str | None, key_file: str | None) -> Mistakes:
    if bool(cert_file) != bool(key_file):
        missing, other = ("key_file", "cert_file") if cert_file else ("cert_file", "key_file")
        yield (*here, missing), f"missing, {other} is set; a certificate is used together with its key"


def _sasl(sasl: UpstreamSasl) -> Mistakes:
    here = ("upstream", "sasl")
    if not sasl.on:
        if sasl.username or sasl.password or sasl.password_file:
            yield (*here, "mechanism"), "missing; say PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
        return
    if not sasl.username:
        yield (*here, "username"), "missing; the proxy's own principal at the brokers"
    if sasl.password is not None and sasl.password_file is not None:
        yield (*here, "password"), "password_file is set too; keep one of them"
    elif sasl.password is None and sasl.password_file is None:
        yield (*here, "password"), "missing; give it here or in password_file"
    yield from _readable((*here, "password_file"), sasl.password_file)


def _readable(key: Key, path: str | None) -> Mistakes:
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        yield key, f"cannot read {path}: {error.strerror}"


def _limits_together(limits: Limits) -> Mistakes:
    largest = max(limits.collected_bytes, limits.inspected_request_bytes, DECODED_BYTES * limits.served_request_bytes)
    if largest > limits.gathered_total_bytes:
        yield (
            ("limits", "gathered_total_bytes"),
            f"{limits.gathered_total_bytes} is less than one frame may take ({largest}: the largest of "
            "limits.collected_bytes, limits.inspected_request_bytes "
            f"and {DECODED_BYTES} x limits.served_request_bytes)",
        )
    if limits.local_answer_bytes > limits.local_answers_total_bytes:
        yield (
            ("limits", "local_answers_total_bytes"),
            f"{limits.local_answers_total_bytes} is less than limits.local_answer_bytes ({limits.local_answer_bytes}), "
            "so that no response would ever have room",
        )


def _features(config: Config) -> Mistakes:
    for name in type(config).model_fields:
        section = getattr(config, name)
        if isinstance(section, Section):
            for path, text in section.mistakes(is_fleet=config.is_shared):
                yield (name, *path), text
