"""Rules between several settings."""

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.app.settings import config_consistency
from kafka_share_proxy.app.settings.config import Config

ONE_PORT: dict[str, Any] = {
    "exposure": "sni",
    "advertise": "k.example",
    "broker_names": "b{id}.k.example",
    "client_tls": {"cert_file": __file__, "key_file": __file__},
}


def mistakes_of(**settings: Any) -> dict[str, str]:
    """Mistakes by dotted path, of settings that would work but for these."""
    base: dict[str, Any] = {"listen": "h:9092", "upstream": {"bootstrap": ["a:1"]}}
    upstream = base["upstream"] | settings.pop("upstream", {})
    return {
        ".".join(key): text
        for key, text in config_consistency.mistakes(Config(**{**base, "upstream": upstream, **settings}))
    }


def test_valid_settings_have_no_mistakes() -> None:
    """The base of the tests below."""
    assert mistakes_of() == {}
    assert mistakes_of(cluster={"mode": "fleet", "peer": {"listen": "h:1", "secret": "x" * 16}}) == {}
    assert mistakes_of(cluster={"mode": "fleet", "peer": {"listen": "h:1", "insecure": True}}) == {}


def test_one_port_has_room_for_every_broker() -> None:
    """Node ids are no ports. The names of brokers and the bootstrap name may be alike."""
    assert mistakes_of(**ONE_PORT, upstream={"nodes": {60_000: "a:1"}}) == {}
    assert mistakes_of(**ONE_PORT | {"listen": "h:65535", "advertise_port": 443}) == {}
    assert mistakes_of(**ONE_PORT | {"advertise": "b.k.example"}) == {}
    assert mistakes_of(**ONE_PORT | {"advertise": "b01x.k.example"}) == {}


def test_tls_between_proxies_takes_all_of_its_files() -> None:
    """A name alone, or a certificate without an authority, encrypts nothing: each missing file is named."""
    peer = {"listen": "h:1", "insecure": True}
    files = [f"cluster.peer.tls.{name}" for name in ("ca_file", "cert_file", "key_file")]
    for tls, missing in (({"server_name": "h"}, files), ({"cert_file": __file__, "key_file": __file__}, files[:1])):
        mistakes = mistakes_of(cluster={"mode": "fleet", "peer": {**peer, "tls": tls}})
        assert sorted(mistakes) == missing


