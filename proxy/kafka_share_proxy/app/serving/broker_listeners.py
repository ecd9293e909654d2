"""Listeners for clients: one to bootstrap from, and one for each broker, which follow the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.forwarding.ports import Ports
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address


def address_book(config: Config, on_new: Callable[[int, Address], bool]) -> AddressBook:
    """Return the empty address book of these settings."""
    host, port, is_one_port = config.broker_addresses
    return AddressBook(port, host, on_new, config.upstream.nodes, is_one_port=is_one_port)


class BrokerListeners:
    """Listeners for the bootstrap address and for each broker. They are opened by `open`."""

    def __init__(self, config: Config, notes: Notes, now: Callable[[], float]) -> None:
        self.book = address_book(config, self._bind)
        """Addresses of the listeners. It opens the listener of a new broker before it returns its address."""
        self._config = config
        self._notes = notes
        self._now = now
        self._ports: Ports | None = None
        self._listening: set[int] = set()
        """Brokers that have a listener here."""
        self._refused: dict[int, str] = {}
        self._missing_since: dict[int, float] = {}
        """Time since which brokers are missing from Metadata."""

    def open(self, ports: Ports, cluster: ClusterSnapshot) -> None:
        """Open the listeners for clients.

        Raises:
            OSError: the bootstrap port, or that of a known broker, cannot be bound.
        """
        self._ports = ports
        self.follow(cluster)
        if self._refused:
            reasons = (
                f"broker {node_id} has no listener: {reason}" for node_id, reason in sorted(self._refused.items())
            )
            raise OSError("; ".join(reasons))
        bound, name = self._config.bound, self._config.advertised_host
        ports.listen(UNKNOWN_NODE, bound.host, bound.port, lambda: list(self._config.upstream.bootstrap), name)

    def apply_settings(self, config: Config) -> None:
        """Use other bootstrap servers, and another grace time of vanished brokers."""
        self._config = config

    def follow(self, cluster: ClusterSnapshot) -> list[int]:
        """Return the brokers that lost their listener after the grace time."""
        self.book.retry_unbound()
        for node_id, address in cluster.brokers.items():
            if self.book.advertise(node_id, address) is None:
                self._no_port(node_id)
        return self._forget_vanished(cluster.brokers, self._now()) if cluster.metadata else []

    def state(self) -> dict[str, object]:
        """Return the details for /readyz."""
        brokers = {str(node_id): str(self.book.ours_of(node_id)) for node_id in sorted(self.book.nodes)}
        left_out = {str(node_id): self._refused.get(node_id, "") for node_id in sorted(self.book.unbound)}
        return {"brokers": brokers, "left_out": left_out}

    def vanished(self) -> dict[int, str]:
        """Return brokers that clients still know but Metadata no longer lists: node id -> since when."""
        now = self._now()
        return {
            node_id: f"the cluster has not named it for {now - since:.0f} s"
            for node_id, since in sorted(self._missing_since.items())
        }

    def _bind(self, node_id: int, upstream: Address) -> bool:
        """See AddressBook's `on_new`."""
        if node_id in self._listening:
            return True  # only its upstream address has changed
        client_address = self.book.address_for(node_id)
        if client_address is None or self._ports is None:
            return False

        def targets() -> list[Address]:
            address = self.book.upstream_of(node_id)
            return [] if address is None else [address]

        try:
            if self._config.exposure == "sni":
                self._ports.serve_by_name(node_id, client_address.host, targets)
            else:
                self._ports.listen(node_id, self._config.bound.host, client_address.port, targets, client_address.host)
        except OSError as error:
            return self._not_bound(node_id, error.strerror or str(error))
        self._listening.add(node_id)
        self._refused.pop(node_id, None)
        self._notes(observe.BROKER_LISTENING, node_id=node_id, address=str(client_address), upstream=str(upstream))
        return True

    def _no_port(self, node_id: int) -> None:
        if self.book.address_for(node_id) is None:
            port = self._config.broker_addresses.first_port + node_id
            self._not_bound(node_id, f"its port would be {port}, and ports end at 65535; set a lower first_port")

    def _not_bound(self, node_id: int, reason: str) -> bool:
        if self._refused.get(node_id) != reason:
            self._refused[node_id] = reason
            self._notes(observe.BROKER_NOT_BOUND, node_id=node_id, reason=reason)
        return False

    def _forget_vanished(self, brokers: Mapping[int, Address], now: float) -> list[int]:
        grace_s = self._config.vanished_broker_grace_s
        for node_id in tuple(self.book.nodes):
            if node_id in brokers:
                if self._missing_since.pop(node_id, None) is not None:
                    self._notes(observe.BROKER_BACK, node_id=node_id)
            elif node_id not in self._missing_since:
                self._missing_since[node_id] = now
                self._notes(observe.BROKER_VANISHED, node_id=node_id, grace_s=grace_s)
        over = [node_id for node_id, since in self._missing_since.items() if now - since >= grace_s]
        for node_id in over:
            del self._missing_since[node_id]
            self._forget(node_id)
        return over

    def _forget(self, node_id: int) -> None:
        self._listening.discard(node_id)
        if self._ports is not None:
            self._ports.close_listener(node_id)
        self.book.forget(node_id)
        self._notes(observe.BROKER_FORGOTTEN, node_id=node_id)
