"""Record responses of a real broker: `python -m tests.golden.record RELEASE [TOPIC]` (run by hand, needs Java).

Starts one broker of a release known to localkafka, with the rack "rack-a" and one topic, sends each request below in
every version that it serves, and writes tests/golden/RELEASE/<api>.v<N>.hex: response frames without size.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "proxy")]

from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402
from kafka_share_proxy.wire.codec import frames  # noqa: E402
from kafka_share_proxy.wire.definitions import registry  # noqa: E402

CLIENT_ID = "golden"
REQUESTED = ("ApiVersions", "Metadata", "FindCoordinator", "DescribeCluster")
KEYS = {name: key for key, name in registry.API_KEYS.items()}
ATTEMPTS = 50


def query(name: str, version: int, topic: str) -> Any:
    """One request worth recording."""
    message = registry.message(f"{name}Request")
    if name == "ApiVersions":
        return message(client_software_name="golden", client_software_version="1")
    if name == "Metadata":
        return message(topics=[message.MetadataRequestTopic(name=topic)])
    if name == "FindCoordinator":
        return message(key="a-group") if version < 4 else message(coordinator_keys=["a-group", "another-group"])
    return message()


def send_request(address: tuple[str, int], key: int, version: int, message: Any) -> bytes:
    """Send one request on a new connection. Return the response frame without size."""
    with socket.create_connection(address, timeout=10) as connection, connection.makefile("rb") as response:
        connection.sendall(frames.request(key, version, 7, CLIENT_ID, message))
        return response.read(int.from_bytes(response.read(4), "big"))


def served(address: tuple[str, int]) -> dict[int, tuple[int, int]]:
    """API key -> versions."""
    frame = send_request(address, 18, 3, query("ApiVersions", 3, ""))
    listed = frames.decode_response(18, 3, frame)[1].api_keys
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in listed}


def create_topic(address: tuple[str, int], topic: str) -> None:
    """A topic with two partitions, and wait until it has leaders."""
    message = registry.message("CreateTopicsRequest")
    created = message.CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    send_request(address, KEYS["CreateTopics"], 7, message(topics=[created], timeout_ms=10_000))
    for _ in range(ATTEMPTS):
        metadata = frames.decode_response(3, 12, send_request(address, 3, 12, query("Metadata", 12, topic)))[1]
        if len(metadata.topics[0].partitions) == 2 and all(p.leader_id >= 0 for p in metadata.topics[0].partitions):
            return
        time.sleep(0.1)
    raise SystemExit(f"{topic} has no leaders")


def wait_for_coordinator(address: tuple[str, int]) -> None:
    """The first request about a group makes the broker create its offsets topic."""
    for _ in range(ATTEMPTS):
        response = send_request(address, 10, 4, query("FindCoordinator", 4, ""))
        if all(coordinator.error_code == 0 for coordinator in frames.decode_response(10, 4, response)[1].coordinators):
            return
        time.sleep(0.1)
    raise SystemExit("no coordinator")


def recordings(address: tuple[str, int], topic: str) -> Iterator[tuple[str, int, bytes]]:
    """(API, version, frame); also an ApiVersions version the broker does not have."""
    ranges = served(address)
    for name in REQUESTED:
        key = KEYS[name]
        first, last = registry.versions(key)
        for version in range(max(first, ranges[key][0]), min(last, ranges[key][1]) + 1):
            yield name, version, send_request(address, key, version, query(name, version, topic))
    unknown = registry.versions(18)[1]
    if unknown > ranges[18][1]:
        yield "ApiVersions", unknown, send_request(address, 18, unknown, query("ApiVersions", unknown, ""))


def main(release: str, topic: str = "orders") -> None:
    """Record one release."""
    folder = Path(__file__).parent / release
    folder.mkdir(exist_ok=True)
    with Cluster(release, Path(tempfile.mkdtemp()) / "kafka", properties={"broker.rack": "rack-a"}) as kafka:
        host, port = kafka.bootstrap.split(":")
        address = host, int(port)
        create_topic(address, topic)
        wait_for_coordinator(address)
        for name, version, frame in recordings(address, topic):
            (folder / f"{name}.v{version}.hex").write_text(frame.hex() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
