"""`check`: connect to the cluster and report what clients will see and what would not work, with the reasons.

How it works: `inspect` queries the cluster (Trio, no output), `listening` binds the addresses that `serve` would bind,
`judge` prints the findings as sentences (pure), `show` prints (rich), the summary first. An *obstacle* prevents the
proxy from working with these settings. A *warning* is about behaviour that may be unintended. A *remark* is
information.
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

from kafka_share_proxy.app.commands import check_listeners
from kafka_share_proxy.app.commands.check_listeners import Listening
from kafka_share_proxy.app.commands.terminal import cell, printable
from kafka_share_proxy.app.serving import features, open_files
from kafka_share_proxy.app.serving.composition import own_settings, planned_routes
from kafka_share_proxy.app.serving.open_files import Room
from kafka_share_proxy.app.settings import tls_contexts
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.hostports import PORT_MAX
from kafka_share_proxy.brokers.cluster_watch import SeenCluster
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.brokers.own_connection import BrokerVersions, OwnSettings, connection, mechanisms
from kafka_share_proxy.forwarding.dispatch import offered_versions as effective_versions
from kafka_share_proxy.forwarding.dispatch.offered_versions import Range
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, header
from kafka_share_proxy.sharegroups import serving_side, share_group_apis
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import Address

PASSING = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
"""Mechanisms whose tokens do not depend on the broker's address and therefore work through the proxy."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Responses of the cluster."""

    servers: dict[Address, str] = field(default_factory=dict)
    """Bootstrap server -> its problem; empty if there is none."""
    mechanisms: tuple[str, ...] = ()
    """SASL mechanisms of the listener; empty if it does not authenticate."""
    metadata: messages.MetadataResponse | None = None
    brokers: Mapping[int, Address] = field(default_factory=dict)
    versions: dict[int, BrokerVersions] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    """Brokers that could not be queried, with the reason."""
    identity_trouble: str = ""
    """Reason why the proxy's own identity is not sufficient for Metadata."""
    of_features: dict[str, Any] = field(default_factory=dict)
    """Findings of each feature's own check, by its name; empty if there is no identity to query with."""
    room: Room | None = None
    """Number of clients that the limit of open files allows, if the proxy runs with the same limit as this command."""
    listening: tuple[Listening, ...] = ()
    """Addresses that `serve` would listen on, and whether they can be bound."""

    @property
    def cluster(self) -> SeenCluster:
        """The cluster as `serve` would see it."""
        metadata = () if self.metadata is None else (self.metadata,)
        return SeenCluster(brokers=self.brokers, metadata=metadata, versions=self.versions, silent=self.silent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Conclusions from the findings."""

    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]
    serve_share: bool
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
    settings = own_settings(config, tls_contexts.towards_brokers(config.upstream.tls))
    tls_contexts.towards_clients(config.client_tls)
    tls_contexts.between_proxies(config.cluster.peer.tls)
    found = trio.run(inspect, config, settings)
    found.room = open_files.look(config.named_limits.connections)
    found.listening = check_listeners.try_all(config, found.brokers)
    verdict = judge(config, found)
    show(config, found, verdict, Console(), apis=apis)
    return not verdict.obstacles


async def inspect(config: Config, settings: OwnSettings) -> Found:
    """Query every bootstrap server and every broker. Failures of servers are recorded, not raised."""
    found = Found()
    own = OwnClient(config.upstream.bootstrap, settings)
    await _request_servers(config, own, found)
    if all(found.servers.values()):
        return found
    await _request_brokers(config, own, found)
    await _request_versions(own, found)
    if found.metadata is not None:
        await _request_of_features(config, own, found)
    await own.aclose()
    return found


async def _request_servers(config: Config, own: OwnClient, found: Found) -> None:
    """Query all bootstrap servers concurrently, so that several time-outs do not add up."""
    found.servers = dict.fromkeys(config.upstream.bootstrap, "")

    async def send_request(address: Address) -> None:
        found.servers[address] = await _trouble_with(own, address, found)

    async with trio.open_nursery() as nursery:
        for address in found.servers:
            nursery.start_soon(send_request, address)


async def _trouble_with(own: OwnClient, address: Address, found: Found) -> str:
    bare = own.bare_settings()
    try:
        async with connection(address, bare) as opened:
            found.mechanisms = await mechanisms(opened) or found.mechanisms
    except (UpstreamLost, RemoteProtocolError) as error:
        return str(error)
    return ""


async def _request_brokers(config: Config, own: OwnClient, found: Found) -> None:
    try:
        found.metadata, _ = await own.metadata(features.decisive_topics())
    except ProxyError as error:
        found.identity_trouble, found.brokers = str(error), config.upstream.nodes
        return
    found.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in found.metadata.brokers or ()}


async def _request_versions(own: OwnClient, found: Found) -> None:
    working = [address for address, trouble in found.servers.items() if not trouble]
    targets = dict(found.brokers) or {-1 - index: address for index, address in enumerate(working)}

    async def send_request(node_id: int, address: Address) -> None:
        try:
            found.versions[node_id] = await own.versions_of(address)
        except ProxyError as error:
            found.silent[node_id] = str(error)

    async with trio.open_nursery() as nursery:
        for node_id, address in targets.items():
            nursery.start_soon(send_request, node_id, address)


async def _request_of_features(config: Config, own: OwnClient, found: Found) -> None:
    """Let each feature query what it needs. A server without a response is reported among the others."""
    with suppress(ProxyError):
        for check in features.checks(config):
            found.of_features[check.name] = await check.query(own, found.cluster)


def judge(config: Config, found: Found) -> Verdict:
    """Return obstacles, warnings and remarks as sentences."""
    local, _ = serving_side.decide(config.share_groups, found.cluster)
    reports = [each.report(found.of_features.get(each.name), found.cluster) for each in features.checks(config)]
    offered = features.offer(config, found.cluster)
    common = effective_versions.common(told.ranges for told in found.versions.values())
    obstacles, remarks = list[str](), list[str]()
    _judge_room(config, found, obstacles, remarks)
    if all(found.servers.values()):
        obstacles += [f"no bootstrap server can be used: {trouble}" for trouble in found.servers.values()]
    else:
        remarks += [f"a bootstrap server cannot be used: {trouble}" for trouble in found.servers.values() if trouble]
        obstacles += effective_versions.shortcomings(common, offered)
        obstacles += _ports(config, found)
        _judge_identities(config, found, obstacles, remarks)
        obstacles += chain.from_iterable(report.obstacles for report in reports)
        remarks += chain.from_iterable(report.remarks for report in reports)
        remarks += [f"broker {node_id} does not answer: {why}" for node_id, why in sorted(found.silent.items())]
    obstacles += check_listeners.mistakes(config, found.listening, found.brokers)
    return Verdict(
        obstacles=tuple(dict.fromkeys(obstacles)),
        warnings=(*_warnings(config, found), *chain.from_iterable(report.risks for report in reports)),
        remarks=tuple(dict.fromkeys(remarks)),
        serve_share=local,
        lines=tuple(report.line for report in reports),
        common=common,
        offered=effective_versions.effective(common, offered),
    )


def _warnings(config: Config, found: Found) -> Iterator[str]:
    sasl = config.upstream.sasl
    if sasl.on and not found.mechanisms and not all(found.servers.values()):
        yield (
            "upstream.sasl is set, but the brokers do not ask for authentication on these listeners: everybody is "
            "anonymous there, the proxy as well; is this the listener you meant?"
        )
    elif sasl.mechanism == "PLAIN" and not config.upstream.tls.on:
        yield ("the password of upstream.sasl goes to the brokers unencrypted: set upstream.tls, or use SCRAM-SHA-512")
    if "PLAIN" in found.mechanisms and not config.client_tls.on:
        yield "clients that authenticate by PLAIN send their passwords unencrypted to the proxy: set client_tls"


def _ports(config: Config, found: Found) -> list[str]:
    above = {node_id: config.first_broker_port + node_id for node_id in found.brokers}
    return [
        f"broker {node_id} would get port {port}, and ports end at {PORT_MAX}: set a lower first_port"
        for node_id, port in sorted(above.items())
        if port > PORT_MAX
    ]


def _judge_room(config: Config, found: Found, obstacles: list[str], remarks: list[str]) -> None:
    lacks = "" if found.room is None else open_files.shortage(found.room, config.named_limits.connections)
    if lacks and found.room is not None:
        (remarks if found.room.connections else obstacles).append(lacks)


def _judge_identities(config: Config, found: Found, obstacles: list[str], remarks: list[str]) -> None:
    if found.mechanisms and not PASSING.intersection(found.mechanisms):
        obstacles.append(
            f"clients can authenticate only by {', '.join(found.mechanisms)}, which is bound to the broker's own host "
            f"name and cannot pass through a proxy; enable one of {', '.join(sorted(PASSING))} on the brokers"
        )
    elif hindered := sorted(set(found.mechanisms) - PASSING):
        remarks.append(f"{', '.join(hindered)} cannot pass through a proxy; clients use another mechanism")
    if config.upstream.tls.cert_file:
        remarks.append(
            "brokers see the proxy's certificate for every client: rights go by SASL, or are the same for all"
        )
    if config.client_tls.client_ca_file:
        remarks.append("certificates of clients are verified here, brokers never see them: rights go by SASL upstream")
    if not found.identity_trouble:
        return
    if config.upstream.sasl.on:
        obstacles.append(f"the proxy's own identity does not work: {found.identity_trouble}")
    elif config.upstream.nodes:
        remarks.append("the proxy has no identity of its own (upstream.sasl.*): brokers are those of upstream.nodes")
    else:
        obstacles.append(
            "brokers want clients to authenticate and the proxy has no identity of its own, so it cannot know the "
            "brokers: set upstream.sasl.*, or name them in upstream.nodes"
        )


def show(config: Config, found: Found, verdict: Verdict, console: Console, *, apis: bool = False) -> None:
    """Print the verdict for people: the summary first, long lists last."""
    style = "bold red" if verdict.obstacles else "green"
    console.print(_summary(config, verdict), style=style, soft_wrap=True, markup=False)
    for kind, style, texts in (
        ("would not work", "bold red", verdict.obstacles),
        ("warning", "yellow", verdict.warnings),
        ("note", "", verdict.remarks),
    ):
        for text in texts:
            console.print(printable(f"{kind}: {text}"), style=style, highlight=False, soft_wrap=True, markup=False)
    if found.listening:
        console.print(_listening(found))
    if all(found.servers.values()):
        return
    if found.brokers:
        console.print(_brokers(config, found))
    for line in _features(found, verdict):
        console.print(printable(line), soft_wrap=True, highlight=False, markup=False)
    console.print(printable(_identity(config, found)), markup=False)
    if found.room is not None:
        room = found.room
        console.print(f"Client connections: up to {room.connections} (limit of open files: {room.files}).")
    if apis:
        console.print(_apis(config, found, verdict))
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
    return f"This would work{also}. Clients bootstrap from {Address(config.advertised_host, config.bound.port)}."


def _features(found: Found, verdict: Verdict) -> Sequence[str]:
    """Return which side serves each feature, or that it will be off, consistent with the obstacles and notes above."""
    if not found.versions:
        return ["Share groups, individual commits and views: not known, because no broker could be queried."]
    return verdict.lines


def _listening(found: Found) -> Table:
    table = Table(title="Listeners")
    for column in ("for", "address", "verdict"):
        table.add_column(column)
    for each in found.listening:
        table.add_row(*map(cell, (each.purpose, each.address, each.trouble or "free")))
    return table


def _identity(config: Config, found: Found) -> str:
    clients = f"clients authenticate by {', '.join(found.mechanisms)}" if found.mechanisms else "clients are anonymous"
    own = f"{config.upstream.sasl.username} ({config.upstream.sasl.mechanism})" if config.upstream.sasl.on else "none"
    return f"Identities: {clients}; the proxy's own: {own}."


def _brokers(config: Config, found: Found) -> Table:
    table = Table(title="Brokers")
    for column in ("id", "upstream", "clients dial", "rack", "state"):
        table.add_column(column)
    racks = {broker.node_id: broker.rack or "" for broker in (found.metadata.brokers if found.metadata else ())}
    for node_id, address in sorted(found.brokers.items()):
        port = config.first_broker_port + node_id
        ours = str(Address(config.advertised_host, port)) if port <= PORT_MAX else "no port"
        state = found.silent.get(node_id, "answers")
        table.add_row(*map(cell, (node_id, address, ours, racks.get(node_id, ""), state)))
    return table


def _apis(config: Config, found: Found, verdict: Verdict) -> Table:
    table = Table(title="API versions", caption="both: the proxy for share groups, the brokers for everything else")
    for column in ("key", "API", "brokers", "clients see", "answered by"):
        table.add_column(column)
    routes = planned_routes(config, found.cluster)
    for key in sorted({*verdict.common, *verdict.offered}):
        name = registry.API_KEYS.get(key, "(not known here)")
        offered = verdict.offered.get(key)
        by = "" if offered is None else _responded_by(routes[header(key, offered[1])])
        table.add_row(*map(cell, (key, name, _range(verdict.common.get(key)), _range(offered), by)))
    return table


def _responded_by(route: Route) -> str:
    if route.kind is Kind.LOCAL and route.key in share_group_apis.OFFER.apis:
        return "proxy"
    if route.kind in (Kind.LOCAL, Kind.INSPECT):
        return "both"
    return "brokers" if route.rewrite is None else "brokers, rewritten"


def _range(versions: Sequence[int] | None) -> str:
    return "-" if versions is None else f"{versions[0]}-{versions[1]}"
