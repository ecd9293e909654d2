"""The parts put together: where share groups live, routes, what keeps a connection alive."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.serving import composition, features
from kafka_share_proxy.app.serving.broker_listeners import BrokerListeners
from kafka_share_proxy.app.serving.composition import ServingParts, cluster_client_settings, keep_alive_query
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.tls_contexts import TlsContexts
from kafka_share_proxy.brokers.cluster_connection import BrokerVersions, ClusterClientSettings
from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.brokers.rights import Right, rights_of
from kafka_share_proxy.feature.feature import Platform, Stage
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions
from kafka_share_proxy.forwarding.dispatch.routes import Kind, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.wire.codec import prefixes, source
from kafka_share_proxy.wire.definitions import endpoints, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import Address

A, B = Address("a", 1), Address("b", 2)


class Timers:
    """A clock that is moved by hand; nothing here sets alarms that matter."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 0

    def call_at(self, deadline: float, callback: Any) -> Any:
        raise AssertionError("nothing is to be planned here")


@dataclass
class Plane:
    """Listeners, without sockets."""

    @property
    def ports(self) -> Plane:
        return self

    occupied_ports: set[int] = field(default_factory=set)
    listening: dict[int, tuple[int, Any]] = field(default_factory=dict)
    by_name: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def listen(self, node_id: int, host: str, port: int, targets: Any, name: str) -> int:
        if port in self.occupied_ports:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.listening[node_id] = (port, targets)
        return port

    def serve_by_name(self, node_id: int, name: str, targets: Any) -> None:
        self.by_name[node_id] = (name, targets)

    def close_listener(self, node_id: int) -> None:
        del (self.by_name if node_id in self.by_name else self.listening)[node_id]


class RecordedNotes:
    """Notes, kept."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: Any) -> None:
        self.events.append(event)


def config(**settings: Any) -> Config:
    return Config(**{"listen": "h:9092", "upstream": {"bootstrap": ["a:1"]}, **settings})


def parts(settings: Config, local: bool = True) -> ServingParts:
    """Everything but sockets."""
    settings = settings.model_copy(update={"share_groups": _placed(settings, local)})
    notes, timers = RecordedNotes(), Timers()
    listeners = BrokerListeners(settings, notes, timers.now)
    cluster_snapshot = snapshot({})
    services = shared_services.build(
        limits=Limits(),
        timers=timers,
        notes=notes,
        book=listeners.book,
        topology=ClusterMetadata(),
        versions=EffectiveVersions(features.offer(settings, cluster_snapshot)),
    )
    platform = Platform(
        services=services,
        settings=ClusterClientSettings(),
        client=OwnClientOfNobody,
        workers=InlineWorkers(),
        cluster=cluster_snapshot,
        is_displayed=True,
    )
    built = tuple(each.build(getattr(settings, each.section), platform) for each in features.FEATURES[:1])
    return ServingParts(settings, services, listeners, Plane(), built)  # type: ignore[arg-type]


def _placed(settings: Config, local: bool) -> ShareGroups:
    serve = settings.share_groups.serve if local else "upstream"
    return settings.share_groups.model_copy(update={"serve": serve})


def OwnClientOfNobody() -> Any:
    raise AssertionError("no request is to be sent here")


def versions(share_fetch: int = 2, level: int = 1) -> BrokerVersions:
    message = registry.message("ApiVersionsResponse")
    finalized = [message.FinalizedFeatureKey(name="share.version", max_version_level=level, min_version_level=0)]
    keys = [message.ApiVersion(api_key=78, min_version=1, max_version=share_fetch)]
    response = message(api_keys=keys, finalized_features=finalized)
    return BrokerVersions(ranges={78: (1, share_fetch)}, response=response)


def snapshot(
    brokers: dict[int, Address], reported: list[BrokerVersions] | None = None, silent: bool = False
) -> ClusterSnapshot:
    message = registry.message("MetadataResponse")
    broker_entries = [message.MetadataResponseBroker(node_id=n, host=a.host, port=a.port) for n, a in brokers.items()]
    return ClusterSnapshot(
        brokers=brokers,
        metadata=(message(brokers=broker_entries, topics=[], cluster_id="c"),),
        versions=dict(zip(brokers, reported or [versions()] * len(brokers), strict=True)),
        silent={9: "gone"} if silent else {},
    )


def test_brokers_that_begin_to_serve_share_groups_are_noticed_once() -> None:
    """Groups with state stay, so no restart is needed. The routes are built again, with a choice for each group."""
    serving_parts = parts(config(), local=True)
    serving_parts.open(snapshot({0: A}, [versions(level=0)]))
    rebuilt: list[str] = []
    (feature,) = serving_parts.features
    feature.on_apis(lambda: rebuilt.append(serving_parts.features[0].probe.details()["share_groups"]))  # type: ignore[arg-type,func-returns-value]
    serving_parts.on_cluster(snapshot({0: A}, [versions(level=0)]))
    assert (rebuilt, feature.apis[Stage.GROUPS][78].wants) == ([], None)
    for _ in range(2):
        serving_parts.on_cluster(snapshot({0: A}))
    assert rebuilt == ["proxy or brokers, by group"]
    assert serving_parts.services.notes.events.count("share-groups-of-brokers-noticed") == 1
    assert "share-groups-need-restart" not in serving_parts.services.notes.events
    assert feature.apis[Stage.GROUPS][78].wants is not None
    assert "share-groups-of-brokers-noticed" not in _after_a_silent_broker()


def test_brokers_that_no_longer_serve_share_groups_change_nothing_until_a_restart() -> None:
    """A group on the brokers would be created here once more."""
    serving_parts = parts(config(), local=True)
    serving_parts.open(snapshot({0: A}, [versions(level=0)]))
    for level in (1, 0, 0):
        serving_parts.on_cluster(snapshot({0: A}, [versions(level=level)]))
    assert serving_parts.services.notes.events.count("share-groups-need-restart") == 1
    assert serving_parts.state()["share_groups"] == "proxy or brokers, by group"


def _after_a_silent_broker() -> list[str]:
    serving_parts = parts(config(), local=True)
    serving_parts.open(snapshot({0: A}, [versions(level=0)]))
    serving_parts.on_cluster(snapshot({0: A}, silent=True))
    return serving_parts.services.notes.events


def test_the_planned_routes_are_those_of_a_running_proxy() -> None:
    """Share requests are served here, or forwarded, as decided."""
    assert composition.planned_routes(config(), snapshot({1: A}, [versions(level=0)]))[header(78, 2)].kind is Kind.LOCAL
    upstream = config(views={"serve": False})  # with views, requests that name one are looked for
    assert composition.planned_routes(upstream, snapshot({1: A}))[header(78, 2)].kind is Kind.RESPONSE


def test_routes_compile_nothing_before_the_first_request_of_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers of all versions take 0.25 s to compile, and a client sends one version of each request."""
    for name, function in vars(prefixes).items():
        if hasattr(function, "cache_clear") and function.__module__ == prefixes.__name__:
            monkeypatch.setattr(prefixes, name, cache(function.__wrapped__))
    monkeypatch.setattr(endpoints, "locator", cache(endpoints.locator.__wrapped__))
    compiled: list[str] = []

    def compile_and_note(text: str, name: str, *arguments: Any, **options: Any) -> Any:
        compiled.append(name)
        return compile(text, name, *arguments, **options)

    monkeypatch.setattr(source, "compile", compile_and_note, raising=False)
    routes = composition.planned_routes(config(), cluster_with_every_api())
    assert compiled == []
    routes[header(ApiKey.PRODUCE, 9)].serve_here(memoryview(b""))
    assert compiled == ["<ProduceRequest v9: read>"]


