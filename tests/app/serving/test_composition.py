"""The parts put together: where share groups live, listeners that follow the cluster, what keeps a connection alive."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.serving import composition
from kafka_share_proxy.app.serving.composition import (
    ServingParts,
    decide_share,
    keep_alive_query,
    own_settings,
    share_options,
)
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_view import ClusterView
from kafka_share_proxy.brokers.cluster_watch import SeenCluster
from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.brokers.own_connection import BrokerVersions
from kafka_share_proxy.brokers.rights import Right, rights_of
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, header
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.sharegroups import services as apis_services
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.services import ShareOptions
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ConfigError
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address, Limits

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

    taken: set[int] = field(default_factory=set)
    listening: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def listen(self, node_id: int, host: str, port: int, targets: Any) -> int:
        if port in self.taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.listening[node_id] = (port, targets)
        return port

    def close_listener(self, node_id: int) -> None:
        del self.listening[node_id]


class Said:
    """Notes, kept."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: Any) -> None:
        self.events.append(event)


def config(**settings: Any) -> Config:
    return Config(**{"listen": "h:9092", "upstream": {"bootstrap": ["a:1"]}, **settings})


def parts(settings: Config, local: bool = True) -> ServingParts:
    """Everything but sockets."""
    holder: list[ServingParts] = []
    book = AddressBook(settings.first_broker_port, settings.advertised_host, lambda *new: holder[0].bind(*new))
    notes = Said()
    services = apis_services.build(
        limits=Limits(),
        share_limits=settings.share_groups.limits,
        options=ShareOptions(),
        timers=Timers(),
        notes=notes,
        book=book,
        topology=ClusterView(),
        versions=EffectiveVersions(Offer((share_group_apis.OFFER,) if local else ())),
        journal=MemoryJournal(),
        serve_share=local,
    )
    holder.append(ServingParts(settings, notes, services, Plane(), "because"))
    return holder[0]


def versions(share_fetch: int = 2, level: int = 1) -> BrokerVersions:
    message = registry.message("ApiVersionsResponse")
    finalized = [message.FinalizedFeatureKey(name="share.version", max_version_level=level, min_version_level=0)]
    keys = [message.ApiVersion(api_key=78, min_version=1, max_version=share_fetch)]
    response = message(api_keys=keys, finalized_features=finalized)
    return BrokerVersions(ranges={78: (1, share_fetch)}, response=response)


def sight(brokers: dict[int, Address], told: list[BrokerVersions] | None = None, silent: bool = False) -> SeenCluster:
    message = registry.message("MetadataResponse")
    named = [message.MetadataResponseBroker(node_id=n, host=a.host, port=a.port) for n, a in brokers.items()]
    return SeenCluster(
        brokers=brokers,
        metadata=(message(brokers=named, topics=[], cluster_id="c"),),
        versions=dict(zip(brokers, told or [versions()] * len(brokers), strict=True)),
        silent={9: "gone"} if silent else {},
    )


@pytest.mark.parametrize(
    ("serve", "told", "local"),
    [
        ("auto", [versions(), versions()], False),
        ("auto", [versions(), versions(share_fetch=1)], True),
        ("auto", [versions(), versions(level=0)], True),
        ("local", [versions(), versions()], True),
        ("upstream", [versions(level=0), versions(level=0)], False),
    ],
)
def test_share_groups_live_upstream_only_if_every_broker_serves_them(
    serve: str, told: list[BrokerVersions], local: bool
) -> None:
    """Unless the setting says so."""
    decided, reason = decide_share(config(share_groups={"serve": serve}), sight({1: A, 2: B}, told))
    assert decided == local
    assert reason


def test_state_that_lives_here_stays_where_brokers_have_share_groups() -> None:
    """auto looks for its topic: where it is there, groups are chosen one by one."""
    seen = sight({1: A})
    topic = registry.message("MetadataResponse").MetadataResponseTopic
    for code, local in ((0, True), (3, False), (29, False)):
        seen.metadata[0].topics = [topic(name="__proxy_share_state", error_code=code)]
        assert decide_share(config(), seen)[0] is local
        assert decide_share(config(share_groups={"serve": "upstream"}), seen)[0] is False
    assert composition.share_rules(config(), seen).are_mixed


