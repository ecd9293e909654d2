"""When connections are closed while others take their clients over."""

from __future__ import annotations

from kafka_share_proxy.forwarding import drain_order
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.drain_order import Spread

from tests.forwarding.plane_world import world


def test_connections_of_one_client_are_far_apart_and_the_first_waits() -> None:
    with world() as w:
        peers = [w.client() for _ in range(6)]
        connections = list(w.plane.connections())
        for number, connection in enumerate(connections):
            connection.software = ClientSoftware("abbbaa"[number])
        times = list(drain_order.due(connections, Spread(delay_s=0.5, seconds=6.0)))
        client_ids = [connection.software.client_id for connection, _ in times if connection.software]
        assert "".join(client_ids) == "ababab"
        assert [after for _, after in times] == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
        for peer in peers:
            peer.close()


def test_processes_that_drain_together_close_at_different_times() -> None:
    with world() as w:
        peer = w.client()
        connections = list(w.plane.connections())
        times = [
            after for share in (0.0, 0.5) for _, after in drain_order.due(connections, Spread(seconds=4.0, share=share))
        ]
        assert times == [0.0, 2.0]
        peer.close()
