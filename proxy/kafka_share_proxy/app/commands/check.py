"""`check`: connect to the cluster and report what clients will see and what would not work, with the reasons.

An *obstacle* prevents the proxy from working with these settings. A *warning* is about behaviour that may be
unintended. A *remark* is information.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import trio
from rich.console import Console
from rich.table import Table

from kafka_share_proxy.app.commands import at_brokers, check_certificate, check_listeners
from kafka_share_proxy.app.commands.check_certificate import CertificateNames
from kafka_share_proxy.app.commands.check_listeners import Listening
from kafka_share_proxy.app.commands.terminal import cell, printable
from kafka_share_proxy.app.serving import features, open_files
from kafka_share_proxy.app.serving.composition import planned_routes
from kafka_share_proxy.app.serving.open_files import ClientCapacity
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.hostports import PORT_MAX
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import BrokerVersions, connection, mechanisms
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.forwarding.dispatch import offered_versions as effective_versions
from kafka_share_proxy.forwarding.dispatch.offered_versions import Offer, Range
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, header
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

PASSING = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
"""Mechanisms whose tokens do not depend on the broker's address and therefore work through the proxy."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """Responses of the cluster."""

    servers: dict[Address, str] = field(default_factory=dict)
    """Empty if the server has no problem."""
    mechanisms: tuple[str, ...] = ()
    """Empty if the listener does not authenticate."""
    metadata: messages.MetadataResponse | None = None
    brokers: Mapping[int, Address] = field(default_factory=dict)
    versions: dict[int, BrokerVersions] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    """Brokers that could not be queried, with the reason."""
    identity_trouble: str = ""
    """Reason why the proxy's own identity is not sufficient for Metadata."""
    of_features: dict[str, Any] = field(default_factory=dict)
    """Findings of each feature's own check."""
    capacity: ClientCapacity | None = None
    """Number of clients that the limit of open files allows, if the proxy runs with the same limit as this command."""
    listening: tuple[Listening, ...] = ()
    certificate: CertificateNames | None = None
    """Names in the proxy's certificate. None without TLS for clients."""

    @property
    def cluster(self) -> ClusterSnapshot:
        """The cluster as `serve` would see it."""
        metadata = () if self.metadata is None else (self.metadata,)
        return ClusterSnapshot(brokers=self.brokers, metadata=metadata, versions=self.versions, silent=self.silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Conclusions from the findings."""

    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]
    lines: tuple[str, ...]
    """How each feature is served, in one sentence each."""
    common: Mapping[int, Range]
    """API key -> versions that every broker serves."""
    offered: Mapping[int, Range]
    """API key -> versions offered to clients."""


def run(config: Config, *, apis: bool = False) -> bool:
    """Query, judge and print. Return True if the proxy would work. `apis`: also print the versions of every API.

    Raises:
        ConfigError: TLS files are invalid.
    """
    own = at_brokers.cluster_client(config)
    tls_contexts.towards_clients(config.client_tls)
    tls_contexts.between_proxies(config.cluster.peer.tls)
    findings = trio.run(inspect, config, own)
    findings.capacity = open_files.expected_capacity(config.named_limits.connections)
    findings.listening = check_listeners.try_all(config, findings.brokers)
    findings.certificate = check_certificate.coverage(config, findings.brokers)
    verdict = judge(config, findings)
    show(config, findings, verdict, Console(), apis=apis)
    return not verdict.obstacles


async def inspect(config: Config, own: ClusterClient) -> Findings:
    """Query every server and broker. Failures of servers are recorded, not raised."""
    findings = Findings()
    await _request_servers(config, own, findings)
    if all(findings.servers.values()):
        return findings
    await _request_brokers(config, own, findings)
    await _request_versions(own, findings)
    if findings.metadata is not None:
        await _request_of_features(config, own, findings)
    await own.aclose()
    return findings


async def _request_servers(config: Config, own: ClusterClient, findings: Findings) -> None:
    """Query all bootstrap servers concurrently: time-outs must not add up."""
    findings.servers = dict.fromkeys(config.upstream.bootstrap, "")

    async def send_request(address: Address) -> None:
        findings.servers[address] = await _trouble_with(own, address, findings)

    async with trio.open_nursery() as nursery:
        for address in findings.servers:
            nursery.start_soon(send_request, address)


async def _trouble_with(own: ClusterClient, address: Address, findings: Findings) -> str:
    bare = own.bare_settings()
    try:
        async with connection(address, bare) as opened:
            findings.mechanisms = await mechanisms(opened) or findings.mechanisms
    except (UpstreamLost, RemoteProtocolError) as error:
        return str(error)
    return ""


async def _request_brokers(config: Config, own: ClusterClient, findings: Findings) -> None:
    try:
        findings.metadata, _ = await own.metadata(features.decisive_topics())
    except ProxyError as error:
        findings.identity_trouble, findings.brokers = str(error), config.upstream.nodes
        return
    findings.brokers = own.broker_addresses(findings.metadata)


async def _request_versions(own: ClusterClient, findings: Findings) -> None:
    working = [address for address, trouble in findings.servers.items() if not trouble]
    targets = dict(findings.brokers) or {-1 - index: address for index, address in enumerate(working)}

    async def send_request(node_id: int, address: Address) -> None:
        try:
            findings.versions[node_id] = await own.versions_of(address)
        except ProxyError as error:
            findings.silent[node_id] = str(error)

    async with trio.open_nursery() as nursery:
        for node_id, address in targets.items():
            nursery.start_soon(send_request, node_id, address)


async def _request_of_features(config: Config, own: ClusterClient, findings: Findings) -> None:
    """Let each feature query what it needs. A server without a response is reported among the others."""
    with suppress(ProxyError):
        for check in features.checks(config):
            findings.of_features[check.name] = await check.query(own, findings.cluster)


def judge(config: Config, findings: Findings) -> Verdict:
    """Return obstacles, warnings and remarks as sentences."""
    reports = [each.report(findings.of_features.get(each.name), findings.cluster) for each in features.checks(config)]
    offered = features.offer(config, findings.cluster)
    common = effective_versions.common(each_version.ranges for each_version in findings.versions.values())
    obstacles, remarks = list[str](), list[str]()
    _judge_capacity(config, findings, obstacles, remarks)
    if all(findings.servers.values()):
        obstacles += [f"no bootstrap server can be used: {trouble}" for trouble in findings.servers.values()]
    else:
        remarks += [f"a bootstrap server cannot be used: {trouble}" for trouble in findings.servers.values() if trouble]
        obstacles += effective_versions.shortcomings(common, offered)
        obstacles += _ports(config, findings)
        _judge_identities(config, findings, obstacles, remarks)
        obstacles += chain.from_iterable(report.obstacles for report in reports)
        remarks += chain.from_iterable(report.remarks for report in reports)
        remarks += [f"broker {node_id} does not respond: {why}" for node_id, why in sorted(findings.silent.items())]
    obstacles += check_listeners.mistakes(config, findings.listening, findings.brokers)
    remarks += check_certificate.remarks(config, findings.certificate)
    return Verdict(
        obstacles=tuple(dict.fromkeys(obstacles)),
        warnings=(*_warnings(config, findings), *chain.from_iterable(report.risks for report in reports)),
        remarks=tuple(dict.fromkeys(remarks)),
        lines=tuple(report.line for report in reports),
        common=common,
        offered=effective_versions.effective(common, offered),
    )


def _warnings(config: Config, findings: Findings) -> Iterator[str]:
    yield from check_certificate.mistakes(config, findings.certificate)
    sasl = config.upstream.sasl
    if sasl.on and not findings.mechanisms and not all(findings.servers.values()):
        yield (
            "upstream.sasl is set, but the brokers do not require authentication on these listeners: every client is "
            "anonymous there, the proxy as well; is this the listener you meant?"
        )
    elif sasl.mechanism == "PLAIN" and not config.upstream.tls.on:
        yield ("the password of upstream.sasl goes to the brokers unencrypted: set upstream.tls, or use SCRAM-SHA-512")
    if "PLAIN" in findings.mechanisms and not config.client_tls.on:
        yield "clients that authenticate by PLAIN send their passwords unencrypted to the proxy: set client_tls"


def _ports(config: Config, findings: Findings) -> list[str]:
    addresses = config.broker_addresses
    return [
        f"broker {node_id} would get port {addresses.first_port + node_id}, and ports end at {PORT_MAX}: set a lower "
        "first_port"
        for node_id in sorted(findings.brokers)
        if addresses.of(node_id) is None
    ]


def _judge_capacity(config: Config, findings: Findings, obstacles: list[str], remarks: list[str]) -> None:
    lacks = "" if findings.capacity is None else open_files.shortage(findings.capacity, config.named_limits.connections)
    if lacks and findings.capacity is not None:
        (remarks if findings.capacity.connections else obstacles).append(lacks)


def _judge_identities(config: Config, findings: Findings, obstacles: list[str], remarks: list[str]) -> None:
    if findings.mechanisms and not PASSING.intersection(findings.mechanisms):
        obstacles.append(
            f"clients can authenticate only by {', '.join(findings.mechanisms)}, which is bound to the broker's own "
            f"host name and cannot pass through a proxy; enable one of {', '.join(sorted(PASSING))} on the brokers"
        )
    elif hindered := sorted(set(findings.mechanisms) - PASSING):
        remarks.append(f"{', '.join(hindered)} cannot pass through a proxy; clients use another mechanism")
    if config.upstream.tls.cert_file:
        remarks.append(
            "brokers see the proxy's certificate for every client: rights go by SASL, or are the same for all"
        )
    if config.client_tls.client_ca_file:
        remarks.append("certificates of clients are verified here, brokers never see them: rights go by SASL upstream")
    if not findings.identity_trouble:
        return
    if config.upstream.sasl.on:
        obstacles.append(f"the proxy's own identity does not work: {findings.identity_trouble}")
    elif config.upstream.nodes:
        remarks.append("the proxy has no identity of its own (upstream.sasl.*): brokers are those of upstream.nodes")
    else:
        obstacles.append(
            "brokers want clients to authenticate and the proxy has no identity of its own, so it cannot know the "
            "brokers: set upstream.sasl.*, or name them in upstream.nodes"
        )


def show(config: Config, findings: Findings, verdict: Verdict, console: Console, *, apis: bool = False) -> None:
    style = "bold red" if verdict.obstacles else "green"
    console.print(_summary(config, verdict), style=style, soft_wrap=True, markup=False)
    for kind, style, texts in (
        ("would not work", "bold red", verdict.obstacles),
        ("warning", "yellow", verdict.warnings),
        ("note", "", verdict.remarks),
    ):
        for text in texts:
            console.print(printable(f"{kind}: {text}"), style=style, highlight=False, soft_wrap=True, markup=False)
    if findings.listening:
        console.print(_listening(findings))
    if all(findings.servers.values()):
        return
    if findings.brokers:
        console.print(_brokers(config, findings))
    for line in _features(config, findings, verdict):
        console.print(printable(line), soft_wrap=True, highlight=False, markup=False)
    console.print(printable(_identity(config, findings)), markup=False)
    if findings.capacity is not None:
        capacity = findings.capacity
        console.print(f"Client connections: up to {capacity.connections} (limit of open files: {capacity.files}).")
    if apis:
        console.print(_apis(config, findings, verdict))
    else:
        console.print("The versions of every API: --apis.")


def _summary(config: Config, verdict: Verdict) -> str:
    counts = [
        f"{len(texts)} {word}{'s' if len(texts) > 1 else ''}"
        for texts, word in ((verdict.warnings, "warning"), (verdict.remarks, "note"))
        if texts
    ]
    also = f" ({', '.join(counts)})" if counts else ""
    if verdict.obstacles:
        return f"This would not work, for {len(verdict.obstacles)} reason{'s' * (len(verdict.obstacles) > 1)}{also}."
    return f"This would work{also}. Clients bootstrap from {config.bootstrap_address}."


def _features(config: Config, findings: Findings, verdict: Verdict) -> Sequence[str]:
    """Return which side serves each feature, or that it will be off."""
    if not findings.versions:
        return [f"{_feature_names(config).capitalize()}: not known, because no broker could be queried."]
    return verdict.lines


def _feature_names(config: Config) -> str:
    names = [check.name for check in features.checks(config)]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _listening(findings: Findings) -> Table:
    table = Table(title="Listeners")
    for column in ("for", "address", "verdict"):
        table.add_column(column)
    for each in findings.listening:
        table.add_row(*map(cell, (each.purpose, each.address, each.trouble or "free")))
    return table


def _identity(config: Config, findings: Findings) -> str:
    clients = (
        f"clients authenticate by {', '.join(findings.mechanisms)}" if findings.mechanisms else "clients are anonymous"
    )
    own = f"{config.upstream.sasl.username} ({config.upstream.sasl.mechanism})" if config.upstream.sasl.on else "none"
    return f"Identities: {clients}; the proxy's own: {own}."


def _brokers(config: Config, findings: Findings) -> Table:
    table = Table(title="Brokers")
    for column in ("id", "upstream", "clients dial", "rack", "state"):
        table.add_column(column)
    racks = {broker.node_id: broker.rack or "" for broker in (findings.metadata.brokers if findings.metadata else ())}
    for node_id, address in sorted(findings.brokers.items()):
        client_address = config.broker_addresses.of(node_id) or "no port"
        state = findings.silent.get(node_id, "answers")
        table.add_row(*map(cell, (node_id, address, client_address, racks.get(node_id, ""), state)))
    return table


def _apis(config: Config, findings: Findings, verdict: Verdict) -> Table:
    caption = f"both: the proxy for {_feature_names(config)}, the brokers for everything else"
    table = Table(title="API versions", caption=caption)
    for column in ("key", "API", "brokers", "clients see", "answered by"):
        table.add_column(column)
    routes, offer = planned_routes(config, findings.cluster), features.offer(config, findings.cluster)
    for key in sorted({*verdict.common, *verdict.offered}):
        name = registry.API_KEYS.get(key, "(not known here)")
        offered = verdict.offered.get(key)
        by = "" if offered is None else _responded_by(routes[header(key, offered[1])], offer)
        table.add_row(*map(cell, (key, name, _range(verdict.common.get(key)), _range(offered), by)))
    return table


def _responded_by(route: Route, offer: Offer) -> str:
    if route.kind is Kind.LOCAL and offer.is_served_here(route.key):
        return "proxy"
    if route.kind in (Kind.LOCAL, Kind.INSPECT):
        return "both"
    return "brokers" if route.rewrite is None else "brokers, rewritten"


def _range(versions: Sequence[int] | None) -> str:
    return "-" if versions is None else f"{versions[0]}-{versions[1]}"
