"""Measure the cost of rewriting responses: `python -m tests.bench.rewriting`.

Prints microseconds, the best of several rounds, for responses recorded from a real broker (tests/golden): known by
their bytes (the common case) and new. Target: a small known response at most 1.5 us.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kafka_share_proxy.forwarding.apis import k03_metadata
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Context, Rewrite, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting import address_rewriting
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry

GOLDEN = Path(__file__).parents[1] / "golden" / "4.3.0"
ROUNDS, CALLS = 7, 10_000
KNOWN = (("Metadata", 3, 9), ("Metadata", 3, 12), ("ApiVersions", 18, 3), ("FindCoordinator", 10, 4))
CONTEXT = Context(node_id=1)


def best(work: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds of one call."""
    return min(timeit.repeat(work, number=calls, repeat=ROUNDS)) / calls * 1e6


def metadata(brokers: int) -> memoryview:
    """Build a response that names this many brokers and one topic."""
    message = registry.message("MetadataResponse")
    broker = message.MetadataResponseBroker
    broker_entries = [
        broker(node_id=node_id, host=f"kafka-{node_id}.internal", port=9092) for node_id in range(brokers)
    ]
    topic = message.MetadataResponseTopic(name="orders", topic_id=bytes(16), partitions=[])
    return memoryview(frames.response(3, 12, 1, message(brokers=broker_entries, topics=[topic])))[4:]


def produce() -> memoryview:
    """A response without new leaders."""
    message = registry.message("ProduceResponse")
    partition = message.PartitionProduceResponse(index=0, base_offset=5)
    topic = message.TopicProduceResponse(name="orders", partition_responses=[partition])
    return memoryview(frames.response(0, 12, 1, message(responses=[topic])))[4:]


def responses() -> Iterator[tuple[str, Rewrite | None, memoryview, int]]:
    """(what, its rewriter, the response, how often to call)."""
    book = AddressBook(20000, "proxy.example.org", lambda *_: True)
    routes = route_table.build(book, EffectiveVersions(Offer()), Limits(), {})
    for name, key, version in KNOWN:
        frame = memoryview(bytes.fromhex((GOLDEN / f"{name}.v{version}.hex").read_text()))
        yield f"{name} v{version}, {len(frame)} bytes, known", routes[header(key, version)].rewrite, frame, CALLS
    for brokers in (3, 30):
        rewrite = address_rewriting.rewriter(3, 12, book, k03_metadata.repair, k03_metadata.names_no_broker)
        yield f"Metadata v12, {brokers} brokers, new", rewrite, metadata(brokers), CALLS // 10
    yield "Produce v12 without new leaders", routes[header(0, 12)].rewrite, produce(), CALLS


def main() -> None:
    """Print all figures."""
    for name, rewrite, frame, calls in responses():
        assert rewrite is not None
        print(f"{name}: {best(partial(rewrite, frame, CONTEXT), calls):.2f}")


if __name__ == "__main__":
    main()
