"""The holder of a TLS context. Handshakes that use it are in test_handshakes and tests/app/serving/test_reloading."""

from __future__ import annotations

import ssl

from kafka_share_proxy.loop.tls_context import TlsContext


def test_a_replaced_context_is_the_one_for_the_next_handshake() -> None:
    first, second = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    held = TlsContext(first)
    kept_by_a_listener = held
    held.current = second
    assert kept_by_a_listener.current is second