def test_secret_of_a_fleet_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"sixteen bytes ok\r\n")
    peer = {"listen": "0.0.0.0:1", "advertise": "h:2", "secret_file": str(file)}
    config = Config(listen="h:9092", cluster={"mode": "fleet", "peer": peer})
    assert config.cluster.peer.key() == b"sixteen bytes ok"
    assert str(config.peer_address) == "h:2"
    assert Config(listen="h:9092").peer_address is None


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"admin": "h:9092"}, "admin"),
        ({"cluster": {"mode": "fleet", "peer": {"secret": "x" * 16}}}, "cluster.peer.listen"),
        ({"cluster": {"mode": "fleet", "peer": {"listen": "h:1"}}}, "cluster.peer.secret"),
        ({"cluster": {"mode": "fleet", "peer": {"listen": "h:1", "secret": "short"}}}, "cluster.peer.secret"),
        ({"cluster": {"mode": "fleet", "peer": {"listen": "0.0.0.0:1", "insecure": True}}}, "cluster.peer.advertise"),
        (
            {"cluster": {"mode": "fleet", "peer": {"listen": "h:1", "secret": "x" * 16, "secret_file": __file__}}},
            "cluster.peer.secret",
        ),
        (
            {"cluster": {"mode": "fleet", "peer": {"listen": "h:1", "secret_file": "/nowhere"}}},
            "cluster.peer.secret_file",
        ),
        (
            {
                "cluster": {"mode": "fleet", "peer": {"listen": "h:1", "insecure": True}},
                "share_groups": {"state": "memory"},
            },
            "share_groups.state",
        ),
        ({"cluster": {"peer": {"secret": "x" * 16}}}, "cluster.peer.secret"),
        ({"cluster": {"peer": {"tls": {"cert_file": __file__}}}}, "cluster.peer.tls"),
        (
            {
                "cluster": {
                    "mode": "fleet",
                    "peer": {
                        "listen": "h:1",
                        "insecure": True,
                        "tls": {"cert_file": __file__, "key_file": __file__, "ca_file": "/nowhere"},
                    },
                }
            },
            "cluster.peer.tls.ca_file",
        ),
        ({"listen": "0.0.0.0:1"}, "advertise"),
        ({"listen": "[::]:1"}, "advertise"),
        ({"listen": "h:65535"}, "listen"),
        ({"upstream": {"nodes": {60000: "a:1"}}}, "upstream.nodes.60000"),
        ({"upstream": {"sasl": {"username": "u"}}}, "upstream.sasl.mechanism"),
        ({"upstream": {"sasl": {"mechanism": "PLAIN", "username": "u"}}}, "upstream.sasl.password"),
        ({"upstream": {"sasl": {"mechanism": "PLAIN", "password": "p"}}}, "upstream.sasl.username"),
        ({"upstream": {"tls": {"enabled": False, "verify": False}}}, "upstream.tls.enabled"),
        ({"client_tls": {"client_ca_file": __file__}}, "client_tls.cert_file"),
        ({"client_tls": {"cert_file": __file__}}, "client_tls.key_file"),
        ({"upstream": {"tls": {"key_file": __file__}}}, "upstream.tls.cert_file"),
        ({"share_groups": {"broker": {"group.share.max.size": "many"}}}, "share_groups.broker.group.share.max.size"),
        ({"broker_names": "b{id}.k.example"}, "broker_names"),
        ({"advertise_port": 443}, "advertise_port"),
        (ONE_PORT | {"client_tls": {}}, "client_tls.cert_file"),
        (ONE_PORT | {"first_port": 9093}, "first_port"),
        (ONE_PORT | {"advertise": None}, "advertise"),
        (ONE_PORT | {"advertise": "127.0.0.1"}, "advertise"),
        (ONE_PORT | {"advertise": "B7.k.example"}, "advertise"),
        (ONE_PORT | {"broker_names": None}, "broker_names"),
        (ONE_PORT | {"broker_names": "b.k.example"}, "broker_names"),
        (ONE_PORT | {"broker_names": "b{id}{id}.k.example"}, "broker_names"),
        (ONE_PORT | {"broker_names": "b{id}"}, "broker_names"),
        ({"limits": {"nonsense": 1}}, "limits.nonsense"),
        ({"limits": {"local_answers_total_bytes": 1000}}, "limits.local_answers_total_bytes"),
    ],
)
def test_each_impossible_combination_is_named_by_its_path(settings: dict[str, Any], path: str) -> None:
    """The path is the setting to change."""
    assert path in mistakes_of(**settings)


def test_a_password_twice_is_a_mistake(tmp_path: Path) -> None:
    """It would be unclear which one applies."""
    file = tmp_path / "p"
    file.write_text("x")
    sasl = {"mechanism": "PLAIN", "username": "u", "password": "p", "password_file": str(file)}
    assert "upstream.sasl.password" in mistakes_of(upstream={"sasl": sasl})
    del sasl["password"]
    assert mistakes_of(upstream={"sasl": sasl}) == {}


def test_missing_files_are_named() -> None:
    """With the system's own words."""
    mistakes = mistakes_of(client_tls={"cert_file": "/nowhere/c", "key_file": "/nowhere/k"})
    assert mistakes == {
        "client_tls.cert_file": "cannot read /nowhere/c: No such file or directory",
        "client_tls.key_file": "cannot read /nowhere/k: No such file or directory",
    }


def test_tracing_needs_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mistakes_of(tracing={"export": "otlp"}) == {}
    monkeypatch.setattr(config_consistency, "TRACING_LIBRARIES", ("opentelemetry.absent.deeper",))
    assert mistakes_of(tracing={"export": "none"}) == {}
    mistakes = mistakes_of(tracing={"export": "otlp"})
    assert "pip install 'kafka-share-proxy[tracing]'" in mistakes["tracing.export"]
