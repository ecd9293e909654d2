"""`check`: its requests, its conclusions, its report for people."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import trio
from kafka_share_proxy.app.commands.check import Findings, inspect, judge, show
from kafka_share_proxy.app.commands.check_certificate import CertificateNames
from kafka_share_proxy.app.commands.check_listeners import Listening
from kafka_share_proxy.app.serving.open_files import ClientCapacity
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.hostports import parse_address
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, Identity
from kafka_share_proxy.sharegroups.checks import GROUPS_SHOWN, ShareFindings
from kafka_share_proxy.sharegroups.settings import ShareGroups
from kafka_share_proxy.wire.values import Address
from rich.console import Console

from tests.support.small_broker import RANGES, Broker, Net

PLAIN = {"mechanism": "PLAIN", "username": "proxy", "password": "s3cret"}
A, B1, B2, B70 = Address("a", 1), Address("b1", 9092), Address("b2", 9092), Address("b70000", 9092)


def config(**settings: Any) -> Config:
    return Config(**{"listen": "h:19092", "upstream": {"bootstrap": ["a:1"]}, **settings})


async def found_by(
    brokers: dict[Address, Broker | None], settings: Config | None = None, identity: Identity | None = None
) -> Findings:
    async with trio.open_nursery() as nursery:
        chosen = settings or config()
        upstream, own = chosen.upstream, ClusterClientSettings(connect=Net(nursery, brokers), identity=identity)
        result = await inspect(chosen, ClusterClient(upstream.bootstrap, own, upstream.nodes))
        nursery.cancel_scope.cancel()
    return result


def printed(settings: Config, findings: Findings) -> str:
    stream = io.StringIO()
    show(settings, findings, judge(settings, findings), Console(file=stream, width=120), apis=True)
    return stream.getvalue()


async def test_brackets_of_settings_are_printed_as_they_are(autojump_clock: trio.testing.MockClock) -> None:
    """Not read as markup of the terminal library."""
    settings = config(advertise="fd00::5", commits={"groups": "[a-z]*", "state": "memory"})
    broker = Broker(1)
    findings, stream = await found_by({A: broker, B1: broker}, settings), io.StringIO()
    works = replace(judge(settings, findings), obstacles=())
    show(settings, findings, works, Console(file=stream, width=120))
    assert "Clients bootstrap from [fd00::5]:19092." in stream.getvalue()
    assert "groups [a-z]*" in stream.getvalue()


async def test_a_cluster_that_works_has_no_obstacles(autojump_clock: trio.testing.MockClock) -> None:
    """Brokers with the addresses they become, versions, and where share groups live."""
    broker = Broker(1)
    findings = await found_by({A: broker, B1: broker})
    verdict = judge(config(), findings)
    assert verdict.obstacles == ()
    assert verdict.common == RANGES
    assert verdict.offered[1] == (4, 15)
    text = printed(config(), findings)
    assert "b1:9092" in text
    assert "h:19094" in text
    assert "Share groups: all served by the brokers" in text
    assert "Clients bootstrap from h:19092" in text


async def test_share_groups_here_are_shown_as_such(autojump_clock: trio.testing.MockClock) -> None:
    """An old broker's share APIs come from the proxy."""
    broker = Broker(1, ranges={key: versions for key, versions in RANGES.items() if key != 78})
    findings = await found_by({A: broker, B1: broker})
    verdict = judge(config(), findings)
    assert (verdict.offered[78], 78 in verdict.common) == ((1, 2), False)
    line = next(line for line in printed(config(), findings).splitlines() if "ShareFetch" in line)
    assert "1-2" in line
    assert "proxy" in line