def test_rules_by_group_that_send_some_here_have_them_served_here() -> None:
    """Regardless of the rule for all other groups."""
    rule = [{"groups": "a*", "serve": "local"}]
    for serve in ("auto", "upstream"):
        share_groups = {"serve": serve, "serve_by_group": rule}
        assert decide_share(config(share_groups=share_groups), sight({1: A}))[0]
        assert composition.share_rules(config(share_groups=share_groups), sight({1: A})).are_mixed
    here = config(share_groups={"serve": "local", "serve_by_group": rule})
    assert not composition.share_rules(here, sight({1: A})).are_mixed


def test_fleet_takes_no_choice_that_hangs_on_who_holds_a_group() -> None:
    """A group whose owner is not to be reached must not pass for one of the brokers'."""
    cluster = {"mode": "fleet", "peer": {"listen": "127.0.0.1:1", "secret": "sixteen bytes ok"}}
    with pytest.raises(ConfigError, match=r"share_groups\.serve: local"):
        composition.checked_rules(config(cluster=cluster), sight({1: A}), True)
    for settings in ({"cluster": cluster, "share_groups": {"serve": "local"}}, {}):
        assert composition.checked_rules(config(**settings), sight({1: A}), True)
    assert composition.checked_rules(config(cluster=cluster), sight({1: A}), False)


def test_nobody_s_versions_are_no_reason_to_forward() -> None:
    """A cluster without reported versions has no share groups to hide."""
    assert decide_share(config(), sight({}))[0]


def test_opening_binds_brokers_before_the_bootstrap_listener() -> None:
    """A client that bootstraps gets only ports that are open."""
    made = parts(config())
    made.open(sight({0: A, 3: B}))
    assert list(made.plane.listening) == [0, 3, UNKNOWN_NODE]
    assert {node: port for node, (port, _) in made.plane.listening.items()} == {0: 9093, 3: 9096, UNKNOWN_NODE: 9092}
    assert made.plane.listening[3][1]() == [B]
    assert made.plane.listening[UNKNOWN_NODE][1]() == [A]
    assert made.state()["brokers"] == {"0": "h:9093", "3": "h:9096"}


def test_a_port_that_cannot_be_had_at_start_is_an_error() -> None:
    """Taken, or above the last port."""
    made = parts(config())
    made.plane.taken.add(9096)
    with pytest.raises(OSError, match=r"broker 3 has no listener: Address already in use"):
        made.open(sight({0: A, 3: B}))
    with pytest.raises(OSError, match="65535"):
        parts(config()).open(sight({60_000: A}))


def test_later_a_broker_without_port_is_left_out_and_tried_again() -> None:
    """The other brokers are served; the error is logged once, not at every check."""
    made = parts(config())
    made.open(sight({0: A}))
    made.plane.taken.add(9094)
    for _ in range(3):
        made.seen(sight({0: A, 1: B}))
    assert made.notes.events.count("broker-not-bound") == 1
    assert made.state()["left_out"] == {"1": "Address already in use"}
    made.plane.taken.clear()
    made.seen(sight({0: A, 1: B}))
    assert (sorted(made.plane.listening), made.state()["left_out"]) == ([UNKNOWN_NODE, 0, 1], {})


def test_a_broker_that_moves_keeps_its_listener() -> None:
    """New connections go to the new address."""
    made = parts(config())
    made.open(sight({0: A}))
    made.seen(sight({0: B}))
    assert made.plane.listening[0][1]() == [B]
    assert made.notes.events.count("broker-listening") == 1


