"""Names in the proxy's certificate, as clients verify them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from kafka_share_proxy.app.commands import check_certificate
from kafka_share_proxy.app.settings.config import Config

CA = trustme.CA()
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Return the settings with a certificate for these names."""

    def make(*names: str, expires: datetime | None = None, **further: Any) -> Config:
        pair = CA.issue_cert(*names, not_after=expires)
        cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        cert.write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
        key.write_bytes(pair.private_key_pem.bytes())
        tls = {"cert_file": str(cert), "key_file": str(key), "client_ca_file": str(cert)}
        one_port = {"exposure": "sni", "advertise": "kafka.example", "broker_names": "broker-{id}.kafka.example"}
        return Config(**{"listen": "127.0.0.1:9092", "client_tls": tls, **one_port, **further})

    return make


def reported(config: Config, *node_ids: int) -> list[str]:
    names = check_certificate.coverage(config, node_ids)
    return [*check_certificate.mistakes(config, names), *check_certificate.remarks(config, names)]


def test_a_wildcard_covers_every_broker(settings: Any) -> None:
    config = settings("kafka.example", "*.kafka.example")
    assert reported(config, 1, 2) == [
        "client_tls.cert_file covers kafka.example and every broker-{id}.kafka.example by a wildcard"
    ]


def test_names_of_all_brokers_are_enough_until_one_is_added(settings: Any) -> None:
    config = settings("kafka.example", "broker-1.kafka.example", "BROKER-2.kafka.example")
    (remark,) = reported(config, 1, 2)
    assert remark == (
        "client_tls.cert_file names each broker: one that is added needs a new certificate, with its name or with "
        "kafka.example and *.kafka.example"
    )
    (mistake,) = reported(config, 1, 2, 3)
    assert "refuse it for broker-3.kafka.example (Hostname mismatch" in mistake
    assert mistake.endswith("it has to name kafka.example and *.kafka.example")


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["*.kafka.example"], "kafka.example"),
        (["kafka.example"], "broker-1.kafka.example, broker-2.kafka.example"),
        (["kafka.example", "*.example"], "broker-1.kafka.example, broker-2.kafka.example"),
        (["other.example"], "kafka.example, broker-1.kafka.example, broker-2.kafka.example"),
    ],
)
def test_names_that_are_not_covered_are_listed(settings: Any, names: list[str], refused: str) -> None:
    """A wildcard is one whole label (RFC 9525, 6.3)."""
    (mistake,) = reported(settings(*names), 1, 2)
    assert f"refuse it for {refused} (" in mistake


def test_a_wildcard_cannot_cover_an_id_in_a_later_label(settings: Any) -> None:
    config = settings("kafka.example", broker_names="b.{id}.kafka.example")
    (mistake,) = reported(config, 1)
    assert mistake.endswith("it has to name kafka.example and b.{id}.kafka.example")


def test_an_expired_certificate_is_refused(settings: Any) -> None:
    (mistake,) = reported(settings("kafka.example", "*.kafka.example", expires=YESTERDAY), 1)
    assert "(certificate has expired)" in mistake


@pytest.mark.parametrize(("name", "count"), [("proxy.example", 1), ("127.0.0.1", 0)])
def test_with_ports_only_the_advertised_host_is_needed(settings: Any, name: str, count: int) -> None:
    config = settings(name, exposure="ports", advertise=None, broker_names=None)
    assert len(reported(config, 1, 2)) == count


def test_without_tls_nothing_is_reported(settings: Any) -> None:
    assert reported(Config(listen="127.0.0.1:9092"), 1) == []
