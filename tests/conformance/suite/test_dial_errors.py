"""Reasons of failed connections."""

from __future__ import annotations

import ssl

import pytest
import trio
from kafka_share_proxy.conformance.suite.dial_errors import dial_error


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "the text of OpenSSL")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "x"), "Connection refused"),
        (OSError("all attempts to connect to h:1 failed"), "all attempts to connect to h:1 failed"),
        (trio.TooSlowError(), "no response in time"),
        (tls_error("WRONG_VERSION_NUMBER"), "TLS: its port seems to be without TLS (--no-tls)"),
        (tls_error("TLSV1_ALERT_UNKNOWN_CA"), "TLS: TLSV1_ALERT_UNKNOWN_CA"),
        (trio.BrokenResourceError(), "BrokenResourceError"),
    ],
)
def test_each_error_has_a_reason(error: Exception, reason: str) -> None:
    assert dial_error(error) == reason


def test_the_cause_of_a_broken_stream_is_the_reason() -> None:
    error = trio.BrokenResourceError()
    error.__cause__ = ssl.SSLCertVerificationError(1, "x")
    error.__cause__.verify_message = "self-signed certificate"
    assert dial_error(error) == "the certificate is not accepted: self-signed certificate (--tls-ca)"


def test_an_address_with_several_ips_has_the_reason_of_each() -> None:
    """A name such as localhost has an IPv6 address too, and Trio tries both."""
    error = OSError("all attempts to connect to localhost:1 failed")
    error.__cause__ = ExceptionGroup("", [ConnectionRefusedError(111, "x"), ConnectionRefusedError(111, "y")])
    assert dial_error(error) == "Connection refused"
    error.__cause__ = ExceptionGroup("", [OSError(101, "x"), ConnectionRefusedError(111, "y")])
    assert dial_error(error) == "Network is unreachable; Connection refused"
    error.__cause__ = ConnectionRefusedError(111, "x")
    assert dial_error(error) == "Connection refused"