def test_each_route_that_inspects_requests_can_read_them() -> None:
    """A feature that names a field which a version lacks fails here, not at the first request of that version."""
    inspecting = [
        route
        for route in composition.planned_routes(config(), cluster_with_every_api()).values()
        if route.serve_here is not None
    ]
    assert len(inspecting) > 100
    for route in inspecting:
        assert route.serve_here(memoryview(b"")) in (True, False)


def cluster_with_every_api() -> ClusterSnapshot:
    everything = {key: registry.versions(key) for key in registry.API_KEYS}
    return snapshot({0: A})._replace(versions={0: BrokerVersions(ranges=everything, response=None)})


def test_produce_is_inspected_from_the_moment_a_view_is_known() -> None:
    """A client that sees the very first view may write to it with the next request: that must be refused like any later
    one.
    """
    reactor = Reactor(new_pump)
    settings = config(share_groups={"state": "memory"}, views={"state": "memory"})
    looked: list[bool] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            serving_parts = composition.compose(
                settings, reactor, RecordedNotes(), nursery, snapshot({0: A}), tls=TlsContexts(None, None, None)
            )
            looked.append(serving_parts.plane.routes[header(0, 9)].serve_here is not None)
            serving_parts.features[2].services.catalog.bind("__view.r2.t", Binding(b"v" * 16, b"b" * 16))
            looked.append(serving_parts.plane.routes[header(0, 9)].serve_here is not None)
            serving_parts.plane.close()
            nursery.cancel_scope.cancel()

    reactor.run(main)
    reactor.shut()
    assert looked == [False, True]


class Connection:
    """Connection with the methods that the request needs."""

    def __init__(self) -> None:
        self.slot_values: SlotValues = {}


def test_connections_are_kept_alive_by_a_request_for_the_last_right() -> None:
    """Heartbeat of a member that cannot exist, for the group the client was last judged by; else ApiVersions."""
    connection = Connection()
    assert keep_alive_query(connection) == (18, 0, b"")
    rights_of(connection).remember(Right.READ_GROUP, "g1", True, 1.0)
    rights_of(connection).remember(Right.READ_GROUP, "g2", True, 2.0)
    rights_of(connection).remember(Right.READ_TOPIC, "t", True, 3.0)
    key, version, body = keep_alive_query(connection)
    assert (key, registry.request(key, version).decode(body).group_id) == (ApiKey.HEARTBEAT, "g2")


def test_the_proxy_s_own_connections_follow_the_settings() -> None:
    """Identity, name to verify, limits."""
    sasl = {"mechanism": "PLAIN", "username": "u", "password": "p"}
    upstream = {"bootstrap": ["a:1"], "sasl": sasl, "tls": {"server_name": "n"}}
    client_settings = cluster_client_settings(config(upstream=upstream, limits={"dial_timeout_s": 3}), None)
    assert (client_settings.server_name, client_settings.dial_timeout_s) == ("n", 3)
    assert (client_settings.identity.username, client_settings.identity.password()) == ("u", "p")
    assert cluster_client_settings(config(), None).identity is None
