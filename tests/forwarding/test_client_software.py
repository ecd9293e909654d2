"""Client id, name and version that clients send in ApiVersions (KIP-511)."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.client_software import FRAME_BYTES_MAX, ClientSoftware, read
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages

from tests.forwarding.plane_world import API_VERSIONS, request, response, world


def api_versions(version: int, client_id: str | None, **fields: str) -> bytes:
    return frames.request(18, version, 7, client_id, messages.ApiVersionsRequest(**fields))


@pytest.mark.parametrize(
    ("frame", "software"),
    [
        (api_versions(0, "me"), ClientSoftware("me")),
        (api_versions(0, None), ClientSoftware("")),
        (
            api_versions(3, "me", client_software_name="librdkafka", client_software_version="2.16"),
            ClientSoftware("me", "librdkafka", "2.16"),
        ),
    ],
)
def test_client_id_name_and_version_are_read(frame: bytes, software: ClientSoftware) -> None:
    assert read(memoryview(frame)[4:]) == software


def test_garbage_and_large_requests_are_not_read() -> None:
    assert read(memoryview(api_versions(3, "me"))[4:-1]) is None
    assert read(memoryview(api_versions(3, "me", client_software_name="x" * FRAME_BYTES_MAX))[4:]) is None


def test_a_connection_has_the_software_of_its_first_readable_api_versions() -> None:
    """Later ones pass as other requests do, because some clients repeat it."""
    with world() as w:
        client = w.client()
        (connection,) = w.plane.connections()
        client.send(request(API_VERSIONS, 3, 1, b"\xff"))
        w.iterate_until(lambda: w.brokers)
        (broker,) = w.brokers
        broker.expect(request(API_VERSIONS, 3, 1, b"\xff"))
        assert connection.software is None
        for name in ("first", "second"):
            frame = api_versions(3, name, client_software_name="app", client_software_version="1")
            client.send(frame)
            broker.expect(frame)
            assert connection.software == ClientSoftware("first", "app", "1")
        broker.send(response(1) + response(7) + response(7))
        client.expect(response(1) + response(7) + response(7))
        w.plane.use_routes(w.routes)
        assert connection.passing is w.plane.passing.described
