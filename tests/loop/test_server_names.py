"""TLS server names: known ones are accepted, others get the alert unrecognized_name."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
import trustme
from kafka_share_proxy.loop.server_names import NamedObject, ServerNames

CA = trustme.CA()
ADVICE = "use kafka.example"


def server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("*.kafka.example").configure_cert(context)
    return context


def shake(context: ssl.SSLContext, name: str | None, version: ssl.TLSVersion) -> tuple[NamedObject, str]:
    """Return the server's side, and the alert that the client received."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(trusting)
    trusting.check_hostname = False
    trusting.maximum_version = version
    accepting = context.wrap_bio(inbound, outbound, server_side=True)
    dialling = trusting.wrap_bio(outbound, inbound, server_hostname=name)
    alert = ""
    for _ in range(4):
        try:
            dialling.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            alert = str(error.reason)
            break
        with suppress(ssl.SSLError):
            accepting.do_handshake()
    assert isinstance(accepting, NamedObject)
    return accepting, alert


@pytest.fixture
def context() -> ssl.SSLContext:
    tls_context = server()
    ServerNames({"broker-1.kafka.example"}.__contains__, ADVICE).require(tls_context)
    return tls_context


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
@pytest.mark.parametrize("name", ["broker-1.kafka.example", "BROKER-1.Kafka.Example"])
def test_a_known_name_is_noted_in_small_letters(context: ssl.SSLContext, name: str, version: ssl.TLSVersion) -> None:
    """Names are compared without case (RFC 6066, section 3)."""
    accepted, alert = shake(context, name, version)
    assert (accepted.server_name, accepted.refusal, alert) == ("broker-1.kafka.example", "", "")
    assert accepted.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


@VERSIONS
@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        (None, "no TLS server name (SNI): use kafka.example"),
        ("broker-2.kafka.example", "unknown TLS server name 'broker-2.kafka.example': use kafka.example"),
    ],
)
def test_any_other_name_and_none_get_unrecognized_name(
    context: ssl.SSLContext, name: str | None, refusal: str, version: ssl.TLSVersion
) -> None:
    refused, alert = shake(context, name, version)
    assert (refused.server_name, refused.refusal, alert) == (None, refusal, "TLSV1_UNRECOGNIZED_NAME")


def test_names_are_read_when_a_client_connects(context: ssl.SSLContext) -> None:
    known = set[str]()
    later = server()
    names = ServerNames(known.__contains__, ADVICE)
    names.require(later)
    names.require(later)
    assert shake(later, "new.kafka.example", ssl.TLSVersion.TLSv1_3)[1]
    known.add("new.kafka.example")
    assert shake(later, "new.kafka.example", ssl.TLSVersion.TLSv1_3)[0].server_name == "new.kafka.example"
