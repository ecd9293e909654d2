"""Addresses of the brokers for clients: by port, or by name (forwarding/README.md rules 9 and 47)."""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.wire.values import Address

PORT_MAX = 65535
NODE_MAX = 2**31 - 1
"""Highest node id."""
NODE_ID = "{id}"
"""Place of the node id in the pattern of names."""


class BrokerAddresses(NamedTuple):
    """Addresses of all brokers."""

    host: str
    """Host of all brokers, or the pattern of their names."""
    first_port: int
    """Port of the broker with node id 0."""
    is_one_port: bool = False
    """True if all brokers have the first port, and each its own name."""

    def of(self, node_id: int) -> Address | None:
        """Return the address of a broker. None if it would have no valid port."""
        if node_id < 0:
            return None
        if self.is_one_port:
            return Address(self.host.replace(NODE_ID, str(node_id)), self.first_port)
        port = self.first_port + node_id
        return Address(self.host, port) if port <= PORT_MAX else None
