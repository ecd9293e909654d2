"""TLS context of one role (towards clients, brokers or proxies), which a reload replaces.

A connection keeps the context that was current at its handshake. Contexts are replaced, not changed: OpenSSL adds
authorities to a context and never removes one.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(slots=True)
class TlsContext:
    """Holder of the context for the next handshake."""

    current: ssl.SSLContext