def test_a_vanished_broker_keeps_its_listener_for_the_grace_time() -> None:
    """A broker that restarts in time is not noticed by clients; one that returns later gets its port again."""
    made = parts(config(vanished_broker_grace_s=60))
    made.open(sight({0: A, 1: B}))
    timers = made.services.timers
    made.seen(sight({0: A}))
    timers.time = 59
    made.seen(sight({0: A}))
    assert 1 in made.plane.listening
    made.seen(sight({0: A, 1: B}))
    timers.time = 100
    made.seen(sight({0: A}))
    assert 1 in made.plane.listening
    timers.time = 160
    made.seen(sight({0: A}))
    assert 1 not in made.plane.listening
    assert made.notes.events.count("broker-vanished") == 2
    made.seen(sight({0: A, 1: B}))
    assert made.plane.listening[1][0] == 9094


def test_a_look_without_identity_lets_no_broker_go() -> None:
    """Brokers that clients' own responses named are not known to the proxy otherwise."""
    made = parts(config(vanished_broker_grace_s=1))
    made.open(sight({0: A}))
    made.services.timers.time = 100
    for _ in range(2):
        made.seen(SeenCluster(brokers={}, metadata=(), versions={}, silent={}))
        made.services.timers.time += 100
    assert 0 in made.plane.listening


def test_a_cluster_that_learns_share_groups_is_told_once_and_changes_nothing() -> None:
    """State in use must not disappear: a restart decides again."""
    made = parts(config(), local=True)
    made.open(sight({0: A}, [versions(level=0)]))
    for _ in range(2):
        made.seen(sight({0: A}))
    assert made.notes.events.count("share-groups-need-restart") == 1
    assert made.services.serve_share
    assert "share-groups-need-restart" not in _after_a_silent_broker()


def _after_a_silent_broker() -> list[str]:
    made = parts(config(), local=True)
    made.open(sight({0: A}, [versions(level=0)]))
    made.seen(sight({0: A}, silent=True))
    return made.notes.events


def test_the_planned_routes_are_those_of_a_running_proxy() -> None:
    """Share requests are served here, or forwarded, as decided."""
    assert composition.planned_routes(config(), local=True)[header(78, 2)].kind is Kind.LOCAL
    upstream = config(views={"serve": False})  # with views, requests that name one are looked for
    assert composition.planned_routes(upstream, local=False)[header(78, 2)].kind is Kind.RESPONSE


def test_produce_is_looked_into_from_the_moment_a_view_is_known() -> None:
    """A client that sees the very first view may write to it with the next request: that must be refused like any later
    one.
    """
    reactor = Reactor(new_pump)
    settings = config(share_groups={"state": "memory"}, views={"state": "memory"})
    looked: list[bool] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            made = composition.compose(
                settings, reactor, Said(), nursery, sight({0: A}), client_tls=None, upstream_tls=None
            )
            assert made.views is not None
            looked.append(made.plane.routes[header(0, 9)].serve_here is not None)
            made.views.services.catalog.bind("__view.r2.t", Binding(b"v" * 16, b"b" * 16))
            looked.append(made.plane.routes[header(0, 9)].serve_here is not None)
            made.plane.close()
            nursery.cancel_scope.cancel()

    reactor.run(main)
    reactor.shut()
    assert looked == [False, True]


class Connection:
    """Connection with the methods that the request needs."""

    def __init__(self) -> None:
        self.slot_values: SlotValues = {}


def test_connections_are_kept_alive_by_asking_about_the_last_right() -> None:
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
    made = own_settings(config(upstream=upstream, limits={"dial_timeout_s": 3}), None)
    assert (made.server_name, made.limits.dial_timeout_s) == ("n", 3)
    assert (made.identity.username, made.identity.password()) == ("u", "p")
    assert own_settings(config(), None).identity is None


def test_renewal_limits_reach_the_share_requests() -> None:
    """The first that names a group holds; without any renewals are unbounded."""
    written = {"renewal_limits": [{"groups": "jobs-*", "renewals": 3}, {"held_s": 600}]}
    options = share_options(Config.model_validate({"share_groups": written}))
    assert options.renewal_bound("jobs-1") == RenewalBound(groups="jobs-*", renewals=3)
    assert options.renewal_bound("other") == RenewalBound(held_s=600)
    assert share_options(Config()).renewal_bound("any") is None