async def test_share_groups_that_are_chosen_one_by_one_are_shown_as_such(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Brokers that have them, and a rule that keeps some here."""
    broker = Broker(1)
    settings = config(share_groups={"state": "memory", "serve_by_group": [{"groups": "a*", "serve": "local"}]})
    text = printed(settings, await found_by({A: broker, B1: broker}, settings))
    assert "Share groups: served by the proxy or the brokers, by group" in text


async def test_no_reachable_broker_is_an_obstacle_with_every_reason(autojump_clock: trio.testing.MockClock) -> None:
    """Each server with what is wrong with it."""
    settings = config(upstream={"bootstrap": ["a:1", "b:2"]})
    verdict = judge(settings, await found_by({}, settings))
    assert [text.split(": ", 1)[1] for text in verdict.obstacles] == [
        "a:1: Connection refused",
        "b:2: Connection refused",
    ]


async def test_one_server_that_is_down_is_a_remark(autojump_clock: trio.testing.MockClock) -> None:
    """The others are enough."""
    settings = config(upstream={"bootstrap": ["a:1", "b:2"]})
    broker = Broker(1)
    verdict = judge(settings, await found_by({A: broker, B1: broker}, settings))
    assert verdict.obstacles == ()
    assert any("b:2" in remark for remark in verdict.remarks)


async def test_a_broker_without_topic_ids_cannot_have_share_groups_here(autojump_clock: trio.testing.MockClock) -> None:
    """Metadata with topic ids is needed, and the sentence says so."""
    broker = Broker(1, ranges={**RANGES, 3: (0, 9), 78: (1, 1)})
    verdict = judge(config(), await found_by({A: broker, B1: broker}))
    assert any("topic ids" in obstacle for obstacle in verdict.obstacles)


async def test_a_broker_id_without_port_is_an_obstacle(autojump_clock: trio.testing.MockClock) -> None:
    """Before anybody starts the proxy."""
    broker = Broker(60_000)
    verdict = judge(config(), await found_by({A: broker, Address("b60000", 9092): broker}))
    assert any("65535" in obstacle for obstacle in verdict.obstacles)


@pytest.mark.parametrize(
    ("settings", "identity", "obstacle", "remark"),
    [
        ({}, None, "no identity of its own", ""),
        ({"nodes": {1: "b1:9092"}}, None, "", "no identity of its own"),
        ({"sasl": {"mechanism": "PLAIN", "username": "proxy", "password": "s3cret"}}, "s3cret", "", ""),
        ({"sasl": {"mechanism": "PLAIN", "username": "proxy", "password": "x"}}, "x", "identity does not work", ""),
    ],
)
async def test_authentication_upstream_needs_an_identity_or_a_list_of_brokers(
    settings: dict[str, Any], identity: str | None, obstacle: str, remark: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Without either the proxy cannot know the brokers; a wrong password is a mistake in any case."""
    broker = Broker(1, mechanism="PLAIN")
    upstream = {"bootstrap": ["a:1"], **settings}
    own = None if identity is None else Identity(mechanism="PLAIN", username="proxy", password=lambda: identity)
    findings = await found_by({A: broker, B1: broker}, config(upstream=upstream), own)
    verdict = judge(config(upstream=upstream), findings)
    assert findings.mechanisms == ("PLAIN",)
    assert bool(verdict.obstacles) == bool(obstacle)
    assert obstacle in " ".join(verdict.obstacles)
    assert remark in " ".join(verdict.remarks)


async def test_an_identity_that_is_refused_is_not_followed_by_features_that_work(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With a wrong password the proxy cannot keep state: no line below the obstacle may promise share groups."""
    broker = Broker(1, mechanism="PLAIN", ranges={key: versions for key, versions in RANGES.items() if key != 78})
    settings = config(upstream={"bootstrap": ["a:1"], "sasl": PLAIN | {"password": "wrong"}})
    identity = Identity(mechanism="PLAIN", username="proxy", password=lambda: "wrong")
    text = printed(settings, await found_by({A: broker, B1: broker}, settings, identity))
    assert "the proxy's own identity does not work" in text
    assert "Share groups: will be off, for the reasons above (not every broker serves them)." in text
    assert "Share groups: all served" not in text
    assert "Views: served by the proxy with the limits above" in text


def test_without_any_broker_no_features_are_reported() -> None:
    text = printed(config(), Findings(servers={A: ""}))
    assert "Share groups, individual commits and views: not known, because no broker could be queried." in text


async def test_share_groups_without_an_identity_are_shown_as_off(autojump_clock: trio.testing.MockClock) -> None:
    """The brokers are known from upstream.nodes; state in a topic needs an identity."""
    broker = Broker(1, mechanism="PLAIN", ranges={key: versions for key, versions in RANGES.items() if key != 78})
    settings = config(upstream={"bootstrap": ["a:1"], "nodes": {1: "b1:9092"}})
    text = printed(settings, await found_by({A: broker, B1: broker}, settings))
    assert "share groups will be off: their state is kept in a topic" in text
    assert "Share groups: will be off, for the reasons above (not every broker serves them)." in text
    assert "Individual commits: will be off, for the reasons above." in text
    text = printed(settings.model_copy(update={"share_groups": ShareGroups(state="memory")}), Findings())
    assert "will be off" not in text


def test_mechanisms_that_are_bound_to_the_broker_s_host_cannot_pass() -> None:
    """GSSAPI alone would not work; next to another mechanism it is a remark."""
    base = {"servers": {A: ""}, "brokers": {}, "metadata": None}
    only = judge(config(), Findings(**base, mechanisms=("GSSAPI",)))
    beside = judge(config(), Findings(**base, mechanisms=("GSSAPI", "SCRAM-SHA-512")))
    assert any("GSSAPI" in obstacle for obstacle in only.obstacles)
    assert not any("GSSAPI" in obstacle for obstacle in beside.obstacles)
    assert any("GSSAPI" in remark for remark in beside.remarks)


def test_certificates_do_not_pass_through() -> None:
    """Neither the clients' nor more than the proxy's one."""
    settings = config(
        upstream={"bootstrap": ["a:1"], "tls": {"cert_file": "c", "key_file": "k"}},
        client_tls={"cert_file": "c", "key_file": "k", "client_ca_file": "ca"},
    )
    remarks = " ".join(judge(settings, Findings(servers={A: ""})).remarks)
    assert "the proxy's certificate for every client" in remarks
    assert "brokers never see them" in remarks


def test_share_groups_of_the_brokers_that_would_be_hidden_are_named() -> None:
    """Serving here hides what lives there."""
    settings = config(share_groups={"serve": "local"})
    findings = ShareFindings(groups=tuple(f"g{number}" for number in range(2 * GROUPS_SHOWN)))
    cluster_findings = Findings(servers={A: ""}, of_features={"share groups": findings})
    remark = next(text for text in judge(settings, cluster_findings).remarks if "share groups of their own" in text)
    assert "g0, g1" in remark
    assert f"g{GROUPS_SHOWN}," not in remark


def test_share_groups_placed_where_they_are_not_served_are_reported() -> None:
    """The setting is obeyed, and doubted."""
    settings = config(share_groups={"serve": "upstream"})
    remarks = judge(settings, Findings(servers={A: ""}, versions={})).remarks
    assert any("not every broker serves share groups" in remark for remark in remarks)


async def test_share_groups_upstream_are_found_by_a_request(autojump_clock: trio.testing.MockClock) -> None:
    """Groups of other types do not matter here."""
    broker = Broker(1)
    broker.groups = {"mine": "share", "other": "classic"}
    cluster_findings = await found_by({A: broker, B1: broker})
    findings = cluster_findings.of_features["share groups"]
    assert (findings.groups, findings.sees_all_groups) == (("mine",), True)


async def test_an_identity_that_may_not_see_all_groups_is_remarked(autojump_clock: trio.testing.MockClock) -> None:
    """Silence about groups is no proof then."""
    broker = Broker(1)
    broker.cluster_bits = 0
    findings = await found_by({A: broker, B1: broker})
    remarks = judge(config(share_groups={"serve": "local"}), findings).remarks
    assert any("may not DESCRIBE the cluster" in remark for remark in remarks)


async def test_what_the_limit_of_open_files_leaves_is_shown(autojump_clock: trio.testing.MockClock) -> None:
    broker = Broker(1)
    findings = await found_by({A: broker, B1: broker})
    findings.capacity = ClientCapacity(20_256, 10_000)
    assert "Client connections: up to 10000 (limit of open files: 20256)" in printed(config(), findings)
    assert not any("open files" in remark for remark in judge(config(), findings).remarks)
    findings.capacity = ClientCapacity(1024, 384)
    text = printed(config(), findings)
    assert "Client connections: up to 384 (limit of open files: 1024)" in text
    assert "note: the limit of open files (1024) leaves room for 384 client connections" in text
    findings.capacity = ClientCapacity(128, 0)
    assert any("no room for client connections" in obstacle for obstacle in judge(config(), findings).obstacles)


def free(purpose: str, address: str, trouble: str = "") -> Listening:
    return Listening(purpose=purpose, address=parse_address(address), trouble=trouble)


def test_a_listener_that_cannot_be_opened_is_an_obstacle() -> None:
    """Each has its verdict in the table, and a sentence."""
    listening = (free("bootstrap", "h:19092"), free("broker 1", "h:19094", "Address already in use"))
    findings = Findings(servers={A: ""}, listening=listening)
    assert "cannot listen on h:19094 (broker 1): Address already in use" in judge(config(), findings).obstacles
    text = printed(config(), findings)
    assert [line.count("free") for line in text.splitlines() if "h:19092" in line and "bootstrap " in line] == [1]
    assert any("h:19094" in line and "already in use" in line for line in text.splitlines() if "│" in line)


def test_an_address_of_a_broker_is_an_obstacle() -> None:
    """Clients would receive the broker's address."""
    findings = Findings(servers={A: ""}, brokers={1: Address("h", 19094)})
    obstacles = judge(config(), findings).obstacles
    assert [text for text in obstacles if "bypass the proxy" in text] == [
        "broker 1 becomes h:19094, which is a broker's own address: clients would bypass the proxy; choose another"
    ]


def test_the_summary_is_first_and_the_apis_are_last_on_demand() -> None:
    """Required actions are listed first."""
    findings = Findings(servers={A: ""}, silent={3: "Connection refused"})
    stream = io.StringIO()
    show(config(), findings, judge(config(), findings), Console(file=stream, width=120))
    assert "API versions" not in stream.getvalue()
    text = printed(config(), findings)
    assert text.startswith("This would")
    assert text.index("note: broker 3") < text.index("Share groups") < text.index("API versions")


@pytest.mark.parametrize(
    ("upstream", "mechanisms", "warning"),
    [
        ({"sasl": PLAIN}, (), "do not require authentication"),
        ({"sasl": PLAIN}, ("PLAIN",), "goes to the brokers unencrypted"),
        ({}, ("PLAIN",), "send their passwords unencrypted to the proxy"),
    ],
)
def test_identities_that_are_set_in_vain_or_sent_in_the_clear_are_warned_of(
    upstream: dict[str, Any], mechanisms: tuple[str, ...], warning: str
) -> None:
    """They work, so that the mistake would stay unnoticed."""
    settings = config(upstream={"bootstrap": ["a:1"], **upstream})
    verdict = judge(settings, Findings(servers={A: ""}, mechanisms=mechanisms))
    assert any(warning in text for text in verdict.warnings), verdict.warnings


def test_scram_over_tls_is_not_warned_of() -> None:
    """Nothing to warn of, no warning."""
    sasl = PLAIN | {"mechanism": "SCRAM-SHA-512"}
    settings = config(upstream={"bootstrap": ["a:1"], "sasl": sasl, "tls": {"enabled": True}})
    assert judge(settings, Findings(servers={A: ""}, mechanisms=("SCRAM-SHA-512",))).warnings == ()


async def test_with_one_port_brokers_are_shown_by_name(autojump_clock: trio.testing.MockClock) -> None:
    """And what the certificate says about these names."""
    settings = config(exposure="sni", advertise="kafka.example", advertise_port=443, broker_names="b{id}.kafka.example")
    broker = Broker(70_000)
    findings = await found_by({A: broker, B70: broker}, settings)
    findings.certificate = CertificateNames({"b70000.kafka.example": "Hostname mismatch"}, any_broker=False)
    verdict = judge(settings, findings)
    assert verdict.obstacles == ()
    assert any("refuse it for b70000.kafka.example (Hostname mismatch)" in text for text in verdict.warnings)
    text = printed(settings, findings)
    assert "b70000.kafka.example:443" in text
    assert "Clients bootstrap from kafka.example:443" in text
    findings.certificate = CertificateNames({}, any_broker=True)
    assert any("every b{id}.kafka.example by a wildcard" in text for text in judge(settings, findings).remarks)
