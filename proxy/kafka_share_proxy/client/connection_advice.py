"""Advice on what to check when a broker cannot be reached (client/README.md rules 30 and 31)."""

from __future__ import annotations

from kafka_share_proxy.consumer.requests import ANY_NODE

_ADVICE = (
    ("the certificate is not accepted: Hostname", "Use a host name of the broker's certificate in bootstrap="),
    ("the certificate is not accepted: IP address", "Use a host name of the broker's certificate in bootstrap="),
    ("the certificate is not accepted", "Check tls=: the context must trust the authority that signed the certificate"),
    ("TLS handshake failed", "Check whether this port speaks TLS; without TLS leave tls= out"),
    ("TLS: ", "Check whether this port speaks TLS; without TLS leave tls= out"),
    ("a TLS ", "This port speaks TLS: open the consumer with tls=True or with a context of your own"),
    ("as a TLS listener", "Check whether this port speaks TLS (tls=), and whether it is a Kafka broker"),
    ("HTTP", "This is a web server or an HTTP proxy: check the port in bootstrap="),
    ("name resolution", "Check the host name and the resolver"),
    ("not known", "Check the host name"),
    ("No address associated", "Check the host name"),
    ("larger than the limit", "Check whether this port belongs to a Kafka broker"),
    ("before it responded", "Brokers that want SASL or TLS do that: check sasl= and tls="),
    ("has no SASL", ""),
    ("refuses", ""),
    ("does not support", ""),
)
"""The first match counts."""
_BOOTSTRAP = "Check the address in bootstrap=, that a broker runs there, and firewalls"
_ADVERTISED = "This address is from advertised.listeners of the broker: check that it is reachable from this machine"


def connection_advice(text: str, node_id: int) -> str:
    """Return what to check, as one sentence without a full stop. `node_id` ANY_NODE: one of the bootstrap servers."""
    for part, advice in _ADVICE:
        if part in text:
            return advice
    return _BOOTSTRAP if node_id == ANY_NODE else _ADVERTISED
